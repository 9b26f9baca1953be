// Aliasing of views: creation, re-derivation of their values, and writes through them.
#pragma once

#include <span>

#include "runtime/tensor.h"

namespace fermata {

/// Makes the result of a view op, with attributes as in ir/graph.h and the shape `wanted` if the op takes one. It
/// aliases x; a reshape that strides cannot express returns a new tensor. The history of a view is not recorded here:
/// it is derived from that of its base on demand (frontend/transforms/autograd/autograd.h).
Tensor make_view(Op op, const Tensor& x, std::span<const std::int64_t> attributes, const Shape& wanted, Location where);

/// Hook of runtime/tensor.h: derives the value of a view from the current value of its base.
Node* derive_view(TensorImpl* view);

/// The identity that holds the elements of a tensor.
inline TensorImpl* cell_of(const Tensor& t) { return t.impl()->view != nullptr ? t.impl()->view->base : t.impl(); }

/// Another handle to an identity.
Tensor handle_of(TensorImpl* impl);

/// Whether two tensors of one cell may have an element in common: true if ranges of their elements meet.
bool may_share_elements(const Tensor& a, const Tensor& b);

/// Assigns a value of the same shape and dtype to a tensor. Writing a view writes its base, so every alias sees the new
/// elements. ValueError for a view whose elements share memory, and autograd's errors for in-place writes.
void write(const Tensor& target, const Tensor& value, Location where);

/// For a tensor whose data pointer was exposed: gives it its own value over its buffer. Other references to the current
/// value, and views of it, get a copy of the elements before they change.
void separate_pinned(const Tensor& target);

}  // namespace fermata
