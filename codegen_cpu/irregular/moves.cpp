// concat and update: ops that are nothing but copies.
#include <algorithm>
#include <cstddef>
#include <cstring>
#include <optional>

#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/row_major_result.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "codegen_cpu/irregular/transpose.h"
#include "ir/ops/moves.h"
#include "ir/shape.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

StridedSide side_of(const TensorView& view) { return {view.data, {view.strides, view.rank}}; }

#ifndef FERMATA_INFERENCE_ONLY
/// Single elements side by side, as stack() along the last axis has them: writing one operand after the other would go
/// through the result as often. Blocks of all of them are brought together and turned. False if they are something
/// else.
bool interleave(const CallArgs& args, std::size_t axis, std::size_t bytes) {
  constexpr std::size_t kFewest = 3, kMost = 64, kLargest = 8;
  constexpr std::int64_t kBlock = 128, kFewestRows = 64;
  const TensorView& out = args.outputs[0];
  const std::size_t parts = args.inputs.size();
  const std::int64_t rows = args.inputs[0].element_count();
  if (axis + 1 != out.rank || parts < kFewest || parts > kMost || bytes > kLargest || rows < kFewestRows) return false;
  for (const TensorView& in : args.inputs)
    if (in.sizes[axis] != 1 || !is_contiguous(in, 0, in.rank) || in.data == out.data) return false;
  if (!is_contiguous(out, 0, out.rank)) return false;
  const auto size = static_cast<std::int64_t>(bytes), columns = static_cast<std::int64_t>(parts);
  parallel_for(
      0, rows, 0.15 * static_cast<double>(size * columns),
      [&](std::int64_t begin, std::int64_t end) {
        alignas(64) std::byte block[kMost * kBlock * kLargest];
        for (; begin < end; begin += kBlock) {
          const std::int64_t count = std::min(kBlock, end - begin);
          for (std::size_t part = 0; part < parts; ++part)
            std::memcpy(block + part * kBlock * bytes,
                        static_cast<const std::byte*>(args.inputs[part].data) + begin * size,
                        static_cast<std::size_t>(count * size));
          transpose_kernels().of_bytes[bytes]({.to = static_cast<std::byte*>(out.data) + begin * columns * size,
                                               .from = block,
                                               .to_line = columns,
                                               .from_line = kBlock,
                                               .lines = count,
                                               .columns = columns,
                                               .streams = false});
        }
      },
      kBlock);
  return true;
}

#else
bool interleave(const CallArgs&, std::size_t, std::size_t) { return false; }
#endif

/// Attributes [axis]; inputs differ along it only. Those that lie in their place of the result stay there.
void concat_call(const CallArgs& args) {
  const TensorView& out = args.outputs[0];
  const std::size_t bytes = byte_size(out.dtype);
  const auto axis = static_cast<std::size_t>(attributes_of<ops::Concat>(args).axis.value);
  if (interleave(args, axis, bytes)) return;
  auto* to = static_cast<std::byte*>(out.data);
  for (const TensorView& in : args.inputs) {
    if (in.data != to) strided_copy({to, {out.strides, out.rank}}, side_of(in), {in.sizes, in.rank}, bytes);
    to += in.sizes[axis] * out.strides[axis] * static_cast<std::int64_t>(bytes);
  }
}

/// Where values go in a result that does not lie row-major.
struct Region {
  std::int64_t offset;
  Shape strides;
};
/// The same region, of which attributes speak in row-major elements, in a result that lies in another order. Nothing
/// where an axis of the values does not go along the axis of the result in its place.
std::optional<Region> region_in(const TensorView& out, const TensorView& values, std::int64_t offset,
                                std::span<const std::int64_t> strides) {
  if (values.rank != out.rank) return std::nullopt;
  const Shape dense = dense_strides({out.sizes, out.rank});
  Region region{0, {}};
  for (unsigned axis = 0; axis < out.rank; ++axis) {
    const std::int64_t first = offset / dense[axis], step = strides[axis] / dense[axis];
    const std::int64_t last = first + (values.sizes[axis] - 1) * step;
    if (values.sizes[axis] > 1 && (strides[axis] % dense[axis] != 0 || last < 0 || last >= out.sizes[axis]))
      return std::nullopt;
    region.offset += first * out.strides[axis], offset %= dense[axis];
    region.strides.push_back(step * out.strides[axis]);
  }
  return region;
}

