// Fourier transforms, windows, and the filters of spectrograms.
#include <array>
#include <cmath>
#include <numbers>

#include "fermata/complex.h"
#include "fermata/creation.h"
#include "fermata/fft.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/pooling.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/onnx/known.h"
#include "frontend/onnx/node_call.h"
#include "frontend/onnx/operators.h"

namespace fermata::onnx {
namespace {

constexpr double kPi = std::numbers::pi;

/// [.., 1] of real numbers, [.., 2] of complex ones, as numbers.
Tensor numbers_of(const NodeCall& c, const Tensor& x) {
  if (x.rank() < 2 || (x.size(-1) != 1 && x.size(-1) != 2))
    c.fail("the last dimension must be 1 (real) or 2 (complex)");
  const Tensor real_part = select(x, -1, 0, c.where);
  return x.size(-1) == 1 ? real_part : complex(real_part, select(x, -1, 1, c.where));
}
Tensor parts_of(const NodeCall& c, const Tensor& z) { return stack({real(z), imag(z)}, -1, c.where); }
bool is_half(DType t) { return t == DType::f16 || t == DType::bf16; }

void dft_op(NodeCall& c) {
  const Tensor given = c.in(0);
  const Tensor x = is_half(given.dtype()) ? astype(given, DType::f32, c.where) : given;
  const unsigned rank = x.rank();
  const std::int64_t axis =
      axis_of(c, c.has(2) ? c.integer(2) : c.attr("axis", c.opset() < 20 ? std::int64_t{1} : std::int64_t{-2}), rank);
  if (axis + 1 == static_cast<std::int64_t>(rank)) c.fail("axis must not be the one of real and imaginary parts");
  const bool inverse = c.attr("inverse", std::int64_t{0}) != 0, onesided = c.attr("onesided", std::int64_t{0}) != 0;
  std::optional<std::int64_t> length;
  if (c.has(1)) length = c.integer(1);
  const Tensor z = numbers_of(c, x);
  Tensor y;
  if (inverse && onesided) {
    const Tensor back = fft::irfft(z, length, axis, fft::Norm::backward, c.where);
    return c.give(astype(expand_dims(back, -1, c.where), given.dtype(), c.where));
  }
  if (inverse)
    y = fft::ifft(z, length, axis, fft::Norm::backward, c.where);
  else if (onesided)
    y = fft::rfft(is_complex(z.dtype()) ? real(z) : z, length, axis, fft::Norm::backward, c.where);
  else
    y = fft::fft(z, length, axis, fft::Norm::backward, c.where);
  c.give(astype(parts_of(c, y), given.dtype(), c.where));
}

void stft_op(NodeCall& c) {
  const Tensor given = c.in(0);
  const std::int64_t step = c.integer(1);
  const Tensor window = c.optional(2);
  const std::int64_t length = c.has(3) ? c.integer(3) : window.defined() ? window.size(0) : given.size(1);
  Tensor x = given.rank() == 3 ? given : expand_dims(given, -1, c.where);
  const bool is_real = x.size(-1) == 1, onesided = c.attr("onesided", std::int64_t{1}) != 0;
  Tensor z = numbers_of(c, x);
  Tensor frames = unfold(z, 1, length, step, 1, c.where);
  if (window.defined()) {
    Tensor w = window;
    if (w.size(0) < length) {
      const std::int64_t missing = length - w.size(0);
      w = concat({zeros({missing / 2}, w.dtype()), w, zeros({missing - missing / 2}, w.dtype())}, 0, c.where);
    }
    frames = frames * w;
  }
  const Tensor y = onesided && is_real ? fft::rfft(frames, {}, -1, fft::Norm::backward, c.where)
                                       : fft::fft(frames, {}, -1, fft::Norm::backward, c.where);
  c.give(astype(parts_of(c, y), given.dtype(), c.where));
}

/// a0 - a1 cos(2 pi i / n) + a2 cos(4 pi i / n).
void cosine_window(NodeCall& c, double a0, double a1, double a2) {
  const std::int64_t size = c.integer(0);
  if (size < 0) c.fail("size is negative");
  c.will_make({size});
  const bool periodic = c.attr("periodic", std::int64_t{1}) != 0;
  const auto n = static_cast<double>(periodic ? size : size - 1);
  const Tensor turn = astype(arange(size), DType::f64, c.where) * (2 * kPi / n);
  const Tensor w = a0 - a1 * cos(turn) + a2 * cos(turn * 2);
  c.give(astype(w, dtype_of_code(c.attr("output_datatype", std::int64_t{1}), c.where), c.where));
}
void hann_op(NodeCall& c) { cosine_window(c, 0.5, 0.5, 0); }
void hamming_op(NodeCall& c) { cosine_window(c, 25.0 / 46, 21.0 / 46, 0); }
void blackman_op(NodeCall& c) { cosine_window(c, 0.42, 0.5, 0.08); }

/// Triangles over the bins of a spectrum, evenly spaced on the mel scale (2595 log10(1 + f / 700)).
void mel_weight_op(NodeCall& c) {
  const std::int64_t bins = c.integer(0), length = c.integer(1), rate = c.integer(2);
  const double low = c.number(3), high = c.number(4);
  if (bins < 1 || length < 1 || rate < 1 || bins > (1 << 12) || length > (1 << 15)) c.fail("sizes are out of range");
  const std::int64_t spectrum = length / 2 + 1;
  c.will_make({spectrum, bins});
  const auto mel = [](double f) { return 2595 * std::log10(1 + f / 700); };
  const double first = mel(low), step = (mel(high) - first) / static_cast<double>(bins + 2);
  std::vector<std::int64_t> centers;
  for (std::int64_t i = 0; i < bins + 2; ++i) {
    const double hertz = 700 * (std::pow(10.0, (static_cast<double>(i) * step + first) / 2595) - 1);
    centers.push_back(
        static_cast<std::int64_t>(std::floor(static_cast<double>(length + 1) * hertz / static_cast<double>(rate))));
  }
  std::vector<float> weights(static_cast<std::size_t>(spectrum * bins));
  for (std::int64_t i = 0; i < bins; ++i) {
    const auto at = static_cast<std::size_t>(i);
    const std::int64_t lower = centers[at], center = centers[at + 1], upper = centers[at + 2];
    const auto put = [&](std::int64_t j, double w) {
      if (j >= 0 && j < spectrum) weights[static_cast<std::size_t>(j * bins + i)] = static_cast<float>(w);
    };
    if (center == lower) put(center, 1);
    for (std::int64_t j = lower; center != lower && j <= center; ++j)
      put(j, static_cast<double>(j - lower) / static_cast<double>(center - lower));
    for (std::int64_t j = center; upper > center && j < upper; ++j)
      put(j, static_cast<double>(upper - j) / static_cast<double>(upper - center));
  }
  c.give(astype(tensor(weights, {spectrum, bins}), dtype_of_code(c.attr("output_datatype", std::int64_t{1}), c.where),
                c.where));
}

constexpr std::array kRows{
    OperatorRow{"BlackmanWindow", &blackman_op, {}, 1},
    OperatorRow{"DFT", &dft_op, {}, 0b110},
    OperatorRow{"HammingWindow", &hamming_op, {}, 1},
    OperatorRow{"HannWindow", &hann_op, {}, 1},
    OperatorRow{"MelWeightMatrix", &mel_weight_op, {}, 0b11111},
    OperatorRow{"STFT", &stft_op, {}, 0b1010},
};

}  // namespace

Rows signal_rows() { return kRows; }

}  // namespace fermata::onnx
