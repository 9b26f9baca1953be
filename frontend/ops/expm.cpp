// expm of fermata/linalg.h.
//
// exp(x) = r(x / 2^s)^(2^s), where r is the Pade approximant of degree 13, whose error is below an ulp of f64 for
// matrices of a 1-norm up to 5.37 (N. J. Higham, "The scaling and squaring method for the matrix exponential
// revisited", SIAM J. Matrix Anal. Appl. 26, 2005). Each matrix of a stack has an s of its own.
#include <array>
#include <cmath>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/linalg.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/linalg_operands.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/error.h"

namespace fermata::linalg {
namespace {

using vjp::VjpTensor;

/// Squarings if the number needed cannot be read.
constexpr int kSquarings = 16;
constexpr double kLargestNorm = 5.371920351148152;

/// Coefficients of the numerator over the first one; those of the denominator alternate in sign.
constexpr std::array kPade = {1.0,
                              1.0 / 2,
                              3.0 / 25,
                              11.0 / 600,
                              11.0 / 5520,
                              3.0 / 18400,
                              1.0 / 96600,
                              1.0 / 1932000,
                              1.0 / 48944000,
                              1.0 / 1585785600,
                              1.0 / 67395888000,
                              1.0 / 3953892096000,
                              1.0 / 355850288640000,
                              1.0 / 64764752532480000};

Tensor pade(const Tensor& a, Location where) {
  const auto product = [&](const VjpTensor& x, const VjpTensor& y) {
    return VjpTensor(matmul(x.tensor(), y.tensor(), where));
  };
  const VjpTensor one = to(eye(a.size(-1), {}, a.dtype(), where), device(a, where), where);
  const VjpTensor a2 = product(a, a), a4 = product(a2, a2), a6 = product(a4, a2);
  const auto sum = [&](std::size_t first) {  // of every second power, from x^first on
    const VjpTensor high = a6 * kPade[first + 12] + a4 * kPade[first + 10] + a2 * kPade[first + 8];
    const VjpTensor low = a6 * kPade[first + 6] + a4 * kPade[first + 4] + a2 * kPade[first + 2] + one * kPade[first];
    return product(a6, high) + low;
  };
  const VjpTensor odd = product(a, sum(1)), even = sum(0);
  return solve((even - odd).tensor(), (even + odd).tensor(), where);
}

}  // namespace

Tensor expm(const Tensor& given, Location where) {
  require_defined("expm", given, where);
  const Tensor x = solvable(given, where);
  if (x.dtype() != DType::f32 && x.dtype() != DType::f64 && !is_complex(x.dtype()))
    throw DTypeError(1101, format_error(1101, "DTypeError", "expm: does not take " + std::string(name(x.dtype())),
                                        describe(given), where, "cast it to f32 or f64 first"));
  if (x.rank() < 2)
    throw ShapeError(1015,
                     format_error(1015, "ShapeError", "expm: a matrix must have two axes", describe(given), where));
  if (x.size(-1) != x.size(-2))
    throw ShapeError(1090, format_error(1090, "ShapeError", "expm: the matrix is not square", describe(given), where));
  if (x.element_count() == 0) return copy(x, where);
  const vjp::LineGuard line(where);
  const VjpTensor norm = max(sum(abs({x.detach(), where}), -2, true, where), -1, true, where);
  const VjpTensor needed = ceil(log2(maximum(norm, kLargestNorm) / kLargestNorm));
  const VjpTensor halvings = vjp::where(isfinite(needed), needed, 0);
  const bool is_readable = !is_batched(x) && !in_capture_scope();
  int squarings = kSquarings;
  if (is_readable)
    squarings =
        static_cast<int>(astype(max(halvings.tensor(), {}, false, where), DType::f64, where).item<double>(where));
  VjpTensor result = pade((VjpTensor(x) * exp2(-halvings)).tensor(), where);
  for (int k = 0; k < squarings; ++k)
    result = vjp::where(halvings > k, VjpTensor(matmul(result.tensor(), result.tensor(), where)), result);
  return vjp::where(logical_or(halvings > squarings, isnan(norm)), NAN, result).tensor();
}

}  // namespace fermata::linalg
