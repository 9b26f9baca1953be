// The attributes of an irregular op as fields of a struct. A field's type defines its role for the engine, its name is
// obtained from the compiler, and it is encoded in the flat list of integers that nodes hold.
//
//   struct Sort {
//     Structure<Axis> axis;
//     Structure<bool> descending;
//     ...
//   };
//   const auto sort = attributes_of<ops::Sort>(node);  // sort.axis.value
//
// Fields are encoded in the order of the struct. Lists share the integers left by the other fields, in equal parts.
// Decoded lists refer to the memory that they were decoded from.
#pragma once

#include <array>
#include <concepts>
#include <cstdint>
#include <span>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "ir/dtype.h"
#include "ir/shape.h"
#include "ir/subgraph.h"

namespace fermata {

// ---- Values of attributes

struct Axis;  // an axis index of an operand or the result
struct Axes;  // a set of axes, one bit each
using Integers = std::span<const std::int64_t>;

template <class T> struct AttributeValue { using type = T; };
template <> struct AttributeValue<Axis> { using type = std::int64_t; };
template <> struct AttributeValue<Axes> { using type = std::uint64_t; };

// ---- Roles of attributes

/// Determines the generated code: part of the key of a plan.
template <class T> struct Structure { typename AttributeValue<T>::type value; };
/// A number that may differ between runs: a plan takes it from the current recording.
template <class T> struct Argument { T value; };
/// An Argument that is a size of the result: calls that differ in it have results of different sizes.
struct ResultSize {
  std::int64_t value;
};
/// Numbers that may differ between runs. Which of them are 1 is structure, so that loads can have unit stride.
struct Steps {
  Integers value;
};
/// The result shape as an argument of the call. Stored as the node's shape, not among the integers.
struct ResultShape {
  Integers value;
};
/// The result dtype as an argument of the call. Stored as the node's dtype, which is structure.
struct ResultDType {
  DType value;
};
/// A host number in the compute dtype of the result, stored among the node's scalars.
struct HostScalar {
  std::uint64_t bits;
};
/// A function that the node owns and calls. Not part of the structure, so calls of different functions share a plan.
struct OwnFunction {
  const Subgraph* value;
};

enum class AttributeRole : std::uint8_t { structure, argument, result_size, steps };
enum class AttributeKind : std::uint8_t { integer, boolean, axis, axes /* a bit mask */, list };
/// An attribute stored among a node's integers, as described to the printer, parser, keys and tests.
struct AttributeField {
  std::string_view name;
  AttributeKind kind;
  AttributeRole role;
};

/// The arguments of a call: the lists of a node, or of the caller that creates one.
struct OpArguments {
  Integers attributes;
  Integers shape;
  DType dtype = DType::f32;
  std::span<const std::uint64_t> scalars;
  const Subgraphs* subgraphs = nullptr;
};

namespace detail {

struct AnyField {
  template <class T> constexpr operator T() const;
};
template <class A, std::size_t... I> constexpr bool has_fields(std::index_sequence<I...>) {
  return requires { A{(void(I), AnyField{})...}; };
}
template <class A, std::size_t N = 0> constexpr std::size_t field_count() {
  if constexpr (has_fields<A>(std::make_index_sequence<N + 1>{}))
    return field_count<A, N + 1>();
  else
    return N;
}
template <class A> constexpr auto tie_fields(A& a) {
  constexpr std::size_t n = field_count<std::remove_const_t<A>>();
  static_assert(n <= 6, "add a case for this number of attributes");
  if constexpr (n == 0) {
    return std::tie();
  } else if constexpr (n == 1) {
    auto& [f0] = a;
    return std::tie(f0);
  } else if constexpr (n == 2) {
    auto& [f0, f1] = a;
    return std::tie(f0, f1);
  } else if constexpr (n == 3) {
    auto& [f0, f1, f2] = a;
    return std::tie(f0, f1, f2);
  } else if constexpr (n == 4) {
    auto& [f0, f1, f2, f3] = a;
    return std::tie(f0, f1, f2, f3);
  } else if constexpr (n == 5) {
    auto& [f0, f1, f2, f3, f4] = a;
    return std::tie(f0, f1, f2, f3, f4);
  } else {
    auto& [f0, f1, f2, f3, f4, f5] = a;
    return std::tie(f0, f1, f2, f3, f4, f5);
  }
}
template <class A, class F> constexpr void each_field(A& a, F&& f) {
  std::apply([&](auto&... field) { (f(field), ...); }, tie_fields(a));
}

// Description and encoding of each field type.

template <class T> struct FieldTraits;  // defined for the field types above
template <class T> constexpr AttributeKind kind_of() {
  if constexpr (std::same_as<T, bool>) return AttributeKind::boolean;
  if constexpr (std::same_as<T, Axis>) return AttributeKind::axis;
  if constexpr (std::same_as<T, Axes>) return AttributeKind::axes;
  if constexpr (std::same_as<T, Integers>) return AttributeKind::list;
  return AttributeKind::integer;
}
template <class T> struct FieldTraits<Structure<T>> {
  static constexpr bool is_stored = true;
  static constexpr AttributeKind kind = kind_of<T>();
  static constexpr AttributeRole role = AttributeRole::structure;
};
template <class T> struct FieldTraits<Argument<T>> {
  static constexpr bool is_stored = true;
  static constexpr AttributeKind kind = kind_of<T>();
  static constexpr AttributeRole role = AttributeRole::argument;
};
template <> struct FieldTraits<ResultSize> {
  static constexpr bool is_stored = true;
  static constexpr AttributeKind kind = AttributeKind::integer;
  static constexpr AttributeRole role = AttributeRole::result_size;
};
template <> struct FieldTraits<Steps> {
  static constexpr bool is_stored = true;
  static constexpr AttributeKind kind = AttributeKind::list;
  static constexpr AttributeRole role = AttributeRole::steps;
};
struct NotStored {
  static constexpr bool is_stored = false;
  static constexpr AttributeKind kind = AttributeKind::integer;
  static constexpr AttributeRole role = AttributeRole::argument;
};
template <> struct FieldTraits<ResultShape> : NotStored {};
template <> struct FieldTraits<ResultDType> : NotStored {};
template <> struct FieldTraits<HostScalar> : NotStored {};
template <> struct FieldTraits<OwnFunction> : NotStored {};

template <class F> using Traits = FieldTraits<std::remove_cvref_t<F>>;

/// The number of fields of an op whose type satisfies a predicate.
template <class O, template <class> class P> constexpr std::size_t count_fields() {
  using Tied = decltype(tie_fields(std::declval<O&>()));
  return []<class... F>(std::type_identity<std::tuple<F...>>) {
    return (std::size_t{0} + ... + (P<std::remove_cvref_t<F>>::value ? std::size_t{1} : std::size_t{0}));
  }(std::type_identity<Tied>{});
}
template <class F> struct IsStored { static constexpr bool value = FieldTraits<F>::is_stored; };
template <class F> struct IsList {
  static constexpr bool value = FieldTraits<F>::is_stored && FieldTraits<F>::kind == AttributeKind::list;
};
template <class F> struct IsShape { static constexpr bool value = std::same_as<F, ResultShape>; };
template <class F> struct IsDType { static constexpr bool value = std::same_as<F, ResultDType>; };
template <class F> struct IsScalar { static constexpr bool value = std::same_as<F, HostScalar>; };
template <class F> struct IsFunction { static constexpr bool value = std::same_as<F, OwnFunction>; };
/// Whether the key of a plan contains the whole field.
template <class F> struct IsKeyed {
  static constexpr bool value =
      IsDType<F>::value || (FieldTraits<F>::is_stored && FieldTraits<F>::role == AttributeRole::structure);
};

}  // namespace detail

/// Decodes the fields of an op. The list must have the number of integers that the fields need
/// (attribute_list_length()); subgraphs may be null.
template <class O> O decode(const OpArguments& from) {
  constexpr std::size_t lists = detail::count_fields<O, detail::IsList>(),
                        single = detail::count_fields<O, detail::IsStored>() - lists;
  const std::size_t length = lists == 0 ? 0 : (from.attributes.size() - single) / lists;
  O op{};
  std::size_t next = 0, scalar = 0, function = 0;
  detail::each_field(op, [&]<class F>(F& field) {
    if constexpr (std::same_as<F, ResultShape>) {
      field.value = from.shape;
    } else if constexpr (std::same_as<F, ResultDType>) {
      field.value = from.dtype;
    } else if constexpr (std::same_as<F, HostScalar>) {
      field.bits = from.scalars.empty() ? 0 : from.scalars[scalar++];
    } else if constexpr (std::same_as<F, OwnFunction>) {
      field.value = from.subgraphs == nullptr ? nullptr : &(*from.subgraphs)[function++];
    } else if constexpr (detail::Traits<F>::kind == AttributeKind::list) {
      field.value = from.attributes.subspan(next, length), next += length;
    } else if constexpr (detail::Traits<F>::kind == AttributeKind::boolean) {
      field.value = from.attributes[next++] != 0;
    } else {
      field.value = static_cast<decltype(field.value)>(from.attributes[next++]);
    }
  });
  return op;
}

/// Encodes an op's fields as integers: an array, or a vector if the op has lists.
template <class O> auto encode(const O& op) {
  constexpr std::size_t lists = detail::count_fields<O, detail::IsList>(),
                        stored = detail::count_fields<O, detail::IsStored>();
  std::conditional_t<lists == 0, std::array<std::int64_t, stored>, std::vector<std::int64_t>> integers{};
  [[maybe_unused]] std::size_t next = 0;
  if constexpr (lists != 0) {
    std::size_t length = stored - lists;
    detail::each_field(op, [&]<class F>(F& field) {
      if constexpr (detail::IsList<std::remove_const_t<F>>::value) length += field.value.size();
    });
    integers.reserve(length);
  }
  detail::each_field(op, [&]<class F>(F& field) {
    if constexpr (!detail::Traits<F>::is_stored) {
      return;
    } else if constexpr (lists == 0) {  // std::array has no insert(), and clang checks this branch for every F
      integers[next++] = static_cast<std::int64_t>(field.value);
    } else {
      if constexpr (detail::Traits<F>::kind == AttributeKind::list)
        integers.insert(integers.end(), field.value.begin(), field.value.end());
      else
        integers.push_back(static_cast<std::int64_t>(field.value));
    }
  });
  return integers;
}

/// encode() that always returns a vector.
template <class O> std::vector<std::int64_t> encode_list(const O& op) {
  const auto integers = encode(op);
  return {integers.begin(), integers.end()};
}

/// Decodes the fields of a node with members attributes, shape, dtype, scalars and subgraphs, such as a GraphNode.
template <class O, class Node> O attributes_of(const Node& node) {
  return decode<O>({node.attributes, node.shape, node.dtype, node.scalars, node.subgraphs.get()});
}

}  // namespace fermata
