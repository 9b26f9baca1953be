// Rematerialization: memory for time.
#pragma once

#include <string_view>

#include "fermata/tensor_tree.h"

namespace fermata {

namespace detail {

/// What checkpoint() calls.
std::vector<Tensor> checkpoint_flat(const TensorFunction& f, const std::vector<Tensor>& arguments, Location where);

}  // namespace detail

/// f as a function that keeps nothing for its backward pass but its arguments: they are kept, and f runs again when the
/// gradient arrives. Values and gradients are those of f.
///
///   Tensor h = checkpoint(block)(x, weights);
///
/// Arguments and results are trees (fermata/tensor_tree.h); other arguments are kept as they are. Tensors
/// that f mentions without taking them have gradients too. f must compute the same again, so it owns what it refers to
/// (capture by value) and has no effects; draws from the default generator repeat. Works in both modes, in
/// compiled functions, under vmap, and to any order.
template <class F> auto checkpoint(F f, Location where = Location::current()) {
  return [f = std::move(f), where](const auto&... arguments) {
    const detail::FlatFunction flat(f, std::tuple<std::decay_t<decltype(arguments)>...>(arguments...));
    return flat.result(detail::checkpoint_flat(flat.function(), flat.tensors(), where));
  };
}

}  // namespace fermata
