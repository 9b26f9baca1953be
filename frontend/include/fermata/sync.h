// Computing several values in one plan.
#pragma once

#include <initializer_list>
#include <span>

#include "runtime/tensor.h"

namespace fermata {

/// Computes the values of all tensors in one plan and waits for them. Common subexpressions are computed once.
void sync(std::span<const Tensor> tensors, Location where = Location::current());
void sync(std::initializer_list<Tensor> tensors, Location where = Location::current());
/// Starts computing the tensors without waiting for devices. On the CPU they are computed when this returns; on other
/// devices the work is enqueued.
void flush(std::span<const Tensor> tensors, Location where = Location::current());
void flush(std::initializer_list<Tensor> tensors, Location where = Location::current());

}  // namespace fermata
