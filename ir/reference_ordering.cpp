// Reference evaluation of the ops of ir/ops/ordering.def: one element after the other.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

#include "ir/error.h"
#include "ir/ops/ordering.h"
#include "ir/reference_element.h"

namespace fermata::ops {
namespace {

/// The lines of a dense tensor along an axis: element i of line l lies at start(l) + i * inner.
struct Lines {
  Lines(const Shape& shape, std::int64_t axis) : size(shape[static_cast<std::size_t>(axis)]) {
    for (std::int64_t i = 0; i < shape.rank(); ++i) {
      const std::int64_t s = shape[static_cast<std::size_t>(i)];
      if (i < axis) outer *= s;
      if (i > axis) inner *= s;
    }
  }
  std::int64_t count() const { return outer * inner; }
  std::size_t at(std::int64_t line, std::int64_t i) const {
    return static_cast<std::size_t>((line / inner * size + i) * inner + line % inner);
  }
  std::int64_t outer = 1, size, inner = 1;
};

template <class O> std::int64_t axis_of(const GraphNode& node, const ReferenceTensor& x) {
  const std::int64_t axis = attributes_of<O>(node).axis.value;
  return axis < 0 ? axis + x.shape.rank() : axis;
}

/// x[a] < x[b], NaN above everything.
bool is_less(const ReferenceTensor& x, std::size_t a, const ReferenceTensor& y, std::size_t b) {
  if (keeps_floats(x.dtype)) return !std::isnan(x.floats[a]) && (std::isnan(y.floats[b]) || x.floats[a] < y.floats[b]);
  if (x.dtype == DType::u64)
    return static_cast<std::uint64_t>(x.integers[a]) < static_cast<std::uint64_t>(y.integers[b]);
  return x.integers[a] < y.integers[b];
}

ReferenceTensor empty_result(const GraphNode& node) {
  ReferenceTensor result{node.dtype, node.shape, {}, {}};
  const auto count = static_cast<std::size_t>(element_count(node.shape));
  if (keeps_floats(node.dtype))
    result.floats.resize(count);
  else
    result.integers.resize(count);
  return result;
}

/// The reduction whose monoid a scan runs.
Op reduction_of(Op scan) {
  switch (scan) {
// clang-format off
#define FERMATA_SCAN(name, monoid, rule, doc) case Op::name: return Op::monoid;
#include "ir/ops.def"
    // clang-format on
    default: throw_internal("reference: not a scan");
  }
}

ReferenceTensor scan(const GraphNode& node, Op reduction, const ReferenceTensor& x) {
  const Lines lines(x.shape, axis_of<Scan>(node, x));
  if (is_complex(x.dtype)) {
    ReferenceTensor result = x;
    for (std::int64_t line = 0; line < lines.count(); ++line)
      for (std::int64_t i = 1; i < lines.size; ++i) {
        auto& z = result.complexes[lines.at(line, i)];
        const auto before = result.complexes[lines.at(line, i - 1)];
        z = reduction == Op::sum ? before + z : before * z;
      }
    return result;
  }
  const DType compute = kept_dtype(x.dtype);
  const ReduceFormula& monoid = reduce_formula(reduction, compute);
  const ElementReader read(x, compute);
  ElementWriter result(node.dtype, node.shape, compute);
  FormulaInterpreter combine(monoid.combine);
  std::uint64_t so_far = 0;
  for (std::int64_t line = 0; line < lines.count(); ++line)
    for (std::int64_t i = 0; i < lines.size; ++i) {
      const auto at = static_cast<std::int64_t>(lines.at(line, i));
      const std::uint64_t next = read[at];
      so_far = i == 0 ? next : combine(std::array{so_far, next})[0];
      result.set(at, so_far);
    }
  return result.take();
}

/// The positions that sort each line; ties in order.
std::vector<std::int64_t> order_of(const ReferenceTensor& x, const Lines& lines, std::int64_t line, bool descending) {
  std::vector<std::int64_t> order(static_cast<std::size_t>(lines.size));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    const std::size_t i = lines.at(line, a), j = lines.at(line, b);
    return descending ? is_less(x, j, x, i) : is_less(x, i, x, j);
  });
  return order;
}

