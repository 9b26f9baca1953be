// Derivatives as maps: pullbacks (vjp), pushforwards (jvp), Jacobians and Hessians.
//
// Arguments and results are trees (fermata/tensor_tree.h): tensors, or vectors, tuples, structs and so on of them.
// Non-floating tensors are passed through and have no derivative. All of these nest with each other, grad and vmap, and
// work inside compiled functions. docs/transforms.md has examples and costs.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "fermata/autograd.h"
#include "fermata/tensor_tree.h"
#include "fermata/vmap.h"

namespace fermata {

namespace detail {

/// One evaluation of a function and its linearization; implements the functions below. Mark the arguments, run the
/// function on the marked tensors, then pass its results to finish().
class Linearization {
 public:
  Linearization(std::string_view function, Location where);
  ~Linearization();
  Linearization(Linearization&&) noexcept;
  Linearization& operator=(Linearization&&) noexcept;

  Tensor mark(const Tensor& x);
  /// Returns the results, with a history only if an enclosing derivative can need it. `pushes`: push() will be called.
  std::vector<Tensor> finish(std::span<const Tensor> results, bool pushes);
  /// Returns the gradients of the marked tensors given cotangents with the shapes of the results. Zeros where no
  /// gradient reaches.
  std::vector<Tensor> pull(std::span<const Tensor> cotangents) const;
  /// Returns the tangents of the results given those of the marked tensors.
  std::vector<Tensor> push(std::span<const Tensor> tangents) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

template <class T> inline constexpr bool is_tensor_tuple = requires { std::tuple_size<T>::value; };
/// Calls f with one argument, or with the elements of a tuple.
template <class F, class A> decltype(auto) call_with(F& f, A& arguments) {
  if constexpr (is_tensor_tuple<std::remove_cv_t<A>>)
    return std::apply(f, arguments);
  else
    return f(arguments);
}
/// Evaluates f on marked arguments and returns its results.
template <class F, class A> auto evaluate(Linearization& at, F& f, A arguments, bool pushes) {
  each_tensor(arguments, [&](Tensor& x) {
    if (std::is_same_v<A, Tensor> || x.defined()) x = at.mark(x);
  });
  auto results = call_with(f, arguments);
  std::vector<Tensor> settled = at.finish(defined_tensors_in(results), pushes);
  return with_tensors(std::move(results), std::move(settled));
}

Tensor basis(const Tensor& like, Location where);
Tensor rows_as(const Tensor& rows, const Tensor& first, const Tensor& rest, Location where);

}  // namespace detail

/// Returns f(primals) and its directional derivative along the tangents. Pass several arguments as tuples: jvp(f,
/// std::tuple(x, w), std::tuple(dx, dw)).
///
/// Errors   GradientError FM1760 if a tangent is not floating or its shape differs from its argument's.
/// Cost     forward mode: the forward pass and about twice its derivative. In compiled mode, values that only a
///          backward pass needs are not computed (docs/transforms.md).
template <class F, class P, class T>
auto jvp(F f, const P& primals, const T& tangents, Location where = Location::current()) {
  detail::Linearization at("jvp", where);
  auto value = detail::evaluate(at, f, primals, true);
  auto tangent = with_tensors(value, at.push(defined_tensors_in(tangents)));
  return std::pair(std::move(value), std::move(tangent));
}

/// Returns f(primals) and its derivative there as a linear function of tangents. f is evaluated once.
///
///   auto [y, df] = linearize(f, std::tuple(x, w));   Tensor dy = df(std::tuple(dx, dw));
template <class F, class P> auto linearize(F f, const P& primals, Location where = Location::current()) {
  auto at = std::make_shared<detail::Linearization>("linearize", where);
  auto value = detail::evaluate(*at, f, primals, true);
  auto push = [at, value](const auto& tangents) { return with_tensors(value, at->push(defined_tensors_in(tangents))); };
  return std::pair(std::move(value), std::move(push));
}

/// Returns f(primals) and its vjp: a function from cotangents of the result to cotangents of the arguments. It may be
/// called many times.
///
///   auto [y, pull] = pullback(f, std::tuple(x, w));   auto [gx, gw] = pull(ones_like(y));
///
/// Errors   when the vjp is called: GradientError FM1760 if the shape of a cotangent differs from the result's.
template <class F, class P> auto pullback(F f, const P& primals, Location where = Location::current()) {
  auto at = std::make_shared<detail::Linearization>("pullback", where);
  auto value = detail::evaluate(*at, f, primals, false);
  auto pull = [at, primals](const auto& cotangents) {
    return with_tensors(primals, at->pull(defined_tensors_in(cotangents)));
  };
  return std::pair(std::move(value), std::move(pull));
}

/// Returns the Jacobian of a function from one tensor to one tensor, [..result, ..argument], by one backward pass
/// batched over the elements of the result. Use it if the result has fewer elements than the argument.
template <class F> auto jacrev(F f, Location where = Location::current()) {
  return [f = std::move(f), where](const Tensor& x) {
    auto [y, pull] = pullback(f, x, where);
    const Tensor rows = vmap(pull, 0, 0, where)(detail::basis(y, where));
    return detail::rows_as(rows, y, x, where);
  };
}

/// Returns the same Jacobian by one pushforward batched over the elements of the argument. Use it if the argument has
/// fewer elements than the result.
template <class F> auto jacfwd(F f, Location where = Location::current()) {
  return [f = std::move(f), where](const Tensor& x) {
    auto [y, push] = linearize(f, x, where);
    const Tensor columns = vmap(push, 0, -1, where)(detail::basis(x, where));
    return detail::rows_as(columns, y, x, where);
  };
}

/// Returns the Hessian of a function from one tensor to one element: [..argument, ..argument].
template <class F> auto hessian(F f, Location where = Location::current()) {
  return jacrev(grad(std::move(f), where), where);
}

/// Returns the Hessian of f at x times a vector, without forming the Hessian: one backward pass over the gradient.
template <class F> Tensor hvp(F f, const Tensor& x, const Tensor& vector, Location where = Location::current()) {
  return pullback(grad(std::move(f), where), x, where).second(vector);
}

}  // namespace fermata