void write_region(const TensorView& out, const TensorView& values, std::int64_t offset,
                  std::span<const std::int64_t> strides) {
  const std::size_t bytes = byte_size(out.dtype);
  auto* const start = static_cast<std::byte*>(out.data) + offset * static_cast<std::int64_t>(bytes);
  strided_copy({start, strides}, side_of(values), {values.sizes, values.rank}, bytes);
}

/// Along each axis, the first place that values go to, where they take all places from there on: a box.
std::optional<Shape> box_in(const TensorView& out, const TensorView& values, std::int64_t offset,
                            std::span<const std::int64_t> strides) {
  if (values.rank != out.rank) return std::nullopt;
  const Shape dense = dense_strides({out.sizes, out.rank});
  Shape first;
  for (unsigned axis = 0; axis < out.rank; ++axis) {
    first.push_back(offset / dense[axis]), offset %= dense[axis];
    if (values.sizes[axis] > 1 && strides[axis] != dense[axis]) return std::nullopt;
    if (first[axis] + values.sizes[axis] > out.sizes[axis]) return std::nullopt;
  }
  return first;
}

/// Copies what lies around a box: along each axis what is below and above it, within its bounds along the axes before.
void copy_around(const TensorView& out, const TensorView& x, const Shape& first, const TensorView& values) {
  const std::size_t bytes = byte_size(out.dtype);
  Shape begin(std::span(out.sizes, out.rank)), size = begin;
  for (std::int64_t& b : begin) b = 0;
  const auto copy = [&] {
    std::int64_t to = 0, from = 0;
    for (unsigned axis = 0; axis < out.rank; ++axis)
      to += begin[axis] * out.strides[axis], from += begin[axis] * x.strides[axis];
    const auto at = [&](const TensorView& view, std::int64_t offset) {
      return static_cast<std::byte*>(view.data) + offset * static_cast<std::int64_t>(bytes);
    };
    if (element_count(size) != 0)
      strided_copy({at(out, to), {out.strides, out.rank}}, {at(x, from), {x.strides, x.rank}}, size, bytes);
  };
  for (unsigned axis = 0; axis < out.rank; ++axis) {
    const std::int64_t end = first[axis] + values.sizes[axis];
    begin[axis] = 0, size[axis] = first[axis], copy();
    begin[axis] = end, size[axis] = out.sizes[axis] - end, copy();
    begin[axis] = first[axis], size[axis] = values.sizes[axis];
  }
}

/// Of large values only what they do not write over is copied before.
void copy_unless_written(const TensorView& out, const TensorView& x, const TensorView& values, std::int64_t offset,
                         std::span<const std::int64_t> strides) {
  constexpr std::int64_t kLarge = 4096;  // elements; and a quarter of the result
  const std::int64_t count = values.element_count();
  if (count >= kLarge && count >= x.element_count() / 4)
    if (const auto first = box_in(out, values, offset, strides)) return copy_around(out, x, *first, values);
  strided_copy(side_of(out), side_of(x), {x.sizes, x.rank}, byte_size(out.dtype));
}

/// Attributes [offset, stride per axis of input 1 ...] over the row-major elements of input 0.
void update_call(const CallArgs& args) {
  const TensorView &x = args.inputs[0], &values = args.inputs[1], &out = args.outputs[0];
  const auto [offset, strides] = attributes_of<ops::Update>(args);
  const bool row_major = is_dense({out.sizes, out.rank}, {out.strides, out.rank});
  std::optional<Region> region;
  if (!row_major && values.element_count() != 0) {
    region = region_in(out, values, offset.value, strides.value);
    if (!region) return run_row_major(args, &update_call);
  }
  if (out.data != x.data)  // else it is written over
    copy_unless_written(out, x, values, offset.value, strides.value);
  if (values.element_count() == 0) return;
  row_major ? write_region(out, values, offset.value, strides.value)
            : write_region(out, values, region->offset, region->strides);
}

}  // namespace

FERMATA_KERNELS(cpu) {
  add_native_kernel(Op::concat, &concat_call);
  add_native_kernel(Op::update, &update_call);
}

}  // namespace fermata
