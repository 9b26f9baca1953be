// Element types and promotion.
//
// dtypes.def is the only list of them. Promotion follows the Python array API 2023.12 for the kinds it defines; mixed
// kinds follow PyTorch: the higher kind wins, and the lower one does not widen it.
#pragma once

#include <array>
#include <complex>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace fermata {

/// IEEE 754 binary16 in memory; arithmetic happens in f32.
struct Float16 {
  std::uint16_t bits = 0;
};
/// The upper half of an f32 in memory; arithmetic happens in f32.
struct BFloat16 {
  std::uint16_t bits = 0;
};
/// Quantized bytes: the value is scale * (byte - zero point); scale and zero point are stored separately.
struct QInt8 {
  std::int8_t bits = 0;
};
struct QUInt8 {
  std::uint8_t bits = 0;
};
/// Floats of 8 and 4 bits in memory, a byte each; arithmetic happens in f32 (ir/small_dtypes.h, docs/dtypes.md).
template <unsigned kFormat> struct SmallFloat { std::uint8_t bits = 0; };
using Float8E4M3FN = SmallFloat<0>;
using Float8E5M2 = SmallFloat<1>;
using Float8E4M3FNUZ = SmallFloat<2>;
using Float8E5M2FNUZ = SmallFloat<3>;
using Float4E2M1FN = SmallFloat<4>;
using Float8E8M0FNU = SmallFloat<5>;
/// Integers of 4 and 2 bits in memory, a byte each, of which only the lowest bits are used; arithmetic happens in i8
/// and u8.
template <class T, unsigned kBits> struct SmallInteger { T bits = 0; };
using Int4 = SmallInteger<std::int8_t, 4>;
using UInt4 = SmallInteger<std::uint8_t, 4>;
using Int2 = SmallInteger<std::int8_t, 2>;
using UInt2 = SmallInteger<std::uint8_t, 2>;

enum class DType : std::uint8_t {
#define FERMATA_DTYPE(enumerator, name, type, bytes, kind) enumerator,
#include "ir/dtypes.def"
};

/// Small dtypes are storage formats; arithmetic converts them to their arithmetic_dtype().
enum class DTypeKind : std::uint8_t {
  boolean,
  unsigned_integer,
  signed_integer,
  floating,
  complex,
  quantized,
  small_unsigned,
  small_signed,
  small_float
};

struct DTypeInfo {
  std::string_view name;
  std::uint8_t bytes;
  DTypeKind kind;
};

inline constexpr auto kDTypes = std::to_array<DTypeInfo>({
#define FERMATA_DTYPE(enumerator, name, type, bytes, kind) {name, bytes, DTypeKind::kind},
#include "ir/dtypes.def"
});
inline constexpr std::size_t kDTypeCount = kDTypes.size();

constexpr const DTypeInfo& info(DType t) { return kDTypes[static_cast<std::size_t>(t)]; }
constexpr std::string_view name(DType t) { return info(t).name; }
constexpr std::size_t byte_size(DType t) { return info(t).bytes; }
constexpr bool is_floating(DType t) { return info(t).kind == DTypeKind::floating; }
constexpr bool is_integer(DType t) {
  return info(t).kind == DTypeKind::unsigned_integer || info(t).kind == DTypeKind::signed_integer;
}
constexpr bool is_signed(DType t) { return info(t).kind == DTypeKind::signed_integer || is_floating(t); }
constexpr bool is_complex(DType t) { return info(t).kind == DTypeKind::complex; }
/// Floating or complex, that is, differentiable.
constexpr bool is_inexact(DType t) { return is_floating(t) || is_complex(t); }
constexpr bool is_quantized(DType t) { return info(t).kind == DTypeKind::quantized; }

constexpr bool is_small(DType t) { return info(t).kind >= DTypeKind::small_unsigned; }
constexpr bool is_small_float(DType t) { return info(t).kind == DTypeKind::small_float; }

/// The dtype that operands of a small dtype are cast to for arithmetic, which is also the result dtype: f32 for floats,
/// i8 and u8 for integers. Other dtypes are unchanged.
constexpr DType arithmetic_dtype(DType t) {
  switch (info(t).kind) {
    case DTypeKind::small_float: return DType::f32;
    case DTypeKind::small_signed: return DType::i8;
    case DTypeKind::small_unsigned: return DType::u8;
    default: return t;
  }
}

/// The dtype arithmetic happens in: f32 for f16 and bf16, the arithmetic dtype of small ones, else the dtype itself.
constexpr DType compute_dtype(DType t) {
  return t == DType::f16 || t == DType::bf16 ? DType::f32 : arithmetic_dtype(t);
}

/// The dtype of the parts of a complex dtype; other dtypes are unchanged.
constexpr DType real_dtype(DType t) { return t == DType::c64 ? DType::f32 : t == DType::c128 ? DType::f64 : t; }
/// The dtype in which a host number is stored for operands of `t`; real for complex operands, so that it fits a slot.
constexpr DType scalar_dtype(DType t) { return compute_dtype(real_dtype(t)); }
/// The complex dtype with parts of a real one.
constexpr DType complex_dtype(DType t) { return t == DType::f64 || t == DType::c128 ? DType::c128 : DType::c64; }

