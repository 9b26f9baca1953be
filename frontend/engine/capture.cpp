// See capture.h. One kernel per signature, not per op, so that recording stays in the instruction cache.
#include "frontend/engine/capture.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <memory>

#include "dispatch/call.h"
#include "dispatch/devices.h"
#include "dispatch/kernel_table.h"
#include "dispatch/pointwise.h"
#include "fermata/modes.h"
#include "frontend/engine/boxed_recording.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/engine/pending_bound.h"
#include "frontend/engine/startup.h"
#include "frontend/engine/vast_views.h"
#include "ir/custom_op.h"
#include "ir/error.h"
#include "ir/op_traits.h"
#include "ir/scope.h"
#include "runtime/effects.h"
#include "runtime/few.h"
#include "runtime/retained_leaves.h"
#include "runtime/uniquely_owned.h"
#include "runtime/walk.h"

namespace fermata {
namespace {

using std::memory_order_acquire, std::memory_order_relaxed;

std::uint32_t mix(std::uint64_t a, std::uint64_t b) {  // the folded multiply of wyhash
  const auto p = static_cast<unsigned __int128>(a ^ 0xa0761d6478bd642full) * (b ^ 0xe7037ed1a0b428dbull);
  return static_cast<std::uint32_t>(p) ^ static_cast<std::uint32_t>(p >> 64);
}

struct Below {
  std::uint32_t hash = 1, depth = 0;
};
/// What a consumer needs to know of an operand, to which it now has an edge.
[[gnu::always_inline]] inline Below below(Node* n) {
  // A computed operand counts as a leaf whatever made it; else a loop would never record the same hash twice.
  if (const Storage* const storage = n->storage.load(memory_order_acquire); storage != nullptr)
    return {2u + static_cast<std::uint32_t>(n->dtype), storage->bytes < kLeastListed ? 0 : kReadsLargeLeaf};
  return {n->hash, n->depth.load(memory_order_relaxed)};
}
[[gnu::always_inline]] inline Below take_edge(Node* n) {
  n->refs.fetch_add(Node::kEdge, memory_order_relaxed);
  return below(n);
}
/// A temporary that is read only here gives its node away. Else its handle, which lives until the end of the statement,
/// would ask for its value in f(x * 2).sync().
Below take_edge(const Call& call, const PointwiseOperands& p, unsigned k) {
  Node* const n = p.nodes[k];
  if (n == nullptr) return {};
  if (call.is_last_use && p.operands[k]->is_tensor())
    if (Tensor* const t = p.operands[k]->expiring(); t != nullptr && t->defined() && t->impl()->value == n)
      if (take_unique_node(*t) != nullptr) return below(n);
  return take_edge(n);
}

Tensor finish(Node* node, DispatchKeySet keys, const Call& call) {
  ++recorded_nodes;
  const bool on_cpu = (keys.bits & 0xff) == DispatchKeySet(BackendKey::cpu).bits;
  Tensor result(node, on_cpu ? keys & kDataKeys : data_keys(keys, node->backend));
  if (!in_capture_scope()) [[likely]]
    cut_long_chain(node, call.where);
  else
    settle_depth(node), capture_scope->mark(node);
  return result;
}

Tensor capture_promoted(const Call& call, PointwiseOperands& p) {
  if (in_capture_scope()) [[unlikely]]
    capture_scope->take_operands(p.operands, call.where);
  promote_and_broadcast(call, p);
  if (p.backend != BackendKey::cpu) [[unlikely]]
    require_variant(call, p.backend, p.operand);
  void* const block = allocate_node();  // may throw, so before the edges
  const Below a = take_edge(call, p, 0), b = p.count > 1 ? take_edge(call, p, 1) : Below{};
  const Below c = p.count > 2 ? take_edge(call, p, 2) : Below{};
  const std::uint32_t depth = std::max({a.depth, b.depth, c.depth}) + 1;
  const std::uint64_t signature = static_cast<std::uint64_t>(call.entry.op) | static_cast<std::uint64_t>(p.result)
                                                                                  << 16;
  Node* node =
      ::new (block) Node{.refs{Node::kTensor},
                         .storage{nullptr},
                         .op = call.entry.op,
                         .dtype = p.result,
                         .rank = p.rank,
                         .arity = static_cast<std::uint8_t>(p.count),
                         .backend = p.backend,
                         .inline_sizes = p.sizes,
                         .where = within_scope(call.where),
                         .inputs = p.nodes,
                         .scalar = p.scalar,
                         .extra = std::exchange(p.extra, nullptr),
                         .hash = mix(a.hash ^ signature << 32, b.hash ^ static_cast<std::uint64_t>(c.hash) << 32),
                         .hint{0},
                         .depth{depth},
                         .tape{0},
                         .stretched = p.stretched};
  return finish(node, call.keys, call);
}

/// Sparse and quantized tensors are not recorded as wholes; their kernels call ops on their parts, which are.
bool is_compound(const Call& call) { return (call.keys & kCompoundKeys).bits != 0; }

}  // namespace

void require_no_scope(const Call& call, std::string_view why) {
  if (in_capture_scope())
    throw UserError(1701,
                    format_error(1701, "UserError",
                                 fmt::format("{}: cannot be recorded inside a function that is being compiled: {}",
                                             call.entry.name, why),
                                 {}, call.where, "call it outside, or keep this part out of compile()"));
}

namespace {

/// A built-in op on a device that has a kernel for calls and none for plans.
bool runs_at_once(const Call& call) {
  const BackendKey b = call.keys.backend();
  if (b == BackendKey::cpu || b == BackendKey::meta || !call.keys.has(Functionality::capture)) [[likely]]
    return false;
  const BackendCell* cell = call.entry.backends[static_cast<std::size_t>(b)].load(memory_order_acquire);
  if ((cell != nullptr && !cell->variants.empty()) || is_view(call.entry.op)) return false;
  require_no_scope(call, "the device has no kernel for it that plans can call");
  return true;
}

/// The keys of calls that may not be recorded as they are: one test for the others.
constexpr DispatchKeySet kUnusualKeys = kCompoundKeys | DispatchKeySet(std::uint64_t{0xfe});
bool is_unusual(const Call& call) { return (call.keys & kUnusualKeys).bits != 0; }

/// Written out: an initializer with gaps makes g++ clear the whole node first, by an instruction that takes a third of
/// a call.
constexpr std::array<std::uint16_t, Node::kInlineInputs> kNotStretched{0, 0, 0};

/// As take_edge(); the identity of a temporary that gives its node away is left in `identity`, if there is none yet.
[[gnu::always_inline]] inline Below take_edge(const Call& call, const Operand& operand, Node* n, Tensor& identity) {
  if (n == nullptr) return {};
  Tensor* const t = call.is_last_use ? operand.expiring() : nullptr;
  if (t == nullptr || !is_uniquely_owned(*t) || t->impl()->value != n) return take_edge(n);
  take_value(*t);
  if (identity.defined())
    *t = Tensor();
  else
    identity = std::move(*t);
  return below(n);
}

/// Whether operands need no more than this of each other: no casts, broadcasting or copies between devices.
[[gnu::always_inline]] inline bool are_alike(const Node& x, const Node& y) {
  const auto &a = x.inline_sizes, &b = y.inline_sizes;
  return x.dtype == y.dtype && x.rank == y.rank && x.backend == y.backend &&
         ((a[0] ^ b[0]) | (a[1] ^ b[1]) | (a[2] ^ b[2]) | (a[3] ^ b[3])) == 0;
}

/// For operands of one dtype and device of which one is a 0-d tensor: the other one, which has the result's shape. Null
/// for all else.
const Node* stretch_element(const Node& x, const Node& y, std::array<std::uint16_t, Node::kInlineInputs>& stretched) {
  if (x.dtype != y.dtype || x.backend != y.backend || (x.rank != 0 && y.rank != 0)) return nullptr;
  const Node& whole = x.rank != 0 ? x : y;
  if (whole.rank > Node::kInlineRank) return nullptr;
  stretched[x.rank != 0 ? 1 : 0] = static_cast<std::uint16_t>((1u << whole.rank) - 1);
  return &whole;
}

template <class... Operands> [[gnu::noinline]] Tensor capture_otherwise(const Call& call, const Operands&... operands) {
  if (is_unusual(call) && (is_compound(call) || runs_at_once(call)))
    return Dispatcher<Tensor(const Operands&...)>::redispatch(call, Functionality::capture, operands...);
  PointwiseOperands p(operands...);
  return capture_promoted(call, p);
}

/// What most calls are is recorded with all that it needs in registers: operands of one dtype, shape and low rank on
/// the CPU, one of which may be a host scalar or a 0-d tensor, outside of any scope.
template <class... Operands> Tensor capture_pointwise(const Call& call, const Operands&... operands) {
  constexpr std::size_t kCount = sizeof...(Operands);
  static_assert(kCount <= 2, "a condition has a dtype of its own");
  const std::array<const Operand*, kCount> given{&operands...};
  const Operand &left = *given.front(), &right = *given.back();
  const auto node_of = [](const Operand& o) { return o.is_tensor() ? o.tensor().node() : nullptr; };
  const std::array<Node*, Node::kInlineInputs> inputs{node_of(left), kCount == 2 ? node_of(right) : nullptr, nullptr};
  if (is_unusual(call) || in_capture_scope()) [[unlikely]]
    return capture_otherwise(call, operands...);
  const Node* lead = inputs[0] != nullptr ? inputs[0] : inputs[1];
  if (lead == nullptr) [[unlikely]]
    return capture_otherwise(call, operands...);
  const DType dtype = lead->dtype;
  const RuleResult rule = call.entry.rules[static_cast<std::size_t>(dtype)];
  if (rule.operand != dtype || lead->rank > Node::kInlineRank || lead->backend != BackendKey::cpu) [[unlikely]]
    return capture_otherwise(call, operands...);
  std::uint64_t scalar = 0;
  std::array<std::uint16_t, Node::kInlineInputs> stretched = kNotStretched;
  if (inputs[0] != nullptr && inputs[1] != nullptr) {
    if (!are_alike(*lead, *inputs[1])) [[unlikely]] {
      lead = stretch_element(*inputs[0], *inputs[1], stretched);
      if (lead == nullptr) return capture_otherwise(call, operands...);
    }
  } else if (kCount == 2) {
    const Scalar& s = (inputs[0] != nullptr ? right : left).scalar();
    if (promote_scalar(dtype, s.kind) != dtype) [[unlikely]]
      return capture_otherwise(call, operands...);
    scalar = dtype == DType::f32 ? constant_bits(static_cast<float>(s.as_double()))
                                 : checked_scalar_bits(call.entry.name, s, dtype, call.where);
  }
  void* const block = allocate_node();  // may throw, so before the edges
  Tensor result;
  Below a, b;
  if (kCount == 2 && inputs[0] == inputs[1]) {
    inputs[0]->refs.fetch_add(2 * Node::kEdge, memory_order_relaxed);
    a = b = below(inputs[0]);
  } else {
    a = take_edge(call, left, inputs[0], result);
    if (kCount == 2) b = take_edge(call, right, inputs[1], result);
  }
  const std::uint32_t depth = std::max(a.depth, b.depth) + 1;
  const std::uint64_t signature = static_cast<std::uint64_t>(call.entry.op) | static_cast<std::uint64_t>(rule.result)
                                                                                  << 16;
  Node* const node =
      ::new (block) Node{.refs{Node::kTensor},
                         .storage{nullptr},
                         .op = call.entry.op,
                         .dtype = rule.result,
                         .rank = lead->rank,
                         .arity = static_cast<std::uint8_t>(kCount),
                         .backend = BackendKey::cpu,
                         .inline_sizes = lead->inline_sizes,
                         .where = within_scope(call.where),
                         .inputs = inputs,
                         .scalar = scalar,
                         .extra = nullptr,
                         .hash = mix(a.hash ^ signature << 32, b.hash ^ std::uint64_t{Below{}.hash} << 32),
                         .hint{0},
                         .depth{depth},
                         .tape{0},
                         .stretched = stretched};
  ++recorded_nodes;
  const DispatchKeySet keys = call.keys & kDataKeys;
  if (TensorImpl* const impl = result.impl())
    impl->value = node, impl->keys = keys, impl->version = 0;
  else
    result = Tensor(node, keys);
  cut_long_chain(node, call.where);
  return result;
}

Tensor capture_unary(const Call& call, const Operand& a) { return capture_pointwise(call, a); }
Tensor capture_binary(const Call& call, const Operand& a, const Operand& b) { return capture_pointwise(call, a, b); }
Tensor capture_ternary(const Call& call, const Operand& a, const Operand& b, const Operand& c) {
  return capture_otherwise(call, a, b, c);
}

std::unique_ptr<NodeExtra> make_extra(Op op, const TensorType& type, std::span<const Tensor> tensors,
                                      const Attributes& attributes) {
  const bool attributes_inside = !attributes.integers.empty() && family(op) != Family::reduce;
  if (type.shape.rank() <= Node::kInlineRank && !attributes_inside && attributes.scalars.empty() &&
      tensors.size() <= Node::kInlineInputs && attributes.subgraphs == nullptr && op != Op::broadcast_to)
    return nullptr;  // a stretched value has strides one day
  auto extra = std::make_unique<NodeExtra>();
  if (type.shape.rank() > Node::kInlineRank) extra->sizes = type.shape;
  if (attributes_inside) extra->attributes.assign(attributes.integers.begin(), attributes.integers.end());
  extra->scalars.assign(attributes.scalars.begin(), attributes.scalars.end());
  if (tensors.size() > Node::kInlineInputs) extra->more_inputs.reserve(tensors.size() - Node::kInlineInputs);
  if (attributes.subgraphs != nullptr) extra->subgraphs = attributes.subgraphs->shared_from_this();
  return extra;
}

}  // namespace

Tensor record_node(const Call& call, std::span<const Tensor> tensors, const Attributes& attributes,
                   std::uint32_t context) {
  if (is_unusual(call) && (is_compound(call) || runs_at_once(call))) [[unlikely]]
    return Dispatcher<GeneralCall>::redispatch(call, Functionality::capture, tensors, attributes);
  const Op op = call.entry.op;
  std::vector<Tensor> own;
  if (in_capture_scope()) [[unlikely]]
    tensors = capture_scope->take_operands(tensors, own, call.where);
  const BackendKey backend = common_backend(call, tensors);
  Few<TensorType> types(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) types[i] = tensors[i].node()->type();
  const TensorType type = result_type(call, types, attributes);
  // Inside a function that is being compiled a view is recorded: its operand may be an argument, another one at replay.
  if (is_view(op) && !in_capture_scope())
    if (Node* view = view_of_leaf(op, *tensors[0].node(), type, attributes.integers))
      return Tensor(view, data_keys(call.keys, backend));
  if (is_view(op) && element_count(type.shape) >= kVastView) [[unlikely]]
    if (Tensor view = record_vast_view(call, tensors[0], type, attributes); view.defined()) return view;
  if (backend != BackendKey::cpu && !is_view(op)) [[unlikely]]
    require_variant(call, backend, tensors.empty() ? type.dtype : types[0].dtype);
  std::unique_ptr<NodeExtra> extra = make_extra(op, type, tensors, attributes);
  if (context != 0) {
    if (extra == nullptr) extra = std::make_unique<NodeExtra>();  // a call without arguments
    extra->context = context;
  }
  void* const block = allocate_node();
  std::uint64_t hash = static_cast<std::uint64_t>(op) | static_cast<std::uint64_t>(type.dtype) << 16;
  std::uint32_t depth = 0;
  std::array<Node*, Node::kInlineInputs> inputs{};
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    Node* in = tensors[i].node();
    const Below below = take_edge(in);
    depth = std::max(depth, below.depth), hash = mix(hash, below.hash);
    if (i < inputs.size())
      inputs[i] = in;
    else
      extra->more_inputs.push_back(in);
  }
  std::array<std::int64_t, Node::kInlineRank> sizes{};
  for (unsigned i = 0; i < type.shape.rank() && i < sizes.size(); ++i) sizes[i] = type.shape[i];
  std::uint64_t scalar = 0;
  if (family(op) == Family::reduce)
    scalar = static_cast<std::uint64_t>(attributes.integers[0]) | static_cast<std::uint64_t>(attributes.integers[1])
                                                                      << 16;
  Node* node =
      ::new (block) Node{.refs{Node::kTensor},
                         .storage{nullptr},
                         .op = op,
                         .dtype = type.dtype,
                         .rank = static_cast<std::uint8_t>(type.shape.rank()),
                         .arity = static_cast<std::uint8_t>(std::min<std::size_t>(tensors.size(), inputs.size())),
                         .backend = backend,
                         .inline_sizes = sizes,
                         .where = within_scope(call.where),
                         .inputs = inputs,
                         .scalar = scalar,
                         .extra = extra.release(),
                         .hash = mix(hash, scalar),
                         .hint{0},
                         .depth{depth + 1},
                         .tape{0},
                         .stretched = kNotStretched};
  if (op == Op::broadcast_to) node->stretched[0] = stretched_axes(types[0].shape, type.shape);
  return finish(node, call.keys, call);
}

