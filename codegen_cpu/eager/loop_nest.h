// Several strided operands walked together, in pieces that inner loops can take.
//
// Axes are collapsed where all operands allow it, so most nests have one or two. A piece is a range of the row-major
// element numbers; an operand that does not lie there as the inner loop wants it (contiguous, or one element for all)
// is gathered, and converted, into a buffer.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "codegen_cpu/eager/loop_tables.h"
#include "ir/shape.h"
#include "runtime/function_ref.h"
#include "runtime/tensor_view.h"

namespace fermata::eager {

/// Elements per gathered piece: buffers of three operands stay in the first-level cache.
inline constexpr std::int64_t kPiece = 1024;
/// Rows at least this long are taken one by one; shorter ones are gathered, several to a piece.
inline constexpr std::int64_t kLongRow = 64;

/// An operand over the collapsed axes, in the dtype the loop computes in.
struct NestOperand {
  const char* data = nullptr;
  DType stored = DType::f32, wanted = DType::f32;
  std::array<std::int64_t, kMaxRank> strides;  // bytes; those beyond the rank are not set
};

/// Copies `count` elements that lie `stride` bytes apart.
void gather(void* to, const char* from, std::int64_t stride, std::int64_t count, std::size_t element_bytes);

class LoopNest {
 public:
  static constexpr unsigned kMaxOperands = 3;
  LoopNest(std::span<const std::int64_t> sizes, std::span<const TensorView> operands, std::span<const DType> wanted);

  std::int64_t elements() const { return elements_; }
  unsigned operand_count() const { return count_; }
  /// True if no piece of any operand is ever copied, however long.
  bool all_in_place() const;

  /// Calls body(begin, count) for pieces that cover all elements, on several threads where the work is worth it:
  /// `ns_per_element` on one core. Pieces have at most kPiece elements unless `long_pieces`. The order is kind to
  /// caches where operands are transposed.
  void for_each_piece(double ns_per_element, bool long_pieces,
                      FunctionRef<void(std::int64_t begin, std::int64_t count)> body) const;

  struct Buffers {
    alignas(64) std::array<char, kPiece * 8> gathered, converted;
  };
  struct Piece {
    const void* data;
    bool splat;
  };
  /// Elements [begin, begin + count) of operand `k`, a piece that for_each_piece has chosen: in place or in `buffers`.
  Piece piece(unsigned k, std::int64_t begin, std::int64_t count, Buffers& buffers) const;

 private:
  enum class Access : std::uint8_t { constant, contiguous, splat_in_row, gathered };
  void collapse();
  Access access_of(const NestOperand& operand) const;
  const char* position(const NestOperand& operand, std::int64_t element,
                       std::array<std::int64_t, kMaxRank>& index) const;
  template <std::size_t kBytes>
  void gather_rows(const NestOperand& operand, std::int64_t begin, std::int64_t count, char* to) const;

  unsigned rank_ = 0, count_ = 0;
  bool long_rows_ = false, transposed_ = false;
  std::int64_t elements_ = 1;
  std::array<std::int64_t, kMaxRank> sizes_;
  std::array<NestOperand, kMaxOperands> operands_;
  std::array<Access, kMaxOperands> access_{};
};

}  // namespace fermata::eager
