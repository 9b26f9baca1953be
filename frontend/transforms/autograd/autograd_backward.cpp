// See autograd_backward.h. Nothing here recurses over the tape: it may be a chain of millions.
#include "frontend/transforms/autograd/autograd_backward.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <queue>
#include <unordered_map>
#include <utility>

#include "dispatch/registration.h"
#include "fermata/autograd.h"
#include "frontend/engine/alias.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/engine/no_memory.h"
#include "frontend/engine/sync.h"
#include "frontend/transforms/autograd/autograd.h"
#include "frontend/transforms/autograd/autograd_rules.h"
#include "frontend/transforms/autograd/backward_cuts.h"
#include "ir/custom_op.h"
#include "ir/error.h"
#include "ir/ops/reduce.h"
#include "ir/scope.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

/// Could the operator have been differentiated by its parts, had its backend no kernel of its own?
bool is_ambiguous(Op op) {
  return is_external(op) && std::ranges::binary_search(operators_with(RegistrationKey::composite()), name(op));
}

[[noreturn]] void throw_no_derivative(const GradNode& node, std::size_t k) {
  const GradOperand& operand = node.operands()[k];
  const std::vector<ErrorOperand> lines =
      operand.shape == nullptr ? std::vector<ErrorOperand>{}
                               : std::vector<ErrorOperand>{{"x", to_string(operand.dtype, *operand.shape), ""}};
  if (is_ambiguous(node.op))
    throw GradientError(
        1719,
        format_error(
            1719, "GradientError",
            fmt::format("{}: ambiguous derivative: that of its CompositeImplicit kernel or of the kernel that ran",
                        name(node.op)),
            lines, node.where, "register an Autograd kernel for the operator"));
  throw GradientError(
      1716, format_error(1716, "GradientError",
                         fmt::format("{}: has no derivative with respect to operand {}", name(node.op), k), lines,
                         node.where, "detach() the operand if its gradient is not needed"));
}

[[noreturn]] void throw_spent(const GradNode& node, Location where) {
  throw GradientError(1713, format_error(1713, "GradientError",
                                         fmt::format("backward: the values saved by {} at {} have been freed",
                                                     name(node.op), short_location(node.where)),
                                         {}, where, "pass retain_graph = true to the first backward pass"));
}

/// The line that the gradient of a call is recorded under, which has the scope of the call.
Location gradient_line(const GradNode& node) { return node.in_scope ? backward_of(node.where) : node.where; }

/// What a backward pass of the program or of the engine calls, on lines of its own, is in the scope of the call.
class GradientScope {
 public:
  explicit GradientScope(const GradNode& node) : line_(gradient_line(node)) {
    if (node.in_scope)
      scope_.emplace(ScopePlace{detail::keep_scope_name(backward_scope(scope_of(node.where))), nullptr});
  }

 private:
  vjp::LineGuard line_;
  std::optional<ScopePlaceGuard> scope_;
};

/// The saved values that the rules of the wanted operands read.
VjpArgs unpack(const GradEdge& node, Tensor g, unsigned reads, bool with_graph) {
  VjpArgs args{.node = *node.get(), .g = std::move(g)};
  for (unsigned k = 0; k < node->count && k < args.x.size(); ++k) {
    const GradOperand& operand = node->operands()[k];
    if ((reads >> k & 1u) == 0) continue;
    if (operand.is_scalar)
      args.x[k] = operand.scalar;
    else if (!with_graph || !operand.edge)
      args.x[k] = operand.value.unpack();
    else
      args.x[k] = with_history(operand.value.unpack(), operand.edge);
  }
  if ((reads & VjpRule::kResult) != 0)
    args.y = with_graph ? with_history(node->result.unpack(), node) : node->result.unpack();
  if (family(node->op) == Family::reduce) {
    const auto reduction = args.attributes_of<ops::Reduction>();
    args.axes = static_cast<std::uint16_t>(reduction.axes.value);
    if (!reduction.keepdims.value) {
      args.g = vjp::expand_dims(args.g, args.axes);
      if (!args.y.is_scalar()) args.y = vjp::expand_dims(args.y, args.axes);
    }
  }
  return args;
}

/// g conj(f'(x)) from a formula of g f'(x).
VjpTensor conjugated(Vjp vjp, VjpArgs args, unsigned operand) {
  args.g = vjp::conj(args.g);
  return vjp::conj(vjp(args, operand));
}

