// The elements of a tensor on the host, in row-major order: what item, to_vector, printing and files read.
#pragma once

#include <complex>
#include <cstdint>
#include <limits>
#include <vector>

#include "ir/dtype.h"
#include "ir/float16.h"
#include "ir/small_dtypes.h"
#include "runtime/tensor.h"

namespace fermata {

/// Computes the value, and copies it only where it does not lie on the host without gaps. Lives no longer than the
/// tensor needs to keep its value.
class HostElements {
 public:
  HostElements(const Tensor& x, const char* reason, Location where);
  DType dtype() const { return dtype_; }
  std::int64_t count() const { return count_; }
  const void* data() const { return data_; }

 private:
  Tensor dense_;  // holds the value
  std::vector<std::byte> from_device_;
  const void* data_;
  DType dtype_;
  std::int64_t count_;
};

/// UnsupportedError FM2005 for wrapper and meta tensors, which have a type and no elements of their own.
[[noreturn]] void throw_no_elements(const Tensor& x, const char* reason, Location where);

/// One element in another type, as astype() converts: floats to integers towards zero, out of range to the nearest
/// limit, NaN to 0; to bool non-zero is true.
template <class To, class From> To convert_element(From from) {
  if constexpr (std::is_same_v<From, Float16> || std::is_same_v<From, BFloat16> || kIsSmallFloat<From>) {
    return convert_element<To>(to_float(from));
  } else if constexpr (kIsSmallInteger<From>) {
    return convert_element<To>(to_integer(from));
  } else if constexpr (std::is_same_v<To, bool>) {
    return from != From{};
  } else if constexpr (std::is_floating_point_v<From> && std::is_integral_v<To>) {
    using Limits = std::numeric_limits<To>;
    if (from != from) return 0;
    // The largest integer as a float may round up to the next power of two, so it is compared with >=.
    if (from >= static_cast<From>(Limits::max())) return Limits::max();
    return from <= static_cast<From>(Limits::min()) ? Limits::min() : static_cast<To>(from);
  } else if constexpr (!std::is_arithmetic_v<To>) {  // complex
    return To(static_cast<typename To::value_type>(from));
  } else {
    return static_cast<To>(from);
  }
}

/// Calls `f.template operator()<T>()` for the storage type of a complex dtype; false for the others.
template <class F> bool visit_complex(DType dtype, F&& f) {
  switch (dtype) {
    case DType::c64: f.template operator()<std::complex<float>>(); return true;
    case DType::c128: f.template operator()<std::complex<double>>(); return true;
    default: return false;
  }
}

/// Calls `f.template operator()<T>()` for the storage type of a bool or real dtype, small ones among them; false for
/// the others.
template <class F> bool visit_stored(DType dtype, F&& f) {
  switch (dtype) {
    case DType::f16: f.template operator()<Float16>(); return true;
    case DType::bf16: f.template operator()<BFloat16>(); return true;
    default: return visit_small(dtype, f) || visit_compute(dtype, f);
  }
}

}  // namespace fermata
