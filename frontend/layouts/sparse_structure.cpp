// What is worked out of the indices of sparse tensors on the host: order, repeated positions, row offsets.
//
// How many positions there are is data, so all of this reads the indices. Values are moved by recorded ops (take,
// index_add), so they stay lazy and gradients pass through.
#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/layouts/sparse_tensor.h"
#include "frontend/ops/calls.h"
#include "frontend/tensor/host_elements.h"
#include "ir/error.h"

namespace fermata {
namespace {

using Positions = std::vector<std::int64_t>;

/// Elements of an i64 tensor on the host. Under capture only what lies outside the function.
Positions read(const Tensor& x, const char* reason, Location where) {
  if (in_capture_scope() && CaptureScope::is_marked(x.node()))
    throw UserError(
        1701, format_error(1701, "UserError", "a value is read inside a function that is being compiled", {}, where,
                           "build the sparse tensor outside, or keep this part out of compile()"));
  const HostElements elements(x, reason, where);
  const auto* const data = static_cast<const std::int64_t*>(elements.data());
  return {data, data + elements.count()};
}

Tensor to_tensor(const Positions& values, Location where) { return tensor(values, where); }

[[noreturn]] void throw_index(const std::string& what, const SparsePayload& x, Location where) {
  throw IndexError(
      1250,
      format_error(1250, "IndexError", "sparse tensor: " + what,
                   {{"x", to_string(x.values.dtype(), x.sizes), fmt::format("{} values", x.values.size(0))}}, where));
}

void require_within(std::int64_t index, std::size_t axis, const SparsePayload& x, Location where) {
  if (index < 0 || index >= x.sizes[axis])
    throw_index(fmt::format("index {} is out of range for axis {} of size {}", index, axis, x.sizes[axis]), x, where);
}

Positions read_rows(const SparsePayload& x, const char* reason, Location where) {
  const Positions pattern = read(x.pattern, reason, where);
  const auto rows = static_cast<std::size_t>(x.sizes[0]);
  const auto entries = static_cast<std::int64_t>(pattern.size() - rows - 1);
  if (pattern[0] != 0 || pattern[rows] != entries || !std::is_sorted(pattern.begin(), pattern.begin() + x.sizes[0] + 1))
    throw_index(fmt::format("row offsets do not increase from 0 to {}", entries), x, where);
  Positions positions;
  positions.reserve(static_cast<std::size_t>(entries));
  for (std::size_t row = 0; row < rows; ++row)
    for (auto e = static_cast<std::size_t>(pattern[row]); e < static_cast<std::size_t>(pattern[row + 1]); ++e) {
      require_within(pattern[rows + 1 + e], 1, x, where);
      positions.push_back(static_cast<std::int64_t>(row) * x.sizes[1] + pattern[rows + 1 + e]);
    }
  return positions;
}

/// The number of every stored element; IndexError FM1250 for one out of range.
Positions read_positions(const SparsePayload& x, const char* reason, Location where) {
  if (x.is_csr()) return read_rows(x, reason, where);
  const Positions all = read(x.indices, reason, where);
  const Shape strides = dense_strides(x.sizes);
  const auto count = static_cast<std::size_t>(x.values.size(0));
  Positions positions(count, 0);
  for (std::size_t axis = 0; axis < x.sizes.rank(); ++axis)
    for (std::size_t i = 0; i < count; ++i) {
      require_within(all[axis * count + i], axis, x, where);
      positions[i] += all[axis * count + i] * strides[axis];
    }
  return positions;
}

Tensor indices_of_positions(const Positions& positions, const Shape& sizes, Location where) {
  const Shape strides = dense_strides(sizes);
  Positions all;
  all.reserve(positions.size() * sizes.rank());
  for (std::size_t axis = 0; axis < sizes.rank(); ++axis)
    for (const std::int64_t p : positions) all.push_back(p / strides[axis] % sizes[axis]);
  return tensor(all, {sizes.rank(), static_cast<std::int64_t>(positions.size())}, where);
}

bool rises(const Positions& positions) {
  return std::ranges::adjacent_find(positions, std::greater_equal<>()) == positions.end();
}

/// Where each value goes among the sorted positions, which become unique.
Positions merge(Positions& positions) {
  Positions order(positions.size()), target(positions.size());
  std::iota(order.begin(), order.end(), 0);
  const auto at = [&](std::int64_t i) { return std::pair(positions[static_cast<std::size_t>(i)], i); };
  std::ranges::sort(order, {}, at);  // equal positions stay in the order they came
  Positions unique;
  for (const std::int64_t i : order) {
    const std::int64_t p = positions[static_cast<std::size_t>(i)];
    if (unique.empty() || unique.back() != p) unique.push_back(p);
    target[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(unique.size()) - 1;
  }
  positions = std::move(unique);
  return target;
}

}  // namespace

std::shared_ptr<const SparseStructure> known_structure(const SparsePayload& x) {
  const std::lock_guard lock(x.working);
  return x.structure;
}

bool can_be_read(const SparsePayload& x) {
  if (!in_capture_scope() || known_structure(x) != nullptr) return true;
  const Node* node = (x.is_csr() ? x.pattern : x.indices).node();
  return !node->pending() && !CaptureScope::is_marked(node);
}

std::shared_ptr<const SparseStructure> structure_of_positions(Positions positions, const Shape& sizes, Location where) {
  auto structure = std::make_shared<SparseStructure>();
  structure->indices = indices_of_positions(positions, sizes, where);
  structure->flat = to_tensor(positions, where);
  structure->positions = std::move(positions);
  return structure;
}

std::shared_ptr<const SparseStructure> structure_of(const SparsePayload& x, const char* reason, Location where) {
  const std::lock_guard lock(x.working);
  if (x.structure != nullptr) return x.structure;
  Positions positions = read_positions(x, reason, where);
  auto structure = std::make_shared<SparseStructure>();
  if (!rises(positions)) structure->target = to_tensor(merge(positions), where);
  const bool as_given = !structure->target.defined() && !x.is_csr();
  structure->indices = as_given ? x.indices : indices_of_positions(positions, x.sizes, where);
  structure->flat = to_tensor(positions, where);
  structure->positions = std::move(positions);
  x.structure = structure;
  return structure;
}

Tensor ordered_values(const SparsePayload& x, const SparseStructure& structure, Location where) {
  if (!structure.target.defined()) return x.values;
  const Shape count{static_cast<std::int64_t>(structure.positions.size())};
  if (x.values.dtype() != DType::boolean)
    return index_add(zeros(count, x.values.dtype(), where), structure.target, x.values, 0, where);
  const Tensor counted = index_add(zeros(count, DType::i64, where), structure.target, x.values, 0, where);
  return not_equal({counted, where}, 0);
}

Tensor pattern_of(const SparseStructure& structure, const Shape& sizes, Location where) {
  const std::int64_t rows = sizes[0], width = sizes[1];
  Positions pattern(static_cast<std::size_t>(rows) + 1, 0);
  for (const std::int64_t p : structure.positions) ++pattern[static_cast<std::size_t>(p / width) + 1];
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) pattern[row + 1] += pattern[row];
  for (const std::int64_t p : structure.positions) pattern.push_back(p % width);
  return to_tensor(pattern, where);
}

StoredElements stored_elements(const SparsePayload& x, Location where) {
  if (!x.is_csr()) return {x.indices, x.values};
  const auto structure = structure_of(x, "the rows of a sparse matrix", where);
  return {structure->indices, ordered_values(x, *structure, where)};
}

Tensor flat_positions(const Tensor& indices, const Shape& strides, Location where) {
  Tensor flat = zeros({indices.size(1)}, DType::i64, where);
  for (unsigned axis = 0; axis < strides.rank(); ++axis)
    if (strides[axis] != 0)
      flat = add({flat, where}, multiply({select(indices, 0, axis, where), where}, strides[axis]));
  return flat;
}

}  // namespace fermata
