// Fourier transforms against their definition, of every length and layout; norms, sizes and axes; derivatives and vmap.
#include <gtest/gtest.h>

#include <numbers>

#include "tests/error_message.h"
#include "tests/frontend/reference_call.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;
using fft::Norm;

class Fourier : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Fourier, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

TEST_P(Fourier, EveryLength) {
  for (const DType t : {DType::c64, DType::c128})
    for (const std::int64_t n : {1, 2, 3, 4, 5, 7, 8, 12, 16, 31, 37, 64, 97, 100, 127, 128, 202, 1009}) {
      SCOPED_TRACE(n);
      const Tensor x = random_complex({2, n}, t, 1);
      const double error = 4 * rounding(t);
      expect_near(fft::fft(x), reference(Op::fft, {x}, {t, x.shape()}, {1, 0}), error);
      expect_near(fft::ifft(x) * static_cast<double>(n), reference(Op::fft, {x}, {t, x.shape()}, {1, 1}), error);
      expect_near(fft::ifft(fft::fft(x)), elements(x), error);
      const Tensor r = real(x), half = fft::rfft(r);
      expect_near(half, reference(Op::rfft, {r}, {t, half.shape()}, {1}), error);
      expect_near(half, elements(slice(fft::fft(r), 1, 0, n / 2 + 1)), error);
      expect_near(fft::irfft(half, n), elements(r), error);
      expect_near(fft::irfft(half, n) * static_cast<double>(n),
                  reference(Op::irfft, {half}, {r.dtype(), r.shape()}, {1, n}), error);
      expect_near(fft::hfft(half, n), elements(fft::irfft(conj(half), n) * static_cast<double>(n)), error);
      expect_near(fft::ihfft(r), elements(conj(half) / static_cast<double>(n)), error);
    }
}

/// Results of a transform along the last axis of a matrix at some places, by its definition.
void expect_sums(const Tensor& spectrum, const Tensor& x, double error) {
  const std::vector<Complex> given = elements(x), found = elements(spectrum);
  const auto n = static_cast<std::size_t>(x.size(1)), width = static_cast<std::size_t>(spectrum.size(1));
  for (std::size_t line = 0; line < given.size() / n; ++line)
    for (const std::size_t k : {std::size_t{0}, std::size_t{1}, width / 3, width - 1}) {
      Complex sum = 0;
      double squares = 0;
      for (std::size_t j = 0; j < n; ++j) {
        const double turns = static_cast<double>(j * k % n) / static_cast<double>(n);
        sum += given[line * n + j] * std::polar(1.0, -2 * std::numbers::pi * turns);
        squares += std::norm(given[line * n + j]);
      }
      EXPECT_LE(std::abs(found[line * width + k] - sum), error * std::sqrt(squares)) << line << ", " << k;
    }
}

TEST_P(Fourier, LongLines) {
  for (const DType t : {DType::c64, DType::c128})
    for (const std::int64_t n : {4096, 4100, 4375, 4099, 8192, 8194, 10010, 16384}) {
      SCOPED_TRACE(n);
      const double error = 10 * rounding(t);
      const Tensor x = random_complex({2, n}, t, 1), r = real(x), half = fft::rfft(r);
      expect_sums(fft::fft(x), x, error);
      expect_near(fft::ifft(fft::fft(x)), elements(x), error);
      expect_sums(half, r, error);
      expect_near(fft::irfft(half, n), elements(r), error);
      const Tensor turned = permute(copy(permute(x, {1, 0})), {1, 0});
      EXPECT_EQ(elements(fft::fft(turned)), elements(fft::fft(x)));
      EXPECT_EQ(elements(fft::irfft(permute(copy(permute(half, {1, 0})), {1, 0}), n)), elements(fft::irfft(half, n)));
      EXPECT_EQ(elements(fft::rfft(real(turned))), elements(half));
    }
}

