// Trees: nested values that contain tensors. A tensor is a tree; so are vectors, arrays, tuples, pairs, optionals and
// maps of trees, and structs whose members are trees, to any depth. Aggregates of up to 24 members work as they are;
// other classes list their members:
//
//   class Layer {
//     fm::Tensor weight_, bias_;
//    public:
//     FERMATA_TREE(weight_, bias_)
//   };
//
// Values other than tensors are passed through unchanged. C arrays and aggregates with base classes are not trees: use
// std::array, or the macro.
#pragma once

#include <algorithm>
#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/tensor.h"

/// Lists the members of a class that are parts of a tree, in order.
#define FERMATA_TREE(...)                                     \
  auto tree_members() { return std::tie(__VA_ARGS__); }       \
  auto tree_members() const { return std::tie(__VA_ARGS__); } \
  static constexpr const char* tree_names() { return #__VA_ARGS__; }

namespace fermata {

/// A tensor of a model that optimizers do not update, such as running statistics or tables.
struct Buffer {
  Tensor value;
  operator const Tensor&() const { return value; }
};

namespace detail {

template <class T> inline constexpr bool is_vector = false;
template <class T, class A> inline constexpr bool is_vector<std::vector<T, A>> = true;
template <class T> inline constexpr bool is_list_of_numbers = false;  // vector<bool> has no addressable elements
template <class T, class A> inline constexpr bool is_list_of_numbers<std::vector<T, A>> = std::is_arithmetic_v<T>;
template <class T> inline constexpr bool is_optional = false;
template <class T> inline constexpr bool is_optional<std::optional<T>> = true;
template <class T> inline constexpr bool is_map = false;
template <class K, class T, class C, class A> inline constexpr bool is_map<std::map<K, T, C, A>> = true;
template <class T> inline constexpr bool is_tuple = requires { std::tuple_size<T>::value; };
template <class T>
concept NamesItsMembers = requires(T& value) {
  value.tree_members();
};
template <class T>
inline constexpr bool is_struct = NamesItsMembers<T> ||
                                  (std::is_aggregate_v<T> && std::is_class_v<T> && !std::is_empty_v<T> && !is_tuple<T>);

/// Converts to a member of any type but T, which would be a copy. Used in unevaluated contexts only.
template <class T> struct AnyMember {
  template <class U>
  requires(!std::is_same_v<std::remove_cvref_t<U>, T>) operator U() const { std::abort(); }
};
/// Counts the initializers of an aggregate by adding one at a time, which requires that the remaining members need
/// none. AnyMember is ambiguous for std::optional, so nullopt is tried as well.
template <class T, class... Found> consteval std::size_t initializer_count() {
  if constexpr (sizeof...(Found) > 24)
    return sizeof...(Found);
  else if constexpr (requires { T{std::declval<Found>()..., std::declval<AnyMember<T>>()}; })
    return initializer_count<T, Found..., AnyMember<T>>();
  else if constexpr (requires { T{std::declval<Found>()..., std::nullopt}; })
    return initializer_count<T, Found..., const std::nullopt_t&>();
  else
    return sizeof...(Found);
}
/// The largest number of initializers accepted at once, for aggregates whose members all require one. None of them may
/// be an optional.
template <class T, std::size_t... I> consteval std::size_t full_initializer_count(std::index_sequence<I...>) {
  if constexpr (sizeof...(I) == 0)
    return 0;
  else if constexpr (requires { T{(static_cast<void>(I), std::declval<AnyMember<T>>())...}; })
    return sizeof...(I);
  else
    return full_initializer_count<T>(std::make_index_sequence<sizeof...(I) - 1>{});
}
/// The number of members of an aggregate.
template <class T> consteval std::size_t member_count() {
  constexpr std::size_t one_by_one = initializer_count<T>();
  if constexpr (one_by_one > 24) return one_by_one;
  constexpr std::size_t at_once = full_initializer_count<T>(std::make_index_sequence<24>{});
  return std::max(one_by_one, at_once);
}

#define FERMATA_MEMBERS(n, ...)    \
  else if constexpr (count == n) { \
    auto& [__VA_ARGS__] = value;   \
    return std::tie(__VA_ARGS__);  \
  }
/// References to the members of a tuple or struct.
template <class T> constexpr auto members(T& value) {
  using U = std::remove_cv_t<T>;
  if constexpr (is_tuple<U>) {
    return std::apply([](auto&... parts) { return std::tie(parts...); }, value);
  } else if constexpr (NamesItsMembers<T>) {
    return value.tree_members();
  } else {
    constexpr std::size_t count = member_count<U>();
    static_assert(count > 0, "cannot count the members of this struct: list them with FERMATA_TREE");
    static_assert(count <= 24, "a struct of more than 24 members must list them with FERMATA_TREE");
    if constexpr (count == 0) return std::tuple<>();
    FERMATA_MEMBERS(1, a)
    FERMATA_MEMBERS(2, a, b)
    FERMATA_MEMBERS(3, a, b, c)
    FERMATA_MEMBERS(4, a, b, c, d)
    FERMATA_MEMBERS(5, a, b, c, d, e)
    FERMATA_MEMBERS(6, a, b, c, d, e, f)
    FERMATA_MEMBERS(7, a, b, c, d, e, f, g)
    FERMATA_MEMBERS(8, a, b, c, d, e, f, g, h)
    FERMATA_MEMBERS(9, a, b, c, d, e, f, g, h, i)
    FERMATA_MEMBERS(10, a, b, c, d, e, f, g, h, i, j)
    FERMATA_MEMBERS(11, a, b, c, d, e, f, g, h, i, j, k)
    FERMATA_MEMBERS(12, a, b, c, d, e, f, g, h, i, j, k, l)
    FERMATA_MEMBERS(13, a, b, c, d, e, f, g, h, i, j, k, l, m)
    FERMATA_MEMBERS(14, a, b, c, d, e, f, g, h, i, j, k, l, m, n)
    FERMATA_MEMBERS(15, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o)
    FERMATA_MEMBERS(16, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p)
    FERMATA_MEMBERS(17, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q)
    FERMATA_MEMBERS(18, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r)
    FERMATA_MEMBERS(19, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s)
    FERMATA_MEMBERS(20, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t)
    FERMATA_MEMBERS(21, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u)
    FERMATA_MEMBERS(22, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v)
    FERMATA_MEMBERS(23, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w)
    FERMATA_MEMBERS(24, a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x)
  }
}
#undef FERMATA_MEMBERS

}  // namespace detail

/// Calls f(part) for every leaf of a tree, tensors and others, from left to right. Values of the types in Whole are
/// treated as leaves.
template <class... Whole, class T, class F> void each_part(T& value, F&& f) {
  using U = std::remove_cv_t<T>;
  if constexpr (detail::is_list_of_numbers<U> || (std::is_same_v<U, Whole> || ...))
    f(value);
  else if constexpr (detail::is_vector<U>)
    for (auto& x : value) each_part<Whole...>(x, f);
  else if constexpr (detail::is_optional<U>) {
    if (value.has_value()) each_part<Whole...>(*value, f);
  } else if constexpr (detail::is_map<U>)
    for (auto& [key, x] : value) each_part<Whole...>(x, f);
  else if constexpr (detail::is_tuple<U> || detail::is_struct<U>)
    std::apply([&](auto&... parts) { (each_part<Whole...>(parts, f), ...); }, detail::members(value));
  else
    f(value);
}

/// Calls f(Tensor&) for every tensor in a tree, from left to right.
template <class T, class F> void each_tensor(T& value, F&& f) {
  each_part(value, [&]<class P>(P& part) {
    if constexpr (std::is_same_v<std::remove_cv_t<P>, Tensor>) f(part);
  });
}

template <class T> std::vector<Tensor> tensors_in(const T& value) {
  std::vector<Tensor> all;
  each_tensor(value, [&](const Tensor& x) { all.push_back(x); });
  return all;
}

/// Returns the value with its defined tensors replaced by `tensors`, in order.
template <class T> T with_tensors(T value, std::vector<Tensor> tensors) {
  std::size_t next = 0;
  each_tensor(value, [&](Tensor& x) {
    if (x.defined()) x = std::move(tensors[next++]);
  });
  return value;
}

/// Returns the defined tensors of a tree; a tree may contain undefined ones.
template <class T> std::vector<Tensor> defined_tensors_in(const T& value) {
  std::vector<Tensor> all;
  each_tensor(value, [&](const Tensor& x) {
    if (x.defined()) all.push_back(x);
  });
  return all;
}

/// Returns all tensors of a model, defined or not, except those in Buffers.
template <class T> std::vector<Tensor> parameter_places_in(const T& model) {
  std::vector<Tensor> all;
  each_part<Buffer>(model, [&]<class P>(const P& part) {
    if constexpr (std::is_same_v<P, Tensor>) all.push_back(part);
  });
  return all;
}
/// Returns the defined ones of these.
template <class T> std::vector<Tensor> parameters_in(const T& model) {
  std::vector<Tensor> all = parameter_places_in(model);
  std::erase_if(all, [](const Tensor& x) { return !x.defined(); });
  return all;
}

/// A function of tensors; the flattened form of a function of trees.
using TensorFunction = std::function<std::vector<Tensor>(std::span<const Tensor>)>;

namespace detail {

/// The structure of a tree: which tensors are defined, and all other values.
template <class T> class TreeForm {
 public:
  explicit TreeForm(T value) : value_(std::move(value)) {
    each_tensor(value_, [&](Tensor& x) { has_tensor_.push_back(x.defined()), x = Tensor(); });
  }
  /// Rebuilds the tree with these tensors.
  T filled(std::span<Tensor> tensors) const {
    T value = value_;
    std::size_t next = 0, place = 0;
    each_tensor(value, [&](Tensor& x) {
      if (has_tensor_[place++]) x = std::move(tensors[next++]);
    });
    return value;
  }

 private:
  T value_;
  std::vector<bool> has_tensor_;
};

/// Flattens f to a TensorFunction. Other values in its arguments are fixed; the structure of its result is known once
/// it has run.
template <class F, class Arguments> class FlatFunction {
 public:
  using Result = std::decay_t<decltype(std::apply(std::declval<const F&>(), std::declval<Arguments&>()))>;

  FlatFunction(F f, const Arguments& arguments)
      : tensors_(defined_tensors_in(arguments)), form_(std::make_shared<std::optional<TreeForm<Result>>>()) {
    function_ = [f = std::move(f), arguments = TreeForm<Arguments>(arguments),
                 form = form_](std::span<const Tensor> tensors) {
      std::vector<Tensor> given(tensors.begin(), tensors.end());
      Arguments filled = arguments.filled(given);
      Result result = std::apply(f, filled);
      std::vector<Tensor> flat = defined_tensors_in(result);
      form->emplace(std::move(result));
      return flat;
    };
  }
  const TensorFunction& function() const { return function_; }
  /// The tensors of the arguments.
  const std::vector<Tensor>& tensors() const { return tensors_; }
  bool has_run() const { return form_->has_value(); }
  /// Rebuilds the result from its tensors.
  Result result(std::vector<Tensor> tensors) const { return (*form_)->filled(tensors); }

 private:
  std::vector<Tensor> tensors_;
  std::shared_ptr<std::optional<TreeForm<Result>>> form_;
  TensorFunction function_;
};

}  // namespace detail
}  // namespace fermata
