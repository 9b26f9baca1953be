// The kernel table: who registers what, and what is found.
//
// A wrapper key's cell holds one kernel. A backend key's cell holds named variants in three forms: `call` (a function
// over materialized tensors), `emit` (builds the op's part of a kernel description, so it fuses) and `library` (a call
// that a compiled plan may also use as a step of its own). dtype sets are folded into one pointer per dtype when a
// variant is registered, so that only shape predicates are tested per call.
#pragma once

#include <array>
#include <source_location>
#include <string>
#include <vector>

#include "dispatch/backend.h"
#include "dispatch/operator.h"
#include "dispatch/registration.h"
#include "ir/graph.h"
#include "runtime/steps/open_choice.h"

namespace fermata {

enum class KernelForm : std::uint8_t { call, emit, library };
std::string_view name(KernelForm form);

/// The innermost loop of a pointwise op over contiguous or splat operands: the eager path for small dense tensors.
using InnerLoop = void (*)(void* out, const void* const* in, const bool* splat, std::int64_t n);

/// The library for exported programs that a kernel is in as well: libfermata_run, or libfermata_run_math alone.
enum class Ships : std::uint8_t { with_run, with_math };

struct KernelVariant {
  std::string name;  // "simd", "jit", "onednn"
  KernelForm form = KernelForm::call;
  DTypeSet dtypes;                          // operand dtypes it accepts
  CallKernel call = nullptr;                // call and library forms
  bool (*fits)(const CallArgs&) = nullptr;  // shape predicate; null: always
  double (*cost)(const CallArgs&) =
      nullptr;  // predicted ns beside other variants, of which those without one count as 0
  std::array<InnerLoop, kDTypeCount> inner{};  // call form, pointwise ops, by operand dtype
  std::string fits_text = {};                  // the predicate in words, for explain
  EpilogueForm epilogue = EpilogueForm::none;  // how it runs CallArgs::epilogue
  bool in_batches = false;  // does as many calls of the same sizes as there are outputs, inputs in their order
  bool by_rows = false;     // row i of a result takes row i of the first operand and all of the second
  Ships ships = Ships::with_run;
  bool is_boxed = false;  // runs a kernel over tensors: takes a context, and may give a buffer of its own
  std::source_location where = std::source_location::current();
};

/// All variants of one (op, backend), in order of registration.
struct BackendCell {
  std::vector<KernelVariant> variants;
  std::array<CallKernel, kDTypeCount> only_call{};  // the one callable variant of a dtype, where there is no choice
  std::array<InnerLoop, kDTypeCount> inner{};
  DTypeSet emits;  // dtypes with an emit variant
};

/// A kernel of a built-in op, for the life of the process; registration.h has the rules.
template <class Signature> void set_kernel(Op op, RegistrationKey key, typename Dispatcher<Signature>::Kernel kernel,
                                           std::source_location where = std::source_location::current());
void set_kernel(Op op, RegistrationKey key, ErasedKernel kernel, const SignatureOps& signature,
                std::source_location where);
template <class Signature>
void set_kernel(Op op, RegistrationKey key, typename Dispatcher<Signature>::Kernel kernel, std::source_location where) {
  set_kernel(op, key, reinterpret_cast<ErasedKernel>(kernel), signature_ops<Signature>(), where);
}
/// A kernel that all ops of a family share.
template <class Signature> void set_family_kernel(Family family, RegistrationKey key,
                                                  typename Dispatcher<Signature>::Kernel kernel,
                                                  std::source_location where = std::source_location::current());
void set_family_kernel(Family family, RegistrationKey key, ErasedKernel kernel, const SignatureOps& signature,
                       std::source_location where);
template <class Signature> void set_family_kernel(Family family, RegistrationKey key,
                                                  typename Dispatcher<Signature>::Kernel kernel,
                                                  std::source_location where) {
  set_family_kernel(family, key, reinterpret_cast<ErasedKernel>(kernel), signature_ops<Signature>(), where);
}
/// One kernel per signature, for the families that have it: all but composites and operators from outside.
struct FamilyKernels {
  Dispatcher<UnaryCall>::Kernel unary;
  Dispatcher<BinaryCall>::Kernel binary;
  Dispatcher<TernaryCall>::Kernel ternary;
  Dispatcher<GeneralCall>::Kernel general;
};
void set_family_kernels(RegistrationKey key, const FamilyKernels& kernels,
                        std::source_location where = std::source_location::current());
void add_variant(Op op, BackendKey backend, KernelVariant variant);

/// The callable variant that wins for these arguments: the cheapest that fits, or what measured_choices.h knows to be
/// faster. UnsupportedError names the dtype and those that have kernels.
ChosenKernel select_call(const OperatorEntry& entry, BackendKey backend, DType operand, const CallArgs& args,
                         std::source_location where);
/// Runs it.
void run_call(const OperatorEntry& entry, BackendKey backend, DType operand, const CallArgs& args,
              std::source_location where);
[[noreturn]] void throw_no_dtype(const OperatorEntry& entry, BackendKey backend, DType operand,
                                 std::source_location where);
const BackendCell* backend_cell(Op op, BackendKey backend);
/// Whether calls of the op do nothing but run a kernel over tensors, so that their result may be a buffer of the
/// kernel's.
bool gives_buffer(Op op, BackendKey backend);

/// One line per variant of the backend cells, with dtypes, conditions and where it was registered.
std::string describe_variants(Op op);

}  // namespace fermata
