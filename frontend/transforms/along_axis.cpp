// See along_axis.h. Lines become rows of one matrix, positions in a row those of all its elements.
#include "frontend/transforms/along_axis.h"

#include <vector>

namespace fermata::vjp {
namespace {

/// Axes with `axis` moved to the end, and the way back.
struct LastAxis {
  LastAxis(unsigned rank, std::int64_t axis) : order(rank), back(rank) {
    std::size_t next = 0;
    for (unsigned i = 0; i < rank; ++i)
      if (i != static_cast<unsigned>(axis)) order[next++] = i;
    order[rank - 1] = axis;
    for (std::size_t i = 0; i < rank; ++i) back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  }
  std::vector<std::int64_t> order, back;
};

std::int64_t rows_of(const Shape& lines_last) {
  std::int64_t rows = 1;
  for (unsigned i = 0; i + 1 < lines_last.rank(); ++i) rows *= lines_last[i];
  return rows;
}

/// Positions in lines of `size` elements as positions in all elements, as one vector.
Located flat_positions(const Located& index_last, std::int64_t size) {
  const Shape shape = index_last.shape();
  const Shape matrix{rows_of(shape), shape.back()};
  return reshape(reshape(index_last, matrix) + iota({matrix[0], 1}, 0, index_last) * size, {matrix[0] * matrix[1]});
}

}  // namespace

Located gather_along(const Located& x, const Located& index, std::int64_t axis) {
  const LastAxis last(x.shape().rank(), axis);
  const Located lines = permute(x, last.order), chosen = permute(index, last.order);
  const Shape shape = lines.shape();
  const Located flat = reshape(lines, {rows_of(shape) * shape.back()});
  return permute(reshape(take(flat, flat_positions(chosen, shape.back()), 0), chosen.shape()), last.back);
}

Located add_along(const Shape& shape, const Located& index, const Located& values, std::int64_t axis) {
  const LastAxis last(shape.rank(), axis);
  Shape lines(shape);
  for (unsigned i = 0; i < shape.rank(); ++i) lines[i] = shape[static_cast<std::size_t>(last.order[i])];
  const Located chosen = permute(index, last.order), given = permute(values, last.order);
  const std::int64_t count = rows_of(lines) * lines.back();
  const Located zeros = full(0, {values.dtype(), Shape{count}}, values);
  const Located sums = index_add(zeros, flat_positions(chosen, lines.back()),
                                 reshape(given, {rows_of(given.shape()) * given.shape().back()}), 0);
  return permute(reshape(sums, lines), last.back);
}

}  // namespace fermata::vjp
