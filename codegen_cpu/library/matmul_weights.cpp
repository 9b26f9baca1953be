// matmul_weights: weights of 8 or 4 bits on the right: what is shared out between threads. The inner part is in
// packed_weights_body.h.
#include <algorithm>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/narrow_float.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "codegen_cpu/library/matmul_weights.h"
#include "codegen_cpu/library/packed_weights_kernels.h"
#include "dispatch/kernel_files.h"
#include "ir/ops/products.h"
#include "ir/packed_weights.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Rows of x that meet a block before the next one does: they stay in a second-level cache.
constexpr std::int64_t kRows = 64;

WeightsKernel kernel() {
  static const WeightsKernel best = FERMATA_TABLE(kWeights);
  return best;
}

template <DType kHalf> float as_float(std::uint16_t bits) {
  return kHalf == DType::bf16 ? widen_bfloat16(bits) : widen_float16(bits);
}

/// For codes of 4 bits: divides each element by what its code is too large by, and gives -8 times the sum of each
/// group.
void prepare_for_nibbles(float* x, std::int64_t groups, std::int64_t group, float* offsets) {
  for (std::int64_t g = 0; g < groups; ++g, x += group) {
    float sum = 0;
    for (std::int64_t i = 0; i < group; ++i) sum += x[i];
    offsets[g] = -8 * sum;
    constexpr float kDivided[8] = {1, 0x1p-4f, 0x1p-8f, 0x1p-12f, 0x1p-16f, 0x1p-20f, 0x1p-24f, 1};
    for (std::int64_t i = 0; i < group; i += 8)
      for (std::int64_t place = 0; place < 8; ++place) x[i + place] *= kDivided[place];
  }
}

/// The rows of x as f32, each of `depth` elements: zeros follow its own.
Scratch<float> rows_of(const TensorView& x, std::int64_t rows, std::int64_t depth) {
  const std::int64_t k = x.sizes[x.rank - 1], size = static_cast<std::int64_t>(byte_size(x.dtype));
  const bool is_dense = is_contiguous(x, 0, x.rank);
  const Scratch<std::byte> copy(is_dense ? 0 : rows * k * size);
  const std::span<const std::int64_t> sizes{x.sizes, x.rank};
  if (!is_dense)
    strided_copy({copy.data(), dense_strides(sizes)}, {x.data, {x.strides, x.rank}}, sizes, byte_size(x.dtype));
  const void* const data = is_dense ? x.data : copy.data();
  Scratch<float> wide(rows * depth);
  const auto fill = [&](const auto* from, auto&& widen) {
    parallel_for(0, rows, static_cast<double>(depth) * 0.2, [&](std::int64_t first, std::int64_t last) {
      for (std::int64_t row = first; row < last; ++row) {
        float* const to = wide.data() + row * depth;
        for (std::int64_t i = 0; i < k; ++i) to[i] = widen(from[row * k + i]);
        std::fill(to + k, to + depth, 0.0f);
      }
    });
  };
  switch (x.dtype) {
    case DType::f16: fill(static_cast<const std::uint16_t*>(data), &as_float<DType::f16>); break;
    case DType::bf16: fill(static_cast<const std::uint16_t*>(data), &as_float<DType::bf16>); break;
    default: fill(static_cast<const float*>(data), [](float v) { return v; }); break;
  }
  return wide;
}

/// Where sums go: columns [first, first + count) of the rows from `row` on.
struct Target {
  const TensorView& out;
  std::int64_t columns, row, rows, first, count;

  void write(const float* sums) const {
    switch (out.dtype) {
      case DType::f16: return write_as<std::uint16_t>(sums, [](float v) { return narrow_float16(v); });
      case DType::bf16: return write_as<std::uint16_t>(sums, [](float v) { return narrow_bfloat16(v); });
      default: return write_as<float>(sums, [](float v) { return v; });
    }
  }

 private:
  template <class T, class F> void write_as(const float* sums, F&& narrow) const {
    for (std::int64_t r = 0; r < rows; ++r, sums += PackedWeights::kBlock) {
      T* const to = static_cast<T*>(out.data) + (row + r) * columns + first;
      for (std::int64_t j = 0; j < count; ++j) to[j] = narrow(sums[j]);
    }
  }
};

}  // namespace

void matmul_weights_call(const CallArgs& args) { matmul_weights_call(args, kernel()); }

void matmul_weights_call(const CallArgs& args, WeightsKernel kernel) {
  const TensorView &x = args.inputs[0], &bytes = args.inputs[1], &out = args.outputs[0];
  const std::int64_t columns = attributes_of<ops::MatmulWeights>(args).columns.value, k = x.sizes[x.rank - 1];
  if (out.element_count() == 0) return;
  const auto packed = *PackedWeights::of(Shape(std::span(bytes.sizes, bytes.rank)), columns, k);
  const bool is_dense = is_contiguous(bytes, 0, bytes.rank);
  const Scratch<std::byte> copy(is_dense ? 0 : bytes.element_count());
  const std::span<const std::int64_t> sizes{bytes.sizes, bytes.rank};
  if (!is_dense) strided_copy({copy.data(), dense_strides(sizes)}, {bytes.data, {bytes.strides, bytes.rank}}, sizes, 1);
  const auto* const blocks = static_cast<const std::uint8_t*>(is_dense ? bytes.data : copy.data());

  const std::int64_t rows = out.element_count() / columns, parts = (rows + kRows - 1) / kRows;
  const std::int64_t block_bytes = packed.groups() * packed.group_bytes(), depth = packed.depth();
  const Scratch<float> wide = rows_of(x, rows, depth), offsets(packed.group == 0 ? 0 : rows * packed.groups());
  if (packed.group != 0)
    for (std::int64_t row = 0; row < rows; ++row)
      prepare_for_nibbles(wide.data() + row * depth, packed.groups(), packed.group,
                          offsets.data() + row * packed.groups());
  // From memory 10 bytes a nanosecond; in registers 12 weights a nanosecond, and 4 times as many rows.
  const double ns =
      100 + static_cast<double>(block_bytes) / 10 +
      static_cast<double>(std::min(rows, kRows)) * static_cast<double>(depth) * PackedWeights::kBlock / 30;
  parallel_for(0, packed.blocks() * parts, ns, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) float sums[kRows * PackedWeights::kBlock];
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t block = task / parts, row = task % parts * kRows, first = block * PackedWeights::kBlock;
      const std::int64_t count = std::min(kRows, rows - row);
      kernel({.x = wide.data() + row * depth,
              .offsets = offsets.data() + (packed.group == 0 ? 0 : row * packed.groups()),
              .block = blocks + block * block_bytes,
              .out = sums,
              .rows = count,
              .depth = depth,
              .group = packed.group});
      Target{out, columns, row, count, first, std::min(PackedWeights::kBlock, columns - first)}.write(sums);
    }
  });
}

FERMATA_KERNELS(cpu) {
  add_variant(Op::matmul_weights, BackendKey::cpu,
              {.name = "weights",
               .form = KernelForm::library,
               .dtypes = DTypeSet(DType::f32) | DType::f16 | DType::bf16,
               .call = [](const CallArgs& args) { matmul_weights_call(args); },
               .by_rows = true});
}

}  // namespace fermata
