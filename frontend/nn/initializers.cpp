// See fermata/nn/initializers.h.
#include "fermata/nn/initializers.h"

#include <fmt/format.h>

#include <cmath>

#include "fermata/autograd.h"
#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/linalg.h"
#include "fermata/ops.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/neural/floating_scope.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata::nn::init {
namespace {

void require_floating(std::string_view function, const Tensor& x, Location where) {
  require_defined(function, x, where);
  if (!is_floating(x.dtype()))
    throw DTypeError(1101,
                     format_error(1101, "DTypeError", fmt::format("{}: does not take {}", function, name(x.dtype())),
                                  describe(x), where));
}
void require_axes(std::string_view function, const Tensor& x, unsigned least, unsigned most, Location where) {
  require_floating(function, x, where);
  if (x.rank() >= least && x.rank() <= most) return;
  throw ShapeError(1083,
                   format_error(1083, "ShapeError",
                                least == most ? fmt::format("{}: x has {} axes, not {}", function, x.rank(), least)
                                              : fmt::format("{}: x has fewer than {} axes", function, least),
                                describe(x), where));
}

/// Draws in f32 for narrow dtypes, wherever x is.
void write(const Tensor& x, const Tensor& values, Location where) {
  const NoGradGuard no_history;
  x.assign({fermata::to(values, device(x, where), where), where});
}
DType drawn_dtype(const Tensor& x) { return x.dtype() == DType::f64 ? DType::f64 : DType::f32; }

struct Fans {
  double in, out;
};
Fans fans_of(std::string_view function, const Tensor& x, Location where) {
  require_axes(function, x, 2, kMaxRank, where);
  double field = 1;
  for (unsigned i = 2; i < x.rank(); ++i) field *= static_cast<double>(x.size(i));
  return {static_cast<double>(x.size(1)) * field, static_cast<double>(x.size(0)) * field};
}
/// The deviation that an activation asks for.
double kaiming_deviation(std::string_view function, const Tensor& x, std::string_view activation, double slope, Fan fan,
                         Location where) {
  const Fans fans = fans_of(function, x, where);
  return gain(activation, slope, where) / std::sqrt(fan == Fan::in ? fans.in : fans.out);
}

}  // namespace

void constant(const Tensor& x, double value, Location where) {
  require_floating("constant", x, where);
  const NoGradGuard no_history;
  x.assign({value, where});
}

void uniform(const Tensor& x, double low, double high, Generator& from, Location where) {
  require_floating("uniform", x, where);
  write(x, fermata::uniform(x.shape(), low, high, drawn_dtype(x), from, where), where);
}

void normal(const Tensor& x, double mean, double deviation, Generator& from, Location where) {
  require_floating("normal", x, where);
  write(x, fermata::normal(x.shape(), mean, deviation, drawn_dtype(x), from, where), where);
}

void truncated_normal(const Tensor& x, double mean, double deviation, double low, double high, Generator& from,
                      Location where) {
  require_floating("truncated_normal", x, where);
  if (!(deviation > 0)) fail_parameter("truncated_normal", "the deviation is not positive", where);
  const Tensor standard = fermata::truncated_normal((low - mean) / deviation, (high - mean) / deviation, x.shape(),
                                                    drawn_dtype(x), from, where);
  write(x, add({multiply({standard, where}, {deviation, where}), where}, {mean, where}), where);
}

void eye(const Tensor& x, Location where) {
  require_axes("eye", x, 2, 2, where);
  write(x, fermata::eye(x.size(0), x.size(1), DType::f32, where), where);
}

void dirac(const Tensor& x, Location where) {
  require_axes("dirac", x, 3, 5, where);
  std::vector<float> values(static_cast<std::size_t>(x.element_count()));
  std::int64_t field = 1, middle = 0;
  for (unsigned i = 2; i < x.rank(); ++i) field *= x.size(i), middle = middle * x.size(i) + x.size(i) / 2;
  for (std::int64_t c = 0; c < std::min(x.size(0), x.size(1)); ++c)
    values[static_cast<std::size_t>((c * x.size(1) + c) * field + middle)] = 1;
  write(x, tensor(values, x.shape(), where), where);
}

void xavier_uniform(const Tensor& x, double gain, Generator& from, Location where) {
  const Fans fans = fans_of("xavier_uniform", x, where);
  const double bound = gain * std::sqrt(6 / (fans.in + fans.out));
  uniform(x, -bound, bound, from, where);
}

void xavier_normal(const Tensor& x, double gain, Generator& from, Location where) {
  const Fans fans = fans_of("xavier_normal", x, where);
  normal(x, 0, gain * std::sqrt(2 / (fans.in + fans.out)), from, where);
}

void kaiming_uniform(const Tensor& x, std::string_view activation, double slope, Fan fan, Generator& from,
                     Location where) {
  const double bound = std::sqrt(3.0) * kaiming_deviation("kaiming_uniform", x, activation, slope, fan, where);
  uniform(x, -bound, bound, from, where);
}

void kaiming_normal(const Tensor& x, std::string_view activation, double slope, Fan fan, Generator& from,
                    Location where) {
  normal(x, 0, kaiming_deviation("kaiming_normal", x, activation, slope, fan, where), from, where);
}

void orthogonal(const Tensor& x, double gain, Generator& from, Location where) {
  require_axes("orthogonal", x, 2, kMaxRank, where);
  if (x.element_count() == 0) return;
  const std::int64_t rows = x.size(0), columns = x.element_count() / rows;
  const NoGradGuard no_history;
  const Tensor drawn =
      fermata::normal({std::max(rows, columns), std::min(rows, columns)}, 0, 1, drawn_dtype(x), from, where);
  const linalg::Qr factors = linalg::qr(drawn, "reduced", where);
  // The signs of r make the result independent of how a library chooses those of q.
  const Tensor signs = sign({linalg::diagonal(factors.r, 0, where), where});
  Tensor q = multiply({multiply({factors.q, where}, {signs, where}), where}, {gain, where});
  if (rows < columns) q = transpose(q, -2, -1, where);
  write(x, reshape(q, x.shape(), where), where);
}

double gain(std::string_view activation, double slope, Location where) {
  if (activation == "linear" || activation == "sigmoid") return 1;
  if (activation == "tanh") return 5.0 / 3;
  if (activation == "relu") return std::sqrt(2.0);
  if (activation == "leaky_relu") return std::sqrt(2 / (1 + slope * slope));
  if (activation == "selu") return 0.75;
  fail_parameter("gain", fmt::format("unknown activation '{}'", activation), where);
}

}  // namespace fermata::nn::init
