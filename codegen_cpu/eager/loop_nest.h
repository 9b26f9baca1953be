// Several strided operands walked together, in pieces that inner loops can take.
//
// Axes are collapsed where all operands allow it, so most nests have one or two. A piece is a range of the row-major
// element numbers; an operand that does not lie there as the inner loop wants it (contiguous, or one element for all) is
// gathered, and converted, into a buffer.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "codegen_cpu/eager/loop_tables.h"
#include "ir/shape.h"
#include "runtime/tensor_view.h"

namespace fermata::eager {

/// Elements per gathered piece: buffers of three operands stay in the first-level cache.
inline constexpr std::int64_t kPiece = 1024;
/// Rows at least this long are taken one by one; shorter ones are gathered, several to a piece.
inline constexpr std::int64_t kLongRow = 64;

struct AxisList {
  unsigned rank = 0;
  std::array<std::int64_t, kMaxRank> sizes{};
};

/// An operand over the collapsed axes, in the dtype the loop computes in.
struct NestOperand {
  const char* data = nullptr;
  DType stored = DType::f32, wanted = DType::f32;
  std::array<std::int64_t, kMaxRank> strides{};  // bytes
};

/// Copies `count` elements that lie `stride` bytes apart.
void gather(void* to, const char* from, std::int64_t stride, std::int64_t count, std::size_t element_bytes);

class LoopNest {
 public:
  static constexpr unsigned kMaxOperands = 3;
  LoopNest(std::span<const std::int64_t> sizes, std::span<const TensorView> operands, std::span<const DType> wanted);

  std::int64_t elements() const { return elements_; }
  unsigned operand_count() const { return count_; }
  /// The length of the rows, all of them long; 0 if rows are short and pieces may be cut anywhere.
  std::int64_t row_length() const { return long_rows_ ? sizes_[rank_ - 1] : 0; }
  /// True if piece() of operand `k` never copies, however long the piece (within a row if rows are long).
  bool in_place(unsigned k) const;
  bool all_in_place() const;

  struct Buffers {
    alignas(64) std::array<char, kPiece * 8> gathered, converted;
  };
  struct Piece {
    const void* data;
    bool splat;
  };
  /// Elements [begin, begin + count) of operand `k`: in place or in `buffers`, for count <= kPiece unless in_place(k).
  /// Where row_length() is not 0 they must lie in one row.
  Piece piece(unsigned k, std::int64_t begin, std::int64_t count, Buffers& buffers) const;

 private:
  void collapse();
  const char* position(const NestOperand& operand, std::int64_t element, std::array<std::int64_t, kMaxRank>& index) const;
  void gather_rows(const NestOperand& operand, std::int64_t begin, std::int64_t count, char* to) const;

  unsigned rank_ = 0, count_ = 0;
  bool long_rows_ = false;
  std::int64_t elements_ = 1;
  std::array<std::int64_t, kMaxRank> sizes_{};
  std::array<NestOperand, kMaxOperands> operands_;
};

}  // namespace fermata::eager
