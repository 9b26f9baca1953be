// See few_calls.h.
#include "frontend/engine/few_calls.h"

#include <algorithm>

#include "dispatch/call.h"
#include "frontend/engine/interpreter.h"
#include "ir/dtype.h"
#include "runtime/bound_plan.h"
#include "runtime/step_profile.h"

namespace fermata {
namespace {

/// Elements that calls after the first may compute together: a plan saves the memory between them, at about 0.05 ns an
/// element, and costs about 150 ns more than the calls.
constexpr std::int64_t kMostElements = 3000;
/// The cost of a kernel over views in addition to its inner loop.
constexpr std::size_t kKernelWeight = 3;

std::int64_t small_element_count(const Node& n) {
  std::int64_t count = 1;
  for (unsigned i = 0; i < n.rank; ++i) count *= n.inline_sizes[i];
  return count;
}

}  // namespace

/// Adds a pending node and what is pending under it: no deeper than list() allows.
bool FewCalls::add(Node* n, std::size_t& number, NodeVisits& visits) {
  for (number = 0; number < count_; ++number)
    if (calls_[number].node == n) return true;
  const Family family = fermata::family(n->op);
  if (n->extra != nullptr || n->backend != BackendKey::cpu || family > Family::reduce) return false;
  std::array<Storage*, Node::kInlineInputs> buffer{};
  std::array<std::uint8_t, Node::kInlineInputs> source;
  DType operand = n->dtype;
  bool has_scalar = false, by_loop = family != Family::reduce;
  const std::int64_t elements = small_element_count(*n);
  std::int64_t points = elements;
  for (unsigned k = 0; k < n->arity; ++k) {
    Node* const in = n->inputs[k];
    if (in == nullptr) {
      has_scalar = true;
      continue;
    }
    visits.note(in);
    buffer[k] = in->storage.load();
    if (buffer[k] == nullptr) {
      std::size_t of = 0;
      if (!add(in, of, visits)) return false;
      source[k] = static_cast<std::uint8_t>(of);
      ++calls_[of].uses;
    } else if (buffer[k]->data == nullptr || in->backend != BackendKey::cpu) {
      return false;  // another thread writes over it, or it has a type and nothing else
    }
    operand = in->dtype;
    const bool is_stretched = n->stretched[k] != 0 || in->rank != n->rank;
    if (is_stretched || !by_loop) {
      const std::int64_t count = element_count(in->sizes());
      points = std::max(points, count), by_loop = by_loop && count == 1;
    }
    by_loop = by_loop && in->is_dense_leaf();
  }
  by_loop = by_loop && !(has_scalar && compute_dtype(operand) != operand);
  const InnerLoop loop = by_loop ? inner_loop(n->op, BackendKey::cpu, operand, elements) : nullptr;
  weight_ += loop != nullptr ? 1 : kKernelWeight;
  if (weight_ > kMost || static_cast<std::int64_t>(count_) * points > kMostElements) return false;
  if (loop == nullptr && points > kMostElements) return false;
  number = count_++;
  Call& call = calls_[number];
  call.node = n, call.loop = loop, call.elements = elements, call.buffer = buffer, call.source = source;
  call.operand = operand, call.uses = 0, call.is_root = false;
  return true;
}

bool FewCalls::list(std::span<Node* const> roots, NodeVisits& visits) {
  count_ = weight_ = 0;
  if (roots.size() > kMost || StepProfile::current() != nullptr) return false;
  for (Node* const root : roots) {
    visits.note(root);
    if (root->storage.load() != nullptr) continue;
    std::size_t number = 0;
    if (root->depth.load(std::memory_order_relaxed) > kMost || !add(root, number, visits)) return false;
    calls_[number].is_root = true;
  }
  return true;
}

void FewCalls::run() {
  for (Call& call : calls())
    if (call.loop != nullptr)
      run_loop(call);
    else
      run_kernel(call);
}

void FewCalls::run_loop(Call& call) const {
  const Node& n = *call.node;
  const void* data[Node::kInlineInputs];
  bool is_splat[Node::kInlineInputs];
  for (unsigned k = 0; k < n.arity; ++k) {
    const Node* const in = n.inputs[k];
    data[k] = in == nullptr ? &n.scalar : buffer_of(call, k)->data;
    is_splat[k] = in == nullptr || n.stretched[k] != 0 || in->rank != n.rank;
  }
  if (const WatchStep watch = watch_step.load(std::memory_order_relaxed)) [[unlikely]]
    watch(name(n.op), n.backend, n.where);
  const EventScope event([&] { return event_of_call(n, n.op); });
  call.result.reset(Storage::allocate(static_cast<std::size_t>(call.elements) * byte_size(n.dtype)));
  call.loop(call.result->data, data, is_splat, call.elements);
}

void FewCalls::run_kernel(Call& call) const {
  const Node& n = *call.node;
  std::array<Shape, Node::kInlineInputs> strides;
  std::array<TensorView, Node::kInlineInputs> inputs;
  for (unsigned k = 0; k < n.arity; ++k) {
    const Node* const in = n.inputs[k];
    if (in == nullptr) {
      inputs[k].dtype = scalar_dtype(call.operand);
    } else {
      Storage* const buffer = buffer_of(call, k);
      const bool is_dense = in->is_dense_leaf();
      strides[k] = is_dense ? dense_strides(in->sizes()) : in->extra->strides;
      const std::int64_t offset = is_dense ? 0 : in->extra->offset * static_cast<std::int64_t>(byte_size(in->dtype));
      inputs[k] = {static_cast<std::byte*>(buffer->data) + offset,
                   in->dtype,
                   in->rank,
                   in->sizes().data(),
                   strides[k].data(),
                   buffer};
    }
    if (is_pointwise(n.op)) stretch_operand(n, k, inputs[k], strides[k]);
  }
  call_node(n, n.op, call.operand, std::span(inputs).first(n.arity), n.sizes(), call.result);
}

void FewCalls::clear() {
  for (Call& call : calls()) call.result.reset();
  count_ = 0;
}

}  // namespace fermata
