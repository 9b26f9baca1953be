// gather and the scatters: one element for each position, along an axis.
//
// A lane is what shares its place along all other axes. Threads split lanes, and every lane is worked through in the
// order of its positions, so results do not depend on the number of threads. Where there are too few lanes to split,
// threads split the axis that is written to, and each skips the positions of others.
#include <algorithm>
#include <type_traits>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/positions.h"
#include "ir/op_traits.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Too few lanes to share between threads.
constexpr std::int64_t kFewLanes = 64;

struct Element16 {
  std::uint64_t words[2];
};

/// The lanes of a tensor that is addressed by position (x of gather, the result of a scatter), as the index has them.
struct Lanes {
  Lanes(const CallArgs& args, const TensorView& addressed)
      : positions(positions_of(args)),
        axis(static_cast<unsigned>(axis_of(args.op, args.attributes))),
        stride(addressed.strides[axis]),
        size(addressed.sizes[axis]),
        count(args.inputs[1].sizes[axis]),
        outer(offsets(args, addressed, 0, axis)),
        inner(offsets(args, addressed, axis + 1, addressed.rank)) {}

  std::int64_t lanes() const { return outer.size() * inner.size(); }
  /// Calls f(offset of the element addressed, element of the index) for lanes [begin, end), those of one outer place
  /// together so that rows are read and written along the last axis.
  template <class F> void for_lanes(std::int64_t begin, std::int64_t end, F&& f) const {
    while (begin < end) {
      const std::int64_t o = begin / inner.size(), from = begin % inner.size();
      const std::int64_t to = std::min(from + end - begin, inner.size());
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = (o * count + i) * inner.size();
        for (std::int64_t j = from; j < to; ++j) f(outer[o] + positions[row + j] * stride + inner[j], row + j);
      }
      begin += to - from;
    }
  }
  template <class F> void for_positions_between(std::int64_t low, std::int64_t high, F&& f) const {
    for (std::int64_t o = 0; o < outer.size(); ++o)
      for (std::int64_t i = 0; i < count; ++i)
        for (std::int64_t j = 0; j < inner.size(); ++j) {
          const std::int64_t at = (o * count + i) * inner.size() + j, position = positions[at];
          if (position >= low && position < high) f(outer[o] + position * stride + inner[j], at);
        }
  }

  const Scratch<std::int64_t> positions;
  const unsigned axis;
  const std::int64_t stride, size, count;
  const Scratch<std::int64_t> outer, inner;

 private:
  /// Those of the addressed tensor over the extents of the index.
  static Scratch<std::int64_t> offsets(const CallArgs& args, const TensorView& addressed, unsigned begin,
                                       unsigned end) {
    TensorView part = addressed;
    part.sizes = args.inputs[1].sizes;
    return offsets_of(part, begin, end);
  }
};

template <class T> void gather(const Lanes& lanes, const TensorView& x, const TensorView& out) {
  const auto* const from = static_cast<const T*>(x.data);
  auto* const to = static_cast<T*>(out.data);
  const auto copy = [=](std::int64_t element, std::int64_t i) { to[i] = from[element]; };
  if (lanes.lanes() >= kFewLanes) {
    parallel_for(
        0, lanes.lanes(), static_cast<double>(lanes.count),
        [&](std::int64_t b, std::int64_t e) { lanes.for_lanes(b, e, copy); }, 16);
    return;
  }
  // Nothing is added up, so positions can be split.
  const std::int64_t row = lanes.inner.size();
  parallel_for(0, lanes.outer.size() * lanes.count, 1.5 * static_cast<double>(row),
               [&](std::int64_t b, std::int64_t e) {
                 for (std::int64_t i = b; i < e; ++i)
                   for (std::int64_t j = 0; j < row; ++j)
                     copy(lanes.outer[i / lanes.count] + lanes.positions[i * row + j] * lanes.stride + lanes.inner[j],
                          i * row + j);
               });
}

