// The names of the parts of a tree: "encoder.blocks.0.weight".
//
// Members of an aggregate are named as declared, members of a class with FERMATA_TREE as listed there, both without
// trailing underscores. Elements of vectors, arrays, tuples and pairs are named by position; elements of maps by their
// key, or by position if keys are neither numbers nor strings. A class may name its tensors itself, in order:
// `std::vector<std::string> tensor_names() const`.
#pragma once

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

#include "fermata/tensor_tree.h"

namespace fermata::detail {

/// Storage for a T that is never constructed: only the names of its members are needed.
template <class T> union Nowhere {
  constexpr Nowhere() : nothing() {}
  constexpr ~Nowhere() {}
  char nothing;
  T value;
};
template <class T> inline constexpr Nowhere<T> a_place_for{};
template <class T> struct PointerToMember { const T* at; };
/// g++ says "... P = PointerToMember<..>{(& a_place_for<..>.Nowhere<..>::value.Model::weight)}; ...]", clang "... P =
/// PointerToMember<..>{&a_place_for.value.weight}]".
template <auto P> consteval std::string_view spelled_name() {
  std::string_view f = __PRETTY_FUNCTION__;
  f = f.substr(f.find("P = "));
  f = f.substr(0, f.find("; "));
  constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_";
  const std::size_t end = f.find_last_of(kLetters) + 1;
  const std::size_t begin = f.find_last_not_of(kLetters, end - 1) + 1;
  return f.substr(begin, end - begin);
}
constexpr std::string_view without_underscores(std::string_view name) {
  return name.substr(0, name.find_last_not_of('_') + 1);
}

template <class T, std::size_t I> consteval std::string_view member_name() {
  if constexpr (requires { T::tree_names(); }) {
    std::string_view rest = T::tree_names();
    for (std::size_t i = 0; i < I; ++i) rest.remove_prefix(rest.find(',') + 1);
    rest = rest.substr(0, rest.find(','));
    rest.remove_prefix(rest.find_first_not_of(' '));
    return without_underscores(rest.substr(0, rest.find_last_not_of(' ') + 1));
  } else {
    constexpr auto parts = members(a_place_for<T>.value);
    using Part = std::remove_cvref_t<decltype(std::get<I>(parts))>;
    return without_underscores(spelled_name<PointerToMember<Part>{&std::get<I>(parts)}>());
  }
}
/// Whether the members of a struct have names rather than only positions.
template <class T> inline constexpr bool has_member_names = requires { T::tree_names(); }
|| (is_struct<T> && !NamesItsMembers<T>);

template <class T>
concept NamesItsTensors = requires(const T& value) {
  { value.tensor_names()[0] } -> std::convertible_to<std::string>;
};

/// Appends a name to a path for the lifetime of this object.
class LongerPath {
 public:
  LongerPath(std::string& path, std::string_view name) : path_(path), size_(path.size()) {
    if (!path.empty() && !name.empty()) path += '.';
    path += name;
  }
  ~LongerPath() { path_.resize(size_); }
  LongerPath(const LongerPath&) = delete;
  LongerPath& operator=(const LongerPath&) = delete;

 private:
  std::string& path_;
  std::size_t size_;
};

/// As one of the Whole types of each_named_part(): calls `named(path)` of classes that have it.
struct TellNames {};
template <class T>
concept KnowsItsName = requires(const T& value, const std::string& path) {
  value.named(path);
};

template <class... Whole, class T, class F> void each_named_part(T& value, std::string& path, F&& f);
template <class... Whole, class M, class F, std::size_t... I>
void each_named_member(M parts, std::string& path, F&& f, const auto& name_of, std::index_sequence<I...>) {
  const auto visit = [&](auto& part, std::string_view name) {
    const LongerPath longer(path, name);
    each_named_part<Whole...>(part, path, f);
  };
  (visit(std::get<I>(parts), name_of(std::integral_constant<std::size_t, I>{})), ...);
}

/// each_part() with the path of each part: f(path, part).
template <class... Whole, class T, class F> void each_named_part(T& value, std::string& path, F&& f) {
  using U = std::remove_cv_t<T>;
  if constexpr ((std::is_same_v<Whole, TellNames> || ...) && KnowsItsName<U>) value.named(std::as_const(path));
  if constexpr (is_list_of_numbers<U> || (std::is_same_v<U, Whole> || ...)) {
    f(std::as_const(path), value);
  } else if constexpr (NamesItsTensors<U>) {
    const auto names = value.tensor_names();
    std::size_t next = 0;
    each_part<Whole...>(value, [&]<class P>(P& part) {
      const bool named = std::is_same_v<std::remove_cv_t<P>, Tensor>;
      const LongerPath longer(path, named ? std::string_view(names.at(next++)) : std::string_view());
      f(std::as_const(path), part);
    });
  } else if constexpr (is_vector<U>) {
    std::size_t i = 0;
    for (auto& x : value) {
      const LongerPath longer(path, std::to_string(i++));
      each_named_part<Whole...>(x, path, f);
    }
  } else if constexpr (is_optional<U>) {
    if (value.has_value()) each_named_part<Whole...>(*value, path, f);
  } else if constexpr (is_map<U>) {
    [[maybe_unused]] std::size_t position = 0;
    for (auto& [key, x] : value) {
      std::string name;
      if constexpr (std::is_arithmetic_v<std::remove_cvref_t<decltype(key)>>)
        name = std::to_string(key);
      else if constexpr (std::is_assignable_v<std::string&, decltype(key)>)
        name = key;
      else
        name = std::to_string(position);
      ++position;
      const LongerPath longer(path, name);
      each_named_part<Whole...>(x, path, f);
    }
  } else if constexpr (is_tuple<U> || is_struct<U>) {
    auto parts = members(value);
    constexpr auto count = std::make_index_sequence<std::tuple_size_v<decltype(parts)>>{};
    if constexpr (!is_tuple<U> && has_member_names<U>)
      each_named_member<Whole...>(
          parts, path, f, []<std::size_t I>(std::integral_constant<std::size_t, I>) { return member_name<U, I>(); },
          count);
    else
      each_named_member<Whole...>(
          parts, path, f, []<std::size_t I>(std::integral_constant<std::size_t, I>) { return std::to_string(I); },
          count);
  } else {
    f(std::as_const(path), value);
  }
}

}  // namespace fermata::detail
