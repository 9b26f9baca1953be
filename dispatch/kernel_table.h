// The kernel table: who registers what, and what is found.
//
// A wrapper key's cell holds one kernel. A backend key's cell holds named variants in three forms: `call` (a function
// over materialised tensors), `emit` (builds the op's part of a kernel description, so it fuses) and `library` (a call
// that a compiled plan may also use as a step of its own). dtype sets are folded into one pointer per dtype when a
// variant is registered, so that only shape predicates are tested per call.
#pragma once

#include <array>
#include <source_location>
#include <string>
#include <vector>

#include "dispatch/backend.h"
#include "dispatch/operator.h"
#include "ir/graph.h"

namespace fermata {

enum class KernelForm : std::uint8_t { call, emit, library };
std::string_view name(KernelForm form);

/// The innermost loop of a pointwise op over contiguous or splat operands: the eager path for small dense tensors.
using InnerLoop = void (*)(void* out, const void* const* in, const bool* splat, std::int64_t n);

struct KernelVariant {
  std::string name;                       // "simd", "jit", "onednn"
  KernelForm form = KernelForm::call;
  DTypeSet dtypes;                        // operand dtypes it accepts
  CallKernel call = nullptr;              // call and library forms
  bool (*fits)(const CallArgs&) = nullptr;     // shape predicate; null: always
  double (*cost)(const CallArgs&) = nullptr;   // predicted ns; null: by bytes
  std::array<InnerLoop, kDTypeCount> inner{};  // call form, pointwise ops, by operand dtype
  std::string fits_text = {};             // the predicate in words, for explain
  std::source_location where = std::source_location::current();
};

/// All variants of one (op, backend), in order of registration.
struct BackendCell {
  std::vector<KernelVariant> variants;
  std::array<CallKernel, kDTypeCount> only_call{};   // the one callable variant of a dtype, where there is no choice
  std::array<InnerLoop, kDTypeCount> inner{};
  DTypeSet emits;                                    // dtypes with an emit variant
};

/// Wrapper kernels. Registering twice for one cell is an error; the signature must be the operator's.
template <class Signature>
void set_kernel(Op op, std::size_t cell, typename Dispatcher<Signature>::Kernel kernel,
                std::source_location where = std::source_location::current());
void set_kernel(Op op, std::size_t cell, ErasedKernel kernel, const std::type_info& signature,
                std::source_location where);
template <class Signature>
void set_kernel(Op op, std::size_t cell, typename Dispatcher<Signature>::Kernel kernel, std::source_location where) {
  set_kernel(op, cell, reinterpret_cast<ErasedKernel>(kernel), typeid(Signature), where);
}
/// The call is passed on as if the key were not there.
void set_fallthrough(Op op, Functionality key);
void add_variant(Op op, BackendKey backend, KernelVariant variant);

/// The callable variant that wins for these arguments: the cheapest that fits. UnsupportedError names the dtype and
/// those that have kernels.
const KernelVariant& select_call(const OperatorEntry& entry, BackendKey backend, DType operand, const CallArgs& args,
                                 std::source_location where);
const BackendCell* backend_cell(Op op, BackendKey backend);

/// One line per filled cell of an op's row, with where each kernel was registered: what `fermata ops NAME` prints.
std::string describe_operator(Op op);

}  // namespace fermata
