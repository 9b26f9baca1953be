// Rematerialization: recompute activations in the backward pass instead of storing them.
#pragma once

#include <string_view>

#include "fermata/tensor_tree.h"

namespace fermata {

namespace detail {

/// Implements checkpoint().
std::vector<Tensor> checkpoint_flat(const TensorFunction& f, const std::vector<Tensor>& arguments, Location where);

}  // namespace detail

/// Wraps f so that only its arguments are saved for the backward pass, which runs f again. Values and gradients are
/// those of f.
///
///   Tensor h = checkpoint(block)(x, weights);
///
/// Arguments and results are trees (fermata/tensor_tree.h); other arguments are stored by value. Captured tensors have
/// gradients too. f must compute the same values again: it has no effects and owns its captures (capture by value).
/// Draws from the default generator repeat. Works in both modes, in compiled functions, under vmap, and for derivatives
/// of any order.
template <class F> auto checkpoint(F f, Location where = Location::current()) {
  return [f = std::move(f), where](const auto&... arguments) {
    const detail::FlatFunction flat(f, std::tuple<std::decay_t<decltype(arguments)>...>(arguments...));
    return flat.result(detail::checkpoint_flat(flat.function(), flat.tensors(), where));
  };
}

}  // namespace fermata
