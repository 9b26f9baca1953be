// See function_recording.h.
#include "frontend/engine/function_recording.h"

#include <algorithm>

#include "frontend/ops/calls.h"

namespace fermata {

Tensor tensor_of(const Node* n) {
  const_cast<Node*>(n)->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
  return Tensor(const_cast<Node*>(n), DispatchKeySet(n->backend) | Functionality::dense);
}

void FunctionRecording::add_stand_in(const Tensor& tensor, Place place) {
  stand_ins_.push_back({tensor, tensor_of(tensor.node()), tensor.version(), std::move(place)});
}

void FunctionRecording::take_results(std::vector<Tensor> given, std::string_view what, Location where) {
  if (Node* const effect = pending_effect()) last_effect_ = tensor_of(effect);
  values_ = std::move(given);
  for (const Tensor& t : values_) require_defined(what, t, where);
}

void FunctionRecording::add_root(Node* n) {
  if (std::ranges::find(roots_, n) == roots_.end()) roots_.push_back(n);
}

void FunctionRecording::list_program(const DrawnRange& drawn, const Walk::IsLeaf* is_leaf) {
  walk_.run(roots_, true, is_leaf);
  program.nodes.reserve(walk_.order.size()), program.leaves.reserve(walk_.order.size());
  for (std::uint32_t i = 0; i < walk_.order.size(); ++i) {
    program.nodes.push_back(program_node(walk_, i, drawn, program.leaves.size()));
    if (program.nodes.back().leaf >= 0) program.leaves.push_back(place_of(walk_.order[i].node));
  }
}

Place FunctionRecording::place_of(const Node* leaf) const {
  for (const StandIn& s : stand_ins_)
    if (s.before.node() == leaf) return s.place;
  if (const Tensor* const identity = scope_.identity_of(leaf)) return {.hidden = *identity};
  return {.hidden = tensor_of(leaf), .is_constant = true};
}

std::int32_t FunctionRecording::output_of(const Node* n) const {
  for (std::size_t i = 0; i < walk_.outputs.size(); ++i)
    if (walk_.order[walk_.outputs[i]].node == n) return static_cast<std::int32_t>(i);
  return -1;
}

}  // namespace fermata
