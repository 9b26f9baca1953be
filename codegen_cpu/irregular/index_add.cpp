// index_add: rows added to x at given positions, in order of positions for every element.
//
// Threads split the elements of the result, never the positions, so each sum has one order. Where there are too few
// columns (elements of a row, times outer rows) to split, threads split the axis and each skips the positions of
// others.
#include <algorithm>
#include <complex>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/positions.h"
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

template <class T> void index_add(const CallArgs& args, const std::int64_t* positions) {
  const TensorView &x = args.inputs[0], &source = args.inputs[2], &out = args.outputs[0];
  const DenseElements from(source);
  copy_elements(out, x);
  Sums<T>{gather_shape(args), positions, static_cast<T*>(out.data), static_cast<const T*>(from.data())}.run();
}

/// Sums in f32 beside the result, rounded once at the end.
void index_add_half(const CallArgs& args, const std::int64_t* positions) {
  const TensorView &x = args.inputs[0], &source = args.inputs[2], &out = args.outputs[0];
  const Scratch<float> sums = widened_elements(x), wide_source = widened_elements(source);
  Sums<float>{gather_shape(args), positions, sums.data(), wide_source.data()}.run();
  narrow(x.dtype, sums.data(), out.data, sums.size());
}

/// Attributes [axis]. Elements that meet are added in order of their positions; f16 and bf16 are added in f32 and
/// rounded once. Positions as in take.
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
    case DType::c64: return index_add<std::complex<float>>(args, positions.data());
    case DType::c128: return index_add<std::complex<double>>(args, positions.data());
    default: return index_add_half(args, positions.data());
  }
}

}  // namespace

FERMATA_KERNELS(cpu) { add_native_kernel(Op::index_add, &index_add_call); }

}  // namespace fermata
