// index_add: rows added to x at given positions, in order of positions for every element.
//
// Threads split the elements of the result, never the positions, so each sum has one order. Where there are too few
// columns (elements of a row, times outer rows) to split, threads split the axis and each skips the positions of
// others.
#include <algorithm>
#include <cstring>

#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/narrow_float.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "ir/shape.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Too few columns to share between threads.
constexpr std::int64_t kFewColumns = 64;

/// In units of elements; `source` is dense: [outer, positions, inner]. Integers are added as unsigned, so they wrap.
template <class T> struct Sums {
  GatherShape shape;
  const std::int64_t* positions;
  T* out;
  const T* source;

  void add(std::int64_t outer, std::int64_t i, std::int64_t begin, std::int64_t end) const {
    T* const to = out + (outer * shape.size + positions[i]) * shape.inner;
    const T* const from = source + (outer * shape.positions + i) * shape.inner;
    for (std::int64_t j = begin; j < end; ++j) to[j] = static_cast<T>(to[j] + from[j]);
  }
  void add_columns(std::int64_t begin, std::int64_t end) const {
    while (begin < end) {
      const std::int64_t outer = begin / shape.inner, from = begin % shape.inner;
      const std::int64_t to = std::min(from + end - begin, shape.inner);
      for (std::int64_t i = 0; i < shape.positions; ++i) add(outer, i, from, to);
      begin += to - from;
    }
  }
  void add_positions_between(std::int64_t low, std::int64_t high) const {
    for (std::int64_t outer = 0; outer < shape.outer; ++outer)
      for (std::int64_t i = 0; i < shape.positions; ++i)
        if (positions[i] >= low && positions[i] < high) add(outer, i, 0, shape.inner);
  }
  void run() const {
    const std::int64_t columns = shape.outer * shape.inner;
    if (columns >= kFewColumns) {
      parallel_for(
          0, columns, static_cast<double>(shape.positions) * 0.5,
          [&](std::int64_t b, std::int64_t e) { add_columns(b, e); }, 16);
      return;
    }
    const double total = static_cast<double>(columns * shape.positions) * 1.5;
    parallel_for(0, shape.size, total / static_cast<double>(shape.size),
                 [&](std::int64_t b, std::int64_t e) { add_positions_between(b, e); });
  }
};

/// The elements of a view in row-major order: where they are if they lie so, else copied to `scratch`.
const void* dense_elements(const TensorView& view, const Scratch<std::byte>& scratch) {
  if (scratch.size() == 0) return view.data;
  const std::span<const std::int64_t> sizes{view.sizes, view.rank};
  strided_copy({scratch.data(), dense_strides(sizes)}, {view.data, {view.strides, view.rank}}, sizes,
               byte_size(view.dtype));
  return scratch.data();
}

template <class T> void index_add(const CallArgs& args, const std::int64_t* positions) {
  const TensorView &x = args.inputs[0], &source = args.inputs[2], &out = args.outputs[0];
  const bool dense = is_contiguous(source, 0, source.rank);
  const Scratch<std::byte> packed(dense ? 0 : source.element_count() * static_cast<std::int64_t>(sizeof(T)));
  const void* const from = dense_elements(source, packed);
  strided_copy({out.data, {out.strides, out.rank}}, {x.data, {x.strides, x.rank}}, {x.sizes, x.rank}, sizeof(T));
  Sums<T>{gather_shape(args), positions, static_cast<T*>(out.data), static_cast<const T*>(from)}.run();
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

/// Sums in f32 beside the result, rounded once at the end.
void index_add_half(const CallArgs& args, const std::int64_t* positions) {
  const TensorView &x = args.inputs[0], &source = args.inputs[2], &out = args.outputs[0];
  const std::int64_t count = x.element_count(), source_count = source.element_count();
  const bool dense = is_contiguous(source, 0, source.rank);
  const Scratch<std::byte> packed(dense ? 0 : source_count * 2);
  const Scratch<float> sums(count), wide_source(source_count);
  widen(source.dtype, dense_elements(source, packed), wide_source.data(), source_count);
  strided_copy({out.data, {out.strides, out.rank}}, {x.data, {x.strides, x.rank}}, {x.sizes, x.rank}, 2);
  widen(x.dtype, out.data, sums.data(), count);
  Sums<float>{gather_shape(args), positions, sums.data(), wide_source.data()}.run();
  narrow(x.dtype, sums.data(), out.data, count);
}

}  // namespace

void index_add_call(const CallArgs& args) {
  const Scratch<std::int64_t> positions = positions_of(args);
  if (args.inputs[0].element_count() == 0) return;
  switch (args.inputs[0].dtype) {
    case DType::u8:
    case DType::i8: return index_add<std::uint8_t>(args, positions.data());
    case DType::u16:
    case DType::i16: return index_add<std::uint16_t>(args, positions.data());
    case DType::u32:
    case DType::i32: return index_add<std::uint32_t>(args, positions.data());
    case DType::u64:
    case DType::i64: return index_add<std::uint64_t>(args, positions.data());
    case DType::f32: return index_add<float>(args, positions.data());
    case DType::f64: return index_add<double>(args, positions.data());
    default: return index_add_half(args, positions.data());
  }
}

}  // namespace fermata
