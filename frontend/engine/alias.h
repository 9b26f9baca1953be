// How views alias: making them, deriving their values again, and writing through them.
#pragma once

#include <span>

#include "runtime/tensor.h"

namespace fermata {

/// The result of a view op, with attributes as in ir/graph.h and the shape `wanted` where the op takes one. It aliases
/// x; a reshape that no strides express gives a tensor of its own. The history of a view is not recorded here: it
/// follows from that of its base when it is asked for (frontend/transforms/autograd/autograd.h).
Tensor make_view(Op op, const Tensor& x, std::span<const std::int64_t> attributes, const Shape& wanted, Location where);

/// The hook of runtime/tensor.h: derives the value of a view from the present value of its base.
Node* derive_view(TensorImpl* view);

/// Gives an identity another value, which has its shape and dtype. Through a view the base is written: every alias sees
/// the new elements. ValueError for a view whose elements share memory; whatever autograd says of writes in place.
void write(const Tensor& target, const Tensor& value, Location where);

/// For a tensor whose address was handed out: gives it a value of its own over its buffer, and whoever else refers to
/// the present value or to a view of it a copy of the elements, before they change.
void separate_pinned(const Tensor& target);

}  // namespace fermata
