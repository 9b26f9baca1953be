// See kernels.h. This library's implementations of interfaces that the engine implements with its kernel table.
#include "frontend/run/cuda/kernels.h"

#include <algorithm>
#include <array>
#include <mutex>
#include <span>

#include "codegen_cuda/cuda_backend.h"
#include "codegen_cuda/irregular/call_source.h"
#include "dispatch/control_kernels.h"
#include "dispatch/copy_view.h"
#include "dispatch/kernel_files.h"
#include "dispatch/variant_choice.h"
#include "frontend/run/cuda/images.h"
#include "ir/error.h"
#include "runtime/steps/call_step.h"

namespace fermata {
namespace {

std::array<std::vector<KernelVariant>, kOpCount>& variants() {
  static auto* const all = new std::array<std::vector<KernelVariant>, kOpCount>;
  return *all;
}

ChosenKernel select_call(const CallStep& step, const CallArgs& args) {
  const KernelVariant* const best =
      cheapest_variant(variants()[static_cast<std::size_t>(step.op)], step.operand_dtype, args);
  if (best == nullptr)
    throw UnsupportedError(
        2204, format_error(2204, "UnsupportedError",
                           std::string(name(step.op)) + ": no CUDA kernel for " + std::string(name(step.operand_dtype)),
                           {}, {}));
  return {best->call};
}

}  // namespace

void add_variant(Op op, BackendKey, KernelVariant variant) {
  variants()[static_cast<std::size_t>(op)].push_back(std::move(variant));
}

void copy_view(const TensorView& from, void* to, BackendKey, std::source_location) {
  const Shape dense = dense_strides(std::span(from.sizes, from.rank));
  gpu::copy_elements(from, {to, from.dtype, from.rank, from.sizes, dense.data()});
}

void add_cuda_kernels() {
  static std::once_flag once;
  std::call_once(once, [] {
    take_images_from_programs();
    register_backend(BackendKey::cuda, make_cuda_backend());
    add_kernel_files(BackendKey::cuda);
    add_control_kernels<BackendKey::cuda>();
    select_call_step = &select_call;
  });
}

bool has_cuda_kernel(Op op, DType operand) {
  return std::ranges::any_of(variants()[static_cast<std::size_t>(op)],
                             [&](const KernelVariant& v) { return v.dtypes.has(operand); });
}

}  // namespace fermata
