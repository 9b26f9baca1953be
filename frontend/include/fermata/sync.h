// Computing several values at once.
#pragma once

#include <initializer_list>
#include <span>

#include "runtime/tensor.h"

namespace fermata {

/// Computes the values of all these tensors in one plan and waits for them: what they have in common is computed once.
void sync(std::span<const Tensor> tensors, Location where = Location::current());
void sync(std::initializer_list<Tensor> tensors, Location where = Location::current());
/// Starts computing these tensors and does not wait: on the CPU they are done when this returns, other devices have
/// been given the work.
void flush(std::span<const Tensor> tensors, Location where = Location::current());
void flush(std::initializer_list<Tensor> tensors, Location where = Location::current());

}  // namespace fermata
