// Operands of calls: a tensor or a host number, and the line of the call.
//
// An infix operator cannot have a default argument; a converting constructor can, and it is evaluated at the
// conversion, which is the caller's line.
#pragma once

#include <concepts>
#include <source_location>
#include <string_view>
#include <type_traits>

#include "ir/dtype.h"
#include "runtime/tensor.h"

namespace fermata {

/// A C++ number. It takes part in promotion by kind only (array API) and becomes a kernel argument, never a constant in
/// code.
struct Scalar {
  DTypeKind kind = DTypeKind::signed_integer;
  union {
    double real;
    std::int64_t integer;  // bool as 0 or 1; unsigned by bits
  };
  constexpr Scalar() : integer(0) {}
  template <class T>
  requires std::is_arithmetic_v<T>
  constexpr Scalar(T v)
      : kind(std::is_same_v<T, bool>       ? DTypeKind::boolean
             : std::is_floating_point_v<T> ? DTypeKind::floating
             : std::is_unsigned_v<T>       ? DTypeKind::unsigned_integer
                                           : DTypeKind::signed_integer),
        integer(0) {
    if constexpr (std::is_floating_point_v<T>)
      real = static_cast<double>(v);
    else
      integer = static_cast<std::int64_t>(v);
  }
  constexpr double as_double() const {
    return kind == DTypeKind::floating           ? real
           : kind == DTypeKind::unsigned_integer ? static_cast<double>(static_cast<std::uint64_t>(integer))
                                                 : static_cast<double>(integer);
  }
};

/// The bits of a scalar in scalar_dtype(dtype) (f32 for f16, bf16 and c64), in an 8-byte slot. Integers wrap;
/// floats that do not fit an integer dtype saturate.
std::uint64_t scalar_bits(const Scalar& scalar, DType dtype);
/// The same for a number passed by a caller: throws ValueError FM1329 for an integer that does not fit an integer
/// dtype.
std::uint64_t checked_scalar_bits(std::string_view function, const Scalar& scalar, DType dtype,
                                  std::source_location where);
/// The compute dtype of an operand of `dtype` and a scalar: a scalar of a higher kind promotes to the default dtype of
/// that kind (f32 for floating, i64 for integers), else the tensor's dtype is kept.
constexpr DType promote_scalar(DType dtype, DTypeKind scalar) {
  const DTypeKind k = info(dtype).kind;
  const bool integer = scalar == DTypeKind::signed_integer || scalar == DTypeKind::unsigned_integer;
  if (scalar == DTypeKind::floating && k < DTypeKind::floating) return DType::f32;
  if (integer && k == DTypeKind::boolean) return DType::i64;
  return dtype;
}

/// The argument type of operators. It refers to its tensor and lives for one call. An operand made from a temporary is
/// marked as expiring: the call may take over the tensor. A copy is not, because it may be one of several.
class Operand {
 public:
  Operand(Tensor&& tensor, std::source_location where = std::source_location::current())
      : tensor_(&tensor), where_(where), expires_(true) {}
  Operand(const Tensor& tensor, std::source_location where = std::source_location::current())
      : tensor_(&tensor), where_(where) {}
  template <class T>
  requires std::is_arithmetic_v<T> Operand(T value, std::source_location where = std::source_location::current())
      : tensor_(nullptr), scalar_(value), where_(where) {}
  Operand(const Scalar& value, std::source_location where = std::source_location::current())
      : tensor_(nullptr), scalar_(value), where_(where) {}

  Operand(const Operand& o) : tensor_(o.tensor_), scalar_(o.scalar_), where_(o.where_) {}
  Operand(Operand&&) = default;
  Operand& operator=(const Operand&) = delete;

  /// The same operand, for the last call that uses it: it expires if this one does.
  Operand for_last_use() const {
    Operand o(*this);
    o.expires_ = expires_;
    return o;
  }

  bool is_tensor() const { return tensor_ != nullptr; }
  /// The tensor if it was a temporary, so that this call is its last use; else null.
  Tensor* expiring() const { return expires_ ? const_cast<Tensor*>(tensor_) : nullptr; }
  const Tensor& tensor() const { return *tensor_; }
  const Scalar& scalar() const { return scalar_; }
  std::source_location where() const { return where_; }
  DispatchKeySet keys() const { return tensor_ != nullptr ? tensor_->keys() : DispatchKeySet(); }

 private:
  const Tensor* tensor_;
  Scalar scalar_;
  std::source_location where_;
  bool expires_ = false;
};

}  // namespace fermata
