// Data-dependent control flow: branches and loops on values that are not known while code is recorded.
//
// Plain C++ `if` and `for` work except where they would read a value inside compile(fn) or vmap. The functions below
// work there too: the functions passed to them are captured once, with fixed shapes and dtypes, and run as one step of
// the plan. In eager mode they run as the plain C++ statement. State, operands and results are trees
// (fermata/tensor_tree.h). Captured tensors have gradients too. The functions must have no effects: writing a captured
// tensor in place is FM2760. If gradients are taken, they must own their captures (capture by value). Every run of a
// function draws independent numbers from the default generator. docs/control_flow.md has examples and costs.
#pragma once

#include <algorithm>
#include <cstdint>

#include "fermata/creation.h"
#include "fermata/tensor_tree.h"
#include "runtime/operand.h"

namespace fermata {

namespace detail {

std::vector<Tensor> cond_flat(const Operand& predicate, const TensorFunction& when_true,
                              const TensorFunction& when_false, const std::vector<Tensor>& operands);
std::vector<Tensor> while_flat(const TensorFunction& condition, const TensorFunction& body,
                               const std::vector<Tensor>& state, Location where);
/// `f` returns `init.size()` carried tensors followed by the stacked ones; so does scan_flat().
std::vector<Tensor> scan_flat(const TensorFunction& f, const std::vector<Tensor>& init,
                              const std::vector<Tensor>& sequences, bool reverse, Location where);

/// Returns a value as an argument list: a tuple as it is, anything else as a tuple of one.
template <class T> auto as_arguments(T value) {
  if constexpr (requires { std::tuple_size<T>::value; })
    return value;
  else
    return std::tuple<T>(std::move(value));
}

}  // namespace detail

/// Returns when_true(operands...) or when_false(operands...), selected by a bool of one element. Both must return the
/// same shapes and dtypes.
///
///   Tensor y = cond(any(isnan(x)), [](const Tensor& a) { return zeros_like(a); },
///                   [](const Tensor& a) { return a; }, x);
///
/// Gradients  of any order, also with respect to captured tensors.
/// vmap       if the predicate differs between examples, both branches are computed and `where` selects.
/// Errors     ValueError FM1764 for a predicate of several elements, ShapeError FM1762 if the results differ.
template <class F, class G, class... A>
auto cond(const Operand& predicate, F when_true, G when_false, const A&... operands) {
  const detail::FlatFunction first(std::move(when_true), std::tuple<A...>(operands...));
  const detail::FlatFunction second(std::move(when_false), std::tuple<A...>(operands...));
  static_assert(std::is_same_v<decltype(first.result({})), decltype(second.result({}))>,
                "both functions must return the same type");
  std::vector<Tensor> results = detail::cond_flat(predicate, first.function(), second.function(), first.tensors());
  return first.has_run() ? first.result(std::move(results)) : second.result(std::move(results));
}

/// Repeats state = body(state) while condition(state) is true, and returns the last state. A tuple is passed as several
/// arguments.
///
///   auto [n, x] = while_loop([](const Tensor& i, const Tensor&) { return i < 10; },
///                            [](const Tensor& i, const Tensor& a) { return std::tuple(i + 1, a * a); },
///                            std::tuple(i0, x0));
///
/// Gradients  jvp of any order. Reverse mode only if the loop is not captured: inside compile(fn) the number of
///            iterations is unknown, which is GradientError FM1761. scan and fori_loop have both.
/// vmap       iterates while the condition holds for any example; the others keep their state.
/// Errors     ShapeError FM1763 if the body changes a shape or dtype, ValueError FM1764 for a condition that is not one
///            bool.
template <class C, class B, class S>
S while_loop(C condition, B body, const S& state, Location where = Location::current()) {
  const auto arguments = detail::as_arguments(state);
  const detail::FlatFunction holds(std::move(condition), arguments);
  const detail::FlatFunction next(std::move(body), arguments);
  return with_tensors(state, detail::while_flat(holds.function(), next.function(), next.tensors(), where));
}

/// Evaluates carry, y = f(carry, x) for every x along the first axis of `xs`. Returns the last carry and the stacked
/// ys.
///
///   auto [total, sums] = scan([](const Tensor& s, const Tensor& x) { return std::pair(s + x, s + x); },
///                             zeros({}), xs);
///
/// The carry and x are passed as they are, even if they are tuples. `reverse` starts with the last x; ys keep the order
/// of xs.
///
/// Gradients  of any order: the carries are saved, and f is evaluated again.
/// Errors     ShapeError FM1763 if f changes the shape or dtype of the carry, FM1765 if xs has no axis or sequences
///            differ in length.
template <class F, class C, class X>
auto scan(F f, const C& init, const X& xs, bool reverse = false, Location where = Location::current()) {
  const detail::FlatFunction flat(std::move(f), std::tuple<C, X>(init, xs));
  return flat.result(
      detail::scan_flat(flat.function(), defined_tensors_in(init), defined_tensors_in(xs), reverse, where));
}

/// Repeats state = body(i, state) for i = begin ... end - 1, where i is a 0-d i64 tensor, and returns the last state. A
/// tuple is passed as several arguments.
template <class B, class S>
S fori_loop(std::int64_t begin, std::int64_t end, B body, const S& state, Location where = Location::current()) {
  const auto step = [body = std::move(body)](const S& s, const Tensor& i) {
    return std::pair<S, std::tuple<>>(
        std::apply([&](const auto&... parts) { return body(i, parts...); }, detail::as_arguments(s)), {});
  };
  return scan(step, state, arange(begin, std::max(begin, end), 1, DType::i64, where), false, where).first;
}

}  // namespace fermata
