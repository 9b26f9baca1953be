// See kernels.h. What stands here are this library's halves of interfaces that the engine fills from its kernel table.
#include "frontend/run/kernels.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <span>

#include "codegen_cpu/code_target.h"
#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "dispatch/control_kernels.h"
#include "dispatch/kernel_files.h"
#include "dispatch/variant_choice.h"
#include "ir/error.h"
#include "runtime/backend_memory.h"
#include "runtime/steps/call_step.h"

namespace fermata {
namespace {

std::array<std::vector<KernelVariant>, kOpCount>& variants() {
  static auto* const all = new std::array<std::vector<KernelVariant>, kOpCount>;
  return *all;
}

void copy_call(const CallArgs& args) {
  const TensorView &in = args.inputs[0], &out = args.outputs[0];
  const std::span<const std::int64_t> sizes(in.sizes, in.rank);
  const Shape dense = dense_strides(sizes);  // the shape of the output may differ: a reshape that is not a view
  strided_copy({out.data, dense}, {in.data, {in.strides, in.rank}}, sizes, byte_size(in.dtype));
}

ChosenKernel select_call(const CallStep& step, const CallArgs& args) {
  const KernelVariant* const best =
      cheapest_variant(variants()[static_cast<std::size_t>(step.op)], step.operand_dtype, args);
  if (best == nullptr)
    throw UnsupportedError(
        2204,
        format_error(2204, "UnsupportedError",
                     std::string(name(step.op)) + ": no kernel for " + std::string(name(step.operand_dtype)), {}, {}));
  return {best->call};
}

}  // namespace

void add_variant(Op op, BackendKey, KernelVariant variant) {
#ifndef FERMATA_RUN_MATH
  variant.dtypes = variant.dtypes & kRealOrBoolean;
#endif
  variants()[static_cast<std::size_t>(op)].push_back(std::move(variant));
}

void copy_view(const TensorView& from, void* to, BackendKey, std::source_location where) {
  const Shape dense = dense_strides(std::span(from.sizes, from.rank));
  const TensorView out{to, from.dtype, from.rank, from.sizes, dense.data()};
  copy_call({Op::copy, {&from, 1}, {&out, 1}, {}, {}, where});
}

void add_kernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    set_allocator(BackendKey::cpu, [](BackendKey, std::size_t bytes) { return Storage::allocate(bytes); });
    add_kernel_files(BackendKey::cpu);
    add_variant(Op::copy, BackendKey::cpu, {.name = "copy", .dtypes = kStored, .call = &copy_call});
    add_control_kernels<BackendKey::cpu>();
    select_call_step = &select_call;
  });
}

bool has_kernel(Op op, DType operand) {
  return std::ranges::any_of(variants()[static_cast<std::size_t>(op)],
                             [&](const KernelVariant& v) { return v.dtypes.has(operand); });
}

namespace eager {
/// Kernels of irregular ops are compiled for the same instruction sets as programs.
std::string_view instruction_set() { return code_target().empty() ? "baseline" : code_target(); }
}  // namespace eager

}  // namespace fermata
