// Functions with a hand-written backward pass.
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

/// State that the forward pass of a call saves for its backward pass.
class FunctionContext {
 public:
  FunctionContext();
  ~FunctionContext();
  FunctionContext(const FunctionContext&) = delete;
  FunctionContext& operator=(const FunctionContext&) = delete;

  /// Saves tensors (arguments, results or others) with their current values; later in-place writes do not affect them.
  void save_for_backward(std::initializer_list<Tensor> tensors) {
    save_for_backward(std::span(std::data(tensors), tensors.size()));
  }
  void save_for_backward(std::span<const Tensor> tensors);
  /// Returns the saved tensors, with their history if the backward pass is recorded. GradientError FM1713 if they were
  /// freed by an earlier backward pass.
  std::vector<Tensor> saved() const;
  /// Other values, by name.
  std::map<std::string, Value> data;

 private:
  friend class FunctionCall;
  friend std::vector<Tensor> record_custom_backward(CustomBackwardCall call, std::shared_ptr<FunctionContext> owner,
                                                    const VmapLevel& level, std::vector<Tensor> results);
  friend bool is_recorded_with_graph(const FunctionContext& context);
  struct State;
  std::unique_ptr<State> state_;
};

/// One call of a function with a custom backward pass; implements Function and derivative().
class FunctionCall {
 public:
  using Backward = std::function<std::vector<Tensor>(FunctionContext&, std::span<const Tensor> gradients)>;
  FunctionCall(std::string name, std::vector<Tensor> arguments, Backward backward, Location where);
  ~FunctionCall();
  FunctionContext& context();
  /// Inside vmap: states that the results already carry the histories of the enclosing gradient levels.
  void has_histories_below();
  /// Whether a gradient can be requested.
  bool recorded() const;
  /// Returns the results, recorded on the tape if a gradient can be requested.
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

/// CRTP base of functions with a custom backward pass. F has static `forward(FunctionContext&, arguments...)`, which
/// returns a Tensor or a vector of them and runs without recording gradients, and static `backward(FunctionContext&,
/// std::span<const Tensor> gradients)`. backward receives the gradient of each result (undefined if no gradient reached
/// it), and returns the gradient of each Tensor argument in order (undefined for none).
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

/// The arguments of a custom operator's derivative.
struct DerivativeArguments {
  Stack arguments;                    // of the call, with history if the backward pass is recorded
  std::vector<Tensor> results;        // the tensors among its results
  std::span<const Tensor> gradients;  // one per result, undefined if no gradient reached it
};
/// Makes the Autograd kernel of an operator from `backward`, which returns the gradients of the Tensor arguments in
/// order. Register it with impl_boxed in a FERMATA_LIBRARY_IMPL(ns, Autograd, m).
std::function<void(const Call&, Stack&)> derivative(
    std::function<std::vector<Tensor>(const DerivativeArguments&)> backward);

}  // namespace fermata