TEST_P(Fourier, LinesDoNotMeet) {
  for (const DType t : {DType::c64, DType::c128})
    for (const std::int64_t n : {6, 35, 37, 96, 128, 129, 4100}) {
      SCOPED_TRACE(n);
      const Tensor all = random_complex({19, n}, t, 1);
      const Tensor bad = concat({slice(all, 0, 0, 18), full({1, n}, NAN, t)});
      for (const std::int64_t line : {0, 7, 17}) {
        const Tensor x = slice(bad, 0, line, line + 1);
        const auto at = [&](const Tensor& results) { return elements(slice(results, 0, line, line + 1)); };
        EXPECT_EQ(at(fft::fft(bad)), elements(fft::fft(x)));
        EXPECT_EQ(at(fft::rfft(real(bad))), elements(fft::rfft(real(x))));
        EXPECT_EQ(at(fft::irfft(bad, 2 * n - 1)), elements(fft::irfft(x, 2 * n - 1)));
        EXPECT_EQ(at(fft::irfft(bad)), elements(fft::irfft(x)));
        // Along the first axis lines lie side by side.
        EXPECT_EQ(at(transpose(fft::fft(copy(transpose(bad)), {}, 0))), elements(fft::fft(x)));
        EXPECT_EQ(at(transpose(fft::rfft(copy(transpose(real(bad))), {}, 0))), elements(fft::rfft(real(x))));
        EXPECT_EQ(at(transpose(fft::irfft(copy(transpose(bad)), {}, 0))), elements(fft::irfft(x)));
      }
    }
}

TEST_P(Fourier, AxesAndLayouts) {
  const Tensor x = random_complex({3, 4, 5}, DType::c128, 2);
  for (const std::int64_t axis : {0, 1, 2, -1}) {
    const auto expected = reference(Op::fft, {x}, {DType::c128, x.shape()}, {axis < 0 ? axis + 3 : axis, 0});
    expect_near(fft::fft(x, {}, axis), expected, 1e-13);
    expect_near(fft::fft(flip(copy(flip(x))), {}, axis), expected, 1e-13);
    expect_near(fft::fft(permute(copy(permute(x, {2, 0, 1})), {1, 2, 0}), {}, axis), expected, 1e-13);
  }
  expect_near(fft::fft(broadcast_to(x[0][0], {3, 5})), elements(broadcast_to(fft::fft(x[0][0]), {3, 5})), 1e-13);
  EXPECT_EQ(fft::fft(zeros({0, 4}, DType::c64)).shape(), (Shape{0, 4}));
}

TEST_P(Fourier, SizesAndNorms) {
  const Tensor x = random_complex({6}, DType::c128, 3);
  expect_near(fft::fft(x, 4), elements(fft::fft(slice(x, 0, 0, 4))), 1e-14);
  expect_near(fft::fft(x, 9), elements(fft::fft(concat({x, zeros({3}, DType::c128)}))), 1e-14);
  expect_near(fft::fft(x, {}, -1, Norm::forward), elements(fft::fft(x) / 6), 1e-14);
  expect_near(fft::ifft(x, {}, -1, Norm::forward), elements(fft::ifft(x) * 6), 1e-14);
  expect_near(fft::fft(x, {}, -1, Norm::ortho), elements(fft::fft(x) / std::sqrt(6.0)), 1e-14);
  const Tensor r = real(x);
  for (const Norm norm : {Norm::backward, Norm::ortho, Norm::forward}) {
    expect_near(fft::ifft(fft::fft(x, {}, -1, norm), {}, -1, norm), elements(x), 1e-14);
    expect_near(fft::irfft(fft::rfft(r, {}, -1, norm), 6, -1, norm), elements(r), 1e-14);
    expect_near(fft::ihfft(fft::hfft(x, 10, -1, norm), {}, -1, norm),
                elements(where(tensor({true, false, false, false, false, true}), real(x).astype(DType::c128), x)),
                1e-14);
  }
  EXPECT_EQ(fft::irfft(x).shape(), Shape{10});
  EXPECT_EQ(fft::rfft(tensor({1, 2, 3})).dtype(), DType::c64);
  EXPECT_EQ(fft::fft(ones({2}, DType::f16)).dtype(), DType::c64);
}