/// A gradient in the operand's shape and dtype.
Tensor fit(const GradNode& node, const GradOperand& operand, VjpTensor gradient) {
  if (operand.shape != nullptr && gradient.shape() != *operand.shape)
    gradient = family(node.op) == Family::reduce ? vjp::broadcast_to(gradient, *operand.shape)
                                                 : vjp::sum_to(gradient, *operand.shape);
  return vjp::cast(gradient, operand.dtype).tensor();
}

void add_to_leaf(const std::shared_ptr<LeafGradient>& to, const Tensor& gradient, const VmapLevel& level,
                 Location where) {
  LeafGradient& leaf = *to;
  const std::lock_guard lock(leaf.mutex);
  if (in_capture_scope()) [[unlikely]]
    capture_scope->touch_gradient(to);
  if (!leaf.grad.defined())
    leaf.grad = without_history(at_level(gradient, level));  // a new identity
  else
    write(leaf.grad, vjp::add(leaf.grad, gradient).tensor(), where);
}

class BackwardPass {
 public:
  BackwardPass(const TapeScan* scan, std::span<const GradEdge> targets, BackwardOptions options, Location where)
      : scan_(scan), targets_(targets), options_(options), where_(where), found_(targets.size()) {}

  std::vector<Tensor> run(std::span<const GradEdge> roots, std::span<const Tensor> seeds) {
    for (std::size_t i = 0; i < roots.size(); ++i) {
      const vjp::LineGuard line(gradient_line(*roots[i].get()));
      add(roots[i], seeds[i]);
    }
    std::uint64_t depth = 0;
    for (const GradEdge& root : roots) depth = std::max(depth, root->depth);
    BackwardCuts cuts(depth);
    while (!waiting_.empty()) {
      // The deepest: whatever contributes to it is deeper still, and done.
      const GradEdge node = waiting_.top();
      waiting_.pop();
      const auto at = gradients_.find(node.get());
      Tensor g = std::move(at->second);
      gradients_.erase(at);
      visit(node, std::move(g));
      if (cuts.is_due(*node.get())) [[unlikely]]
        compute_gradients(gradient_line(*node.get()));
    }
    // Only now, so that a pass that fails has added to no leaf.
    const vjp::LineGuard line(where_);
    for (const auto& [leaf, gradient] : reached_leaves_) add_to_leaf(leaf, gradient, options_.level, where_);
    return std::move(found_);
  }

 private:
  /// Computes what has been gathered so far, in an order that does not depend on addresses.
  void compute_gradients(Location where) {
    std::vector<std::pair<std::uint64_t, Node*>> pending;
    const auto add_pending = [&](std::uint64_t depth, const Tensor& t) {
      if (!t.defined() || is_batched(t) || is_composite_tensor(t) || !t.node()->pending()) return;
      pending.emplace_back(depth << 32 | t.node()->hash, t.node());
    };
    for (const auto& [node, gradient] : gradients_) add_pending(node->depth, gradient);
    for (const auto& [node, given] : results_)
      for (const Tensor& gradient : given) add_pending(node->depth, gradient);
    for (const auto& [leaf, gradient] : reached_leaves_) add_pending(0, gradient);
    for (const Tensor& gradient : found_) add_pending(0, gradient);
    if (pending.empty()) return;
    std::ranges::sort(pending, {}, &std::pair<std::uint64_t, Node*>::first);
    std::vector<Node*> roots;
    for (const auto& [order, node] : pending) roots.push_back(node);
    sync_nodes(roots, "the limit on pending nodes", where);
  }

  struct Shallower {
    bool operator()(const GradEdge& a, const GradEdge& b) const { return a->depth < b->depth; }
  };

  void add(const GradEdge& to, Tensor gradient) {
    const auto [at, first] = gradients_.try_emplace(to.get(), gradient);
    if (first)
      waiting_.push(to);
    else
      at->second = vjp::add(at->second, gradient).tensor();
  }

  /// The gradient of one result of a call whose backward pass wants them all.
  void add_result(const GradEdge& call, std::int64_t result, const Tensor& gradient) {
    const auto [at, first] = results_.try_emplace(call.get(), std::vector<Tensor>(call->detail->result_count));
    if (first) add(call, gradient);  // so that it is visited in its turn; the values are in results_
    Tensor& sum = at->second[static_cast<std::size_t>(result)];
    sum = sum.defined() ? vjp::add(sum, gradient).tensor() : gradient;
  }

