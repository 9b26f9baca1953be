// See captured_function.h.
#include "frontend/engine/captured_function.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <mutex>

#include "dispatch/devices.h"
#include "dispatch/kernel_table.h"
#include "fermata/ops.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/engine/compile_policy.h"
#include "frontend/engine/generator_scope.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autocast/autocast.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "ir/custom_op.h"
#include "runtime/backend_memory.h"
#include "runtime/effects.h"
#include "runtime/walk.h"

namespace fermata {
namespace {

/// The key of the generator while a function is captured: draws with it are those that run() gives another key.
constexpr std::uint64_t kCapturedKey = 0x6a09e667f3bcc908;

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9;
  x = (x ^ x >> 27) * 0x94d049bb133111eb;
  return x ^ x >> 31;
}

/// A value of that type that is pending for ever, so that reading it is an error.
Tensor placeholder(const TensorType& type, BackendKey backend, const CaptureScope& scope) {
  Node* node = make_leaf(type, Storage::nowhere(), backend, Node::kTensor);
  node->storage.exchange(nullptr)->release();
  scope.mark(node);
  return Tensor(node, DispatchKeySet(backend) | Functionality::dense);
}

[[noreturn]] void throw_writes(std::string_view what, const Tensor& target, Location where) {
  throw UnsupportedError(2760, format_error(2760, "UnsupportedError",
                                            fmt::format("{}: a function writes a tensor from outside in place", what),
                                            {{"x", to_string(target.dtype(), target.shape()), ""}}, where,
                                            "make it a part of what the function takes and gives"));
}

struct UndoWrites {
  CaptureScope& scope;
  ~UndoWrites() { scope.undo_writes(), scope.undo_gradients(); }
};

}  // namespace

std::uint64_t stream_key(double seed, std::uint64_t run) {
  return mixed(std::bit_cast<std::uint64_t>(seed) ^ mixed(run));
}

void copy_view(const TensorView& from, void* to, BackendKey backend, Location where) {
  const Shape dense = dense_strides(std::span(from.sizes, from.rank));
  const TensorView out{to, from.dtype, from.rank, from.sizes, dense.data()};
  const CallArgs copy{Op::copy, {&from, 1}, {&out, 1}, {}, {}, where};
  select_call(operator_entry(Op::copy), backend, from.dtype, copy, where).call(copy);
}

CapturedFunction::CapturedFunction(const TensorFunction& f, std::span<const TensorType> arguments, BackendKey backend,
                                   std::string_view what, Location where)
    : reads_(arguments.size()), where_(where) {
  const bool is_compared = in_capture_scope();
  const KeyGuard plain({}, Functionality::autograd);
  CaptureScope scope(CaptureScope::Of::control_flow);
  const FreshAutocastCache casts;
  const GeneratorScope draws{Generator(kCapturedKey)};
  const UndoWrites undo{scope};
  std::vector<Tensor> placeholders;
  for (const TensorType& type : arguments) placeholders.push_back(placeholder(type, backend, scope));
  const EffectScope effects;
  std::vector<Tensor> results = f(placeholders);
  if (!scope.writes().empty()) throw_writes(what, scope.writes()[0].target, where);
  for (const CaptureScope::Gradient& g : scope.gradients())
    if (g.leaf->grad.impl() != g.before.impl())
      throw_writes(what, g.leaf->grad.defined() ? g.leaf->grad : g.before, where);
  std::vector<Node*> roots;
  for (Tensor& t : results) {
    require_defined(what, t, where);
    results_.push_back(type_of(t));
    const Node* n = t.node();
    const bool computed_here = n->pending() && scope.made(n) && n->op != Op::input;
    if (!computed_here || std::ranges::find(roots, n) != roots.end()) t = copy(t, where);
    roots.push_back(t.node());
  }
  if (Node* const effect = pending_effect(); effect != nullptr && std::ranges::find(roots, effect) == roots.end()) {
    roots.push_back(effect);
  }
  has_effects_ = pending_effect() != nullptr;
  Walk walk;
  const auto is_leaf = [&](const Node* n) { return n->op == Op::input || !scope.made(n); };
  const Walk::IsLeaf leaves(is_leaf);
  walk.run(roots, true, &leaves);
  entry_ = PlanCache::instance().find(roots.back()->hash, walk.key);
  plan_ = compile_entry(*entry_, walk);
  std::vector<const Node*> records;
  for (const Walk::Entry& e : walk.order) records.push_back(e.node);
  bound_.bind(*plan_, records);
  idle_.reserve(16);
  for (const Node* root : std::span(roots).first(results.size())) {
    std::size_t output = 0;
    while (walk.order[walk.outputs[output]].node != root) ++output;
    outputs_.push_back(output);
  }
  take_leaves(walk, placeholders, scope);
  if (is_compared) list_program(walk);
  for (std::size_t slot = 0; slot < plan_->scalars.size(); ++slot) {
    const ScalarSource& s = plan_->scalars[slot];
    const Node& n = *walk.order[s.record].node;
    if (draws_numbers(n.op) && n.extra->scalars[0] == kCapturedKey)
      random_.push_back({slot, s.index == 0, n.extra->scalars[1]});
  }
}

