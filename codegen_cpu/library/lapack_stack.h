// Stacks of matrices on their way to and from LAPACK, which wants them column by column; and its errors.
#pragma once

#include <atomic>
#include <complex>
#include <cstdint>
#include <string_view>

#include "codegen_cpu/irregular/positions.h"
#include "ir/shape.h"
#include "runtime/tensor_view.h"

namespace fermata {

template <class T> struct RealOf { using type = T; };
template <class T> struct RealOf<std::complex<T>> { using type = T; };
template <class T> using RealPart = typename RealOf<T>::type;

inline float conjugate(float x) { return x; }
inline double conjugate(double x) { return x; }
template <class T> std::complex<T> conjugate(std::complex<T> z) { return std::conj(z); }

/// A matrix, or one right-hand side after another: column by column.
template <class T> struct Columns {
  Columns(std::int64_t m, std::int64_t n) : rows(m), columns(n), held(m * n) {}
  T& operator()(std::int64_t i, std::int64_t j) const { return held[j * rows + i]; }
  T* data() const { return held.data(); }
  std::int64_t rows, columns;
  Scratch<T> held;
};

/// Why a matrix cannot be treated.
struct MatrixFailure {
  int code;
  std::string_view what;
};
inline constexpr MatrixFailure kSingular{1390, "is singular"},
    kZeroOnDiagonal{1390, "is singular: there is a zero on its diagonal"},
    kNotPositive{1391, "is not positive definite"}, kNoEigenvalues{1392, "has eigenvalues that do not converge"};

/// The operands and the result of a call as stacks; the batch axes of an operand broadcast.
class MatrixStack {
 public:
  MatrixStack(const CallArgs& args, unsigned matrix_axes_of_result);
  std::int64_t matrices() const { return matrices_; }
  std::int64_t rows(std::size_t operand) const { return view(operand).sizes[view(operand).rank - 2]; }
  std::int64_t columns(std::size_t operand) const { return view(operand).sizes[view(operand).rank - 1]; }
  const CallArgs& args() const { return args_; }

  /// Matrix `number` of an operand.
  template <class T> void read(std::size_t operand, std::int64_t number, const Columns<T>& to) const {
    const TensorView& v = view(operand);
    const T* const from = static_cast<const T*>(v.data) + offset(operand, number);
    const std::int64_t down = v.strides[v.rank - 2], along = v.strides[v.rank - 1];
    for (std::int64_t j = 0; j < to.columns; ++j)
      for (std::int64_t i = 0; i < to.rows; ++i) to(i, j) = from[i * down + j * along];
  }
  /// The elements of result `number`.
  template <class T> T* result(std::int64_t number) const {
    return static_cast<T*>(args_.outputs[0].data) + number * result_elements_;
  }

  /// Remembers that a matrix cannot be treated: of several the first. `raise` throws for it, once all are done.
  void fail(std::int64_t number) {
    std::int64_t lowest = failed_.load(std::memory_order_relaxed);
    while (number < lowest && !failed_.compare_exchange_weak(lowest, number, std::memory_order_relaxed)) {}
  }
  /// ValueError: "inv: matrix [2, 0] is singular".
  void raise(const MatrixFailure& failure) const;

  /// Where matrix `number` of an operand begins, in elements.
  std::int64_t offset(std::size_t operand, std::int64_t number) const;
  /// From each matrix of an operand to the next one; 0 where that differs.
  std::int64_t step(std::size_t operand) const;

 private:
  const TensorView& view(std::size_t operand) const { return args_.inputs[operand]; }
  Shape position(std::int64_t number) const;

  const CallArgs& args_;
  Shape batch_;
  std::int64_t matrices_, result_elements_;
  std::atomic<std::int64_t> failed_{INT64_MAX};
};

}  // namespace fermata
