// The names of a struct's fields, from the compiler. Only for ir/op_traits.cpp.
#pragma once

#include "ir/op_fields.h"

#ifdef __clang__
#pragma clang diagnostic push
#pragma clang diagnostic ignored "-Wundefined-var-template"
#endif

namespace fermata::detail {

template <class T> struct Holder { T value; };
template <class T> extern const Holder<T> nowhere;  // never defined: only the names of its members are used
template <class T> struct MemberPointer { const T* at; };
constexpr bool belongs_to_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
/// g++ says "... P = MemberPointer<..>{(& nowhere<Sort>..::axis)}; std::string_view = ..]", clang "... P =
/// MemberPointer<..>{&nowhere.value.axis}]".
template <auto P> consteval std::string_view find_name_of_member() {
  std::string_view f = __PRETTY_FUNCTION__;
  f = f.substr(f.find("P = "));
  f = f.substr(0, f.find("; "));
  const std::size_t end = f.find_last_not_of(")}]; ") + 1;
  std::size_t begin = end;
  while (begin > 0 && belongs_to_name(f[begin - 1])) --begin;
  return f.substr(begin, end - begin);
}
/// The name alone: a view into the whole text would keep all of it in the library, 34 KB.
template <auto P> static constexpr auto kNameOfMember = [] {
  constexpr std::string_view name = find_name_of_member<P>();
  std::array<char, name.size()> letters{};
  for (std::size_t i = 0; i < name.size(); ++i) letters[i] = name[i];
  return letters;
}();
template <auto P> consteval std::string_view name_of_member() {
  return {kNameOfMember<P>.data(), kNameOfMember<P>.size()};
}
template <class A, std::size_t I> consteval std::string_view field_name() {
  constexpr auto fields = tie_fields(nowhere<A>.value);
  return name_of_member<MemberPointer<std::remove_cvref_t<decltype(std::get<I>(fields))>>{&std::get<I>(fields)}>();
}

/// The attributes of an op that are stored in a node's integers, in order.
template <class O> consteval auto attribute_fields_of() {
  std::array<AttributeField, count_fields<O, IsStored>()> fields{};
  std::size_t next = 0;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    [[maybe_unused]] const auto add = [&]<std::size_t K>(std::integral_constant<std::size_t, K>) {
      using F = Traits<std::tuple_element_t<K, decltype(tie_fields(std::declval<O&>()))>>;
      if constexpr (F::is_stored) fields[next++] = {field_name<O, K>(), F::kind, F::role};
    };
    (add(std::integral_constant<std::size_t, I>{}), ...);
  }
  (std::make_index_sequence<field_count<O>()>{});
  return fields;
}

/// The functions that a node of an op owns, in order.
template <class O> consteval auto subgraph_names_of() {
  std::array<std::string_view, count_fields<O, IsFunction>()> names{};
  std::size_t next = 0;
  [&]<std::size_t... I>(std::index_sequence<I...>) {
    [[maybe_unused]] const auto add = [&]<std::size_t K>(std::integral_constant<std::size_t, K>) {
      using F = std::remove_cvref_t<std::tuple_element_t<K, decltype(tie_fields(std::declval<O&>()))>>;
      if constexpr (IsFunction<F>::value) names[next++] = field_name<O, K>();
    };
    (add(std::integral_constant<std::size_t, I>{}), ...);
  }
  (std::make_index_sequence<field_count<O>()>{});
  return names;
}

}  // namespace fermata::detail

#ifdef __clang__
#pragma clang diagnostic pop
#endif