/// Returns the dtype of a printed name ("f32"), or nullopt.
std::optional<DType> dtype_from_name(std::string_view name);

/// The common dtype of two operands, or nullopt if none is defined (u64 with a signed integer, quantized types). A
/// small dtype promotes as its arithmetic dtype.
constexpr std::optional<DType> promote(DType a, DType b) {
  if (a == b) return a;
  a = arithmetic_dtype(a), b = arithmetic_dtype(b);
  if (a == b) return a;
  if (is_quantized(a) || is_quantized(b)) return std::nullopt;
  const DTypeKind ka = info(a).kind, kb = info(b).kind;
  const bool integers = is_integer(a) && is_integer(b);
  if (integers && ka != kb) {  // the signed type that holds both
    const DType u = ka == DTypeKind::unsigned_integer ? a : b, s = u == a ? b : a;
    if (u == DType::u64) return std::nullopt;
    if (byte_size(s) > byte_size(u)) return s;
    return u == DType::u8 ? DType::i16 : u == DType::u16 ? DType::i32 : DType::i64;
  }
  if (ka == kb) {
    if ((a == DType::f16 && b == DType::bf16) || (a == DType::bf16 && b == DType::f16)) return DType::f32;
    return a > b ? a : b;
  }
  const DType high = ka > kb ? a : b, low = ka > kb ? b : a;
  if (high == DType::c64 && low == DType::f64) return DType::c128;
  return high;
}

/// The dtype of a C++ type. DTypeOf<T> exists for every storage type and for the common aliases of it.
template <class T> struct DTypeOf;
#define FERMATA_DTYPE(enumerator, name, cpp_type, bytes, kind) \
  template <> struct DTypeOf<cpp_type> { static constexpr DType value = DType::enumerator; };
#include "ir/dtypes.def"
template <> struct DTypeOf<long long> { static constexpr DType value = DType::i64; };
template <> struct DTypeOf<unsigned long long> { static constexpr DType value = DType::u64; };
static_assert(sizeof(long) == 8, "i64 must be long on the target platform");

template <class T> inline constexpr DType dtype_of = DTypeOf<T>::value;

/// A set of dtypes, for predicates and dtype rules.
struct DTypeSet {
  std::uint32_t bits = 0;
  constexpr DTypeSet() = default;
  constexpr explicit DTypeSet(std::uint32_t raw) : bits(raw) {}
  constexpr DTypeSet(DType t) : bits(1u << static_cast<unsigned>(t)) {}
  constexpr bool has(DType t) const { return (bits >> static_cast<unsigned>(t) & 1u) != 0; }
  constexpr DTypeSet operator|(DTypeSet o) const { return DTypeSet(bits | o.bits); }
  constexpr DTypeSet operator&(DTypeSet o) const { return DTypeSet(bits & o.bits); }
};
constexpr DTypeSet all_of_kind(DTypeKind kind) {
  DTypeSet s;
  for (std::size_t i = 0; i < kDTypeCount; ++i)
    if (kDTypes[i].kind == kind) s = s | static_cast<DType>(i);
  return s;
}
inline constexpr DTypeSet kBoolean{DType::boolean};
inline constexpr DTypeSet kIntegers = all_of_kind(DTypeKind::unsigned_integer) | all_of_kind(DTypeKind::signed_integer);
inline constexpr DTypeSet kFloating = all_of_kind(DTypeKind::floating);
inline constexpr DTypeSet kReal = kIntegers | kFloating;
inline constexpr DTypeSet kRealOrBoolean = kReal | kBoolean;
inline constexpr DTypeSet kComplex = all_of_kind(DTypeKind::complex);
inline constexpr DTypeSet kNumbers = kReal | kComplex;
inline constexpr DTypeSet kNumbersOrBoolean = kNumbers | kBoolean;
inline constexpr DTypeSet kSmall =
    all_of_kind(DTypeKind::small_unsigned) | all_of_kind(DTypeKind::small_signed) | all_of_kind(DTypeKind::small_float);
/// Dtypes that kernels can load, move, convert and store.
inline constexpr DTypeSet kStoredReal = kRealOrBoolean | kSmall;
inline constexpr DTypeSet kStored = kNumbersOrBoolean | kSmall;

/// Calls `f.template operator()<T>()` for the arithmetic C++ type of a dtype that computes as itself (bool, integers,
/// f32, f64). False for the others: f16, bf16 and small ones are cast to their compute dtype first.
template <class F> constexpr bool visit_compute(DType t, F&& f) {
  switch (t) {
    case DType::boolean: f.template operator()<bool>(); return true;
    case DType::u8: f.template operator()<std::uint8_t>(); return true;
    case DType::u16: f.template operator()<std::uint16_t>(); return true;
    case DType::u32: f.template operator()<std::uint32_t>(); return true;
    case DType::u64: f.template operator()<std::uint64_t>(); return true;
    case DType::i8: f.template operator()<std::int8_t>(); return true;
    case DType::i16: f.template operator()<std::int16_t>(); return true;
    case DType::i32: f.template operator()<std::int32_t>(); return true;
    case DType::i64: f.template operator()<std::int64_t>(); return true;
    case DType::f32: f.template operator()<float>(); return true;
    case DType::f64: f.template operator()<double>(); return true;
    default: return false;
  }
}

}  // namespace fermata
