// See fermata/sparse.h: building sparse tensors, taking them apart, converting them.
#include "fermata/sparse.h"

#include <fmt/format.h>

#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/print.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/layouts/sparse_tensor.h"
#include "frontend/ops/calls.h"
#include "frontend/tensor/host_elements.h"
#include "ir/error.h"

namespace fermata {
namespace {

/// What a constructor was given, for its errors.
struct Building {
  std::string_view function;
  std::vector<ErrorOperand> lines;
  Location where;

  void add(std::string_view label, const Tensor& part) {
    require_defined(function, part, where);
    lines.push_back({label, to_string(part.dtype(), part.shape()), ""});
  }
  void require_integers(std::string_view label, const Tensor& part) const {
    if (is_integer(part.dtype())) return;
    throw DTypeError(
        1152, format_error(1152, "DTypeError",
                           fmt::format("{}: {} must be integers, not {}", function, label, name(part.dtype())), lines,
                           where));
  }
  void require_values(const Tensor& part) const {
    if (kRealOrBoolean.has(part.dtype())) return;
    throw DTypeError(
        1152, format_error(1152, "DTypeError",
                           fmt::format("{}: values must be real or bool, not {}", function, name(part.dtype())), lines,
                           where));
  }
  void require(bool fits, const std::string& what) const {
    if (!fits)
      throw ShapeError(1050, format_error(1050, "ShapeError", fmt::format("{}: {}", function, what), lines, where));
  }
};

Shape checked_sizes(std::string_view function, const IntegerList& sizes, DType dtype, Location where) {
  check_shape(function, sizes, dtype, where);
  return Shape(sizes);
}

Tensor wrapper(std::unique_ptr<SparsePayload> payload) {
  const TensorType type{payload->values.dtype(), payload->sizes};
  const DispatchKeySet backend(payload->values.node()->backend);
  const Functionality layout = payload->is_csr() ? Functionality::sparse_csr : Functionality::sparse_coo;
  return Tensor(type, backend | layout, std::move(payload));
}

[[noreturn]] void throw_not_sparse(std::string_view function, std::string_view what, const Tensor& x,
                                   std::string_view hint, Location where) {
  throw DTypeError(
      1152, format_error(1152, "DTypeError", fmt::format("{}: not {}", function, what), describe(x), where, hint));
}

/// The elements of a dense tensor that are not zero. NaN is not.
Tensor nonzero_elements(const Tensor& x, Location where) {
  std::vector<std::int64_t> positions;
  {
    const Tensor kept = not_equal({x.detach(), where}, 0);
    const HostElements elements(kept, "counting the elements of a sparse tensor", where);
    const auto* const truth = static_cast<const bool*>(elements.data());
    for (std::int64_t i = 0; i < elements.count(); ++i)
      if (truth[i]) positions.push_back(i);
  }
  const auto structure = structure_of_positions(std::move(positions), x.shape(), where);
  return make_coo(structure->indices, take(reshape(x, -1, where), structure->flat, 0, where), x.shape(), structure);
}

void require_matrix(std::string_view function, const Tensor& x, Location where) {
  if (x.rank() == 2) return;
  throw ShapeError(
      1015, format_error(1015, "ShapeError", fmt::format("{}: a matrix has two axes", function), describe(x), where));
}

const SparsePayload& require_layout(std::string_view function, const Tensor& x, bool csr, Location where) {
  const SparsePayload& payload = require_sparse(function, x, where);
  if (payload.is_csr() != csr)
    throw_not_sparse(function, csr ? "a CSR tensor" : "a COO tensor", x,
                     csr ? "convert with to_sparse_csr()" : "convert with to_sparse_coo()", where);
  return payload;
}

std::string indented(const std::string& text, std::size_t by) {
  std::string result;
  for (const char c : text) {
    result += c;
    if (c == '\n') result.append(by, ' ');
  }
  return result;
}

}  // namespace

const SparsePayload* sparse_payload(const Tensor& x) {
  return x.defined() ? dynamic_cast<const SparsePayload*>(x.impl()->payload) : nullptr;
}

const SparsePayload& require_sparse(std::string_view function, const Tensor& x, Location where) {
  require_defined(function, x, where);
  if (const SparsePayload* payload = sparse_payload(x)) return *payload;
  throw_not_sparse(function, "a sparse tensor", x, "convert with to_sparse_coo() or to_sparse_csr()", where);
}

Tensor make_coo(const Tensor& indices, const Tensor& values, const Shape& sizes,
                std::shared_ptr<const SparseStructure> structure) {
  auto payload = std::make_unique<SparsePayload>();
  payload->indices = indices, payload->values = values, payload->sizes = sizes;
  payload->structure = std::move(structure);
  return wrapper(std::move(payload));
}

Tensor make_csr(const Tensor& pattern, const Tensor& values, const Shape& sizes,
                std::shared_ptr<const SparseStructure> structure) {
  auto payload = std::make_unique<SparsePayload>();
  payload->pattern = pattern, payload->values = values, payload->sizes = sizes;
  payload->structure = std::move(structure);
  return wrapper(std::move(payload));
}

Tensor sparse_coo(const Tensor& indices, const Tensor& values, const IntegerList& sizes, bool check, Location where) {
  Building building{"sparse_coo", {}, where};
  building.add("indices", indices), building.add("values", values);
  building.require_integers("indices", indices), building.require_values(values);
  const Shape shape = checked_sizes("sparse_coo", sizes, values.dtype(), where);
  building.require(values.rank() == 1 && indices.rank() == 2, "indices must have two axes and values one");
  building.require(indices.size(0) == shape.rank(),
                   fmt::format("{} rows of indices for {} axes", indices.size(0), shape.rank()));
  building.require(indices.size(1) == values.size(0),
                   fmt::format("{} positions for {} values", indices.size(1), values.size(0)));
  // Another identity: what is worked out of the indices stays right when the caller writes into them.
  Tensor result = make_coo(astype(indices, DType::i64, where).detach(), values, shape);
  if (check) structure_of(*sparse_payload(result), "sparse_coo checks its indices", where);
  return result;
}

Tensor sparse_csr(const Tensor& row_offsets, const Tensor& columns, const Tensor& values, const IntegerList& sizes,
                  bool check, Location where) {
  Building building{"sparse_csr", {}, where};
  building.add("row_offsets", row_offsets), building.add("columns", columns), building.add("values", values);
  building.require_integers("row_offsets", row_offsets), building.require_integers("columns", columns);
  building.require_values(values);
  const Shape shape = checked_sizes("sparse_csr", sizes, values.dtype(), where);
  building.require(shape.rank() == 2, fmt::format("a matrix must have two axes, not {}", shape.rank()));
  building.require(row_offsets.rank() == 1 && columns.rank() == 1 && values.rank() == 1,
                   "each component must have one axis");
  building.require(row_offsets.size(0) == shape[0] + 1,
                   fmt::format("{} row offsets for {} rows", row_offsets.size(0), shape[0]));
  building.require(columns.size(0) == values.size(0),
                   fmt::format("{} columns for {} values", columns.size(0), values.size(0)));
  const Tensor pattern = concat({astype(row_offsets, DType::i64, where), astype(columns, DType::i64, where)}, 0, where);
  Tensor result = make_csr(pattern, values, shape);
  if (check) structure_of(*sparse_payload(result), "sparse_csr checks its indices", where);
  return result;
}

Tensor coalesce(const Tensor& x, Location where) {
  const SparsePayload& payload = require_sparse("coalesce", x, where);
  const auto structure = structure_of(payload, "coalesce", where);
  if (!structure->target.defined()) return x;
  const Tensor merged = ordered_values(payload, *structure, where);
  auto unique = std::make_shared<SparseStructure>(*structure);
  unique->target = Tensor();
  return payload.is_csr() ? make_csr(pattern_of(*unique, payload.sizes, where), merged, payload.sizes, unique)
                          : make_coo(unique->indices, merged, payload.sizes, unique);
}

bool is_sparse(const Tensor& x) { return sparse_payload(x) != nullptr; }

bool is_coalesced(const Tensor& x, Location where) {
  return !structure_of(require_sparse("is_coalesced", x, where), "is_coalesced", where)->target.defined();
}

Tensor to_sparse_coo(const Tensor& x, Location where) {
  require_defined("to_sparse_coo", x, where);
  const SparsePayload* payload = sparse_payload(x);
  if (payload == nullptr) return nonzero_elements(x, where);
  if (!payload->is_csr()) return x;
  const SparsePayload& rows = *sparse_payload(coalesce(x, where));
  const auto structure = known_structure(rows);
  return make_coo(structure->indices, rows.values, rows.sizes, structure);
}

Tensor to_sparse_csr(const Tensor& x, Location where) {
  require_defined("to_sparse_csr", x, where);
  require_matrix("to_sparse_csr", x, where);
  if (const SparsePayload* payload = sparse_payload(x); payload != nullptr && payload->is_csr()) return x;
  const Tensor ordered = coalesce(to_sparse_coo(x, where), where);
  const SparsePayload& parts = *sparse_payload(ordered);
  const auto structure = known_structure(parts);
  return make_csr(pattern_of(*structure, parts.sizes, where), parts.values, parts.sizes, structure);
}

Tensor to_dense(const Tensor& x, Location where) { return general_call(Op::to_dense, {&x, 1}, {}, where); }

std::int64_t stored_count(const Tensor& x, Location where) {
  return require_sparse("stored_count", x, where).values.size(0);
}
Tensor stored_indices(const Tensor& x, Location where) {
  return require_layout("stored_indices", x, false, where).indices.detach();
}
Tensor stored_values(const Tensor& x, Location where) { return require_sparse("stored_values", x, where).values; }
Tensor stored_row_offsets(const Tensor& x, Location where) {
  const SparsePayload& payload = require_layout("stored_row_offsets", x, true, where);
  return slice(payload.pattern, 0, 0, payload.sizes[0] + 1, 1, where).detach();
}
Tensor stored_columns(const Tensor& x, Location where) {
  const SparsePayload& payload = require_layout("stored_columns", x, true, where);
  return slice(payload.pattern, 0, payload.sizes[0] + 1, kNone, 1, where).detach();
}

std::string sparse_to_string(const Tensor& x, Location where) {
  const SparsePayload& payload = require_sparse("printing", x, where);
  const std::string shape = to_string(x.dtype(), payload.sizes);
  const auto part = [&](std::string_view label, const Tensor& t) {
    return fmt::format(",\n  {}={}", label, indented(to_string(t, where), label.size() + 3));
  };
  if (payload.is_csr())
    return "sparse_csr(" + shape + part("row_offsets", stored_row_offsets(x, where)) +
           part("columns", stored_columns(x, where)) + part("values", payload.values) + ")";
  return "sparse_coo(" + shape + part("indices", payload.indices) + part("values", payload.values) + ")";
}

}  // namespace fermata
