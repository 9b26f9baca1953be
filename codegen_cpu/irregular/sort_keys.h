// Elements as unsigned integers in the same order, so that sorting compares integers: NaN is above all numbers.
//
// Floats: the sign bit is flipped where it is clear, all bits where it is set (Terdiman, "Radix sort revisited", 2000).
#pragma once

#include <cstdint>

#include "ir/dtype.h"

namespace fermata {

/// U: the representation of an element in memory; its key has the same width.
template <class U> struct FloatSortKey {
  using Bits = U;
  static constexpr U kNan = static_cast<U>(~U{0}), kSign = static_cast<U>(kNan ^ (kNan >> 1));
  U infinity;
  [[gnu::always_inline]] U key(U bits) const {
    if (static_cast<U>(bits & static_cast<U>(~kSign)) > infinity) return kNan;
    return static_cast<U>((bits & kSign) != 0 ? ~bits : bits | kSign);
  }
  U bits(U key) const {
    if (key == kNan) return static_cast<U>(infinity | (infinity >> 1));  // a quiet NaN
    return static_cast<U>((key & kSign) != 0 ? key ^ kSign : ~key);
  }
  /// 0 and -0 have the same key.
  [[gnu::always_inline]] static U equal_zeros(U bits) { return bits == kSign ? U{0} : bits; }
};
template <class U> struct IntegerSortKey {
  using Bits = U;
  U flip;  // the sign bit of signed ones
  [[gnu::always_inline]] U key(U bits) const { return static_cast<U>(bits ^ flip); }
  U bits(U key) const { return static_cast<U>(key ^ flip); }
  [[gnu::always_inline]] static U equal_zeros(U bits) { return bits; }
};

/// Calls f(key) with the FloatSortKey or IntegerSortKey of any real dtype or bool.
template <class F> void visit_sort_key(DType dtype, F&& f) {
  if (!kRealOrBoolean.has(dtype)) return;
  const auto visit = [&]<class U>(U infinity) {
    if (!is_floating(dtype)) return f(IntegerSortKey<U>{is_signed(dtype) ? FloatSortKey<U>::kSign : U{0}});
    if constexpr (sizeof(U) > 1) f(FloatSortKey<U>{infinity});
  };
  switch (byte_size(dtype)) {
    case 1: return visit(std::uint8_t{0});
    case 2: return visit(static_cast<std::uint16_t>(dtype == DType::f16 ? 0x7c00 : 0x7f80));
    case 4: return visit(std::uint32_t{0x7f800000});
    default: return visit(std::uint64_t{0x7ff0000000000000});
  }
}

}  // namespace fermata
