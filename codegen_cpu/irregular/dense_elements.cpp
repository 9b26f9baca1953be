// See dense_elements.h.
#include "codegen_cpu/irregular/dense_elements.h"

#include <cstring>

#include "codegen_cpu/irregular/narrow_float.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "ir/shape.h"
#include "runtime/thread_pool.h"

namespace fermata {

void copy_bytes(void* to, const void* from, std::int64_t bytes) {
  std::memcpy(to, from, static_cast<std::size_t>(bytes));
}

void widen(DType dtype, const void* from, float* to, std::int64_t count) {
  const auto* const bits = static_cast<const std::uint16_t*>(from);
  parallel_for(0, count, 0.5, [&](std::int64_t b, std::int64_t e) {
    if (dtype == DType::bf16)
      for (std::int64_t i = b; i < e; ++i) to[i] = widen_bfloat16(bits[i]);
    else
      for (std::int64_t i = b; i < e; ++i) to[i] = widen_float16(bits[i]);
  });
}

void narrow(DType dtype, const float* from, void* to, std::int64_t count) {
  auto* const bits = static_cast<std::uint16_t*>(to);
  parallel_for(0, count, 1.0, [&](std::int64_t b, std::int64_t e) {
    if (dtype == DType::bf16)
      for (std::int64_t i = b; i < e; ++i) bits[i] = narrow_bfloat16(from[i]);
    else
      for (std::int64_t i = b; i < e; ++i) bits[i] = narrow_float16(from[i]);
  });
}

DenseElements::DenseElements(const TensorView& view)
    : packed_(is_contiguous(view, 0, view.rank)
                  ? 0
                  : view.element_count() * static_cast<std::int64_t>(byte_size(view.dtype))),
      data_(packed_.size() == 0 ? view.data : packed_.data()) {
  if (packed_.size() == 0) return;
  const std::span<const std::int64_t> sizes{view.sizes, view.rank};
  strided_copy({packed_.data(), dense_strides(sizes)}, {view.data, {view.strides, view.rank}}, sizes,
               byte_size(view.dtype));
}

Scratch<float> widened_elements(const TensorView& view) {
  const DenseElements dense(view);
  Scratch<float> wide(view.element_count());
  widen(view.dtype, dense.data(), wide.data(), wide.size());
  return wide;
}

void copy_elements(const TensorView& to, const TensorView& from) {
  strided_copy({to.data, {to.strides, to.rank}}, {from.data, {from.strides, from.rank}}, {from.sizes, from.rank},
               byte_size(from.dtype));
}

}  // namespace fermata
