// See loop_nest.h.
#include "codegen_cpu/eager/loop_nest.h"

#include <algorithm>
#include <cstring>

namespace fermata::eager {
namespace {

template <std::size_t kBytes> void gather_elements(char* to, const char* from, std::int64_t stride, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    std::memcpy(to + i * static_cast<std::int64_t>(kBytes), from + i * stride, kBytes);
}

}  // namespace

void gather(void* to, const char* from, std::int64_t stride, std::int64_t count, std::size_t element_bytes) {
  auto* out = static_cast<char*>(to);
  if (stride == static_cast<std::int64_t>(element_bytes)) {
    std::memcpy(out, from, static_cast<std::size_t>(count) * element_bytes);
    return;
  }
  switch (element_bytes) {
    case 1: return gather_elements<1>(out, from, stride, count);
    case 2: return gather_elements<2>(out, from, stride, count);
    case 4: return gather_elements<4>(out, from, stride, count);
    default: return gather_elements<8>(out, from, stride, count);
  }
}

LoopNest::LoopNest(std::span<const std::int64_t> sizes, std::span<const TensorView> operands, std::span<const DType> wanted)
    : count_(static_cast<unsigned>(operands.size())) {
  for (const std::int64_t s : sizes) elements_ *= s;
  for (unsigned k = 0; k < count_; ++k) {
    NestOperand& o = operands_[k];
    o = {static_cast<const char*>(operands[k].data), operands[k].dtype, wanted[k], {}};
    const auto bytes = static_cast<std::int64_t>(byte_size(o.stored));
    const std::size_t lead = sizes.size() - operands[k].rank;  // a 0-d operand has no axes at all
    for (std::size_t i = lead; i < sizes.size(); ++i) o.strides[i] = operands[k].strides[i - lead] * bytes;
  }
  rank_ = static_cast<unsigned>(sizes.size());
  for (unsigned i = 0; i < rank_; ++i) sizes_[i] = sizes[i];
  collapse();
}

/// Drops axes of size 1 and joins neighbours that every operand steps through evenly.
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
}

bool LoopNest::in_place(unsigned k) const {
  const NestOperand& o = operands_[k];
  const std::int64_t stride = o.strides[rank_ - 1];
  if (o.stored != o.wanted) return false;
  if (long_rows_) return stride == 0 || stride == static_cast<std::int64_t>(byte_size(o.stored));
  for (unsigned axis = 0; axis < rank_; ++axis)
    if (o.strides[axis] != 0) return false;  // one element for all; other layouts of short rows did not collapse
  return true;
}
bool LoopNest::all_in_place() const {
  for (unsigned k = 0; k < count_; ++k)
    if (!in_place(k)) return false;
  return true;
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

void LoopNest::gather_rows(const NestOperand& operand, std::int64_t begin, std::int64_t count, char* to) const {
  std::array<std::int64_t, kMaxRank> index{};
  const char* from = position(operand, begin, index);
  const unsigned last = rank_ - 1;
  const std::size_t bytes = byte_size(operand.stored);
  while (count > 0) {
    const std::int64_t run = std::min(count, sizes_[last] - index[last]);
    gather(to, from, operand.strides[last], run, bytes);
    to += run * static_cast<std::int64_t>(bytes), count -= run;
    from += run * operand.strides[last], index[last] += run;
    for (unsigned axis = last; axis > 0 && index[axis] == sizes_[axis]; --axis) {
      from += operand.strides[axis - 1] - sizes_[axis] * operand.strides[axis];
      index[axis] = 0, ++index[axis - 1];
    }
  }
}

LoopNest::Piece LoopNest::piece(unsigned k, std::int64_t begin, std::int64_t count, Buffers& buffers) const {
  const NestOperand& o = operands_[k];
  Piece piece{o.data, true};
  bool constant = true;
  for (unsigned axis = 0; axis < rank_; ++axis) constant = constant && o.strides[axis] == 0;
  if (!constant && long_rows_) {
    std::array<std::int64_t, kMaxRank> index;
    const char* at = position(o, begin, index);
    const std::int64_t stride = o.strides[rank_ - 1];
    piece = {at, stride == 0};
    if (!piece.splat && stride != static_cast<std::int64_t>(byte_size(o.stored))) {
      gather(buffers.gathered.data(), at, stride, count, byte_size(o.stored));
      piece.data = buffers.gathered.data();
    }
  } else if (!constant) {
    gather_rows(o, begin, count, buffers.gathered.data());
    piece = {buffers.gathered.data(), false};
  }
  if (o.stored == o.wanted) return piece;
  const CastLoop cast = loop_tables().cast[static_cast<std::size_t>(o.stored)][static_cast<std::size_t>(o.wanted)];
  cast(buffers.converted.data(), piece.data, piece.splat ? 1 : count);
  return {buffers.converted.data(), piece.splat};
}

}  // namespace fermata::eager