/// The elements in order, or their positions: the first ones where the result is shorter.
ReferenceTensor sorted(const GraphNode& node, const ReferenceTensor& x, std::int64_t axis, bool descending,
                       bool positions) {
  const Lines lines(x.shape, axis), to(node.shape, axis);
  ReferenceTensor result = empty_result(node);
  for (std::int64_t line = 0; line < lines.count(); ++line) {
    const std::vector<std::int64_t> order = order_of(x, lines, line, descending);
    for (std::int64_t i = 0; i < to.size; ++i) {
      const std::int64_t position = order[static_cast<std::size_t>(i)];
      if (positions)
        result.integers[to.at(line, i)] = position;
      else if (keeps_floats(x.dtype))
        result.floats[to.at(line, i)] = x.floats[lines.at(line, position)];
      else
        result.integers[to.at(line, i)] = x.integers[lines.at(line, position)];
    }
  }
  return result;
}

ReferenceTensor searchsorted(const GraphNode& node, const ReferenceTensor& vector, const ReferenceTensor& values) {
  ReferenceTensor result = empty_result(node);
  const bool right = attributes_of<Searchsorted>(node).right.value;
  const auto size = static_cast<std::size_t>(element_count(vector.shape));
  for (std::size_t i = 0; i < result.integers.size(); ++i) {
    std::size_t at = 0;  // one step at a time
    while (at < size && (right ? !is_less(values, i, vector, at) : is_less(vector, at, values, i))) ++at;
    result.integers[i] = static_cast<std::int64_t>(at);
  }
  return result;
}

ReferenceTensor bincount(const GraphNode& node, const ReferenceTensor& x, const ReferenceTensor* weights) {
  ReferenceTensor result = empty_result(node);
  const std::int64_t size = x.shape.back(), length = node.shape.back(), count = element_count(x.shape);
  for (std::int64_t i = 0; i < count; ++i) {
    const auto from = static_cast<std::size_t>(i);
    const std::int64_t bin = x.integers[from];  // of u64 by its bits: what looks negative is beyond the length
    if (bin < 0 && x.dtype != DType::u64)
      throw ValueError(
          1343, format_error(1343, "ValueError", fmt::format("bincount: element {} is {}", i, bin), {}, node.where));
    if (bin < 0 || bin >= length) continue;
    const auto to = static_cast<std::size_t>(i / size * length + bin);
    if (weights == nullptr)
      ++result.integers[to];
    else if (keeps_floats(weights->dtype))
      result.floats[to] += weights->floats[from];
    else
      result.integers[to] = static_cast<std::int64_t>(static_cast<std::uint64_t>(result.integers[to]) +
                                                      static_cast<std::uint64_t>(weights->integers[from]));
  }
  return result;
}

ReferenceTensor flatnonzero(const GraphNode& node, const ReferenceTensor& x) {
  ReferenceTensor result = empty_result(node);
  const std::int64_t count = element_count(x.shape);
  std::size_t found = 0;
  for (std::int64_t i = 0; i < count && found < result.integers.size(); ++i) {
    const auto at = static_cast<std::size_t>(i);
    if (keeps_floats(x.dtype) ? x.floats[at] != 0 : x.integers[at] != 0) result.integers[found++] = i;
  }
  std::fill(result.integers.begin() + static_cast<std::ptrdiff_t>(found), result.integers.end(), count);
  return result;
}

}  // namespace

ReferenceTensor Scan::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return scan(node, reduction_of(node.op), *operands[0]);
}
ReferenceTensor Sort::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const ReferenceTensor& x = *operands[0];
  return sorted(node, x, axis_of<Sort>(node, x), attributes_of<Sort>(node).descending.value, false);
}
ReferenceTensor Argsort::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const ReferenceTensor& x = *operands[0];
  return sorted(node, x, axis_of<Argsort>(node, x), attributes_of<Argsort>(node).descending.value, true);
}
ReferenceTensor TopKIndices::reference(const GraphNode& node, const ReferenceOperands& operands) {
  const ReferenceTensor& x = *operands[0];
  return sorted(node, x, axis_of<TopKIndices>(node, x), attributes_of<TopKIndices>(node).largest.value, true);
}
ReferenceTensor Searchsorted::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return searchsorted(node, *operands[0], *operands[1]);
}
ReferenceTensor Bincount::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return bincount(node, *operands[0], operands.size() > 1 ? operands[1] : nullptr);
}
ReferenceTensor Flatnonzero::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return flatnonzero(node, *operands[0]);
}

}  // namespace fermata::ops
