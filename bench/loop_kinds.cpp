// More kinds (bench/kinds.h): sorting, complex numbers, short axes, elements at positions, and loops that are written
// out.
#include <string>
#include <utility>

#include "bench/kinds.h"

namespace bench {
namespace {

namespace fm = fermata;
using fm::Tensor;

Tensor normal(std::uint64_t seed, const fm::Shape& sizes) {
  fm::Generator generator(seed);
  return fm::normal(sizes, 0, 1, fm::DType::f32, generator).sync();
}
Tensor integers(std::uint64_t seed, std::int64_t end, const fm::Shape& sizes, fm::DType dtype = fm::DType::i64) {
  fm::Generator generator(seed);
  return fm::randint(0, end, sizes, fm::DType::i64, generator).astype(dtype).sync();
}
Tensor complex_normal(std::uint64_t seed, const fm::Shape& sizes) {
  return fm::complex(normal(seed, sizes), normal(seed + 1, sizes)).sync();
}

using Inputs = std::function<Tensors()>;
Case with(std::string name, Inputs inputs, Program program) {
  return {std::move(name), std::move(inputs), [program = std::move(program)] { return program; }};
}
Inputs normals(std::vector<fm::Shape> shapes) {
  return [shapes = std::move(shapes)] {
    Tensors all;
    for (const fm::Shape& shape : shapes) all.push_back(normal(all.size() + 1, shape));
    return all;
  };
}
Case of_normal(std::string name, const fm::Shape& sizes, Tensor (*program)(const Tensor&)) {
  return with(std::move(name), normals({sizes}), [program](const Tensors& in) { return Tensors{program(in[0])}; });
}
Case of_complex(std::string name, std::int64_t count, Tensor (*program)(const Tensor&, const Tensor&)) {
  return with(
      std::move(name),
      [count] {
        return Tensors{complex_normal(1, {count}), complex_normal(3, {count})};
      },
      [program](const Tensors& in) { return Tensors{program(in[0], in[1])}; });
}

/// z^2 + c, and what has left the circle stays as it is.
Tensor escape(const Tensor& a, const Tensor& b) {
  Tensor x = a * 0.5, y = b * 0.5;
  const Tensor cx = x, cy = y;
  for (int i = 0; i < 40; ++i) {
    const Tensor inside = x * x + y * y < 4;
    const Tensor next = x * x - y * y + cx;
    y = fm::where(inside, x * y * 2 + cy, y), x = fm::where(inside, next, x);
  }
  return x * x + y * y;
}
Tensor diffuse(const Tensor& start) {
  const Tensor x = fm::copy(start);
  for (int i = 0; i < 16; ++i) {
    const auto part = [&](std::int64_t r, std::int64_t c) {
      return x.slice(0, r, r - 2 == 0 ? fm::kNone : r - 2).slice(1, c, c - 2 == 0 ? fm::kNone : c - 2);
    };
    part(1, 1).assign(part(1, 1) * 0.2 + (part(0, 1) + part(2, 1) + part(1, 0) + part(1, 2)) * 0.2);
  }
  return x;
}
/// 24 steps of 96 numbers for 48 sequences: inputs x, of the gates w and u, bias.
Tensor lstm(const Tensors& in) {
  Tensor h = fm::zeros({48, 96}), c = fm::zeros({48, 96});
  for (int t = 0; t < 24; ++t) {
    const Tensor gates = fm::matmul(in[0].select(0, t), in[1]) + fm::matmul(h, in[2]) + in[3];
    const std::vector<Tensor> g = fm::split(gates, 4, 1);
    c = fm::sigmoid(g[1]) * c + fm::sigmoid(g[0]) * fm::tanh(g[2]);
    h = fm::sigmoid(g[3]) * fm::tanh(c);
  }
  return h;
}
Tensor causal_attention(const Tensors& in) {
  const std::int64_t n = in[0].size(-2);
  const Tensor at = fm::arange(n);
  const Tensor scores = fm::matmul(in[0], in[1].mT()) * 0.125;
  return fm::matmul(fm::softmax(fm::where(fm::expand_dims(at, 1) >= at, scores, -1e9), -1), in[2]);
}
/// The likelihood of a Gaussian process, and its gradient with respect to the logarithms of three parameters.
Tensors likelihood(const Tensors& in) {
  const auto value = [&](const Tensor& p) {
    const Tensor apart = fm::expand_dims(in[0], 1) - in[0];
    const Tensor square = fm::sum(fm::square(apart), -1);
    const Tensor kernel =
        fm::exp(square * -0.5 / fm::exp(p[0])) * fm::exp(p[1]) + fm::eye(in[0].size(0)) * (fm::exp(p[2]) + 0.1);
    const Tensor factor = fm::linalg::cholesky(kernel);
    const Tensor alpha = fm::linalg::solve_triangular(factor, fm::expand_dims(in[1], 1));
    return fm::sum(fm::square(alpha)) * 0.5 + fm::sum(fm::log(fm::linalg::diagonal(factor)));
  };
  const auto [likelihood, gradient] = fm::value_and_grad(value)(in[2]);
  return {likelihood, gradient};
}

}  // namespace

std::vector<Case> loop_kinds() {
  using fm::DType;
  return {
      of_normal("sort_1000x4000", {1000, 4000}, [](const Tensor& x) { return fm::sort(x); }),
      of_normal("sort_3M", {3'000'000}, [](const Tensor& x) { return fm::sort(x); }),
      of_normal("sort_80Kx40", {80'000, 40}, [](const Tensor& x) { return fm::sort(x); }),
      of_normal("sort_0_3000x1000", {3000, 1000}, [](const Tensor& x) { return fm::sort(x, 0); }),
      of_normal("argsort_400x3000", {400, 3000}, [](const Tensor& x) { return fm::argsort(x); }),
      of_normal("argsort_1M", {1'000'000}, [](const Tensor& x) { return fm::argsort(x); }),
      with(
          "sort_integers_1M", [] { return Tensors{integers(1, 50'000, {1'000'000})}; },
          [](const Tensors& in) { return Tensors{fm::sort(in[0])}; }),
      with(
          "bytes_where_12M", [] { return Tensors{integers(1, 256, {12'000'000}, DType::u8)}; },
          [](const Tensors& in) { return Tensors{fm::where(in[0] > 100, in[0] * 3, in[0])}; }),
      of_normal("sum_200Kx16", {200'000, 16}, [](const Tensor& x) { return fm::sum(x, 1); }),
      of_normal("mean_150Kx28", {150'000, 28}, [](const Tensor& x) { return fm::mean(x, 1); }),
      of_normal("sum_60Kx64", {60'000, 64}, [](const Tensor& x) { return fm::sum(x, 1); }),
      of_normal("max_300Kx10", {300'000, 10}, [](const Tensor& x) { return fm::max(x, 1); }),
      of_normal("min_40Kx100", {40'000, 100}, [](const Tensor& x) { return fm::min(x, 1); }),
      of_normal("argmax_100Kx30", {100'000, 30}, [](const Tensor& x) { return fm::argmax(x, 1); }),
      of_normal("sum_abs_100Kx40", {100'000, 40}, [](const Tensor& x) { return fm::sum(fm::abs(x), 1); }),
      of_normal("mean_0_3000x900", {900, 3000}, [](const Tensor& x) { return fm::mean(fm::transpose(x) * 2, 0); }),
      of_complex("complex_multiply_1M", 1'000'000, [](const Tensor& a, const Tensor& b) { return a * b; }),
      of_complex("complex_divide_1M", 1'000'000, [](const Tensor& a, const Tensor& b) { return a / b; }),
      of_complex("complex_exp_1M", 1'000'000, [](const Tensor& a, const Tensor&) { return fm::exp(a); }),
      of_complex("complex_log_1M", 1'000'000, [](const Tensor& a, const Tensor&) { return fm::log(a); }),
      of_complex("complex_angle_1M", 1'000'000, [](const Tensor& a, const Tensor&) { return fm::angle(a); }),
      of_complex("complex_power_1M", 1'000'000,
                 [](const Tensor& a, const Tensor& b) { return fm::real(a * fm::conj(b)) + fm::square(fm::abs(a)); }),
      of_complex("complex_sum_2M", 2'000'000, [](const Tensor& a, const Tensor& b) { return fm::sum(a * b); }),
      of_normal("spectra_2000x512", {2000, 512},
                [](const Tensor& x) {
                  return fm::square(fm::abs(fm::fft::rfft(x * fm::cos(fm::arange(512).astype(DType::f32) * 0.01))));
                }),
      of_normal("fft2_12x200x240", {12, 200, 240},
                [](const Tensor& x) {
                  return fm::abs(fm::fft::fftn(x, {}, {1, 2}));
                }),
      with(
          "filter_60x6000", normals({{60, 6000}, {6000}}),
          [](const Tensors& in) { return Tensors{fm::fft::irfft(fm::fft::rfft(in[0]) * fm::fft::rfft(in[1]), 6000)}; }),
      with("escape_40_steps_1M", normals({{1 << 20}, {1 << 20}}),
           [](const Tensors& in) { return Tensors{escape(in[0], in[1])}; }),
      of_normal("diffuse_16_sweeps_900", {900, 900}, &diffuse),
      with("shifted_exp_400Kx10", normals({{400'000, 10}, {400'000, 1}}),
           [](const Tensors& in) { return Tensors{fm::exp(in[0] - in[1])}; }),
      with("lstm_24_steps", normals({{24, 48, 80}, {80, 384}, {96, 384}, {384}}),
           [](const Tensors& in) {
             return Tensors{lstm({in[0], in[1] * 0.1, in[2] * 0.1, in[3]})};
           }),
      with("causal_attention_4x8x400x64", normals({{4, 8, 400, 64}, {4, 8, 400, 64}, {4, 8, 400, 64}}),
           [](const Tensors& in) { return Tensors{causal_attention(in)}; }),
      with("likelihood_400", normals({{400, 6}, {400}, {3}}), &likelihood),
      with("rotate_200Kx4", normals({{200'000, 4, 4}, {200'000, 4, 1}}),
           [](const Tensors& in) { return Tensors{fm::matmul(in[0], in[1])}; }),
      with("matvec_3000x48x40", normals({{3000, 48, 40}, {3000, 40}}),
           [](const Tensors& in) { return Tensors{fm::matmul(in[0], fm::expand_dims(in[1], 2))}; }),
      with(
          "take_half_200000x32",
          [] {
            return Tensors{normal(1, {50'000, 32}).astype(DType::f16).sync(), integers(2, 50'000, {200'000})};
          },
          [](const Tensors& in) { return Tensors{fm::take(in[0], in[1], 0)}; }),
      with(
          "take_along_1_2000x1500",
          [] {
            return Tensors{normal(1, {2000, 1500}), integers(2, 1500, {2000, 1500})};
          },
          [](const Tensors& in) { return Tensors{fm::take_along_axis(in[0], in[1], 1)}; }),
      with(
          "index_add_300000x8",
          [] {
            return Tensors{integers(1, 20'000, {300'000}), normal(2, {300'000, 8})};
          },
          [](const Tensors& in) {
            return Tensors{fm::index_add(fm::zeros({20'000, 8}), in[0], in[1])};
          }),
      with(
          "count_4M", [] { return Tensors{integers(1, 500, {4'000'000})}; },
          [](const Tensors& in) { return Tensors{fm::scatter_add(fm::zeros({500}), in[0], fm::ones({4'000'000}))}; }),
      of_normal("softmax_1_40x300x500", {40, 300, 500}, [](const Tensor& x) { return fm::softmax(x, 1); }),
      of_normal("cumulative_max_2000x2500", {2000, 2500}, [](const Tensor& x) { return fm::cumulative_max(x, 1); }),
      with("nearest_30000x70x12", normals({{30'000, 12}, {70, 12}}),
           [](const Tensors& in) {
             return Tensors{fm::argmin(fm::sum(fm::square(fm::expand_dims(in[0], 1) - in[1]), -1), -1)};
           }),
      with("permute_add_300x80x3x64", normals({{300, 80, 3, 64}, {300, 3, 80, 64}}),
           [](const Tensors& in) {
             return Tensors{fm::permute(in[0], {0, 2, 1, 3}) * 2 + in[1]};
           }),
      with("transpose_multiply_2000x3000", normals({{2000, 3000}, {3000, 2000}}),
           [](const Tensors& in) { return Tensors{fm::transpose(in[0]) * in[1]}; }),
  };
}

}  // namespace bench
