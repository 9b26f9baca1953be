// Gradients: reverse-mode automatic differentiation, of any order.
//
// Two ways to ask. A leaf marked with requires_grad(true) collects gradients from y.backward() in grad(); grad(f) gives
// the derivative of a function as a function. Both record while the function runs, in both modes. docs/autograd.md has
// the rules: views, in-place writes, what is kept in memory.
#pragma once

#include <array>
#include <cstddef>
#include <initializer_list>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "fermata/tensor_tree.h"
#include "ir/key_set.h"
#include "runtime/tensor.h"

namespace fermata {

/// Are gradients recorded on this thread? They are from the start.
inline bool grad_enabled() { return !thread_keys.excluded.has(Functionality::autograd); }

/// No gradients are recorded in the scope: results have no history, and leaves may be written in place.
class NoGradGuard : KeyGuard {
 public:
  NoGradGuard() : KeyGuard({}, Functionality::autograd) {}
};
/// Gradients are recorded in the scope, also inside a NoGradGuard.
class EnableGradGuard : KeyGuard {
 public:
  EnableGradGuard() : KeyGuard({}, {}) { thread_keys.excluded = thread_keys.excluded - Functionality::autograd; }
};
/// What f() gives, computed while no gradients are recorded.
template <class F> decltype(auto) no_grad(F&& f) {
  const NoGradGuard guard;
  return std::forward<F>(f)();
}

/// dy/dx for every x, summed over y with the weights `seed`, which has y's shape and is 1 by default where y has one
/// element. Nothing is added to grad() of any leaf. Zeros for an x that y does not depend on.
///
/// create_graph   the result can be differentiated again; keeps the graph of y.
/// retain_graph   y can be differentiated again; otherwise what it saved is let go.
/// Errors         GradientError if y or an x has no history, or y has several elements and there is no seed.
std::vector<Tensor> gradients(const Tensor& y, std::span<const Tensor> xs, const Tensor& seed = {},
                              bool create_graph = false, bool retain_graph = false,
                              Location where = Location::current());
std::vector<Tensor> gradients(const Tensor& y, std::initializer_list<Tensor> xs, const Tensor& seed = {},
                              bool create_graph = false, bool retain_graph = false,
                              Location where = Location::current());

namespace detail {

inline bool has_derivative(const Tensor& x) { return x.defined() && (is_floating(x.dtype()) || is_complex(x.dtype())); }

/// One evaluation of a function for its derivative: what grad() is made of. Arguments are marked, the function is run
/// on the marks while this is in scope, and its result handed in.
class FunctionGradient {
 public:
  explicit FunctionGradient(Location where) : where_(where), records_outside_(grad_enabled()) {}
  /// A new identity of x, whose gradient is asked for. It has x's history, so derivatives nest.
  Tensor mark(const Tensor& x);
  /// The same for all in a tree that can have a gradient: a model may count and index, too.
  template <class T> T mark(const T& tree) {
    T marked = tree;
    each_tensor(marked, [&](Tensor& x) {
      if (has_derivative(x)) x = mark(x);
    });
    return marked;
  }
  /// The gradients of y with respect to the marks, in their order. y keeps its history only if something outside the
  /// function can want it.
  std::vector<Tensor> differentiate(Tensor& y);
  /// After that: another result, which is not differentiated, as it is handed out.
  void promote_and_broadcast(Tensor& auxiliary) const;

 private:
  Location where_;
  bool records_outside_, keeps_history_ = true;
  EnableGradGuard recording_;
  std::vector<Tensor> marks_;  // never handed out, so that the function cannot write them in place
};

/// Gradients as the arguments were: a tensor for a tensor, a tree for a tree, with empty places for what has none.
template <class T> T take_like(const T& xs, const Tensor*& next) {
  T taken = xs;
  each_tensor(taken, [&](Tensor& x) { x = has_derivative(x) ? *next++ : Tensor(); });
  return taken;
}
/// What is differentiated of the value of a function: all of it, or its first part.
inline Tensor& differentiated(Tensor& value) { return value; }
template <class T> Tensor& differentiated(T& value) { return std::get<0>(detail::members(value)); }

}  // namespace detail

/// value_and_grad<0, 2>(f)(a, b, c) is a pair: f(a, b, c), and its gradients with respect to a and c as a tuple (not a
/// tuple for one argument, by default the first). f gives a tensor of one element; the arguments to differentiate are
/// floating tensors or trees of them (fermata/tensor_tree.h), the others anything. A gradient has the type of its
/// argument; places of a tree whose tensors are not floating are empty in it.
///
/// f may give a pair, tuple or struct instead: its first element is differentiated, the others (trees, anything)
/// are auxiliary, and the value is what f gave.
template <std::size_t... Arguments, class F> auto value_and_grad(F f, Location where = Location::current()) {
  if constexpr (sizeof...(Arguments) == 0) {
    return value_and_grad<0>(std::move(f), where);
  } else {
    return [f = std::move(f), where](const auto&... arguments) {
      detail::FunctionGradient level(where);
      std::tuple<std::decay_t<decltype(arguments)>...> marked(arguments...);
      ((std::get<Arguments>(marked) = level.mark(std::get<Arguments>(marked))), ...);
      auto value = std::apply(f, marked);
      std::vector<Tensor> all;
      if constexpr (std::is_same_v<decltype(value), Tensor>) {
        all = level.differentiate(value);
      } else {
        Tensor& first = detail::differentiated(value);
        all = level.differentiate(first);
        each_tensor(value, [&](Tensor& x) {
          if (&x != &first && x.defined()) level.promote_and_broadcast(x);
        });
      }
      const Tensor* next = all.data();
      // Braces: elements are taken from left to right.
      std::tuple gradients{detail::take_like(std::get<Arguments>(marked), next)...};
      if constexpr (sizeof...(Arguments) == 1)
        return std::pair(std::move(value), std::move(std::get<0>(gradients)));
      else
        return std::pair(std::move(value), std::move(gradients));
    };
  }
}

/// The gradient of f as a function of the same arguments: grad(f)(x) is df/dx, grad(grad(f))(x) the second derivative
/// of a function of a scalar, grad<0, 1>(f)(x, w) a tuple of both gradients.
template <std::size_t... Arguments, class F> auto grad(F f, Location where = Location::current()) {
  return [both = value_and_grad<Arguments...>(std::move(f), where)](const auto&... arguments) {
    return both(arguments...).second;
  };
}

}  // namespace fermata
