// Gradients: reverse-mode automatic differentiation, of any order.
//
// There are two interfaces. A leaf marked with requires_grad(true) accumulates gradients from y.backward() in grad().
// grad(f) returns the derivative of f as a function. Both record a tape while the function runs, in both modes.
// docs/autograd.md has the rules for views, in-place writes and saved tensors.
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

/// Whether gradients are recorded on this thread; on by default.
inline bool grad_enabled() { return !thread_keys.excluded.has(Functionality::autograd); }

/// Disables gradient recording in a scope: results have no history, and leaves may be written in place.
class NoGradGuard : KeyGuard {
 public:
  NoGradGuard() : KeyGuard({}, Functionality::autograd) {}
};
/// Enables gradient recording in a scope, even inside a NoGradGuard.
class EnableGradGuard : KeyGuard {
 public:
  EnableGradGuard() : KeyGuard({}, {}) { thread_keys.excluded = thread_keys.excluded - Functionality::autograd; }
};
/// Returns f(), evaluated without recording gradients.
template <class F> decltype(auto) no_grad(F&& f) {
  const NoGradGuard guard;
  return std::forward<F>(f)();
}

/// Returns dy/dx for every x, summed over the elements of y with weights `seed`. `seed` has y's shape and defaults to 1
/// if y has one element. Does not accumulate into grad() of any leaf. The gradient of an x that y does not depend on is
/// zeros.
///
/// create_graph   records the backward pass, so the result can be differentiated again; implies retain_graph.
/// retain_graph   keeps the tensors saved for y, so it can be differentiated again.
/// Errors         GradientError if y or an x has no history, or if y has several elements and no seed is given.
std::vector<Tensor> gradients(const Tensor& y, std::span<const Tensor> xs, const Tensor& seed = {},
                              bool create_graph = false, bool retain_graph = false,
                              Location where = Location::current());
std::vector<Tensor> gradients(const Tensor& y, std::initializer_list<Tensor> xs, const Tensor& seed = {},
                              bool create_graph = false, bool retain_graph = false,
                              Location where = Location::current());

namespace detail {

inline bool has_derivative(const Tensor& x) { return x.defined() && (is_floating(x.dtype()) || is_complex(x.dtype())); }

/// One evaluation of a function for its derivative; implements grad(). Mark the arguments, run the function on the
/// marked tensors while this object is in scope, then pass its result to differentiate().
class FunctionGradient {
 public:
  explicit FunctionGradient(Location where) : where_(where), records_outside_(grad_enabled()) {}
  /// Returns an alias of x with respect to which the result is differentiated. It has x's history, so derivatives nest.
  Tensor mark(const Tensor& x);
  /// Marks every floating or complex tensor of a tree; other tensors, such as counters and indices, are left as they
  /// are.
  template <class T> T mark(const T& tree) {
    T marked = tree;
    each_tensor(marked, [&](Tensor& x) {
      if (has_derivative(x)) x = mark(x);
    });
    return marked;
  }
  /// Returns the gradients of y with respect to the marked tensors, in order. y keeps its history only if an enclosing
  /// derivative or leaf can need it.
  std::vector<Tensor> differentiate(Tensor& y);
  /// Call after differentiate() for each auxiliary result, which is not differentiated.
  void promote_and_broadcast(Tensor& auxiliary) const;

 private:
  Location where_;
  bool records_outside_, keeps_history_ = true;
  EnableGradGuard recording_;
  std::vector<Tensor> marks_;  // not exposed, so that the function cannot write them in place
};

/// Returns gradients in the structure of the arguments: a tensor for a tensor, a tree for a tree. Tensors without a
/// derivative become undefined tensors.
template <class T> T take_like(const T& xs, const Tensor*& next) {
  T taken = xs;
  each_tensor(taken, [&](Tensor& x) { x = has_derivative(x) ? *next++ : Tensor(); });
  return taken;
}
/// The part of a function's result that is differentiated: the tensor itself, or the first element of a tuple or
/// struct.
inline Tensor& differentiated(Tensor& value) { return value; }
template <class T> Tensor& differentiated(T& value) { return std::get<0>(detail::members(value)); }

}  // namespace detail

/// value_and_grad<0, 2>(f)(a, b, c) returns a pair: f(a, b, c), and the tuple of its gradients with respect to a and c.
/// For a single argument (by default the first) the gradient is not wrapped in a tuple. f returns a tensor of one
/// element. Differentiated arguments are floating tensors or trees of them (fermata/tensor_tree.h); other arguments may
/// have any type. A gradient has the type of its argument; non-floating tensors of a tree have undefined gradients.
///
/// f may instead return a pair, tuple or struct. Its first element is differentiated; the others (trees or any other
/// values) are auxiliary. The returned value is then the whole result of f.
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

/// Returns the gradient of f as a function of the same arguments: grad(f)(x) is df/dx, grad(grad(f))(x) is the second
/// derivative of a function of a scalar, and grad<0, 1>(f)(x, w) is the tuple of both gradients.
template <std::size_t... Arguments, class F> auto grad(F f, Location where = Location::current()) {
  return [both = value_and_grad<Arguments...>(std::move(f), where)](const auto&... arguments) {
    return both(arguments...).second;
  };
}

}  // namespace fermata
