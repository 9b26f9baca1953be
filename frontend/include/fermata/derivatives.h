// Derivatives as maps: pullbacks (vjp), pushforwards (jvp), Jacobians and Hessians.
//
// Arguments and results are trees (fermata/tensor_tree.h): tensors, or vectors, tuples, structs and so on of them;
// tensors that are not floating are passed and have no derivative. Everything nests, with itself, grad and vmap, and
// may be part of a compiled function. docs/transforms.md has examples and what each costs.
#pragma once

#include <memory>
#include <span>
#include <utility>

#include "fermata/autograd.h"
#include "fermata/tensor_tree.h"
#include "fermata/vmap.h"

namespace fermata {

namespace detail {

/// One evaluation of a function and its derivative there: what the functions below are made of. Arguments are marked,
/// the function is run on the marks, and its results handed in.
class Linearization {
 public:
  Linearization(std::string_view function, Location where);
  ~Linearization();
  Linearization(Linearization&&) noexcept;
  Linearization& operator=(Linearization&&) noexcept;

  Tensor mark(const Tensor& x);
  /// The results, with a history only if something outside can want it. `pushes`: push() will be called.
  std::vector<Tensor> finish(std::span<const Tensor> results, bool pushes);
  /// The gradients of the marks from those of the results, which have their shapes. Zeros for what nothing reaches.
  std::vector<Tensor> pull(std::span<const Tensor> cotangents) const;
  /// How the results change with the marks.
  std::vector<Tensor> push(std::span<const Tensor> tangents) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

template <class T> inline constexpr bool is_tensor_tuple = requires { std::tuple_size<T>::value; };
/// f of one argument, or of the elements of a tuple.
template <class F, class A> decltype(auto) call_with(F& f, A& arguments) {
  if constexpr (is_tensor_tuple<std::remove_cv_t<A>>)
    return std::apply(f, arguments);
  else
    return f(arguments);
}
/// Evaluates f on marks; gives its results.
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

/// The value of f, and how it changes when its arguments do: the derivative of f(primals) in the direction of the
/// tangents. Several arguments are given as tuples: jvp(f, std::tuple(x, w), std::tuple(dx, dw)).
///
/// Errors   GradientError FM1760 where a tangent has another shape than its argument, or is not floating.
/// Cost     forward mode: the forward pass and about twice its derivative; what only a backward pass would need is not
///          computed in compiled mode (docs/transforms.md).
template <class F, class P, class T>
auto jvp(F f, const P& primals, const T& tangents, Location where = Location::current()) {
  detail::Linearization at("jvp", where);
  auto value = detail::evaluate(at, f, primals, true);
  auto tangent = with_tensors(value, at.push(defined_tensors_in(tangents)));
  return std::pair(std::move(value), std::move(tangent));
}

/// The value of f, and its derivative there as a function of tangents, which is linear. The function is evaluated once.
///
///   auto [y, df] = linearize(f, std::tuple(x, w));   Tensor dy = df(std::tuple(dx, dw));
template <class F, class P> auto linearize(F f, const P& primals, Location where = Location::current()) {
  auto at = std::make_shared<detail::Linearization>("linearize", where);
  auto value = detail::evaluate(*at, f, primals, true);
  auto push = [at, value](const auto& tangents) { return with_tensors(value, at->push(defined_tensors_in(tangents))); };
  return std::pair(std::move(value), std::move(push));
}

/// The value of f, and the function that carries a cotangent of it back to the arguments. It may be called many times.
///
///   auto [y, pull] = pullback(f, std::tuple(x, w));   auto [gx, gw] = pull(ones_like(y));
///
/// Errors   when called: GradientError FM1760 where a cotangent has another shape than the result.
template <class F, class P> auto pullback(F f, const P& primals, Location where = Location::current()) {
  auto at = std::make_shared<detail::Linearization>("pullback", where);
  auto value = detail::evaluate(*at, f, primals, false);
  auto pull = [at, primals](const auto& cotangents) {
    return with_tensors(primals, at->pull(defined_tensors_in(cotangents)));
  };
  return std::pair(std::move(value), std::move(pull));
}

/// The Jacobian of a function of one tensor to one tensor, [..result, ..argument], row by row: one backward pass that
/// is batched over the elements of the result. For functions with fewer results than arguments.
template <class F> auto jacrev(F f, Location where = Location::current()) {
  return [f = std::move(f), where](const Tensor& x) {
    auto [y, pull] = pullback(f, x, where);
    const Tensor rows = vmap(pull, 0, 0, where)(detail::basis(y, where));
    return detail::rows_as(rows, y, x, where);
  };
}

/// The same Jacobian column by column: one pushforward that is batched over the elements of the argument. For functions
/// with fewer arguments than results.
template <class F> auto jacfwd(F f, Location where = Location::current()) {
  return [f = std::move(f), where](const Tensor& x) {
    auto [y, push] = linearize(f, x, where);
    const Tensor columns = vmap(push, 0, -1, where)(detail::basis(x, where));
    return detail::rows_as(columns, y, x, where);
  };
}

/// The second derivatives of a function of one tensor that gives one element: [..argument, ..argument].
template <class F> auto hessian(F f, Location where = Location::current()) {
  return jacrev(grad(std::move(f), where), where);
}

/// The Hessian of f at x times a vector, without the Hessian: one backward pass over the gradient.
template <class F> Tensor hvp(F f, const Tensor& x, const Tensor& vector, Location where = Location::current()) {
  return pullback(grad(std::move(f), where), x, where).second(vector);
}

}  // namespace fermata
