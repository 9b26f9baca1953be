// Promotion and broadcasting of pointwise operands, used by every kernel of a pointwise op in both modes.
//
// The common case (equal dtypes, equal shapes of low rank) is inline, a dozen instructions; everything else, including
// errors, is out of line.
#pragma once

#include <array>

#include "dispatch/operator.h"
#include "runtime/function_ref.h"

namespace fermata {

struct PointwiseOperands {
  explicit PointwiseOperands(const Operand& a) : operands{&a, nullptr, nullptr}, count(1) {}
  PointwiseOperands(const Operand& a, const Operand& b) : operands{&a, &b, nullptr}, count(2) {}
  PointwiseOperands(const Operand& a, const Operand& b, const Operand& c) : operands{&a, &b, &c}, count(3) {}
  ~PointwiseOperands() {
    if (extra != nullptr) [[unlikely]]
      delete extra;
  }
  PointwiseOperands(const PointwiseOperands&) = delete;
  PointwiseOperands& operator=(const PointwiseOperands&) = delete;

  std::array<const Operand*, 3> operands;
  unsigned count;
  std::array<Node*, 3> nodes{};  // null for the host scalar
  std::uint64_t scalar = 0;      // its bits, in the compute dtype of `operand`
  DType operand = DType::f32, result = DType::f32;
  std::uint8_t rank = 0;
  BackendKey backend = BackendKey::cpu;
  std::array<std::int64_t, Node::kInlineRank> sizes{};
  NodeExtra* extra = nullptr;  // holds the sizes of high ranks; ownership moves to a node
  std::array<std::uint16_t, 3> stretched{};
  std::array<Tensor, 3> held;  // owns operands that were cast, or created from a second scalar

  std::span<const std::int64_t> shape() const {
    return {rank <= Node::kInlineRank ? sizes.data() : extra->sizes.data(), rank};
  }
};

/// The target dtype of operand k: bool for a condition, a common one for the rest.
inline DType wanted_dtype(const OperatorEntry& entry, unsigned k, DType operand) {
  return k == 0 && entry.has_condition ? DType::boolean : operand;
}

/// The promoted dtype: that of the tensors with axes; 0-d tensors and then host numbers can only raise its kind (bool,
/// integer, floating, complex). Calls `refuse` with two dtypes that have no common one.
DType promoted_dtype(std::span<const Operand* const> operands, FunctionRef<void(DType, DType)> refuse);

/// Promotes, applies the op's dtype rule, casts and broadcasts. Throws user errors.
void promote_and_broadcast_slow(const Call& call, PointwiseOperands& p);

inline void promote_and_broadcast(const Call& call, PointwiseOperands& p) {
  const unsigned first =
      call.entry.has_condition ? 1 : 0;  // the operand that decides dtype and shape in the common case
  if (!p.operands[first]->is_tensor()) [[unlikely]]
    return promote_and_broadcast_slow(call, p);
  const Node& lead = *p.operands[first]->tensor().node();
  const RuleResult rule = call.entry.rules[static_cast<std::size_t>(lead.dtype)];
  bool plain = rule.operand == lead.dtype && lead.rank <= Node::kInlineRank;
  unsigned scalars = 0;
  for (unsigned k = 0; k < p.count; ++k) {
    const Operand& o = *p.operands[k];
    if (!o.is_tensor()) {
      plain = plain && scalars++ == 0 && promote_scalar(lead.dtype, o.scalar().kind) == lead.dtype;
      continue;
    }
    Node* n = p.nodes[k] = o.tensor().node();
    const auto& s = n->inline_sizes;
    plain = plain && n->rank == lead.rank && n->dtype == (k < first ? DType::boolean : lead.dtype) &&
            ((s[0] ^ lead.inline_sizes[0]) | (s[1] ^ lead.inline_sizes[1]) | (s[2] ^ lead.inline_sizes[2]) |
             (s[3] ^ lead.inline_sizes[3])) == 0 &&
            n->backend == lead.backend;
  }
  if (!plain) [[unlikely]]
    return promote_and_broadcast_slow(call, p);
  if (scalars != 0)
    for (unsigned k = 0; k < p.count; ++k)
      if (!p.operands[k]->is_tensor()) {
        const Scalar& s = p.operands[k]->scalar();
        p.scalar = lead.dtype == DType::f32 ? constant_bits(static_cast<float>(s.as_double()))
                                            : checked_scalar_bits(call.entry.name, s, lead.dtype, call.where);
      }
  p.operand = lead.dtype, p.result = rule.result, p.rank = lead.rank, p.sizes = lead.inline_sizes;
  p.backend = lead.backend;
}

}  // namespace fermata
