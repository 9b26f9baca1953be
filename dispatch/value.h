// Boxed values: any argument or result of an operator as one type, for code that handles calls of any signature.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "ir/device.h"
#include "runtime/operand.h"

namespace fermata {

/// The kind of an argument type, without optional or list. `operand` is a tensor or a host number.
enum class TypeKind : std::uint8_t { tensor, operand, scalar, integer, floating, boolean, string, dtype, device };

/// A type of the schema language: Tensor, Operand, Scalar, int, float, bool, str, dtype, Device, each also as a list
/// (`int[]`, written Shape where it is one) or optional (`Tensor?`).
struct ArgType {
  TypeKind kind = TypeKind::tensor;
  bool list = false;
  bool optional = false;
  bool operator==(const ArgType&) const = default;
};
std::string to_string(const ArgType& type);

class Value {
 public:
  using Storage = std::variant<std::monostate, Tensor, std::vector<Tensor>, Scalar, std::int64_t, double, bool,
                               std::string, DType, Device, std::vector<std::int64_t>, std::vector<double>>;
  Value() = default;  // an empty optional
  template <class T>
  requires(!std::same_as<std::remove_cvref_t<T>, Value>) Value(T&& v) : storage_(std::forward<T>(v)) {}

  bool is_none() const { return storage_.index() == 0; }
  template <class T> bool is() const { return std::holds_alternative<T>(storage_); }
  template <class T> const T& as() const { return std::get<T>(storage_); }
  template <class T> T& as() { return std::get<T>(storage_); }
  const Storage& storage() const { return storage_; }
  /// Whether the value is valid for an argument of this type.
  bool fits(const ArgType& type) const;
  /// Calls f(Tensor&) for every tensor in the value.
  template <class F> void for_each_tensor(F&& f) {
    if (auto* t = std::get_if<Tensor>(&storage_))
      f(*t);
    else if (auto* list = std::get_if<std::vector<Tensor>>(&storage_))
      for (Tensor& each : *list) f(each);
  }

 private:
  Storage storage_;
};
std::string to_string(const Value& value);

/// Arguments of a boxed call, in the order of the schema; its results afterwards.
using Stack = std::vector<Value>;

/// Encodes the non-tensor values of a stack as integers, for recorded calls.
std::vector<std::int64_t> encode_arguments(const Stack& stack);
/// Decodes a stack, inserting `tensors` in order.
Stack decode_arguments(std::span<const std::int64_t> encoded, std::span<const Tensor> tensors);
/// All defined tensors of a stack, in order.
std::vector<Tensor> tensors_of(const Stack& stack);

}  // namespace fermata
