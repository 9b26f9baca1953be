// vmap: vectorizes a function of one example over a batch.
//
// Inside the function a batched argument appears without its batch axis, and every call on it is made once for the
// whole batch. vmap nests, and composes with gradients in both orders: vmap(grad(f)) gives per-example gradients,
// grad(vmap(f)) the gradient of the whole batch. docs/vmap.md has the rules.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "fermata/tensor_tree.h"
#include "runtime/tensor.h"

namespace fermata {

struct Unbatched {};
/// As an in_axis: the argument is shared by the whole batch. As an out_axis: the result must not be batched.
inline constexpr Unbatched unbatched{};

/// The batch axis of an argument or result; negative axes count from the end.
class BatchAxis {
 public:
  template <std::integral T>
  requires(!std::same_as<T, bool>) BatchAxis(T axis) : axis_(static_cast<std::int64_t>(axis)) {}
  BatchAxis(Unbatched) {}
  bool is_batched() const { return axis_.has_value(); }
  std::int64_t axis() const { return *axis_; }

 private:
  std::optional<std::int64_t> axis_;
};

/// One axis for all, or a list with one per argument: {0, unbatched, -1}.
class BatchAxes {
 public:
  BatchAxes(std::initializer_list<BatchAxis> axes) : axes_(axes), one_for_all_(false) {}
  template <class T>
  requires std::convertible_to<T, BatchAxis> BatchAxes(T axis) : axes_{BatchAxis(axis)}, one_for_all_(true) {}
  bool one_for_all() const { return one_for_all_; }
  std::size_t size() const { return axes_.size(); }
  const BatchAxis& operator[](std::size_t i) const { return axes_[one_for_all_ ? 0 : i]; }

 private:
  std::vector<BatchAxis> axes_;
  bool one_for_all_;
};

namespace detail {

/// One call of a function made by vmap(). The members are called in the order of their declarations. Values are trees
/// (fermata/tensor_tree.h): all tensors of an argument share its batch axis; other values pass unchanged.
class VmapCall {
 public:
  VmapCall(const BatchAxes& in_axes, const BatchAxes& out_axes, std::size_t arguments, Location where);
  ~VmapCall();
  VmapCall(const VmapCall&) = delete;
  VmapCall& operator=(const VmapCall&) = delete;

  /// Determines the batch size; called for every argument in order.
  template <class T> void measure(const T& value) {
    each_tensor(value, [&](const Tensor& x) {
      if (std::is_same_v<T, Tensor> || x.defined()) measure_tensor(x, measured_);
    });
    ++measured_;
  }
  /// Returns what the function receives; called for every argument in order.
  template <class T> T wrap(const T& value) {
    T wrapped = value;
    each_tensor(wrapped, [&](Tensor& x) {
      if (x.defined()) x = wrap_tensor(x, wrapped_);
    });
    ++wrapped_;
    return wrapped;
  }
  /// Calls between enter() and leave() are inside the vmap level.
  void enter();
  template <class R> R leave(R result) {
    each_tensor(result, [](const Tensor& x) { promote_and_broadcast(x); });
    exit(count_of<R>(result));
    if constexpr (std::is_same_v<R, Tensor>) {
      result = unwrap_tensor(result, 0);
    } else if constexpr (detail::is_vector<R>) {
      for (std::size_t i = 0; i < result.size(); ++i) unwrap_part<true>(result[i], i);
    } else if constexpr (has_parts<R>) {
      std::size_t at = 0;
      std::apply([&](auto&... parts) { (unwrap_part<detail::is_tuple<R>>(parts, at++), ...); },
                 detail::members(result));
    } else {
      unwrap_part<false>(result, 0);
    }
    return result;
  }

 private:
  template <class R> static constexpr bool has_parts = detail::is_tuple<R> || detail::is_struct<R>;
  /// Tensors in structs may be undefined; tensors that are elements of a tuple or vector must be defined.
  template <bool is_element, class T> void unwrap_part(T& part, std::size_t result) {
    each_tensor(part, [&](Tensor& x) {
      if ((is_element && std::is_same_v<T, Tensor>) || x.defined()) x = unwrap_tensor(x, result);
    });
  }
  template <class R> static std::size_t count_of([[maybe_unused]] const R& result) {
    if constexpr (detail::is_vector<R>)
      return result.size();
    else if constexpr (!std::is_same_v<R, Tensor> && has_parts<R>)
      return std::tuple_size_v<decltype(detail::members(result))>;
    else
      return 1;
  }

  /// Updates a view to the current value of its base, before the level ends.
  static void promote_and_broadcast(const Tensor& x);
  void measure_tensor(const Tensor& x, std::size_t argument);
  Tensor wrap_tensor(const Tensor& x, std::size_t argument) const;
  void exit(std::size_t results);
  Tensor unwrap_tensor(const Tensor& x, std::size_t result) const;

  struct State;
  std::unique_ptr<State> state_;
  std::size_t measured_ = 0, wrapped_ = 0;  // arguments
};

}  // namespace detail

/// Vectorizes f: vmap(f)(xs) equals stacking f(x) for all x along axis 0 of xs.
///
/// in_axes    the batch axes of the arguments, by default 0 for all; `unbatched` for shared arguments. Arguments are
///            trees, whose tensors all share an axis, or other values, which f receives unchanged.
/// out_axes   the batch axes of the results: one per element of a vector and per member of a tuple or struct.
/// Random     draws inside f are independent for each example.
/// Errors     when called: ValueError if the axes do not match the arguments or nothing is batched, IndexError for an
///            axis out of range, ShapeError if batch sizes differ. Inside f, reading a batched value is an
///            UnsupportedError.
template <class F> auto vmap(F f, BatchAxes in_axes = 0, BatchAxes out_axes = 0, Location where = Location::current()) {
  return [f = std::move(f), in_axes = std::move(in_axes), out_axes = std::move(out_axes),
          where](const auto&... arguments) {
    detail::VmapCall call(in_axes, out_axes, sizeof...(arguments), where);
    (call.measure(arguments), ...);
    // Braces: arguments are taken from left to right.
    std::tuple<std::decay_t<decltype(arguments)>...> wrapped{call.wrap(arguments)...};
    call.enter();
    return call.leave(std::apply(f, wrapped));
  };
}

}  // namespace fermata