void CapturedFunction::list_program(const Walk& walk) {
  std::vector<const Leaf*> read(walk.order.size());
  for (std::size_t i = 0; i < leaves_.size(); ++i) read[plan_->leaf_records[i]] = &leaves_[i];
  for (std::uint32_t i = 0; i < walk.order.size(); ++i) {
    program_.nodes.push_back(program_node(walk, i, {kCapturedKey, 0, ~std::uint64_t{0}}, program_.leaves.size()));
    if (program_.nodes.back().leaf < 0) continue;
    Place place{.is_constant = true};  // also what the plan does not read
    if (read[i] != nullptr && read[i]->constant.defined())
      place.hidden = read[i]->constant;
    else if (read[i] != nullptr)
      place.argument = static_cast<std::int32_t>(read[i]->operand);
    program_.leaves.push_back(std::move(place));
  }
}

void CapturedFunction::take_leaves(const Walk& walk, std::span<const Tensor> placeholders, const CaptureScope& scope) {
  for (const std::uint32_t record : plan_->leaf_records) {
    const Node* n = walk.order[record].node;
    Leaf leaf;
    leaf.strided = !n->is_dense_leaf();
    if (leaf.strided) leaf.strides = n->extra->strides, leaf.offset = n->extra->offset;
    const auto argument = std::ranges::find_if(placeholders, [n](const Tensor& t) { return t.node() == n; });
    if (argument != placeholders.end()) {
      leaf.operand = static_cast<std::size_t>(argument - placeholders.begin());
      reads_[leaf.operand] = true;
    } else if (const Tensor* from_outside = scope.identity_of(n)) {
      leaf.operand = placeholders.size() + hidden_.size();
      hidden_.push_back(*from_outside);
    } else {
      const_cast<Node*>(n)->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
      leaf.constant = Tensor(const_cast<Node*>(n), DispatchKeySet(n->backend) | Functionality::dense);
    }
    leaves_.push_back(std::move(leaf));
  }
}

LeafBuffer CapturedFunction::buffer_of(const Leaf& leaf, std::span<const TensorView> operands,
                                       std::vector<StoragePtr>& copies) const {
  if (leaf.constant.defined()) {
    const Node& n = *leaf.constant.node();
    return leaf_buffer(n, *n.storage.load(std::memory_order_acquire), plan_->backend, copies);
  }
  const TensorView& v = operands[leaf.operand];
  const std::span<const std::int64_t> sizes(v.sizes, v.rank), strides(v.strides, v.rank);
  if (leaf.strided) {
    if (!std::ranges::equal(leaf.strides, strides)) throw_internal("a captured function meets another layout", where_);
    return {static_cast<std::byte*>(v.data) - leaf.offset * static_cast<std::int64_t>(byte_size(v.dtype)), v.buffer};
  }
  if (is_dense(sizes, strides)) return {v.data, v.buffer};
  copies.emplace_back(allocate_on(plan_->backend, static_cast<std::size_t>(v.element_count()) * byte_size(v.dtype)));
  copy_view(v, copies.back()->data, plan_->backend, where_);
  return {copies.back()->data};
}

void CapturedFunction::run(std::span<const TensorView> operands, std::span<void* const> results, std::uint64_t key) {
  std::vector<StoragePtr> copies;
  std::vector<LeafBuffer> leaves;
  std::vector<void*> outputs(plan_->output_slots.size());
  for (const Leaf& leaf : leaves_) leaves.push_back(buffer_of(leaf, operands, copies));
  for (std::size_t i = 0; i < results.size(); ++i) outputs[outputs_[i]] = results[i];
  const Lease lease(*this);
  for (std::size_t i = 0; i < outputs.size(); ++i)  // what a call with an effect gives, and nobody reads
    if (outputs[i] == nullptr && !plan_->slots[plan_->output_slots[i]].is_given) {
      copies.emplace_back(allocate_on(plan_->backend, lease.bound->output_bytes(i)));
      outputs[i] = copies.back()->data;
    }
  for (const RandomScalar& r : random_) lease.bound->scalars()[r.slot] = r.is_key ? key : r.offset;
  lease.bound->run(*plan_, leaves, outputs);
}

CapturedFunction::Lease::Lease(CapturedFunction& f) : function(f) {
  {
    const std::lock_guard held(f.lock_);
    if (!f.idle_.empty()) bound = std::move(f.idle_.back()), f.idle_.pop_back();
  }
  if (bound == nullptr) bound = std::make_unique<BoundPlan>(f.bound_);
}

CapturedFunction::Lease::~Lease() {
  const std::lock_guard held(function.lock_);
  if (function.idle_.size() < function.idle_.capacity()) function.idle_.push_back(std::move(bound));
}

}  // namespace fermata