template <class T, class Put> void scatter(const Lanes& lanes, const T* source, T* out, Put put) {
  const auto each = [=](std::int64_t element, std::int64_t i) { put(out[element], source[i]); };
  if (lanes.lanes() >= kFewLanes) {
    parallel_for(
        0, lanes.lanes(), static_cast<double>(lanes.count) * 1.5,
        [&](std::int64_t b, std::int64_t e) { lanes.for_lanes(b, e, each); }, 16);
    return;
  }
  const double total = static_cast<double>(lanes.lanes() * lanes.count) * 1.5;
  parallel_for(0, lanes.size, total / static_cast<double>(lanes.size),
               [&](std::int64_t b, std::int64_t e) { lanes.for_positions_between(b, e, each); });
}

/// Integers wrap at their own width.
template <class T> T sum_of(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  else
    return a + b;
}
template <class T> T product_of(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  else
    return a * b;
}

/// As the op says; NaN wins.
template <class T> void combine(Op op, const Lanes& lanes, const void* elements, void* result) {
  const auto* const source = static_cast<const T*>(elements);
  auto* const out = static_cast<T*>(result);
  if (op == Op::scatter_add) return scatter(lanes, source, out, [](T& a, T b) { a = sum_of(a, b); });
  if (op == Op::scatter_multiply) return scatter(lanes, source, out, [](T& a, T b) { a = product_of(a, b); });
  if constexpr (std::is_arithmetic_v<T>) {  // complex numbers have no order
    if (op == Op::scatter_maximum)
      scatter(lanes, source, out, [](T& a, T b) { a = a != a || a > b ? a : b; });
    else
      scatter(lanes, source, out, [](T& a, T b) { a = a != a || a < b ? a : b; });
  }
}

template <class T> void replace(const CallArgs& args, const Lanes& lanes) {
  const DenseElements source(args.inputs[2]);
  scatter(lanes, static_cast<const T*>(source.data()), static_cast<T*>(args.outputs[0].data),
          [](T& a, const T& b) { a = b; });
}

void replace_elements(const CallArgs& args, const Lanes& lanes) {
  switch (byte_size(args.outputs[0].dtype)) {
    case 1: return replace<std::uint8_t>(args, lanes);
    case 2: return replace<std::uint16_t>(args, lanes);
    case 4: return replace<std::uint32_t>(args, lanes);
    case 8: return replace<std::uint64_t>(args, lanes);
    default: return replace<Element16>(args, lanes);
  }
}

void combine_elements(const CallArgs& args, const Lanes& lanes) {
  const TensorView &out = args.outputs[0], &source = args.inputs[2];
  if (is_floating(out.dtype) && byte_size(out.dtype) == 2) {  // in f32, rounded once
    const Scratch<float> sums = widened_elements(out), wide = widened_elements(source);
    combine<float>(args.op, lanes, wide.data(), sums.data());
    return narrow(out.dtype, sums.data(), out.data, sums.size());
  }
  const DenseElements dense(source);
  visit_number(out.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) combine<T>(args.op, lanes, dense.data(), out.data);
  });
}

/// Attributes [axis]. The index has the axes of input 0, none longer but the one that is indexed.
void gather_call(const CallArgs& args) {
  const TensorView &x = args.inputs[0], &out = args.outputs[0];
  const Lanes lanes(args, x);
  if (lanes.lanes() * lanes.count == 0) return;
  switch (byte_size(x.dtype)) {
    case 1: return gather<std::uint8_t>(lanes, x, out);
    case 2: return gather<std::uint16_t>(lanes, x, out);
    case 4: return gather<std::uint32_t>(lanes, x, out);
    case 8: return gather<std::uint64_t>(lanes, x, out);
    default: return gather<Element16>(lanes, x, out);
  }
}

/// Attributes and index as in gather; elements that meet are taken in order.
void scatter_call(const CallArgs& args) {
  const Lanes lanes(args, args.outputs[0]);
  copy_elements(args.outputs[0], args.inputs[0]);
  if (lanes.lanes() * lanes.count == 0) return;
  args.op == Op::scatter ? replace_elements(args, lanes) : combine_elements(args, lanes);
}

}  // namespace

FERMATA_KERNELS(cpu) {
  add_native_kernel(Op::gather, &gather_call);
  for (const Op op : {Op::scatter, Op::scatter_add, Op::scatter_multiply, Op::scatter_maximum, Op::scatter_minimum})
    add_native_kernel(op, &scatter_call);
}

}  // namespace fermata