namespace {

/// A call that others see reads, after its operands, the one before it of this thread.
Tensor record_with_effect(const Call& call, std::span<const Tensor> tensors, const Attributes& attributes) {
  const BackendKey backend = common_backend(call, tensors);
  if (backend == BackendKey::meta) return record_node(call, tensors, attributes, 0);
  std::vector<Tensor> operands(tensors.begin(), tensors.end());
  if (Node* const before = pending_effect_on(backend, call.where)) {
    before->refs.fetch_add(Node::kTensor, memory_order_relaxed);
    operands.emplace_back(before, data_keys(call.keys, backend));
  }
  const Tensor result = record_node(call, operands, attributes, 0);
  if (result.node()->pending()) set_last_effect(result.node());
  return result;
}

Tensor capture_general(const Call& call, std::span<const Tensor> tensors, const Attributes& attributes) {
  if (traits(call.entry.op).effect == Effect::effect) [[unlikely]]
    return record_with_effect(call, tensors, attributes);
  return record_node(call, tensors, attributes, 0);
}

/// Threads begin with Capture among their keys, in a thread-local image that the compiler has laid down. So where the
/// environment asks for eager mode, these kernels turn a thread that has not chosen a mode to eager mode at its first
/// call. Nothing else pays for that.
template <auto kKernel> struct UnlessEager;
template <class... A, Tensor (*kKernel)(const Call&, A...)> struct UnlessEager<kKernel> {
  static Tensor run(const Call& call, A... args) {
    if (mode_chosen) return kKernel(call, args...);
    set_mode(Mode::eager);
    return Dispatcher<Tensor(A...)>::redispatch(call, Functionality::capture, args...);
  }
};
template <auto kKernel> constexpr auto unless_eager = &UnlessEager<kKernel>::run;

/// Eager mode on a backend that compiles kernels and has no others: one node is recorded and computed at once.
template <auto kCapture> struct AtOnce;
template <class... A, Tensor (*kCapture)(const Call&, A...)> struct AtOnce<kCapture> {
  static Tensor run(const Call& call, A... args) {
    Tensor result = kCapture(call, args...);
    if (Node* n = result.node(); n->pending()) tensor_hooks.materialize(n, "an eager call on a device", call.where);
    return result;
  }
};
template <auto kCapture> constexpr auto at_once = &AtOnce<kCapture>::run;

Tensor record_unary(const Call& call, const Operand& a) {
  PointwiseOperands p(a);
  return capture_promoted(call, p);
}
Tensor record_binary(const Call& call, const Operand& a, const Operand& b) {
  PointwiseOperands p(a, b);
  return capture_promoted(call, p);
}
Tensor record_ternary(const Call& call, const Operand& a, const Operand& b, const Operand& c) {
  PointwiseOperands p(a, b, c);
  return capture_promoted(call, p);
}

}  // namespace