TEST_P(Fourier, SeveralAxes) {
  const Tensor x = random_complex({3, 4, 5}, DType::c128, 4), r = real(x);
  const Tensor all = fft::fft(fft::fft(fft::fft(x, {}, 0), {}, 1), {}, 2);
  expect_near(fft::fftn(x), elements(all), 1e-13);
  expect_near(fft::ifftn(all), elements(x), 1e-13);
  expect_near(fft::fftn(x, {}, {2, 0}), elements(fft::fft(fft::fft(x, {}, 2), {}, 0)), 1e-13);
  expect_near(fft::fftn(x, {2, 6}), elements(fft::fft(fft::fft(x, 6, 2), 2, 1)), 1e-13);
  expect_near(fft::fftn(x, {2, 6}, {0, 1}), elements(fft::fft(fft::fft(x, 6, 1), 2, 0)), 1e-13);
  const Tensor half = fft::rfftn(r);
  expect_near(half, elements(slice(fft::fftn(r), 2, 0, 3)), 1e-13);
  expect_near(fft::irfftn(half, {3, 4, 5}), elements(r), 1e-13);
  expect_near(fft::irfftn(half, {4, 5}, {1, 2}), elements(fft::irfft(fft::ifft(half, {}, 1), 5, 2)), 1e-13);
}

TEST_P(Fourier, Frequencies) {
  EXPECT_EQ(fft::fftfreq(5, 0.5, DType::f64).to_vector<double>(), (std::vector<double>{0, 0.4, 0.8, -0.8, -0.4}));
  EXPECT_EQ(fft::fftfreq(4, 1, DType::f64).to_vector<double>(), (std::vector<double>{0, 0.25, -0.5, -0.25}));
  EXPECT_EQ(fft::rfftfreq(4).to_vector<double>(), (std::vector<double>{0, 0.25, 0.5}));
  EXPECT_EQ(fft::fftshift(arange(5)).to_vector<int>(), (std::vector<int>{3, 4, 0, 1, 2}));
  EXPECT_EQ(fft::fftshift(arange(4)).to_vector<int>(), (std::vector<int>{2, 3, 0, 1}));
  for (const std::int64_t n : {1, 4, 5})
    EXPECT_EQ(fft::ifftshift(fft::fftshift(arange(n))).to_vector<int>(), arange(n).to_vector<int>());
  EXPECT_EQ(fft::fftshift(reshape(arange(6), {2, 3}), 1).to_vector<int>(), (std::vector<int>{2, 0, 1, 5, 3, 4}));
  EXPECT_EQ(fft::fftshift(reshape(arange(6), {2, 3})).to_vector<int>(), (std::vector<int>{5, 3, 4, 2, 0, 1}));
}

TEST_P(Fourier, Derivatives) {
  for (const std::int64_t n : {4, 5}) {
    const Inputs parts = parts_of({random_complex({2, n}, DType::c128, 5)});
    check_both_orders("fft", of_parts([](const std::vector<Tensor>& z) { return square(fft::fft(z[0])); }), parts);
    check_both_orders("ifft", of_parts([](const std::vector<Tensor>& z) { return square(fft::ifft(z[0], {}, 0)); }),
                      parts);
    check_both_orders("rfft",
                      of_parts([](const std::vector<Tensor>& z) { return square(fft::rfft(real(z[0]) * imag(z[0]))); }),
                      parts);
    check_both_orders(
        "irfft", of_parts([&](const std::vector<Tensor>& z) { return square(fft::irfft(z[0], 2 * n - 1)); }), parts);
    check_both_orders("irfft, even", of_parts([&](const std::vector<Tensor>& z) { return square(fft::irfft(z[0])); }),
                      parts);
  }
}

