// See loop_nest.h.
#include "codegen_cpu/eager/loop_nest.h"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include "codegen_cpu/irregular/elements_apart.h"
#include "runtime/thread_pool.h"

namespace fermata::eager {
namespace {

constexpr std::int64_t kRowsAhead = 3;
void ask_for(const char* from, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  for (std::int64_t at = 0; at < bytes + kLine; at += kLine) __builtin_prefetch(from + at);
}

/// Each of `rows` elements `run` times. A row is written in steps of 16 bytes; what that writes beyond its end the next
/// rows write again, and none of the last ones writes beyond the end of all.
template <std::size_t kBytes>
void repeat_elements(char* to, const char* from, std::int64_t stride, std::int64_t rows, std::int64_t run) {
  constexpr std::int64_t kVector = 16;
  const std::int64_t row_bytes = run * static_cast<std::int64_t>(kBytes);
  const char* const end = to + rows * row_bytes;
  for (; end - to >= row_bytes + kVector; to += row_bytes, from += stride) {
    char vector[kVector];
    for (std::size_t i = 0; i < sizeof(vector); i += kBytes) std::memcpy(vector + i, from, kBytes);
    for (std::int64_t i = 0; i < row_bytes; i += kVector) std::memcpy(to + i, vector, sizeof(vector));
  }
  for (; to < end; to += row_bytes, from += stride) gather_elements<kBytes>(to, from, 0, run, Reading::down);
}

}  // namespace

void gather(void* to, const char* from, std::int64_t stride, std::int64_t count, std::size_t element_bytes) {
  auto* out = static_cast<char*>(to);
  if (stride == static_cast<std::int64_t>(element_bytes)) {
    std::memcpy(out, from, static_cast<std::size_t>(count) * element_bytes);
    return;
  }
  switch (element_bytes) {
    case 1: return gather_elements<1>(out, from, stride, count, Reading::up);
    case 2: return gather_elements<2>(out, from, stride, count, Reading::up);
    case 4: return gather_elements<4>(out, from, stride, count, Reading::up);
    default: return gather_elements<8>(out, from, stride, count, Reading::up);
  }
}

LoopNest::LoopNest(std::span<const std::int64_t> sizes, std::span<const TensorView> operands,
                   std::span<const DType> wanted)
    : count_(static_cast<unsigned>(operands.size())) {
  for (const std::int64_t s : sizes) elements_ *= s;
  for (unsigned k = 0; k < count_; ++k) {
    NestOperand& o = operands_[k];
    o.data = static_cast<const char*>(operands[k].data), o.stored = operands[k].dtype, o.wanted = wanted[k];
    const auto bytes = static_cast<std::int64_t>(byte_size(o.stored));
    const std::size_t lead = sizes.size() - operands[k].rank;  // a 0-d operand has no axes at all
    for (std::size_t i = 0; i < lead; ++i) o.strides[i] = 0;
    for (std::size_t i = lead; i < sizes.size(); ++i) o.strides[i] = operands[k].strides[i - lead] * bytes;
  }
  rank_ = static_cast<unsigned>(sizes.size());
  for (unsigned i = 0; i < rank_; ++i) sizes_[i] = sizes[i];
  collapse();
}

/// Drops axes of size 1 and joins neighbors that every operand steps through evenly.
void LoopNest::collapse() {
  unsigned kept = 0;
  for (unsigned axis = 0; axis < rank_; ++axis) {
    if (sizes_[axis] == 1) continue;
    bool joins = kept > 0;
    for (unsigned k = 0; k < count_; ++k)
      joins = joins && operands_[k].strides[kept - 1] == operands_[k].strides[axis] * sizes_[axis];
    const unsigned to = joins ? kept - 1 : kept++;
    sizes_[to] = joins ? sizes_[to] * sizes_[axis] : sizes_[axis];
    for (unsigned k = 0; k < count_; ++k) operands_[k].strides[to] = operands_[k].strides[axis];
  }
  if (kept == 0) {
    sizes_[0] = elements_ == 0 ? 0 : 1;
    for (unsigned k = 0; k < count_; ++k) operands_[k].strides[0] = 0;
    kept = 1;
  }
  rank_ = kept;
  long_rows_ = rank_ == 1 || sizes_[rank_ - 1] >= kLongRow;
  for (unsigned k = 0; k < count_; ++k) {
    access_[k] = access_of(operands_[k]);
    const std::int64_t step = operands_[k].strides[rank_ - 1];
    transposed_ = transposed_ || (rank_ > 1 && access_[k] == Access::gathered && (step >= 64 || step <= -64));
  }
}

LoopNest::Access LoopNest::access_of(const NestOperand& o) const {
  std::int64_t dense = static_cast<std::int64_t>(byte_size(o.stored));
  const std::int64_t last = o.strides[rank_ - 1];
  bool constant = true, contiguous = true;
  for (unsigned axis = rank_; axis-- > 0; dense *= sizes_[axis]) {
    constant = constant && o.strides[axis] == 0;
    contiguous = contiguous && o.strides[axis] == dense;
    if (axis == rank_ - 1 && long_rows_ && contiguous) return Access::contiguous;  // a piece stays in its row
  }
  if (constant) return Access::constant;
  if (contiguous) return Access::contiguous;
  return long_rows_ && last == 0 ? Access::splat_in_row : Access::gathered;
}

bool LoopNest::all_in_place() const {
  for (unsigned k = 0; k < count_; ++k)
    if (operands_[k].stored != operands_[k].wanted || access_[k] == Access::gathered) return false;
  return true;
}

void LoopNest::for_each_piece(double ns_per_element, bool long_pieces,
                              FunctionRef<void(std::int64_t, std::int64_t)> body) const {
  const auto cut = [&](std::int64_t begin, std::int64_t end, std::int64_t most) {
    for (; begin < end; begin += most) body(begin, std::min(most, end - begin));
  };
  const std::int64_t row = long_rows_ ? sizes_[rank_ - 1] : elements_;
  if (elements_ == 0) return;
  if (row == elements_) {
    parallel_for(
        0, elements_, ns_per_element, [&](std::int64_t b, std::int64_t e) { cut(b, e, long_pieces ? e - b : kPiece); },
        64);
    return;
  }
  // A tile of a few rows reads each cache line of a transposed operand while it is still there.
  constexpr std::int64_t kTileRows = 16, kTilePiece = 128, kColumns = 16384;
  const std::int64_t tall = transposed_ ? kTileRows : 1, rows = elements_ / row;
  const std::int64_t piece = transposed_ ? kTilePiece : long_pieces ? kColumns : kPiece;
  const std::int64_t columns = (row + kColumns - 1) / kColumns, tiles = (rows + tall - 1) / tall * columns;
  const double tile_cost = ns_per_element * static_cast<double>(tall * std::min(row, kColumns));
  parallel_for(0, tiles, tile_cost, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t tile = b; tile < e; ++tile) {
      const std::int64_t first = tile / columns * tall, begin = tile % columns * kColumns;
      const std::int64_t end = std::min(begin + kColumns, row), last = std::min(first + tall, rows);
      for (std::int64_t at = begin; at < end; at += piece)
        for (std::int64_t r = first; r < last; ++r) body(r * row + at, std::min(piece, end - at));
    }
  });
}

