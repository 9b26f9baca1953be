// Tensors from C++ values: literals, vectors and buffers. Elements are copied.
#pragma once

#include <complex>
#include <initializer_list>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "fermata/integer_list.h"
#include "runtime/operand.h"

namespace fermata {

/// Copies elements in row-major order from `elements`, which must hold the product of the sizes.
Tensor from_buffer(const void* elements, DType dtype, const IntegerList& sizes, Location where = Location::current());

namespace detail {

/// Copies `count` elements of dtype `stored` and converts them to `dtype`; implements the functions below.
///
/// Errors   ShapeError if the sizes do not multiply to `count`.
Tensor copy_elements(const void* elements, DType stored, std::int64_t count, const IntegerList& sizes, DType dtype,
                     Location where);
[[noreturn]] void throw_ragged(Location where);

}  // namespace detail

template <class T>
concept Number =
    std::is_arithmetic_v<T> || std::is_same_v<T, std::complex<float>> || std::is_same_v<T, std::complex<double>>;
/// The default dtype of a kind of number.
template <Number T> inline constexpr DType default_dtype = !std::is_arithmetic_v<T>      ? DType::c64
                                                           : std::is_same_v<T, bool>     ? DType::boolean
                                                           : std::is_floating_point_v<T> ? DType::f32
                                                                                         : DType::i64;
/// A C++ type that has a dtype, or void.
template <class E>
concept ElementOrVoid = std::is_void_v<E> || requires {
  dtype_of<E>;
};
/// The dtype of tensor<E>() of numbers of type T.
template <ElementOrVoid E, Number T> constexpr DType literal_dtype() {
  if constexpr (std::is_void_v<E>)
    return default_dtype<T>;
  else
    return dtype_of<E>;
}

/// Copies the elements of a vector or array, keeping their type, as one axis or with the given sizes.
///
/// Errors   ShapeError if the sizes do not multiply to the number of elements.
template <class T>
Tensor tensor(std::span<const T> values, const IntegerList& sizes, Location where = Location::current()) {
  return detail::copy_elements(values.data(), dtype_of<T>, static_cast<std::int64_t>(values.size()), sizes, dtype_of<T>,
                               where);
}
template <class T>
requires(!std::is_same_v<T, bool>) Tensor
    tensor(const std::vector<T>& values, const IntegerList& sizes, Location where = Location::current()) {
  return tensor(std::span<const T>(values), sizes, where);
}
template <class T>
requires(!std::is_same_v<T, bool>) Tensor tensor(const std::vector<T>& values, Location where = Location::current()) {
  return tensor(std::span<const T>(values), static_cast<std::int64_t>(values.size()), where);
}

/// Makes a 0-d tensor, or a tensor from a (nested) list: tensor({{1, 2}, {3, 4}}). The default dtype follows the kind
/// of the numbers: bool, i64, f32 or c64. tensor<E>() has that of a C++ type: tensor<std::uint8_t>({1, 2}) is u8,
/// tensor<double>(0.1) f64.
///
/// Errors   ShapeError if rows differ in length.
template <ElementOrVoid E = void, Number T>
Tensor tensor(T value, std::optional<DType> dtype = {}, Location where = Location::current()) {
  return detail::copy_elements(&value, dtype_of<T>, 1, {}, dtype.value_or(literal_dtype<E, T>()), where);
}
template <ElementOrVoid E = void, Number T>
Tensor tensor(std::initializer_list<T> values, std::optional<DType> dtype = {}, Location where = Location::current()) {
  const auto count = static_cast<std::int64_t>(values.size());
  return detail::copy_elements(std::data(values), dtype_of<T>, count, count, dtype.value_or(literal_dtype<E, T>()),
                               where);
}
template <ElementOrVoid E = void, Number T> Tensor tensor(std::initializer_list<std::initializer_list<T>> rows,
                                                          std::optional<DType> dtype = {},
                                                          Location where = Location::current()) {
  const std::size_t columns = rows.size() == 0 ? 0 : std::data(rows)->size();
  // vector<bool> has no array of bytes.
  std::vector<std::conditional_t<std::is_same_v<T, bool>, unsigned char, T>> values;
  for (const auto& row : rows) {
    if (row.size() != columns) detail::throw_ragged(where);
    values.insert(values.end(), row.begin(), row.end());
  }
  return detail::copy_elements(values.data(), dtype_of<T>, static_cast<std::int64_t>(values.size()),
                               {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(columns)},
                               dtype.value_or(literal_dtype<E, T>()), where);
}
template <ElementOrVoid E = void, Number T>
Tensor tensor(std::initializer_list<std::initializer_list<std::initializer_list<T>>> blocks,
              std::optional<DType> dtype = {}, Location where = Location::current()) {
  const std::size_t rows = blocks.size() == 0 ? 0 : std::data(blocks)->size();
  const std::size_t columns = rows == 0 ? 0 : std::data(*std::data(blocks))->size();
  std::vector<std::conditional_t<std::is_same_v<T, bool>, unsigned char, T>> values;
  for (const auto& block : blocks) {
    if (block.size() != rows) detail::throw_ragged(where);
    for (const auto& row : block) {
      if (row.size() != columns) detail::throw_ragged(where);
      values.insert(values.end(), row.begin(), row.end());
    }
  }
  return detail::copy_elements(
      values.data(), dtype_of<T>, static_cast<std::int64_t>(values.size()),
      {static_cast<std::int64_t>(blocks.size()), static_cast<std::int64_t>(rows), static_cast<std::int64_t>(columns)},
      dtype.value_or(literal_dtype<E, T>()), where);
}

}  // namespace fermata
