// vmap: a function of one example as a function of a batch of them.
//
// Inside the function a batched argument looks as if it had no batch axis; every call on it is made once, for the whole
// batch. It nests, and composes with gradients in both orders: vmap(grad(f)) gives a gradient for each example,
// grad(vmap(f)) one through the whole batch. docs/vmap.md has the rules.
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
/// As an axis: the argument is the same for the whole batch; the result must be.
inline constexpr Unbatched unbatched{};

/// Which axis of an argument or result is the batch, counted from the end where negative.
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

/// One axis for all, or a list of one for each: {0, unbatched, -1}.
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

/// One call of a function made by vmap(), which uses it in the order of its members. Values are trees
/// (fermata/tensor_tree.h); the tensors of an argument share its axis, what is beside them passes unchanged.
class VmapCall {
 public:
  VmapCall(const BatchAxes& in_axes, const BatchAxes& out_axes, std::size_t arguments, Location where);
  ~VmapCall();
  VmapCall(const VmapCall&) = delete;
  VmapCall& operator=(const VmapCall&) = delete;

  /// Finds the size of the batch: of every argument in order.
  template <class T> void measure(const T& value) {
    each_tensor(value, [&](const Tensor& x) {
      if (std::is_same_v<T, Tensor> || x.defined()) measure_tensor(x, measured_);
    });
    ++measured_;
  }
  /// What the function gets for every argument in order.
  template <class T> T wrap(const T& value) {
    T wrapped = value;
    each_tensor(wrapped, [&](Tensor& x) {
      if (x.defined()) x = wrap_tensor(x, wrapped_);
    });
    ++wrapped_;
    return wrapped;
  }
  /// From here on, up to leave(), calls are inside the level.
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
  /// Places for tensors in structs may be empty; a tensor that is itself an element of a tuple or vector is there.
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

  /// A view takes the present value of its base while the level is there.
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

/// `f` as a function of batches: vmap(f)(xs) is what stacking f(x) over all x along axis 0 of xs gives.
///
/// in_axes    the batch axis of the arguments, by default 0 of all; `unbatched` for those that every call shares.
///            Arguments are trees, all of whose tensors share an axis, and anything else, which f gets as it is.
/// out_axes   where the batch goes in the results: a tree, with an axis for each element of a vector and each member of
/// a tuple or
///            struct.
/// Random     draws inside f are independent for each element of the batch.
/// Errors     when called: ValueError if the axes do not fit the arguments or nothing is batched, IndexError for an
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
