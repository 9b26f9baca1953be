// Programs of kinds that are neither products, rows nor chains: short axes, transposes, scatters, scans, selection,
// Fourier transforms.
#include "bench/kinds.h"

#include <string>
#include <utility>

namespace bench {
namespace {

namespace fm = fermata;
using fm::Tensor;

Tensor normal(std::uint64_t seed, const fm::Shape& sizes, fm::DType dtype = fm::DType::f32) {
  fm::Generator generator(seed);
  return fm::normal(sizes, 0, 1, fm::DType::f32, generator).astype(dtype).sync();
}
Tensor positions(std::uint64_t seed, std::int64_t end, const fm::Shape& sizes) {
  fm::Generator generator(seed);
  return fm::randint(0, end, sizes, fm::DType::i64, generator).sync();
}
Case with(std::string name, std::function<Tensors()> inputs, Program program) {
  return {std::move(name), std::move(inputs), [program = std::move(program)] { return program; }};
}
Case of_normal(std::string name, const fm::Shape& sizes, Tensor (*program)(const Tensor&)) {
  return with(
      std::move(name), [sizes] { return Tensors{normal(1, sizes)}; },
      [program](const Tensors& in) { return Tensors{program(in[0])}; });
}

/// What pulls each of the points on each other one, added up over the axes of space and then over the points.
Tensor pair_forces(const Tensor& x) {
  const Tensor apart = fm::expand_dims(x, 0) - fm::expand_dims(x, 1);
  const Tensor square = fm::sum(fm::square(apart), -1, true) + 0.01;
  return fm::sum(apart / (square * fm::sqrt(square)), 1);
}
Tensor nearest(const Tensor& x) {
  const Tensor centers = fm::slice(x, 0, 0, 48);
  return fm::argmin(fm::sum(fm::square(fm::expand_dims(x, 1) - centers), -1), -1);
}
Tensor low_pass(const Tensor& x) {
  const Tensor spectrum = fm::fft::rfft(x);
  return fm::fft::irfft(spectrum * fm::astype(fm::arange(spectrum.size(-1)) < 1000, fm::DType::f32), x.size(-1));
}

/// Symmetric and positive definite matrices, and what is made of them.
Case of_matrices(std::string name, std::int64_t count, std::int64_t n, Tensor (*program)(const Tensor&)) {
  return with(
      std::move(name),
      [count, n] {
        const Tensor x = normal(1, {count, n, n});
        return Tensors{(fm::matmul(x, x.mT()) + fm::eye(n) * static_cast<double>(n)).sync()};
      },
      [program](const Tensors& in) { return Tensors{program(in[0])}; });
}

/// Few rows times a matrix that no second-level cache holds, in fewer bits; 32: as it is.
Case linear_of_weights(std::int64_t rows, std::int64_t bits) {
  return {"linear_" + std::to_string(rows) + "x2048x8192_" + (bits == 32 ? "f32" : "int" + std::to_string(bits)),
          [rows] {
            return Tensors{normal(1, {rows, 2048}), normal(2, {8192, 2048})};
          },
          [bits] {
            return Program([bits, weight = Tensor()](const Tensors& in) mutable {
              if (!weight.defined()) weight = bits == 32 ? in[1] : fm::quantize_weight(in[1], {.bits = bits});
              return Tensors{fm::linear(in[0], weight)};
            });
          }};
}

}  // namespace

std::vector<Case> kinds() {
  constexpr fm::DType kHalf = fm::DType::bf16;
  return {
      of_normal("sum_3Mx3", {3 << 20, 3}, [](const Tensor& x) { return fm::sum(x, 1); }),
      of_normal("sum_512Kx12", {1 << 19, 12}, [](const Tensor& x) { return fm::sum(x, 1); }),
      of_normal("max_128Kx40", {1 << 17, 40}, [](const Tensor& x) { return fm::max(x, 1); }),
      of_normal("var_1Mx3", {1 << 20, 3}, [](const Tensor& x) { return fm::var(x, {1}); }),
      of_normal("var_200Kx16", {200'000, 16}, [](const Tensor& x) { return fm::var(x, {1}); }),
      of_normal("normalize_1Mx3", {1 << 20, 3},
                [](const Tensor& x) { return x / fm::sqrt(fm::sum(fm::square(x), 1, true)); }),
      of_normal("softmax_200Kx16", {200'000, 16}, [](const Tensor& x) { return fm::softmax(x, -1); }),
      of_normal("layer_norm_50Kx64", {50'000, 64}, [](const Tensor& x) { return fm::layer_norm(x); }),
      of_normal("pair_forces_1500", {1500, 3}, &pair_forces),
      of_normal("nearest_40000x48x14", {40000, 14}, &nearest),
      of_matrices("solve_100Kx4x4", 100'000, 4, [](const Tensor& x) { return fm::linalg::solve(x, x); }),
      of_matrices("inv_100Kx4x4", 100'000, 4, [](const Tensor& x) { return fm::linalg::inv(x); }),
      of_matrices("det_100Kx4x4", 100'000, 4, [](const Tensor& x) { return fm::linalg::det(x); }),
      of_matrices("cholesky_100Kx4x4", 100'000, 4, [](const Tensor& x) { return fm::linalg::cholesky(x); }),
      of_matrices("solve_10Kx16x16", 10'000, 16, [](const Tensor& x) { return fm::linalg::solve(x, x); }),
      of_matrices("cholesky_10Kx16x16", 10'000, 16, [](const Tensor& x) { return fm::linalg::cholesky(x); }),
      of_matrices("matmul_100Kx4x4", 100'000, 4, [](const Tensor& x) { return fm::matmul(x, x); }),
      of_normal("rotate_100Kx3", {100'000, 4, 3},
                [](const Tensor& x) { return fm::matmul(fm::slice(x, 1, 0, 3), fm::slice(x, 1, 3, 4).mT()); }),
      of_normal("transpose_4096", {4096, 4096}, [](const Tensor& x) { return fm::copy(fm::transpose(x)); }),
      with(
          "permute_add_48x512x640",
          [] {
            return Tensors{normal(1, {48, 512, 640}), normal(2, {48, 640, 512})};
          },
          [](const Tensors& in) { return Tensors{fm::transpose(in[0], 1, 2) + in[1]}; }),
      with(
          "histogram_6M",
          [] {
            return Tensors{positions(1, 200, {6'000'000}), normal(2, {6'000'000})};
          },
          [](const Tensors& in) { return Tensors{fm::scatter_add(fm::zeros({200}), in[0], in[1])}; }),
      with(
          "gather_rows_50000x64",
          [] {
            return Tensors{normal(1, {60000, 64}), positions(2, 60000, {50000})};
          },
          [](const Tensors& in) { return Tensors{fm::take(in[0], in[1], 0)}; }),
      with(
          "scatter_rows_50000x64",
          [] {
            return Tensors{positions(2, 60000, {50000, 1}), normal(1, {50000, 64})};
          },
          [](const Tensors& in) {
            return Tensors{fm::scatter_add(fm::zeros({60000, 64}), fm::broadcast_to(in[0], {50000, 64}), in[1])};
          }),
      of_normal("cumulative_sum_0_3000x2000", {3000, 2000}, [](const Tensor& x) { return fm::cumulative_sum(x, 0); }),
      of_normal("cumulative_sum_1_3000x2000", {3000, 2000}, [](const Tensor& x) { return fm::cumulative_sum(x, 1); }),
      of_normal("cumulative_sum_8M", {8'000'000}, [](const Tensor& x) { return fm::cumulative_sum(x, 0); }),
      of_normal("top_50_of_400x20000", {400, 20000}, [](const Tensor& x) { return fm::topk(x, 50).values; }),
      of_normal("low_pass_50x16384", {50, 16384}, &low_pass),
      of_normal("fft_100x1000", {100, 1000}, [](const Tensor& x) { return fm::abs(fm::fft::fft(x)); }),
      with(
          "depthwise_stride_2_8x96x56x56",
          [] {
            return Tensors{normal(1, {8, 96, 56, 56}), normal(2, {96, 1, 3, 3})};
          },
          [](const Tensors& in) { return Tensors{fm::conv2d(in[0], in[1], {}, 2, 1, 1, 96)}; }),
      of_normal("softmax_0_4096x1024", {4096, 1024}, [](const Tensor& x) { return fm::softmax(x, 0); }),
      with(
          "remainder_1M",
          [] {
            return Tensors{normal(1, {1 << 20}), normal(2, {1 << 20})};
          },
          [](const Tensors& in) { return Tensors{fm::remainder(in[0], in[1])}; }),
      with(
          "attention_bf16_8x8x512x64",
          [] {
            return Tensors{normal(1, {8, 8, 512, 64}, kHalf), normal(2, {8, 8, 512, 64}, kHalf),
                           normal(3, {8, 8, 512, 64}, kHalf)};
          },
          [](const Tensors& in) { return Tensors{fm::scaled_dot_product_attention(in[0], in[1], in[2])}; }),
      linear_of_weights(1, 32),
      linear_of_weights(1, 8),
      linear_of_weights(1, 4),
  };
}

}  // namespace bench