  void run_hand_written(const GradEdge& node) {
    const auto at = results_.find(node.get());
    const std::vector<Tensor> gradients = std::move(at->second);
    results_.erase(at);
    CustomBackward& written = *node->detail->custom_backward;
    const GradientScope scope(*node.get());
    const std::vector<Tensor> given = written.backward(node.get(), gradients, options_.create_graph);
    if (given.size() != node->count)
      throw GradientError(1718, format_error(1718, "GradientError",
                                             fmt::format("{}: its backward pass returned {} gradients for {} tensors",
                                                         written.name(), given.size(), node->count),
                                             {}, node->where));
    for (std::size_t k = 0; k < node->count; ++k) {
      const GradOperand& operand = node->operands()[k];
      if (!wants(operand.edge) || !given[k].defined()) continue;
      if (operand.shape == nullptr) {  // from a tape: right already
        add(operand.edge, given[k]);
        continue;
      }
      if (given[k].shape() != *operand.shape)
        throw GradientError(
            1718, format_error(
                      1718, "GradientError",
                      fmt::format("{}: the shape of gradient {} of its backward pass differs from that of the tensor",
                                  written.name(), k),
                      {{"tensor", to_string(operand.dtype, *operand.shape), ""},
                       {"gradient", to_string(given[k].dtype(), given[k].shape()), ""}},
                      node->where));
      add(operand.edge, vjp::cast(given[k], operand.dtype).tensor());
    }
    if (!options_.retain_graph) node->spend();
  }

  void visit(const GradEdge& node, Tensor g) {
    bool found = false;
    for (std::size_t i = 0; i < targets_.size(); ++i)
      if (targets_[i] == node) {
        found = true;
        const Tensor own = at_level(g, options_.level);
        found_[i] = with_history(own, options_.create_graph ? grad_edge(own) : GradEdge());
      }
    if (found && options_.bounded) return;
    if (scan_ == nullptr && node->detail != nullptr)
      if (auto leaf = node->detail->leaf.lock()) {
        reached_leaves_.emplace_back(std::move(leaf), std::move(g));
        return;
      }
    pass_on(node, std::move(g));
  }

  bool wants(const GradEdge& edge) const { return edge && (scan_ == nullptr || scan_->needs(edge.get())); }

  void pass_on(const GradEdge& node, Tensor g) {
    if (node->detail != nullptr && node->detail->custom_backward != nullptr) return run_hand_written(node);
    if (node->detail != nullptr && node->detail->result >= 0) {
      if (wants(node->operands()[0].edge)) add_result(node->operands()[0].edge, node->detail->result, g);
      return;
    }
    const VjpRule& rule = *node->rule;
    unsigned reads = 0;
    bool any = false;
    for (std::size_t k = 0; k < node->count; ++k) {
      if (!wants(node->operands()[k].edge)) continue;
      if (rule.entry(k).kind == Derivative::none) throw_no_derivative(*node.get(), k);
      any = true, reads |= rule.entry(k).reads;
    }
    if (!any) return;
    if (node->spent) throw_spent(*node.get(), where_);
    const vjp::LineGuard line(gradient_line(*node.get()));
    const VjpArgs args = unpack(node, std::move(g), reads, options_.create_graph);
    for (std::size_t k = 0; k < node->count; ++k) {
      const GradOperand& operand = node->operands()[k];
      const VjpRule::Entry& entry = rule.entry(k);
      if (!wants(operand.edge) || entry.kind == Derivative::zero) continue;
      const bool conjugates = is_complex(args.g.dtype()) && entry.reads != 0 && !entry.is_conjugate;
      add(operand.edge, fit(*node.get(), operand,
                            conjugates ? conjugated(entry.vjp, args, static_cast<unsigned>(k))
                                       : entry.vjp(args, static_cast<unsigned>(k))));
    }
    if (!options_.retain_graph) node->spend();
  }

  const TapeScan* scan_;
  std::span<const GradEdge> targets_;
  BackwardOptions options_;
  Location where_;
  std::vector<Tensor> found_;
  std::vector<std::pair<std::shared_ptr<LeafGradient>, Tensor>> reached_leaves_;
  std::unordered_map<const GradNode*, Tensor> gradients_;
  std::unordered_map<const GradNode*, std::vector<Tensor>> results_;  // of calls with a hand-written backward pass
  std::priority_queue<GradEdge, std::vector<GradEdge>, Shallower> waiting_;
};

}  // namespace

bool GradNodes::insert(const GradNode* node) {
  constexpr std::size_t kLeast = 64;
  if (2 * (count_ + 1) > slots_.size()) {
    const std::vector<const GradNode*> before =
        std::exchange(slots_, std::vector<const GradNode*>(std::max(kLeast, 2 * slots_.size())));
    for (const GradNode* moved : before)
      if (moved != nullptr) slots_[slot_of(moved)] = moved;
  }
  const GradNode*& slot = slots_[slot_of(node)];
  if (slot != nullptr) return false;
  slot = node, ++count_;
  return true;
}

