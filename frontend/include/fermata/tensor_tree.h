// Values that hold tensors: a tensor, or vectors, tuples, pairs and arrays of them, which may hold anything else beside.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/tensor.h"

namespace fermata {

/// Calls f(Tensor&) for every tensor in a value, from left to right.
template <class T, class F> void each_tensor(T& value, F&& f) {
  using U = std::remove_cv_t<T>;
  if constexpr (std::is_same_v<U, Tensor>)
    f(value);
  else if constexpr (std::is_same_v<U, std::vector<Tensor>>)
    for (auto& x : value) f(x);
  else if constexpr (requires { std::tuple_size<U>::value; })
    std::apply([&](auto&... parts) { (each_tensor(parts, f), ...); }, value);
}

template <class T> std::vector<Tensor> tensors_in(const T& value) {
  std::vector<Tensor> all;
  each_tensor(value, [&](const Tensor& x) { all.push_back(x); });
  return all;
}

/// The value with other tensors in the places of its own, in order.
template <class T> T with_tensors(T value, std::vector<Tensor> tensors) {
  std::size_t next = 0;
  each_tensor(value, [&](Tensor& x) { x = std::move(tensors[next++]); });
  return value;
}

/// A function of tensors, whatever its arguments and results looked like.
using TensorFunction = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

/// f as such a function. What its arguments have beside tensors is fixed; the form of its result is known once it has run.
template <class F, class Arguments> class FlatFunction {
 public:
  using Result = decltype(std::apply(std::declval<const F&>(), std::declval<Arguments&>()));

  FlatFunction(F f, Arguments arguments) : tensors_(tensors_in(arguments)), form_(std::make_shared<std::optional<Result>>()) {
    each_tensor(arguments, [](Tensor& x) { x = Tensor(); });
    function_ = [f = std::move(f), arguments = std::move(arguments), form = form_](std::span<const Tensor> tensors) {
      Arguments filled = with_tensors(arguments, {tensors.begin(), tensors.end()});
      Result result = std::apply(f, filled);
      std::vector<Tensor> flat = tensors_in(result);
      each_tensor(result, [](Tensor& x) { x = Tensor(); });
      *form = std::move(result);
      return flat;
    };
  }
  const TensorFunction& function() const { return function_; }
  /// Those of the arguments.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  bool has_run() const { return form_->has_value(); }
  /// The result again, of tensors.
  Result result(std::vector<Tensor> tensors) const { return with_tensors(**form_, std::move(tensors)); }

 private:
  std::vector<Tensor> tensors_;
  std::shared_ptr<std::optional<Result>> form_;
  TensorFunction function_;
};

}  // namespace fermata
