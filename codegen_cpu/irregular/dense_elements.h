// Operands as dense row-major buffers, and f16 and bf16 as f32: what the ops that add elements up compute on.
#pragma once

#include <complex>
#include <cstdint>

#include "codegen_cpu/irregular/positions.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// libfermata_run leaves complex numbers to libfermata_run_math (frontend/run/CMakeLists.txt).
#ifdef FERMATA_INFERENCE_ONLY
inline constexpr bool kVisitsComplex = false;
#else
inline constexpr bool kVisitsComplex = true;
#endif
/// visit_compute for complex numbers too.
template <class F> void visit_number(DType dtype, F&& f) {
  if constexpr (kVisitsComplex) {
    if (dtype == DType::c64) return f.template operator()<std::complex<float>>();
    if (dtype == DType::c128) return f.template operator()<std::complex<double>>();
  }
  visit_compute(dtype, f);
}

/// memcpy, called also where code is small (frontend/run/CMakeLists.txt): GCC puts a slow instruction in its place.
void copy_bytes(void* to, const void* from, std::int64_t bytes);

/// f16 or bf16 to f32 and back, on several threads where it is worth it.
void widen(DType dtype, const void* from, float* to, std::int64_t count);
void narrow(DType dtype, const float* from, void* to, std::int64_t count);

/// The elements of a view in row-major order: where they are if they lie so, else a copy.
class DenseElements {
 public:
  explicit DenseElements(const TensorView& view);
  const void* data() const { return data_; }

 private:
  Scratch<std::byte> packed_;
  const void* data_;
};

/// The same widened to f32: for views of f16 or bf16.
Scratch<float> widened_elements(const TensorView& view);

/// Copies the elements of one view to those of another of the same shape and dtype.
void copy_elements(const TensorView& to, const TensorView& from);

}  // namespace fermata
