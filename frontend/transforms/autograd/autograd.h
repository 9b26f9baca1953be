// What the rest of the frontend asks of autograd. The public half is fermata/autograd.h, the tape autograd_tape.h.
#pragma once

#include "runtime/tensor.h"

namespace fermata {

/// Fills the Autograd cells of every op: the call is passed on, and remembered where an operand wants a gradient.
/// Composite ops have none; their parts do.
void register_autograd_kernels();

/// The ADInplaceOrView kernel of operators that write an argument.
void register_inplace_kernels();

/// `target` is about to be given the value of `result`: it takes over the history as well, or loses the one it has
/// where the result has none. A leaf keeps wanting a gradient, and so can only be written while none are recorded:
/// GradientError FM1712 otherwise.
void take_history(const Tensor& target, const Tensor& result, Location where);

/// Can this be differentiated? False without a history, and where a backward pass has used up what it saved.
bool has_live_history(const Tensor& tensor);

}  // namespace fermata
