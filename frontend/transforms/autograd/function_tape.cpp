// See function_tape.h.
#include "frontend/transforms/autograd/function_tape.h"

#include <algorithm>
#include <atomic>
#include <unordered_set>

#include "frontend/transforms/autograd/autograd_backward.h"
#include "frontend/transforms/autograd/vjp_tensor.h"

namespace fermata {
namespace {

std::uint64_t next_scope() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

bool has_any_history(const Tensor& t) {
  return t.defined() && (t.keys().has(Functionality::autograd) || has_history_below(t));
}

}  // namespace

std::pair<Tensor, GradEdge> make_mark(const Tensor& x, bool records_outside, Location where) {
  GradEdge node = make_grad_node(Op::copy, 1, where);
  GradOperand& operand = node->operands()[0];
  operand.dtype = x.dtype();
  // Inside vmap the mark is a tensor of that level, also where x is none.
  Tensor own = vmap_frame != nullptr ? at_level(x, vmap_frame->level) : x;
  if (records_outside)
    operand.edge = grad_edge(own);
  else if (is_batched(own))
    own = detach_all_levels(own);
  if (operand.edge) node->depth = operand.edge->depth + 1;
  return {own, std::move(node)};
}

FunctionTape::FunctionTape(Location where)
    : where_(where),
      records_outside_(grad_enabled()),
      level_(vmap_frame != nullptr ? vmap_frame->level : VmapLevel{}),
      outer_scope_(tape_scope),
      scope_(next_scope()) {
  recording_.emplace();
  tape_scope = scope_;
}

FunctionTape::~FunctionTape() {
  if (recording_) tape_scope = outer_scope_;
}

Tensor FunctionTape::mark(const Tensor& x) {
  if (!is_inexact(x.dtype()) || is_composite_tensor(x)) {
    marks_.emplace_back(), marked_.emplace_back();
    return x;
  }
  auto [own, node] = make_mark(x, records_outside_, where_);
  wanted_outside_ = wanted_outside_ || (!node->operands().empty() && node->operands()[0].edge) ||
                    (records_outside_ && has_history_below(own));
  marked_.push_back(with_history(own, node));
  marks_.push_back(node);
  return with_history(own, std::move(node));
}

void FunctionTape::finish(std::span<const Tensor> ys) {
  results_.assign(ys.begin(), ys.end());
  recording_.reset();
  tape_scope = outer_scope_;
  if (records_outside_ && !wanted_outside_) wanted_outside_ = !outside().empty();
}

Tensor FunctionTape::result(std::size_t i) const {
  const Tensor& y = results_[i];
  if (!records_outside_) return y.detach();
  return wanted_outside_ || depth_of(y) < level_.depth ? y : without_history(y);
}

std::vector<GradEdge> FunctionTape::outside() const {
  std::vector<GradEdge> found;
  std::unordered_set<const GradNode*> seen;
  std::vector<GradEdge> waiting;
  for (const Tensor& y : results_)
    if (GradEdge edge = depth_of(y) == level_.depth ? grad_edge(y) : GradEdge()) waiting.push_back(std::move(edge));
  while (!waiting.empty()) {
    const GradEdge node = std::move(waiting.back());
    waiting.pop_back();
    if (!seen.insert(node.get()).second || std::ranges::find(marks_, node) != marks_.end()) continue;
    if (node->scope < scope_) {
      found.push_back(node);
      continue;
    }
    for (const GradOperand& o : node->operands())
      if (o.edge) waiting.push_back(o.edge);
  }
  return found;
}

std::vector<Tensor> FunctionTape::pull(std::span<const Tensor> gradients, std::span<const GradEdge> others,
                                       bool create_graph) const {
  std::vector<GradEdge> roots, targets;
  std::vector<Tensor> seeds;
  for (std::size_t i = 0; i < results_.size(); ++i) {
    if (!gradients[i].defined() || depth_of(results_[i]) < level_.depth) continue;
    GradEdge root = grad_edge(results_[i]);
    if (!root) continue;
    roots.push_back(std::move(root));
    seeds.push_back(at_level(gradients[i], level_));
    create_graph = create_graph || (grad_enabled() && has_any_history(gradients[i]));
  }
  std::vector<std::size_t> places;
  std::vector<Tensor> result(marks_.size() + others.size());
  for (std::size_t i = 0; i < marks_.size(); ++i)
    if (marks_[i]) targets.push_back(marks_[i]), places.push_back(i);
  for (std::size_t i = 0; i < others.size(); ++i) targets.push_back(others[i]), places.push_back(marks_.size() + i);
  if (roots.empty()) return result;
  const TapeScan scan = scan_tape(roots, targets, true);
  const std::vector<Tensor> found =
      run_backward(roots, seeds, &scan, targets,
                   {.retain_graph = true, .create_graph = create_graph, .level = level_, .bounded = true}, where_);
  for (std::size_t i = 0; i < places.size(); ++i) result[places[i]] = found[i];
  return result;
}

constinit thread_local bool in_transposition = false;

Transposition::Transposition(const FunctionTape& tape, std::span<const GradEdge> others, Location where)
    : where_(where), level_(tape.level()), seeds_(tape.result_count()) {
  std::vector<Tensor> seeds(tape.result_count());
  const EnableGradGuard recording;
  for (std::size_t i = 0; i < seeds.size(); ++i) {
    const Tensor& y = tape.recorded_result(i);
    if (!is_inexact(y.dtype())) continue;
    seeds_[i] = make_grad_node(Op::copy, 1, where);
    seeds_[i]->operands()[0].dtype = y.dtype();
    const vjp::LineGuard line(where);
    const Tensor zeros = vjp::full(0, {y.dtype(), y.shape()}, y).tensor();
    seeds[i] = with_history(at_level(zeros, level_), seeds_[i]);
  }
  const TranspositionScope transposing;
  gradients_ = tape.pull(seeds, others, true);
}

std::vector<Tensor> Transposition::push(std::span<const Tensor> tangents, bool create_graph) const {
  std::vector<GradEdge> roots, targets;
  std::vector<Tensor> along;
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    if (!gradients_[i].defined() || !tangents[i].defined()) continue;
    GradEdge root = grad_edge(gradients_[i]);
    if (!root) continue;
    create_graph = create_graph || (grad_enabled() && has_any_history(tangents[i]));
    roots.push_back(std::move(root)), along.push_back(at_level(tangents[i], level_));
  }
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < seeds_.size(); ++i)
    if (seeds_[i]) targets.push_back(seeds_[i]), places.push_back(i);
  std::vector<Tensor> result(seeds_.size());
  if (roots.empty()) return result;
  const TapeScan scan = scan_tape(roots, targets, true);
  const std::vector<Tensor> found =
      run_backward(roots, along, &scan, targets,
                   {.retain_graph = true, .create_graph = create_graph, .level = level_, .bounded = true}, where_);
  for (std::size_t i = 0; i < places.size(); ++i) result[places[i]] = found[i];
  return result;
}

}  // namespace fermata
