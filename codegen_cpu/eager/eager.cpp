// See eager.h and drivers.h.
#include "codegen_cpu/eager/eager.h"

#include <algorithm>

#include "codegen_cpu/eager/drivers.h"
#include "dispatch/emit.h"

namespace fermata::eager {
namespace {

constexpr std::string_view kVariant = "simd";

}  // namespace

void add_eager_kernel(Op op, CallKernel call, std::source_location where) {
  // A call kernel of a reduction takes the operand as it is, and converts as it reads.
  const DTypeSet dtypes = family(op) == Family::reduce ? kStoredReal : emitted_dtypes(op);
  KernelVariant variant{.name = std::string(kVariant), .dtypes = dtypes, .call = call, .where = where};
  if (is_pointwise(op))
    for (std::size_t t = 0; t < kDTypeCount; ++t) variant.inner[t] = eager_inner_loop(op, static_cast<DType>(t));
  add_variant(op, BackendKey::cpu, std::move(variant));
}

void add_eager_kernels(Family wanted, CallKernel call, std::source_location where) {
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (const Op op = static_cast<Op>(i); family(op) == wanted) add_eager_kernel(op, call, where);
}

CallKernel eager_kernel(Op op) {
  const BackendCell* const cell = backend_cell(op, BackendKey::cpu);
  if (cell == nullptr) return nullptr;
  const auto found = std::ranges::find(cell->variants, kVariant, &KernelVariant::name);
  return found != cell->variants.end() ? found->call : nullptr;
}

InnerLoop eager_inner_loop(Op op, DType operand) {
  return loop_tables().pointwise[static_cast<std::size_t>(op)][static_cast<std::size_t>(operand)];
}

}  // namespace fermata::eager
