// See effects.h.
#include "runtime/effects.h"

#include <cstdio>
#include <exception>
#include <utility>

#include "ir/per_thread.h"

namespace fermata {

constinit thread_local Node* last_effect = nullptr;
void (*prepare_thread)() = nullptr;

namespace {

void drop(Node* node) {
  if (node != nullptr && drop_references(node->refs, Node::kTensor)) destroy_node(node);
}

/// Where a thread ends, what it has recorded happens.
struct AtThreadEnd {
  AtThreadEnd() { prepare_thread(); }
  ~AtThreadEnd() {
    try {
      run_effects({});
    } catch (const std::exception& error) {
      std::fprintf(stderr, "fermata: a call with an effect failed at the end of its thread: %s\n", error.what());
    }
    drop(std::exchange(last_effect, nullptr));
  }
};

}  // namespace

Node* pending_effect() {
  if (last_effect != nullptr && !last_effect->pending()) drop(std::exchange(last_effect, nullptr));
  return last_effect;
}

Node* pending_effect_on(BackendKey backend, std::source_location where) {
  Node* const before = pending_effect();
  if (before == nullptr || before->backend == backend) return before;
  run_effects(where);
  return nullptr;
}

void set_last_effect(Node* node) {
  // What a thread makes first goes last: all that a sync needs has to be there when the last effects are computed.
  static constinit thread_local PerThread<AtThreadEnd> at_end;
  at_end.get();
  if (node != nullptr) node->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
  drop(std::exchange(last_effect, node));
}

void run_effects(std::source_location where) {
  if (Node* const node = pending_effect()) tensor_hooks.materialize(node, "effects that were recorded", where);
}

EffectScope::EffectScope() : outside_(std::exchange(last_effect, nullptr)) {}

EffectScope::~EffectScope() { drop(std::exchange(last_effect, outside_)); }

}  // namespace fermata
