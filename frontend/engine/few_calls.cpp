// See few_calls.h.
#include "frontend/engine/few_calls.h"

#include "dispatch/call.h"
#include "ir/dtype.h"
#include "runtime/bound_plan.h"
#include "runtime/step_profile.h"

namespace fermata {
namespace {

/// Elements that calls after the first may compute together: a plan saves the memory between them, at about 0.05 ns an
/// element, and costs about 150 ns more than the calls.
constexpr std::int64_t kMostElements = 3000;

std::int64_t small_element_count(const Node& n) {
  std::int64_t count = 1;
  for (unsigned i = 0; i < n.rank; ++i) count *= n.inline_sizes[i];
  return count;
}

}  // namespace

/// Adds a pending node and what is pending under it: no deeper than list() allows.
bool FewCalls::add(Node* n, std::size_t& number) {
  for (number = 0; number < count_; ++number)
    if (calls_[number].node == n) return true;
  if (n->extra != nullptr || n->backend != BackendKey::cpu || !is_pointwise(n->op)) return false;
  std::array<const void*, Node::kInlineInputs> data;
  std::array<std::uint8_t, Node::kInlineInputs> source;
  std::array<bool, Node::kInlineInputs> is_splat;
  DType operand = n->dtype;
  bool has_scalar = false;
  for (unsigned k = 0; k < n->arity; ++k) {
    Node* const in = n->inputs[k];
    if (in == nullptr) {
      data[k] = &n->scalar, is_splat[k] = true, has_scalar = true;
      continue;
    }
    if (const Storage* const storage = in->storage.load()) {
      data[k] = storage->data;
      // No data: another thread writes over it, or it has a type and nothing else.
      if (data[k] == nullptr || !in->is_dense_leaf()) return false;
    } else {
      std::size_t of = 0;
      if (!add(in, of)) return false;
      data[k] = nullptr, source[k] = static_cast<std::uint8_t>(of);
      ++calls_[of].uses;
    }
    operand = in->dtype;
    is_splat[k] = n->stretched[k] != 0 || in->rank != n->rank;
    if (is_splat[k] && element_count(in->sizes()) != 1) return false;
  }
  const std::int64_t elements = small_element_count(*n);
  if (count_ == kMost || static_cast<std::int64_t>(count_) * elements > kMostElements) return false;
  if (has_scalar && compute_dtype(operand) != operand) return false;
  const InnerLoop loop = inner_loop(n->op, BackendKey::cpu, operand, elements);
  if (loop == nullptr) return false;
  number = count_++;
  Call& call = calls_[number];
  call.node = n, call.loop = loop, call.elements = elements, call.data = data, call.source = source;
  call.is_splat = is_splat, call.uses = 0, call.is_root = false;
  return true;
}

bool FewCalls::list(std::span<Node* const> roots) {
  count_ = 0;
  if (roots.size() > kMost || StepProfile::current() != nullptr) return false;
  for (Node* const root : roots) {
    if (root->storage.load() != nullptr) continue;
    std::size_t number = 0;
    if (root->depth.load(std::memory_order_relaxed) > kMost || !add(root, number)) return false;
    calls_[number].is_root = true;
  }
  return true;
}

void FewCalls::run() {
  for (Call& call : calls()) {
    const Node& n = *call.node;
    for (unsigned k = 0; k < n.arity; ++k)
      if (call.data[k] == nullptr) call.data[k] = calls_[call.source[k]].result->data;
    if (const WatchStep watch = watch_step.load(std::memory_order_relaxed)) [[unlikely]]
      watch(name(n.op), n.backend, n.where);
    call.result.reset(Storage::allocate(static_cast<std::size_t>(call.elements) * byte_size(n.dtype)));
    call.loop(call.result->data, call.data.data(), call.is_splat.data(), call.elements);
  }
}

void FewCalls::clear() {
  for (Call& call : calls()) call.result.reset();
  count_ = 0;
}

}  // namespace fermata
