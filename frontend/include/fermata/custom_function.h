// Derivatives written by hand: a forward and a backward pass of your own, differentiable like anything else.
//
//   struct Clamp : Function<Clamp> {
//     static Tensor forward(FunctionContext& context, const Tensor& x) {
//       context.save_for_backward({x});
//       return clip(x, -1, 1);
//     }
//     static std::vector<Tensor> backward(FunctionContext& context, std::span<const Tensor> g) {
//       const Tensor x = context.saved()[0];
//       return {where(abs(x) <= 1, g[0], 0)};
//     }
//   };
//   Tensor y = Clamp::apply(x);
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>

#include "dispatch/value.h"
#include "fermata/autograd.h"

namespace fermata {

struct Call;
struct CustomBackwardCall;
struct VmapLevel;

/// What a forward pass leaves for the backward pass of the same call.
class FunctionContext {
 public:
  FunctionContext();
  ~FunctionContext();
  FunctionContext(const FunctionContext&) = delete;
  FunctionContext& operator=(const FunctionContext&) = delete;

  /// Keeps values, arguments and results among them, as they are now: writing them in place later does no harm.
  void save_for_backward(std::initializer_list<Tensor> tensors) {
    save_for_backward(std::span(std::data(tensors), tensors.size()));
  }
  void save_for_backward(std::span<const Tensor> tensors);
  /// They again, with their history where the backward pass is recorded. GradientError FM1713 once a pass has used them
  /// up.
  std::vector<Tensor> saved() const;
  /// Anything else, by name.
  std::map<std::string, Value> data;

 private:
  friend class FunctionCall;
  friend std::vector<Tensor> record_custom_backward(CustomBackwardCall call, std::shared_ptr<FunctionContext> owner,
                                                    const VmapLevel& level, std::vector<Tensor> results);
  friend bool is_recorded_with_graph(const FunctionContext& context);
  struct State;
  std::unique_ptr<State> state_;
};

/// One call of a function with a backward pass of its own: what Function and derivative() are made of.
class FunctionCall {
 public:
  using Backward = std::function<std::vector<Tensor>(FunctionContext&, std::span<const Tensor> gradients)>;
  FunctionCall(std::string name, std::vector<Tensor> arguments, Backward backward, Location where);
  ~FunctionCall();
  FunctionContext& context();
  /// Inside vmap: the results have the histories that belong to gradients taken further out already.
  void has_histories_below();
  /// Will anybody ask for a gradient?
  bool recorded() const;
  /// The results, on the tape where a gradient is wanted.
  std::vector<Tensor> finish(std::vector<Tensor> results);

 private:
  void record_below(std::vector<Tensor>& results) const;
  struct State;
  std::unique_ptr<State> state_;
};

namespace detail {

template <class T> void collect(std::vector<Tensor>& out, const T& v) {
  if constexpr (std::is_same_v<T, Tensor>)
    out.push_back(v);
  else if constexpr (std::is_same_v<T, std::vector<Tensor>>)
    out.insert(out.end(), v.begin(), v.end());
}

}  // namespace detail

/// The base of such functions. F has static `forward(FunctionContext&, arguments...)`, which gives a Tensor or a vector
/// of them and runs while no gradients are recorded, and `backward(FunctionContext&, std::span<const Tensor>
/// gradients)`, which is given the gradient of each result (undefined where nothing reached it) and gives that of each
/// Tensor argument in order (undefined for none).
template <class F> struct Function {
  template <class... A> static auto apply(const A&... arguments) { return apply_at(Location::current(), arguments...); }
  template <class... A> static auto apply_at(Location where, const A&... arguments) {
    std::vector<Tensor> tensors;
    (detail::collect(tensors, arguments), ...);
    FunctionCall call("custom function", std::move(tensors), &F::backward, where);
    auto results = no_grad([&] { return F::forward(call.context(), arguments...); });
    if constexpr (std::is_same_v<decltype(results), Tensor>)
      return call.finish({std::move(results)})[0];
    else
      return call.finish(std::move(results));
  }
};

/// What the derivative of an operator from outside is given.
struct DerivativeArguments {
  Stack arguments;                    // of the call, with history where the backward pass is recorded
  std::vector<Tensor> results;        // the tensors among its results
  std::span<const Tensor> gradients;  // one per result, undefined where nothing reached it
};
/// The Autograd kernel of an operator from its derivative: gradients of the Tensor arguments in order. For impl_boxed
/// in a FERMATA_LIBRARY_IMPL(ns, Autograd, m).
std::function<void(const Call&, Stack&)> derivative(
    std::function<std::vector<Tensor>(const DerivativeArguments&)> backward);

}  // namespace fermata
