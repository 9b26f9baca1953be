// Reductions of complex numbers. Elements that are reduced together are split into blocks of fixed size, summed in
// f64 (sums of c64) or pairwise; blocks are then merged in order, whatever the number of threads.
#include <algorithm>
#include <array>
#include <type_traits>
#include <vector>

#include "codegen_cpu/complex/complex.h"
#include "codegen_cpu/complex/elements.h"
#include "codegen_cpu/irregular/operand_in_order.h"
#include "ir/op.h"
#include "ir/ops/reduce.h"
#include "runtime/call_attributes.h"

namespace fermata {
namespace {

/// Elements of a block; of a part that is reduced one after the other; columns that are reduced side by side.
constexpr std::int64_t kBlock = 2048, kLeaf = 16, kColumns = 64;

/// The axes of the operand in two groups, those kept and those reduced.
struct ReducedAxes {
  Shape kept, kept_strides, gone, gone_strides;
  explicit ReducedAxes(const CallArgs& args) {
    const TensorView& x = args.inputs[0];
    const auto reduction = attributes_of<ops::Reduction>(args);
    for (unsigned axis = 0; axis < x.rank; ++axis) {
      const bool goes = reduction.is_reduced(axis);
      (goes ? gone : kept).push_back(x.sizes[axis]);
      (goes ? gone_strides : kept_strides).push_back(x.strides[axis]);
    }
  }
  /// The kept axis along which reductions lie side by side, where one axis is reduced; else the rank of `kept`.
  unsigned side() const {
    unsigned axis = 0;
    while (axis < kept.rank() && (gone.rank() != 1 || kept_strides[axis] != 1 || kept[axis] < 2)) ++axis;
    return axis;
  }
};

/// Sum or product over both halves of a block, which keeps rounding errors small.
template <class W, class T, class F>
W fold(ElementOffsets<1>& at, const std::complex<T>* x, std::int64_t count, W identity, const F& combine) {
  if (count > kLeaf) {
    const W left = fold(at, x, count / 2, identity, combine);
    return combine(left, fold(at, x, count - count / 2, identity, combine));
  }
  W total = identity;
  for (std::int64_t i = 0; i < count; ++i, at.next()) total = combine(total, W(x[at.at[0]]));
  return total;
}

/// The same of a dense block, in lanes that are added pairwise at the end.
template <class T> std::complex<double> sum_of_dense(const std::complex<T>* x, std::int64_t count) {
  const auto* const parts = reinterpret_cast<const T*>(x);
  if constexpr (sizeof(T) == sizeof(float)) {
    double sums[2];
    complex_loops_in_use().sum(parts, count, sums);
    return {sums[0], sums[1]};
  } else {
    constexpr std::int64_t kLanes = 128;  // parts, alternating real and imaginary
    std::array<double, kLanes> lanes{};
    std::int64_t i = 0;
    for (; i + kLanes <= 2 * count; i += kLanes)
      for (std::int64_t k = 0; k < kLanes; ++k) lanes.data()[k] += parts[i + k];
    for (std::int64_t k = 0; i < 2 * count; ++i, ++k) lanes.data()[k] += parts[i];
    for (std::int64_t half = kLanes / 2; half >= 2; half /= 2)
      for (std::int64_t k = 0; k < half; ++k) lanes.data()[k] += lanes.data()[k + half];
    return {lanes[0], lanes[1]};
  }
}

/// The same for each of `columns` reductions side by side, whose elements lie in rows: each by its own tree.
template <class T, class W, class F> void fold_columns(const std::complex<T>* x, std::int64_t row_stride,
                                                       std::int64_t count, std::int64_t columns, W identity,
                                                       const F& combine, W* totals) {
  if (count > kLeaf) {
    fold_columns(x, row_stride, count / 2, columns, identity, combine, totals);
    W right[kColumns];
    fold_columns(x + count / 2 * row_stride, row_stride, count - count / 2, columns, identity, combine, right);
    for (std::int64_t c = 0; c < columns; ++c) totals[c] = combine(totals[c], right[c]);
    return;
  }
  std::fill_n(totals, columns, identity);
  for (std::int64_t i = 0; i < count; ++i, x += row_stride)
    for (std::int64_t c = 0; c < columns; ++c) totals[c] = combine(totals[c], W(x[c]));
}

/// W: the type of a state; R: of the result.
template <class W, class R, class T, class F> void reduce(const CallArgs& args, W identity, const F& combine) {
  const ReducedAxes axes(args);
  const bool is_dense_sum = args.op == Op::sum && is_dense(axes.gone, axes.gone_strides);
  const std::int64_t rows = element_count(axes.kept), length = element_count(axes.gone);
  const std::int64_t blocks = std::max<std::int64_t>(1, (length + kBlock - 1) / kBlock);
  const auto* const x = static_cast<const std::complex<T>*>(args.inputs[0].data);
  auto* const out = static_cast<R*>(args.outputs[0].data);
  std::vector<W> states(static_cast<std::size_t>(rows * blocks), identity);
  const auto finish = [&] {
    for (std::int64_t row = 0; row < rows; ++row) {
      W total = states[static_cast<std::size_t>(row * blocks)];
      for (std::int64_t k = 1; k < blocks; ++k)
        total = combine(total, states[static_cast<std::size_t>(row * blocks + k)]);
      out[row] = static_cast<R>(total);
    }
  };
  if (const unsigned side = axes.side(); side < axes.kept.rank() && !is_dense_sum) {
    // The others in row-major order, and how far apart results are along them.
    Shape others, strides, steps;
    std::int64_t step = 1, side_step = 1;
    for (unsigned axis = axes.kept.rank(); axis-- > 0; step *= axes.kept[axis])
      if (axis == side)
        side_step = step;
      else
        others.push_back(axes.kept[axis]), strides.push_back(axes.kept_strides[axis]), steps.push_back(step);
    const std::int64_t width = axes.kept[side], tiles = (width + kColumns - 1) / kColumns;
    const std::int64_t stride = axes.gone_strides.back();
    const double ns = 2.0 * static_cast<double>(std::min(length, kBlock) * std::min(width, kColumns));
    parallel_for(0, rows / width * blocks * tiles, ns, [&](std::int64_t b, std::int64_t e) {
      for (std::int64_t i = b; i < e; ++i) {
        const std::int64_t first = i % tiles * kColumns, block = i / tiles % blocks;
        const std::int64_t columns = std::min(kColumns, width - first);
        const ElementOffsets<2> at(others, {strides.data(), steps.data()}, i / tiles / blocks);
        W totals[kColumns];
        fold_columns(x + at.at[0] + first + block * kBlock * stride, stride, std::min(kBlock, length - block * kBlock),
                     columns, identity, combine, totals);
        for (std::int64_t c = 0; c < columns; ++c)
          states[static_cast<std::size_t>((at.at[1] + (first + c) * side_step) * blocks + block)] = totals[c];
      }
    });
    return finish();
  }
  parallel_for(0, rows * blocks, 20 + 2.0 * static_cast<double>(std::min(length, kBlock)),
               [&](std::int64_t b, std::int64_t e) {
                 for (std::int64_t i = b; i < e; ++i) {
                   const ElementOffsets<1> row(axes.kept, {axes.kept_strides.data()}, i / blocks);
                   const std::int64_t first = i % blocks * kBlock;
                   const std::int64_t count = std::min(kBlock, length - first);
                   if constexpr (std::is_same_v<W, std::complex<double>>) {
                     if (is_dense_sum) {
                       states[static_cast<std::size_t>(i)] = sum_of_dense(x + row.at[0] + first, count);
                       continue;
                     }
                   }
                   ElementOffsets<1> at(axes.gone, {axes.gone_strides.data()}, first);
                   states[static_cast<std::size_t>(i)] = fold(at, x + row.at[0], count, identity, combine);
                 }
               });
  finish();
}

/// A truth value that a complex number converts to.
struct Truth {
  Truth(bool v = false) : value(v) {}
  template <class T> explicit Truth(std::complex<T> z) : value(z != T(0)) {}
  explicit operator bool() const { return value; }
  bool value;
};

template <class T> void run(const CallArgs& args) {
  using Z = std::complex<T>;
  using W = std::complex<double>;
  switch (args.op) {
    case Op::sum: return reduce<W, Z, T>(args, W(0), [](W a, W b) { return a + b; });
    case Op::prod: return reduce<W, Z, T>(args, W(1), [](W a, W b) { return a * b; });
    case Op::all:
      return reduce<Truth, bool, T>(args, Truth(true), [](Truth a, Truth b) { return Truth(a.value && b.value); });
    default:
      return reduce<Truth, bool, T>(args, Truth(false), [](Truth a, Truth b) { return Truth(a.value || b.value); });
  }
}

void reduce_call(const CallArgs& args) {
  const auto reduce = [](const CallArgs& in_order) {
    if (in_order.inputs[0].dtype == DType::c64)
      run<float>(in_order);
    else
      run<double>(in_order);
  };
  const ReducedAxes axes(args);
  if (is_dense(axes.gone, axes.gone_strides) || axes.side() < axes.kept.rank()) return reduce(args);
  with_operands_in_order(args, reduce);
}

}  // namespace

FERMATA_KERNELS(cpu) {
  for (const Op op : {Op::sum, Op::prod, Op::all, Op::any}) add_complex_kernel(op, &reduce_call);
}

}  // namespace fermata
