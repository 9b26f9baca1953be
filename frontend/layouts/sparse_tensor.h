// What a sparse tensor is made of, and what is worked out of its indices. The public half is fermata/sparse.h.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "fermata/sparse.h"

namespace fermata {

/// Positions, each once and in row-major order, and how stored values become theirs.
struct SparseStructure {
  Tensor indices;                       // i64 [axes, U]
  Tensor flat;                          // i64 [U]: the same as numbers of elements
  Tensor target;                        // i64 [N]: where each stored value is added; undefined where nothing moves
  std::vector<std::int64_t> positions;  // flat, on the host
};

/// The indices never change, so what was worked out of them stays right; values may be written in place.
struct SparsePayload final : TensorPayload {
  std::string_view kind() const override { return "a sparse tensor"; }
  std::string_view hint() const override { return "to_dense() returns all elements, stored_values() the stored ones"; }

  Tensor indices;  // COO: i64 [axes, N]
  Tensor pattern;  // CSR: i64 [rows + 1 + N], row offsets and then columns
  Tensor values;   // [N]
  Shape sizes;
  mutable std::mutex working;
  mutable std::shared_ptr<const SparseStructure> structure;
  mutable Tensor as_pattern;  // of the structure, for products

  bool is_csr() const { return pattern.defined(); }
};

/// Null unless the tensor is a sparse one.
const SparsePayload* sparse_payload(const Tensor& x);
/// The payload, or DTypeError FM1152.
const SparsePayload& require_sparse(std::string_view function, const Tensor& x, Location where);

/// Sparse tensors of parts that fit. `structure` where it is known.
Tensor make_coo(const Tensor& indices, const Tensor& values, const Shape& sizes,
                std::shared_ptr<const SparseStructure> structure = nullptr);
Tensor make_csr(const Tensor& pattern, const Tensor& values, const Shape& sizes,
                std::shared_ptr<const SparseStructure> structure = nullptr);

/// What has been worked out so far; null where nothing has.
std::shared_ptr<const SparseStructure> known_structure(const SparsePayload& x);
/// Can indices be read on the host? Not those of a function that is being captured.
bool can_be_read(const SparsePayload& x);
/// Worked out when it is first asked for, which reads the indices: a sync, counted under `reason`.
std::shared_ptr<const SparseStructure> structure_of(const SparsePayload& x, const char* reason, Location where);
/// The values of the structure's positions.
Tensor ordered_values(const SparsePayload& x, const SparseStructure& structure, Location where);
/// A structure of positions on the host, which rise.
std::shared_ptr<const SparseStructure> structure_of_positions(std::vector<std::int64_t> positions, const Shape& sizes,
                                                              Location where);
/// Row offsets and columns of a matrix as one tensor.
Tensor pattern_of(const SparseStructure& structure, const Shape& sizes, Location where);
/// Positions [axes, N] and values [N] in whatever order. Reads the indices of CSR only.
struct StoredElements {
  Tensor indices, values;
};
StoredElements stored_elements(const SparsePayload& x, Location where);
/// The sum of indices times strides, as recorded arithmetic: i64 [N].
Tensor flat_positions(const Tensor& indices, const Shape& strides, Location where);

/// Products with a dense matrix. The sparse one is the left operand.
Tensor sparse_matmul(const SparsePayload& x, bool transposed, const Tensor& dense, Location where);

/// The text of a sparse tensor: its parts.
std::string sparse_to_string(const Tensor& x, Location where);

/// Kernels of the SparseCOO and SparseCSR keys, on the CPU.
void register_sparse_kernels();

}  // namespace fermata
