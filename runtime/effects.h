// Ordering of calls with side effects, as in the program.
//
// A recorded call of an operator with an effect reads, after its arguments, the thread's previous recorded call with an
// effect. Computing one therefore computes those before it, and none runs twice. The thread holds the last one: a sync
// also computes it, and so every effect recorded before the sync.
#pragma once

#include <source_location>

#include "runtime/tensor.h"

namespace fermata {

/// The last call with an effect that this thread recorded and that may be pending; null if there is none. Holds a
/// reference.
extern constinit thread_local Node* last_effect;

/// Creates the thread-local state of a sync, so that it outlives the computation of the effects that the thread leaves
/// at its end. Installed once, together with the hooks of runtime/tensor.h.
extern void (*prepare_thread)();

/// Gives up the node where it has been computed.
Node* pending_effect();
/// The same for a call on a device: effects recorded on another device are computed first.
Node* pending_effect_on(BackendKey backend, std::source_location where);
/// Sets the node that later calls of this thread are ordered after. Does not take over a reference.
void set_last_effect(Node* node);
/// Computes the effects recorded so far.
void run_effects(std::source_location where);

/// A scope with separate effects: earlier effects are neither computed nor waited for inside, and are restored at its
/// end.
class EffectScope {
 public:
  EffectScope();
  ~EffectScope();
  EffectScope(const EffectScope&) = delete;
  EffectScope& operator=(const EffectScope&) = delete;

 private:
  Node* outside_;
};

}  // namespace fermata