TapeScan scan_tape(std::span<const GradEdge> roots, std::span<const GradEdge> targets, bool bounded) {
  const auto is_target = [&](const GradNode* n) {
    return std::ranges::any_of(targets, [n](const GradEdge& t) { return t.get() == n; });
  };
  TapeScan scan;
  GradNodes reached;
  std::vector<const GradNode*> order;
  for (const GradEdge& root : roots)
    if (reached.insert(root.get())) order.push_back(root.get());
  for (std::size_t i = 0; i < order.size(); ++i) {
    bool ends = true;
    if (bounded && is_target(order[i])) continue;
    for (const GradOperand& o : order[i]->operands()) {
      if (!o.edge) continue;
      ends = false;
      if (reached.insert(o.edge.get())) order.push_back(o.edge.get());
    }
    if (ends && !is_target(order[i])) scan.reaches_others = true;
  }
  std::ranges::sort(order, {}, &GradNode::depth);
  for (const GradNode* n : order) {
    const bool needed = is_target(n) || std::ranges::any_of(n->operands(), [&](const GradOperand& o) {
                          return o.edge && scan.needed.has(o.edge.get());
                        });
    if (needed) scan.needed.insert(n);
  }
  return scan;
}

bool has_live_history(const Tensor& tensor) {
  const GradEdge root = grad_edge(tensor);
  if (!root) return false;
  GradNodes seen;
  seen.insert(root.get());
  std::vector<const GradNode*> waiting{root.get()};
  while (!waiting.empty()) {
    const GradNode* node = waiting.back();
    waiting.pop_back();
    if (node->spent) return false;
    for (const GradOperand& o : node->operands())
      if (o.edge && seen.insert(o.edge.get())) waiting.push_back(o.edge.get());
  }
  return true;
}

std::vector<Tensor> run_backward(const GradEdge& root, Tensor seed, const TapeScan* scan,
                                 std::span<const GradEdge> targets, BackwardOptions options, Location where) {
  return run_backward({&root, 1}, {&seed, 1}, scan, targets, options, where);
}

std::vector<Tensor> run_backward(std::span<const GradEdge> roots, std::span<const Tensor> seeds, const TapeScan* scan,
                                 std::span<const GradEdge> targets, BackwardOptions options, Location where) try {
  const KeyGuard as_computed({}, Functionality::autocast);  // the forward pass has settled every dtype
  BackwardPass pass(scan, targets, options, where);
  if (options.create_graph) {
    const EnableGradGuard recording;
    return pass.run(roots, seeds);
  }
  // Inside vmap nothing of the pass has a history at this level, and what happens below is the business of gradients
  // that are taken further out.
  if (options.level.depth != 0) {
    std::vector<Tensor> plain;
    for (const Tensor& seed : seeds) plain.push_back(without_history(at_level(seed, options.level)));
    return pass.run(roots, plain);
  }
  const NoGradGuard quiet;
  return pass.run(roots, seeds);
} catch (const std::bad_alloc&) { throw_no_memory("backward", where); }

Tensor seed_gradient(const Tensor& y, const Tensor& seed, Location where) {
  const vjp::LineGuard line(where);
  const TensorType type{y.dtype(), y.shape()};
  const auto describe = [&] {
    std::vector<ErrorOperand> lines{{"y", to_string(type.dtype, type.shape), ""}};
    if (seed.defined()) lines.push_back({"seed", to_string(seed.dtype(), seed.shape()), ""});
    return lines;
  };
  if (!seed.defined()) {
    if (is_complex(type.dtype))
      throw GradientError(
          1770, format_error(1770, "GradientError", "backward: a complex result needs a seed", describe(), where,
                             "differentiate a real function of it, such as abs() or real()"));
    if (element_count(type.shape) == 1) return vjp::full(1, type, y).tensor();
    throw GradientError(1711, format_error(1711, "GradientError", "backward: a result of several elements needs a seed",
                                           describe(), where, "reduce it to one element, or pass a seed of its shape"));
  }
  if (seed.shape() != type.shape || !is_inexact(seed.dtype()) || (is_complex(seed.dtype()) && !is_complex(type.dtype)))
    throw GradientError(
        1715, format_error(1715, "GradientError",
                           "backward: the seed must be floating and have the shape of the result", describe(), where));
  return vjp::cast(seed, type.dtype).tensor();
}

}  // namespace fermata
