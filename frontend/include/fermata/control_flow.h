// Control flow on values that are not known while code is recorded: a branch, loops.
//
// Plain C++ `if` and `for` work everywhere but where a value would have to be read inside compile(fn) or vmap. These
// functions work there too: their functions are captured once, with shapes and dtypes that stay, and run as one step of
// the plan. In eager mode they are the plain C++ statement. State, operands and results are trees
// (fermata/tensor_tree.h); what the functions mention without taking it has gradients too. They have no effects: a
// tensor from outside that is written in place is FM2760. They must own what they refer to (capture by value) where
// gradients are taken. Draws from the default generator are independent for every run of a function.
// docs/control_flow.md has examples and costs.
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
/// `f` gives `init.size()` tensors that are carried, then those that are stacked; so does this.
std::vector<Tensor> scan_flat(const TensorFunction& f, const std::vector<Tensor>& init,
                              const std::vector<Tensor>& sequences, bool reverse, Location where);

/// A value as the arguments of a function: a tuple is several.
template <class T> auto as_arguments(T value) {
  if constexpr (requires { std::tuple_size<T>::value; })
    return value;
  else
    return std::tuple<T>(std::move(value));
}

}  // namespace detail

/// when_true(operands...) or when_false(operands...), by a bool of one element. Both give the same shapes and dtypes.
///
///   Tensor y = cond(any(isnan(x)), [](const Tensor& a) { return zeros_like(a); }, [](const Tensor& a) { return a; },
///   x);
///
/// Gradients  of any order, also of what the functions mention.
/// vmap       where the predicate differs between the examples both are computed, and `where` chooses.
/// Errors     ValueError FM1764 for a predicate of several elements, ShapeError FM1762 where the results differ.
template <class F, class G, class... A>
auto cond(const Operand& predicate, F when_true, G when_false, const A&... operands) {
  const detail::FlatFunction first(std::move(when_true), std::tuple<A...>(operands...));
  const detail::FlatFunction second(std::move(when_false), std::tuple<A...>(operands...));
  static_assert(std::is_same_v<decltype(first.result({})), decltype(second.result({}))>,
                "both functions give the same type");
  std::vector<Tensor> results = detail::cond_flat(predicate, first.function(), second.function(), first.tensors());
  return first.has_run() ? first.result(std::move(results)) : second.result(std::move(results));
}

/// state = body(state) as long as condition(state) holds. A tuple is passed as several arguments.
///
///   auto [n, x] = while_loop([](const Tensor& i, const Tensor&) { return i < 10; },
///                            [](const Tensor& i, const Tensor& a) { return std::tuple(i + 1, a * a); }, std::tuple(i0,
///                            x0));
///
/// Gradients  jvp, of any order. In reverse only where it need not be captured: inside compile(fn) the number of runs
/// is not
///            known and GradientError FM1761 says so; scan and fori_loop have both.
/// vmap       runs as long as one example wants it; the others keep their state.
/// Errors     ShapeError FM1763 where the body changes a shape or dtype, ValueError FM1764 for a condition that is not
/// one bool.
template <class C, class B, class S>
S while_loop(C condition, B body, const S& state, Location where = Location::current()) {
  const auto arguments = detail::as_arguments(state);
  const detail::FlatFunction holds(std::move(condition), arguments);
  const detail::FlatFunction next(std::move(body), arguments);
  return with_tensors(state, detail::while_flat(holds.function(), next.function(), next.tensors(), where));
}

/// carry, y = f(carry, x) for every x along the first axis of `xs`; gives the last carry and the ys, stacked.
///
///   auto [total, sums] = scan([](const Tensor& s, const Tensor& x) { return std::pair(s + x, s + x); }, zeros({}),
///   xs);
///
/// The carry and x are passed as they are, tuples too. `reverse` starts with the last x; ys stay in the order of the
/// xs. Gradients  of any order: the carries are kept, and f is evaluated again. Errors     ShapeError FM1763 where f
/// changes the carry, FM1765 where xs has no axis or sequences differ in length.
template <class F, class C, class X>
auto scan(F f, const C& init, const X& xs, bool reverse = false, Location where = Location::current()) {
  const detail::FlatFunction flat(std::move(f), std::tuple<C, X>(init, xs));
  return flat.result(
      detail::scan_flat(flat.function(), defined_tensors_in(init), defined_tensors_in(xs), reverse, where));
}

/// state = body(i, state) for i = begin ... end - 1, an i64 of no axes. A tuple is passed as several arguments.
template <class B, class S>
S fori_loop(std::int64_t begin, std::int64_t end, B body, const S& state, Location where = Location::current()) {
  const auto step = [body = std::move(body)](const S& s, const Tensor& i) {
    return std::pair<S, std::tuple<>>(
        std::apply([&](const auto&... parts) { return body(i, parts...); }, detail::as_arguments(s)), {});
  };
  return scan(step, state, arange(begin, std::max(begin, end), 1, DType::i64, where), false, where).first;
}

}  // namespace fermata
