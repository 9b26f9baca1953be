// Products of quantized matrices: sums of bytes in i32, and what zero points add to them.
//
// sum (a - za)(b - zb) = sum ab - za sum b - zb sum a + K za zb. The right operand is laid out once and kept with its
// column sums, so that a call reads it as it lies; the left one is made unsigned, which is what processors multiply by
// signed bytes. Everything after the sums is pointwise and fuses into one kernel.
#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/layouts/quantized_tensor.h"
#include "frontend/ops/calls.h"

namespace fermata {
namespace {

constexpr std::int64_t kBlock = 64;

/// The same values in the other kind of byte: 128 is added to, or taken from, byte and zero point.
Tensor flipped(const Tensor& bytes, DType to, Location where) {
  const Tensor moved = bitwise_xor({bytes, where}, bytes.dtype() == DType::i8 ? -128 : 128);
  return astype(moved, to, where);
}

/// Bytes of one kind, and the zero point that goes with them.
struct Bytes {
  Tensor elements, zero_point;
  Bytes(const QuantizedPayload& x, DType wanted, Location where) : elements(x.bytes), zero_point(x.how.zero_point) {
    if (elements.dtype() == wanted) return;
    zero_point = add({zero_point, where}, elements.dtype() == DType::i8 ? 128 : -128);
    elements = flipped(elements, wanted, where);
  }
};

Tensor sum_i32(const Tensor& bytes, std::int64_t axis, bool keepdims, Location where) {
  return astype(sum(bytes, axis, keepdims, where), DType::i32, where);
}

/// Zeros after the last position of an axis, up to a multiple of a block.
Tensor padded(const Tensor& x, std::int64_t axis, Location where) {
  Shape missing = x.shape();
  std::int64_t& size = missing[static_cast<std::size_t>(axis)];
  if (size % kBlock == 0) return x;
  size = kBlock - size % kBlock;
  return concat({x, zeros(missing, x.dtype(), where)}, axis, where);
}

/// [K, N] as blocks [N/64, K/4, 64, 4].
PackedMatrix pack(const QuantizedPayload& x, bool transposed, Location where) {
  Tensor bytes = x.bytes.dtype() == DType::i8 ? x.bytes : flipped(x.bytes, DType::i8, where);
  if (transposed) bytes = transpose(bytes, 0, 1, where);
  const Tensor whole = padded(padded(bytes, 0, where), 1, where);
  const Tensor cut = reshape(whole, {whole.size(0) / 4, 4, whole.size(1) / kBlock, kBlock}, where);
  return {copy(permute(cut, {2, 0, 3, 1}, where), where), sum_i32(bytes, 0, false, where)};
}

/// Bytes that are there already and stay: not the argument of a function that is being captured.
bool can_be_packed_now(const Tensor& bytes) {
  const Node* node = bytes.node();
  return !node->pending() && !CaptureScope::is_marked(node);
}

PackedMatrix packed(const QuantizedPayload& x, bool transposed, Location where) {
  const std::lock_guard lock(x.packing);
  std::optional<PackedMatrix>& kept = x.packed[transposed ? 1 : 0];
  if (!kept) {
    const KeyGuard now({}, DispatchKeySet(Functionality::capture) | Functionality::autograd);
    kept = pack(x, transposed, where);
  }
  return *kept;
}

Tensor take_away(const Tensor& from, const Tensor& sums, const Tensor& zero_point, Location where) {
  return subtract({from, where}, multiply({sums, where}, zero_point));
}

}  // namespace

Tensor integer_product(const QuantizedPayload& lhs, const QuantizedPayload& rhs, bool transposed, Location where) {
  const bool lay_out = rhs.bytes.rank() == 2 && can_be_packed_now(rhs.bytes);
  const Bytes left(lhs, DType::u8, where);
  // Of the right operand only the zero point is needed where it is packed already.
  Tensor right_zero = rhs.how.zero_point, sums, column_sums;
  if (rhs.bytes.dtype() != DType::i8) right_zero = add({right_zero, where}, -128);
  if (lay_out) {
    const PackedMatrix matrix = packed(rhs, transposed, where);
    const Tensor operands[] = {left.elements, matrix.blocks};
    sums = general_call<Op::matmul_packed>({.columns = {matrix.column_sums.size(0)}}, operands, where);
    column_sums = matrix.column_sums;
  } else {
    const Bytes right(rhs, DType::i8, where);
    const Tensor matrix = transposed ? transpose(right.elements, -2, -1, where) : right.elements;
    const Tensor operands[] = {left.elements, matrix};
    sums = general_call<Op::matmul_i32>({}, operands, where);
    column_sums = sum_i32(matrix, -2, true, where);
  }
  const Tensor corrected = take_away(sums, column_sums, left.zero_point, where);
  if (rhs.centered) return corrected;
  const std::int64_t depth = lhs.bytes.size(-1);
  const Tensor row_sums = sum_i32(left.elements, -1, true, where);
  const Tensor whole_rows = subtract({row_sums, where}, multiply({left.zero_point, where}, depth));
  return take_away(corrected, whole_rows, right_zero, where);
}

}  // namespace fermata
