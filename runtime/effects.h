// Calls with effects, in the order of the program.
//
// A recorded call of an operator that has an effect reads, after its arguments, the call with an effect that the thread
// recorded before it. So whoever computes one has computed those before it, and none is made twice. The thread holds
// the last one: a sync computes that, too, and so every effect that was recorded before the sync.
#pragma once

#include <source_location>

#include "runtime/tensor.h"

namespace fermata {

/// The last call with an effect that this thread has recorded and that may be pending; null where there is none. A
/// reference is held.
extern constinit thread_local Node* last_effect;

/// Makes what a sync of this thread needs, so that it is there until the effects that a thread leaves have been
/// computed. Installed once, beside the hooks of runtime/tensor.h.
extern void (*prepare_thread)();

/// Gives up the node where it has been computed.
Node* pending_effect();
/// The same for a call on a device: on another one what was recorded before is computed first.
Node* pending_effect_on(BackendKey backend, std::source_location where);
/// What calls of this thread come after from now on. Takes over no reference.
void set_last_effect(Node* node);
/// Computes the effects that were recorded so far.
void run_effects(std::source_location where);

/// A scope whose effects are its own: those from before it are neither computed nor waited for inside, and at its end
/// come back as they were.
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
