// The kernel table: registration and lookup of kernels.
//
// The cell of a wrapper key holds one kernel. The cell of a backend key holds named variants in three forms: `call` (a
// function over materialized tensors), `emit` (builds the op's part of a kernel description, so it fuses) and `library`
// (a call that a compiled plan may also use as a step). Registration folds dtype sets into one pointer per dtype, so
// that a call tests only shape predicates.
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

/// The smallest library for exported programs that contains a kernel: libfermata_run, libfermata_run_math, or none.
enum class Ships : std::uint8_t { with_run, with_math, nowhere };

struct KernelVariant {
  std::string name;  // "simd", "jit", "onednn"
  KernelForm form = KernelForm::call;
  DTypeSet dtypes;                             // operand dtypes it accepts
  CallKernel call = nullptr;                   // call and library forms
  bool (*fits)(const CallArgs&) = nullptr;     // shape predicate; null: always
  double (*cost)(const CallArgs&) = nullptr;   // predicted ns; null counts as 0
  std::array<InnerLoop, kDTypeCount> inner{};  // call form, pointwise ops, by operand dtype
  std::string fits_text = {};                  // the predicate in words, for explain
  EpilogueForm epilogue = EpilogueForm::none;  // how it handles CallArgs::epilogue
  bool in_batches = false;                     // batched: one call of equal sizes per output, with inputs in order
  bool by_rows = false;  // row i of a result depends on row i of the first operand and all of the second
  Ships ships = Ships::with_run;
  bool is_boxed = false;  // runs a kernel over tensors: takes a context, and may return its own buffer
  std::source_location where = std::source_location::current();
};

/// All variants of one (op, backend), in order of registration.
struct BackendCell {
  std::vector<KernelVariant> variants;
  std::array<CallKernel, kDTypeCount> only_call{};  // the only callable variant of a dtype, if there is just one
  std::array<InnerLoop, kDTypeCount> inner{};
  DTypeSet emits;  // dtypes with an emit variant
};

/// Registers a kernel of a built-in op for the lifetime of the process; registration.h has the rules.
template <class Signature> void set_kernel(Op op, RegistrationKey key, typename Dispatcher<Signature>::Kernel kernel,
                                           std::source_location where = std::source_location::current());
void set_kernel(Op op, RegistrationKey key, ErasedKernel kernel, const SignatureOps& signature,
                std::source_location where);
template <class Signature>
void set_kernel(Op op, RegistrationKey key, typename Dispatcher<Signature>::Kernel kernel, std::source_location where) {
  set_kernel(op, key, reinterpret_cast<ErasedKernel>(kernel), signature_ops<Signature>(), where);
}
/// Registers a kernel shared by all ops of a family.
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
/// One kernel per signature, for all families except composites and custom operators.
struct FamilyKernels {
  Dispatcher<UnaryCall>::Kernel unary;
  Dispatcher<BinaryCall>::Kernel binary;
  Dispatcher<TernaryCall>::Kernel ternary;
  Dispatcher<GeneralCall>::Kernel general;
};
void set_family_kernels(RegistrationKey key, const FamilyKernels& kernels,
                        std::source_location where = std::source_location::current());
void add_variant(Op op, BackendKey backend, KernelVariant variant);

/// Returns the callable variant for these arguments: the cheapest that fits, or one that was measured to be faster
/// (measured_choices.h). UnsupportedError names the dtype and the supported ones.
ChosenKernel select_call(const OperatorEntry& entry, BackendKey backend, DType operand, const CallArgs& args,
                         std::source_location where);
/// Runs it.
void run_call(const OperatorEntry& entry, BackendKey backend, DType operand, const CallArgs& args,
              std::source_location where);
[[noreturn]] void throw_no_dtype(const OperatorEntry& entry, BackendKey backend, DType operand,
                                 std::source_location where);
const BackendCell* backend_cell(Op op, BackendKey backend);
/// Whether calls of the op only run a kernel over tensors, whose result buffer may be used directly.
bool gives_buffer(Op op, BackendKey backend);

/// One line per variant of the backend cells, with dtypes, conditions and registration line.
std::string describe_variants(Op op);

}  // namespace fermata