/// Cosine transforms of every type, of short and long lines of even and odd length, against their definition.
TEST_P(Fourier, CosineTransforms) {
  for (const DType t : {DType::f32, DType::f64})
    for (const std::int64_t n : {1, 2, 3, 4, 5, 8, 9, 16, 31, 37, 64, 74, 100, 4097, 8192, 8199})
      for (int type = 1; type <= 4; ++type) {
        if (type == 1 && n < 2) continue;
        SCOPED_TRACE("type " + std::to_string(type) + " of " + std::to_string(n));
        const Tensor x = astype(random_f64({3, n}, 0, 1, true, 1), t);
        const std::vector<double> given = x.to_vector<double>(), found = dct(x, type).to_vector<double>();
        const auto count = static_cast<std::size_t>(n);
        for (std::size_t line = 0; line < 3; ++line)
          for (std::size_t k = 0; k<count; k += n> 200 ? count / 5 : 1) {
            double sum = 0, squares = 1;
            for (std::size_t j = 0; j < count; ++j) {
              // The angle is pi a b / c.
              const std::size_t a = type == 2 || type == 4 ? 2 * j + 1 : j, b = type >= 3 ? 2 * k + 1 : k,
                                c = type == 1   ? count - 1
                                    : type == 4 ? 4 * count
                                                : 2 * count;
              const bool is_single = (j == 0 && type % 2 == 1) || (j + 1 == count && type == 1);
              const double value = given[line * count + j];
              sum += (is_single ? 1 : 2) * value *
                     std::cos(std::numbers::pi * static_cast<double>(a * b % (2 * c)) / static_cast<double>(c));
              squares += value * value;
            }
            EXPECT_NEAR(found[line * count + k], sum, 20 * rounding(t) * std::sqrt(squares)) << line << ", " << k;
          }
        // Along another axis, and of a view, the same bits.
        EXPECT_EQ(dct(transpose(x, 0, 1), type, 0).to_vector<double>(),
                  transpose(dct(x, type), 0, 1).to_vector<double>());
        EXPECT_EQ(dct(slice(x, 0, 1, 2), type).to_vector<double>(), slice(dct(x, type), 0, 1, 2).to_vector<double>());
        for (const Norm norm : {Norm::backward, Norm::ortho, Norm::forward})
          expect_near(idct(dct(x, type, -1, norm), type, -1, norm), elements(x), 10 * rounding(t));
      }
  for (int type = 1; type <= 4; ++type)
    for (const std::int64_t n : {2, 5, 6}) {
      const Tensor x = random_f64({2, n}, 0, 1, true, 2);
      for (const Norm norm : {Norm::backward, Norm::ortho})
        check_both_orders("dct", [&](const Inputs& in) { return square(dct(in[0], type, -1, norm)); }, {x});
      check_vmap(
          "dct", [&](const Inputs& in) { return dct(in[0], type, 0); }, {{{x, x * 2}, 1}}, 2, 0, 1e-12);
    }
}

TEST_P(Fourier, Vmap) {
  const Tensor x = random_f64({3, 4}, 0.5, 2, true, 6);
  for (const int axis : {0, 1, -1}) {
    const BatchOperand batch{{x, x * 2, square(x)}, axis};
    check_vmap(
        "fft", [](const Inputs& in) { return abs(fft::fft(in[0], {}, 0)); }, {batch}, 3, 0, 1e-13);
    check_vmap(
        "rfft", [](const Inputs& in) { return abs(fft::rfft(in[0])); }, {batch}, 3, 0, 1e-13);
    check_vmap(
        "irfft", [](const Inputs& in) { return fft::irfft(fft::rfft(in[0]), 4); }, {batch}, 3, 0, 1e-13);
  }
}

TEST_P(Fourier, Errors) {
  EXPECT_EQ(message<ValueError>([] { fft::fft(ones({4}), 0); }),
            "FM1397 ValueError: fft: 0 is not a valid number of samples\n  at   HERE");
  EXPECT_EQ(
      message<DTypeError>([] { fft::rfft(ones({4}, DType::c64)); }),
      "FM1101 DTypeError: rfft: does not take c64\n  x    c64[4]\n  at   HERE\n  hint use fft for complex numbers");
  EXPECT_EQ(
      message<IndexError>([] { fft::fft(ones({4}), {}, 1); }),
      "FM1201 IndexError: fft: axis 1 is out of range for 1 axis\n  x    f32[4]\n  at   HERE\n  hint axes go from -1 to 0");
  EXPECT_EQ(message<ValueError>([] {
              fft::fftn(ones({4, 4}), {2, 2}, 0);
            }),
            "FM1398 ValueError: fftn: 2 sizes for 1 axes\n  x    f32[4, 4]\n  at   HERE");
}

}  // namespace
}  // namespace fermata
