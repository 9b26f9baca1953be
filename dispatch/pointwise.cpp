// See pointwise.h: the uncommon half, with every error a pointwise call can make.
#include "dispatch/pointwise.h"

#include <fmt/format.h>
#include <new>

#include <algorithm>

#include "dispatch/devices.h"
#include "ir/error.h"

namespace fermata {
namespace {

constexpr std::array<std::string_view, 3> kUnaryLabels{"x", "", ""}, kBinaryLabels{"lhs", "rhs", ""},
    kTernaryLabels{"cond", "x", "y"};
constexpr std::string_view kScalarDTypes[] = {"bool", "integer", "integer", "float", "complex", "quantized"};

std::vector<ErrorOperand> describe(const PointwiseOperands& p) {
  const auto& labels = p.count == 1 ? kUnaryLabels : p.count == 2 ? kBinaryLabels : kTernaryLabels;
  std::vector<ErrorOperand> lines;
  for (unsigned k = 0; k < p.count; ++k) {
    const Operand& o = *p.operands[k];
    lines.push_back({labels[k],
                     o.is_tensor() ? to_string(o.tensor().dtype(), o.tensor().shape())
                                   : fmt::format("{} scalar", kScalarDTypes[static_cast<std::size_t>(o.scalar().kind)]),
                     ""});
  }
  return lines;
}

[[noreturn]] void throw_dtype_error(const Call& call, const PointwiseOperands& p, DType a, DType b) {
  throw DTypeError(1102,
                   format_error(1102, "DTypeError",
                                fmt::format("{}: {} and {} have no common dtype", call.entry.name, name(a), name(b)),
                                describe(p), call.where, "cast one of them with astype()"));
}

/// Names the last axes of two operands that do not match.
[[noreturn]] void throw_broadcast(const Call& call, const PointwiseOperands& p) {
  std::vector<ErrorOperand> lines = describe(p);
  std::string sizes;
  for (unsigned i = 0; i < p.count && sizes.empty(); ++i) {
    for (unsigned j = i + 1; j < p.count && sizes.empty(); ++j) {
      if (p.nodes[i] == nullptr || p.nodes[j] == nullptr) continue;
      const auto a = p.nodes[i]->sizes(), b = p.nodes[j]->sizes();
      for (std::size_t back = 1; back <= std::min(a.size(), b.size()) && sizes.empty(); ++back) {
        const std::int64_t left = a[a.size() - back], right = b[b.size() - back];
        if (left == right || left == 1 || right == 1) continue;
        lines[i].note = fmt::format("axis {} is {}", a.size() - back, left);
        lines[j].note = fmt::format("axis {} is {}", b.size() - back, right);
        sizes = fmt::format(" ({} and {})", left, right);
      }
    }
  }
  throw ShapeError(
      1001, format_error(1001, "ShapeError", fmt::format("{}: shapes do not broadcast{}", call.entry.name, sizes),
                         lines, call.where));
}

Tensor cast(const Call& call, const Tensor& x, DType to) {
  const Attributes attributes{.wanted = {to, x.shape()}, .integers = {}, .scalars = {}};
  // An element of the CPU is cast there, whatever device it meets.
  const DispatchKeySet backends(std::uint64_t{0xff});
  const DispatchKeySet keys = (call.keys - backends) | x.node()->backend;
  return Dispatcher<GeneralCall>::call_with(operator_entry(Op::cast), keys, call.where, {&x, 1}, attributes);
}

void place_scalars(const Call& call, PointwiseOperands& p) {
  // One host scalar rides in the node; a second one, or one among no tensors, becomes a 0-d tensor.
  bool placed = false;
  bool tensors = false;
  for (unsigned k = 0; k < p.count; ++k) tensors = tensors || p.operands[k]->is_tensor();
  for (unsigned k = 0; k < p.count; ++k) {
    if (p.operands[k]->is_tensor()) continue;
    const DType t = wanted_dtype(call.entry, k, p.operand);
    const std::uint64_t bits = checked_scalar_bits(call.entry.name, p.operands[k]->scalar(), t, call.where);
    if (tensors && !placed && t == p.operand) {
      p.scalar = bits, placed = true;
      continue;
    }
    const Attributes attributes{.wanted = {t, {}}, .integers = {}, .scalars = {&bits, 1}, .backend = p.backend};
    p.held[k] = Dispatcher<GeneralCall>::call(operator_entry(Op::full), call.where, {}, attributes);
    p.nodes[k] = p.held[k].node();
  }
}

void broadcast(const Call& call, PointwiseOperands& p) {
  Shape shape;
  bool first = true;
  for (unsigned k = 0; k < p.count; ++k) {
    if (p.nodes[k] == nullptr) continue;
    const auto both = first ? std::optional(Shape(p.nodes[k]->sizes())) : broadcast_shapes(shape, p.nodes[k]->sizes());
    if (!both) throw_broadcast(call, p);
    shape = *both, first = false;
  }
  check_shape(call.entry.name, shape, p.result, call.where);
  p.rank = static_cast<std::uint8_t>(shape.rank());
  if (p.rank > Node::kInlineRank) {
    p.extra = new NodeExtra;
    p.extra->sizes = shape;
  }
  p.sizes = {};
  for (unsigned i = 0; i < p.rank && i < Node::kInlineRank; ++i) p.sizes[i] = shape[i];
  for (unsigned k = 0; k < p.count; ++k)
    p.stretched[k] = p.nodes[k] == nullptr ? std::uint16_t{0} : stretched_axes(p.nodes[k]->sizes(), shape);
}

void check_devices(const Call& call, PointwiseOperands& p) {
  bool known = false;
  for (unsigned k = 0; k < p.count; ++k) {
    const Node* n = p.nodes[k];
    if (n == nullptr || (n->rank == 0 && n->backend == BackendKey::cpu)) continue;  // 0-d CPU tensors meet any device
    if (known && n->backend != p.backend) {
      std::vector<ErrorOperand> lines = describe(p);
      for (unsigned i = 0; i < p.count; ++i)
        if (p.nodes[i] != nullptr)
          lines[i].note = fmt::format("on {}", kBackendNames[static_cast<std::size_t>(p.nodes[i]->backend)]);
      throw DeviceError(1401, format_error(1401, "DeviceError",
                                           fmt::format("{}: operands are on {} and {}", call.entry.name,
                                                       kBackendNames[static_cast<std::size_t>(p.backend)],
                                                       kBackendNames[static_cast<std::size_t>(n->backend)]),
                                           lines, call.where, "move one of them with to()"));
    }
    p.backend = n->backend, known = true;
  }
  for (unsigned k = 0; k < p.count; ++k)
    if (p.nodes[k] != nullptr) compute_elsewhere(p.nodes[k], p.backend, call.where);
}

/// Operands of one dtype and device that only broadcast, of low rank: no lists are made. False where there is more to
/// it, errors included.
bool settle_by_broadcasting(const Call& call, PointwiseOperands& p) {
  const unsigned first = call.entry.has_condition ? 1 : 0;
  if (!p.operands[first]->is_tensor()) return false;
  const Node& lead = *p.operands[first]->tensor().node();
  const RuleResult rule = call.entry.rules[static_cast<std::size_t>(lead.dtype)];
  if (rule.operand != lead.dtype) return false;
  unsigned rank = 0, scalar = p.count;
  for (unsigned k = 0; k < p.count; ++k) {
    const Operand& o = *p.operands[k];
    if (!o.is_tensor()) {
      if (scalar != p.count || k < first || promote_scalar(lead.dtype, o.scalar().kind) != lead.dtype) return false;
      scalar = k;
      continue;
    }
    const Node& n = *o.tensor().node();
    if (n.dtype != wanted_dtype(call.entry, k, lead.dtype) || n.backend != lead.backend || n.rank > Node::kInlineRank)
      return false;
    rank = std::max(rank, unsigned{n.rank});
  }
  std::array<std::int64_t, Node::kInlineRank> sizes{};
  std::array<std::uint16_t, 3> stretched{};
  std::int64_t elements = 1;
  for (unsigned axis = 0; axis < rank; ++axis) {
    std::int64_t size = 1;
    const auto size_of = [&](const Node& n) { return axis + n.rank < rank ? 1 : n.inline_sizes[axis + n.rank - rank]; };
    for (unsigned k = 0; k < p.count; ++k) {
      if (k == scalar) continue;
      const std::int64_t own = size_of(*p.operands[k]->tensor().node());
      if (own != 1 && size != 1 && own != size) return false;
      if (own != 1) size = own;
    }
    for (unsigned k = 0; k < p.count; ++k) {
      if (k == scalar) continue;
      const Node& n = *p.operands[k]->tensor().node();
      if (axis + n.rank < rank || size_of(n) != size) stretched[k] |= static_cast<std::uint16_t>(1u << axis);
    }
    constexpr std::int64_t kFew = std::int64_t{1} << 40;  // whatever the dtype, as many bytes can be counted
    if (elements > kFew / std::max(size, std::int64_t{1})) return false;
    elements *= size, sizes[axis] = size;
  }
  for (unsigned k = 0; k < p.count; ++k) p.nodes[k] = k == scalar ? nullptr : p.operands[k]->tensor().node();
  if (scalar != p.count)
    p.scalar = checked_scalar_bits(call.entry.name, p.operands[scalar]->scalar(), lead.dtype, call.where);
  p.operand = lead.dtype, p.result = rule.result, p.backend = lead.backend;
  p.rank = static_cast<std::uint8_t>(rank), p.sizes = sizes, p.stretched = stretched;
  return true;
}

}  // namespace

DType promoted_dtype(std::span<const Operand* const> operands, FunctionRef<void(DType, DType)> refuse) {
  bool any[2] = {};
  DType common[2] = {};  // of tensors with axes, of 0-d tensors
  for (const Operand* o : operands) {
    if (!o->is_tensor()) continue;
    const Node& n = *o->tensor().node();
    const int group = n.rank == 0 ? 1 : 0;
    const DType own = arithmetic_dtype(n.dtype);
    const auto both = any[group] ? promote(common[group], own) : std::optional(own);
    if (!both) refuse(common[group], own);
    any[group] = true, common[group] = both.value_or(own);
  }
  bool known = any[0] || any[1];
  DType t = any[0] ? common[0] : common[1];
  if (any[0] && any[1]) {
    const DTypeKind high = info(common[1]).kind, low = info(common[0]).kind;
    const auto integer = [](DTypeKind k) { return k == DTypeKind::signed_integer || k == DTypeKind::unsigned_integer; };
    if (high > low && !(integer(high) && integer(low))) t = common[1];
  }
  for (const Operand* o : operands) {
    if (o->is_tensor()) continue;
    const DTypeKind kind = o->scalar().kind;
    const DType alone = kind == DTypeKind::boolean    ? DType::boolean
                        : kind == DTypeKind::floating ? DType::f32
                                                      : DType::i64;
    if (known)
      t = promote_scalar(t, kind);
    else if (o == operands.front() || info(alone).kind > info(t).kind)
      t = alone;
  }
  return t;
}

void promote_and_broadcast_slow(const Call& call, PointwiseOperands& p) try {
  if (settle_by_broadcasting(call, p)) return;
  const unsigned first = call.entry.has_condition ? 1 : 0;
  for (unsigned k = 0; k < p.count; ++k)
    if (p.operands[k]->is_tensor()) p.nodes[k] = p.operands[k]->tensor().node();
  check_devices(call, p);
  const DType common = promoted_dtype(std::span(p.operands).subspan(first, p.count - first),
                                      [&](DType a, DType b) { throw_dtype_error(call, p, a, b); });
  const RuleResult rule = call.entry.rules[static_cast<std::size_t>(common)];
  if (rule.result == kRefused.result)
    throw DTypeError(
        1101, format_error(1101, "DTypeError", fmt::format("{}: not defined for {}", call.entry.name, name(common)),
                           describe(p), call.where));
  p.operand = rule.operand, p.result = rule.result;
  for (unsigned k = 0; k < p.count; ++k) {
    if (p.nodes[k] == nullptr) continue;
    const DType wanted = wanted_dtype(call.entry, k, p.operand);
    if (p.nodes[k]->dtype == wanted) continue;
    p.held[k] = cast(call, p.operands[k]->tensor(), wanted);
    p.nodes[k] = p.held[k].node();
    compute_elsewhere(p.nodes[k], p.backend, call.where);
  }
  place_scalars(call, p);
  broadcast(call, p);
} catch (const std::bad_alloc&) {
  throw OutOfMemoryError(
      3001, format_error(3001, "OutOfMemoryError", fmt::format("{}: cannot allocate temporary memory", call.entry.name),
                         {}, call.where));
}

}  // namespace fermata