/// A call in eager mode on sharded values: recorded, and computed immediately.
static Tensor call_distributed_pointwise(const Call& call, std::span<const Operand* const> operands) {
  switch (operands.size()) {
    case 1: return AtOnce<&record_unary>::run(call, *operands[0]);
    case 2: return AtOnce<&record_binary>::run(call, *operands[0], *operands[1]);
    default: return AtOnce<&record_ternary>::run(call, *operands[0], *operands[1], *operands[2]);
  }
}

void install_distributed_calls() {
  distributed_calls = {.pointwise = &call_distributed_pointwise, .general = at_once<&capture_general>};
}

void register_kernels_at_once(BackendKey backend) {
  set_family_kernels(
      RegistrationKey::cell(Functionality::dense, backend),
      {at_once<&record_unary>, at_once<&record_binary>, at_once<&record_ternary>, at_once<&capture_general>});
}

void register_capture_kernels() {
  const RegistrationKey everywhere = RegistrationKey::everywhere(Functionality::capture);
  if (eager_by_default())
    set_family_kernels(everywhere, {unless_eager<&capture_unary>, unless_eager<&capture_binary>,
                                    unless_eager<&capture_ternary>, unless_eager<&capture_general>});
  else
    set_family_kernels(everywhere, {&capture_unary, &capture_binary, &capture_ternary, &capture_general});
  register_fallback(
      {.boxed = &capture_boxed, .where = std::source_location::current(), .key = everywhere, .passes_composites = true})
      .keep();
}

}  // namespace fermata
