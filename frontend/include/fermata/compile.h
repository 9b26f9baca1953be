// compile(fn): a function captured once and replayed with no recording.
//
// A replay checks the arguments (exact sizes, dtypes, strides, host numbers), binds buffers and runs the plan. Other
// arguments record fn again, which takes microseconds; kernels are free of sizes, so nothing is compiled for a new size.
// Tensors that fn touches without taking them as arguments are hidden inputs, bound by identity: their present value is
// used, and in-place writes of fn are written back. Host numbers that fn captures freeze at the first call. Reading a
// value inside fn is an error at that line. Where a result carries a gradient history, fn is run and not replayed; adding to grad()
// of a tensor from outside is an error (gradients() is not). FERMATA_CHECK_REPLAY=1 records every call again and compares.
#pragma once

#include <array>
#include <bit>
#include <cstdint>
#include <iterator>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/function_ref.h"
#include "runtime/tensor.h"

namespace fermata {

/// Whether every call of a compiled function that is there already is recorded again and compared, as with FERMATA_CHECK_REPLAY=1 and
/// in debug builds. Gives what was set before.
bool set_check_replay(bool on);

/// What compile() returns holds one of these: the captures of one function.
class CompiledCore {
 public:
  CompiledCore();
  ~CompiledCore();
  CompiledCore(CompiledCore&&) noexcept;
  CompiledCore& operator=(CompiledCore&&) noexcept;

  using Body = FunctionRef<std::vector<Tensor>(std::span<const Tensor> args)>;
  /// Takes results from where they lie.
  using Deliver = FunctionRef<void(std::span<Tensor> results)>;
  /// Runs `body` on stand-ins for the arguments once per distinct signature, replays it otherwise.
  void call(std::span<const Tensor> args, std::span<const std::uint64_t> numbers, Body body, Deliver deliver, Location where);
  /// Distinct signatures captured so far.
  std::size_t captures() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

namespace detail {

template <class T> inline constexpr bool is_number = std::is_arithmetic_v<std::remove_cvref_t<T>>;

template <class T> void flatten(std::vector<Tensor>& out, T&& value) {
  using U = std::remove_cvref_t<T>;
  if constexpr (std::is_same_v<U, Tensor>) out.push_back(std::forward<T>(value));
  else if constexpr (std::is_same_v<U, std::vector<Tensor>>) out.insert(out.end(), value.begin(), value.end());
  else std::apply([&](auto&&... v) { (flatten(out, v), ...); }, value);
}
template <class R> R unflatten(std::span<Tensor> values, std::size_t& next) {
  if constexpr (std::is_same_v<R, Tensor>) {
    return std::move(values[next++]);
  } else if constexpr (std::is_same_v<R, std::vector<Tensor>>) {
    return {std::move_iterator(values.begin()), std::move_iterator(values.end())};
  } else {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return R{unflatten<std::tuple_element_t<I, R>>(values, next)...};
    }(std::make_index_sequence<std::tuple_size_v<R>>{});
  }
}

}  // namespace detail

/// A compiled function. Arguments are tensors and host numbers; the result is nothing, a Tensor, a vector of tensors, or
/// a tuple, pair or array of tensors.
template <class F> class CompiledFunction {
 public:
  explicit CompiledFunction(F fn, Location where) : fn_(std::move(fn)), where_(where) {}

  template <class... A> auto operator()(const A&... args) {
    using R = std::invoke_result_t<F&, const A&...>;
    constexpr std::size_t kNumbers = (std::size_t{0} + ... + detail::is_number<A>);
    std::array<Tensor, sizeof...(A) - kNumbers> tensors;
    std::array<std::uint64_t, kNumbers> numbers;
    [[maybe_unused]] std::size_t tensor = 0, number = 0;
    [[maybe_unused]] const auto take = [&](const auto& a) {
      using T = std::remove_cvref_t<decltype(a)>;
      if constexpr (detail::is_number<T>) {
        if constexpr (std::is_floating_point_v<T>) numbers[number++] = std::bit_cast<std::uint64_t>(static_cast<double>(a));
        else numbers[number++] = static_cast<std::uint64_t>(a);
      } else {
        static_assert(std::is_convertible_v<const T&, const Tensor&>, "arguments of a compiled function are tensors and numbers");
        tensors[tensor++] = a;
      }
    };
    (take(args), ...);
    const auto body = [&](std::span<const Tensor> stand_ins) {
      std::size_t next = 0;
      [[maybe_unused]] const auto pick = [&](const auto& a) -> decltype(auto) {
        if constexpr (detail::is_number<decltype(a)>) return a; else return stand_ins[next++];
      };
      std::vector<Tensor> out;
      // Braces: arguments are picked from left to right.
      std::tuple<decltype(pick(args))...> picked{pick(args)...};
      if constexpr (std::is_void_v<R>) std::apply(fn_, picked);
      else detail::flatten(out, std::apply(fn_, picked));
      return out;
    };
    if constexpr (std::is_void_v<R>) {
      core_.call(tensors, numbers, body, [](std::span<Tensor>) {}, where_);
    } else {
      std::optional<R> results;
      core_.call(tensors, numbers, body, [&](std::span<Tensor> values) {
        std::size_t next = 0;
        results.emplace(detail::unflatten<R>(values, next));
      }, where_);
      return *std::move(results);
    }
  }
  std::size_t captures() const { return core_.captures(); }

 private:
  F fn_;
  Location where_;  // of compile(): a call takes any number of arguments, and none can be defaulted after them
  CompiledCore core_;
};

/// Errors of a call as a whole name the line of compile(); those of calls inside fn name their own.
template <class F>
CompiledFunction<std::decay_t<F>> compile(F&& fn, Location where = Location::current()) {
  return CompiledFunction<std::decay_t<F>>(std::forward<F>(fn), where);
}

}  // namespace fermata
