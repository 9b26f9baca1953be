// Elements as unsigned integers in the same order, so that sorting compares integers: NaN is above all numbers.
//
// Floats: the sign bit is flipped where it is clear, all bits where it is set (Terdiman, "Radix sort revisited", 2000).
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "ir/dtype.h"

namespace fermata {

/// Bits: the representation of an element in memory; its key has the same width.
template <DType> struct SortKey;

template <class U, class T, U kSign, U kInfinity> struct FloatSortKey {
  using Bits = U;
  static constexpr U kNan = static_cast<U>(~U{0});
  static U key(U bits) {
    if (static_cast<U>(bits & static_cast<U>(~kSign)) > kInfinity) return kNan;
    return static_cast<U>((bits & kSign) != 0 ? ~bits : bits | kSign);
  }
  static U bits(U key) {
    if (key == kNan) return static_cast<U>(kInfinity | (kInfinity >> 1));  // a quiet NaN
    return static_cast<U>((key & kSign) != 0 ? key ^ kSign : ~key);
  }
  /// 0 and -0 have the same key.
  static U equal_zeros(U bits) { return bits == kSign ? U{0} : bits; }
};
template <class U, bool kSigned> struct IntegerSortKey {
  using Bits = U;
  static constexpr U kFlip = kSigned ? static_cast<U>(U{1} << (sizeof(U) * 8 - 1)) : U{0};
  static U key(U bits) { return static_cast<U>(bits ^ kFlip); }
  static U bits(U key) { return static_cast<U>(key ^ kFlip); }
  static U equal_zeros(U bits) { return bits; }
};

template <> struct SortKey<DType::boolean> : IntegerSortKey<std::uint8_t, false> {};
template <> struct SortKey<DType::u8> : IntegerSortKey<std::uint8_t, false> {};
template <> struct SortKey<DType::u16> : IntegerSortKey<std::uint16_t, false> {};
template <> struct SortKey<DType::u32> : IntegerSortKey<std::uint32_t, false> {};
template <> struct SortKey<DType::u64> : IntegerSortKey<std::uint64_t, false> {};
template <> struct SortKey<DType::i8> : IntegerSortKey<std::uint8_t, true> {};
template <> struct SortKey<DType::i16> : IntegerSortKey<std::uint16_t, true> {};
template <> struct SortKey<DType::i32> : IntegerSortKey<std::uint32_t, true> {};
template <> struct SortKey<DType::i64> : IntegerSortKey<std::uint64_t, true> {};
template <> struct SortKey<DType::f16> : FloatSortKey<std::uint16_t, Float16, 0x8000, 0x7c00> {};
template <> struct SortKey<DType::bf16> : FloatSortKey<std::uint16_t, BFloat16, 0x8000, 0x7f80> {};
template <> struct SortKey<DType::f32> : FloatSortKey<std::uint32_t, float, 0x80000000u, 0x7f800000u> {};
template <> struct SortKey<DType::f64> : FloatSortKey<std::uint64_t, double, 0x8000000000000000u, 0x7ff0000000000000u> {
};

/// Calls `f.template operator()<SortKey<dtype>>()` for any real dtype or bool.
template <class F> void visit_sort_key(DType dtype, F&& f) {
  switch (dtype) {
#define FERMATA_DTYPE(enumerator, name, type, bytes, kind)                                                    \
  case DType::enumerator:                                                                                     \
    if constexpr (kRealOrBoolean.has(DType::enumerator)) f.template operator()<SortKey<DType::enumerator>>(); \
    return;
#include "ir/dtypes.def"
  }
}

}  // namespace fermata
