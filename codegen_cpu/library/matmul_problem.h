// A matmul call taken apart: sizes, strides, batch; and how it is cut into tiles.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "codegen_cpu/irregular/positions.h"
#include "ir/shape.h"
#include "runtime/function_ref.h"
#include "runtime/prepacked_weights.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// A matrix inside an operand. Strides are in elements.
struct MatrixSide {
  const std::byte* data;
  std::int64_t row_stride, column_stride;
  Shape batch_strides;
  Storage* buffer = nullptr;  // TensorView::buffer
};

struct MatmulProblem {
  DType dtype, result;
  std::int64_t m, n, k;
  MatrixSide lhs, rhs;  // lhs: m x k, rhs: k x n
  std::byte* out;       // dense: batch, m, n
  Shape batch_sizes;
  std::int64_t batches = 1;  // of all calls together, the batches of a call one after another
  std::int64_t batches_of_call = 1;
  std::span<const TensorView> calls =
      {};  // if there are several: the sides of each, whose strides are those of the first,
  std::span<const TensorView> results = {};  // and their results

  double multiply_adds() const {
    return static_cast<double>(batches) * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }
  /// Bytes of both operands and the result, each read or written once.
  double bytes() const;
  const std::byte* lhs_of(std::int64_t batch) const { return data_of(lhs, 0, batch); }
  const std::byte* rhs_of(std::int64_t batch) const { return data_of(rhs, 1, batch); }
  std::byte* out_of(std::int64_t batch) const;

 private:
  /// The call that a batch belongs to; `batch` becomes its number there. Small products notice the time of a division.
  std::int64_t take_call(std::int64_t& batch) const {
    if (batches_of_call == 1) return std::exchange(batch, 0);
    const std::int64_t call = batch / batches_of_call;
    batch -= call * batches_of_call;
    return call;
  }
  const std::byte* data_of(const MatrixSide& side, std::size_t number, std::int64_t batch) const;
};

/// Vectors become matrices of one row or column; batch axes along which the right side does not change become rows.
/// Several calls become batches.
MatmulProblem decode_matmul(const CallArgs& args);

/// True if most libraries can read the matrix in place: one stride is 1 and the other at least the extent it steps
/// over.
bool is_regular(const MatrixSide& side, std::int64_t rows, std::int64_t columns);
/// The same as an object, for FunctionRef.
inline constexpr auto kReadInPlace = [](const MatrixSide& side, std::int64_t rows, std::int64_t columns) {
  return is_regular(side, rows, columns);
};

/// Calls kernel(args) for each of several calls, and gives true, if a side of theirs has to be packed.
bool split_calls(const CallArgs& args,
                 FunctionRef<bool(const MatrixSide& side, std::int64_t rows, std::int64_t columns)> accepts,
                 FunctionRef<void(const CallArgs& args)> kernel);

/// Owns the packed copies of operands that no library can read in place (broadcast, reversed or doubly strided ones).
class PackedOperands {
 public:
  using Accepts = bool(const MatrixSide& side, std::int64_t rows, std::int64_t columns);
  /// Replaces the sides of `problem` that the library does not accept as they lie by dense ones.
  explicit PackedOperands(MatmulProblem& problem, FunctionRef<Accepts> accepts);
  explicit PackedOperands(MatmulProblem& problem);
  PackedOperands(const PackedOperands&) = delete;

 private:
  void pack(const MatmulProblem& problem, MatrixSide& side, std::int64_t rows, std::int64_t columns);
  std::array<std::optional<Scratch<std::byte>>, 2> held_;
  std::size_t count_ = 0;
};

/// Elements from which on a right side that comes again is kept packed, and what decides its bytes beside the layout.
inline constexpr std::int64_t kLeastKept = 1 << 14;
PackedKey key_of_rhs(const MatmulProblem& problem, const void* layout);

/// Whether one side is a vector: a matrix of one row on the left, or of one column on the right.
inline bool is_vector_product(const MatmulProblem& p) { return p.m == 1 || p.n == 1; }
/// The other side of such a product, strides as PackedOperands leaves them. The stride along an axis of one element
/// says nothing.
struct VectorProduct {
  bool is_row;  // a row times a matrix; else a matrix times a column
  std::int64_t columns, to_next_column, along_k;
  /// Else each element is one chain in order of k.
  bool sums_by_halves() const { return to_next_column != 1 || along_k == 1; }
};
VectorProduct vector_product_of(const MatmulProblem& problem);

/// Up to so many rows, or columns, of one side times another that lies along k, which is then read but once.
inline constexpr std::int64_t kFewVectors = 6;
/// Elements from which on such sums are by halves, like those of one row: the end of each takes as long as 128
/// elements.
inline constexpr std::int64_t kLeastByHalves = 128;
enum class FewVectors : std::uint8_t { none, rows, columns };
/// The side of a product that is a few vectors, each of whose sums with the other side is by halves.
FewVectors few_vectors_of(const MatmulProblem& problem);

/// What runs on every tile of the result: nothing where the call has no epilogue.
TileEpilogue tile_epilogue_of(const CallArgs& args);

/// A grid over m x n. The tiles of the last row and column may be smaller.
struct MatmulTiles {
  std::int64_t rows, columns;  // of a tile
  std::int64_t down, across;   // how many
  std::int64_t count() const { return down * across; }
};
/// Halves the longer side, to multiples of `granule`, until there are `kTilesWanted` tiles over all batches or a tile
/// holds fewer than `fewest` multiply-adds, and cuts further down to `most_rows` and `most_columns`.
MatmulTiles tile_matmul(const MatmulProblem& problem, double fewest, std::int64_t granule, std::int64_t most_rows,
                        std::int64_t most_columns);

/// Zeros the result.
void fill_zero(const MatmulProblem& problem);

}  // namespace fermata