const char* LoopNest::position(const NestOperand& operand, std::int64_t element,
                               std::array<std::int64_t, kMaxRank>& index) const {
  std::int64_t offset = 0;
  for (unsigned axis = rank_; axis-- > 0;) {
    index[axis] = axis == 0 ? element : element % sizes_[axis];
    if (axis > 0) element /= sizes_[axis];
    offset += index[axis] * operand.strides[axis];
  }
  return operand.data + offset;
}

template <std::size_t kBytes>
void LoopNest::gather_rows(const NestOperand& operand, std::int64_t begin, std::int64_t count, char* to) const {
  std::array<std::int64_t, kMaxRank> index;
  const char* from = position(operand, begin, index);
  const unsigned last = rank_ - 1;
  const std::int64_t step = operand.strides[last];
  const auto carry = [&](unsigned axis) {
    for (; axis > 0 && index[axis] == sizes_[axis]; --axis) {
      from += operand.strides[axis - 1] - sizes_[axis] * operand.strides[axis];
      index[axis] = 0, ++index[axis - 1];
    }
  };
  while (count > 0) {
    if (step == 0 && last > 0 && index[last] == 0 && count >= 2 * sizes_[last]) {  // rows of one element each
      const std::int64_t rows = std::min(count / sizes_[last], sizes_[last - 1] - index[last - 1]);
      repeat_elements<kBytes>(to, from, operand.strides[last - 1], rows, sizes_[last]);
      to += rows * sizes_[last] * static_cast<std::int64_t>(kBytes), count -= rows * sizes_[last];
      from += rows * operand.strides[last - 1], index[last - 1] += rows;
      carry(last - 1);
      continue;
    }
    const std::int64_t run = std::min(count, sizes_[last] - index[last]);
    // Processors do not foresee rows that are read from their ends.
    if (step == -static_cast<std::int64_t>(kBytes) && last > 0)
      ask_for(from + kRowsAhead * operand.strides[last - 1] + (run - 1) * step,
              run * static_cast<std::int64_t>(kBytes));
    gather_elements<kBytes>(to, from, step, run, Reading::down);
    to += run * static_cast<std::int64_t>(kBytes), count -= run;
    from += run * step, index[last] += run;
    carry(last);
  }
}

LoopNest::Piece LoopNest::piece(unsigned k, std::int64_t begin, std::int64_t count, Buffers& buffers) const {
  const NestOperand& o = operands_[k];
  Piece piece{o.data, access_[k] == Access::constant || access_[k] == Access::splat_in_row};
  std::array<std::int64_t, kMaxRank> index;
  char* gathered = buffers.gathered.data();
  if (access_[k] == Access::gathered) {
    piece.data = gathered;
    switch (byte_size(o.stored)) {
      case 1: gather_rows<1>(o, begin, count, gathered); break;
      case 2: gather_rows<2>(o, begin, count, gathered); break;
      case 4: gather_rows<4>(o, begin, count, gathered); break;
      default: gather_rows<8>(o, begin, count, gathered);
    }
  } else if (access_[k] == Access::contiguous && (rank_ == 1 || !long_rows_)) {
    piece.data = o.data + begin * static_cast<std::int64_t>(byte_size(o.stored));
  } else if (access_[k] != Access::constant) {
    piece.data = position(o, begin, index);
  }
  if (o.stored == o.wanted) return piece;
  const CastLoop cast = loop_tables().cast[static_cast<std::size_t>(o.stored)][static_cast<std::size_t>(o.wanted)];
  cast(buffers.converted.data(), piece.data, piece.splat ? 1 : count);
  return {buffers.converted.data(), piece.splat};
}

}  // namespace fermata::eager
