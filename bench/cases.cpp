// See cases.h.
#include "bench/cases.h"

#include <cmath>
#include <memory>
#include <utility>

#include "bench/kinds.h"
#include "bench/programs.h"

namespace bench {
namespace {

constexpr std::int64_t k16M = std::int64_t{1} << 24;

Tensor normal(std::uint64_t seed, const fm::Shape& sizes) {
  fm::Generator generator(seed);
  return fm::normal(sizes, 0, 1, fm::DType::f32, generator).sync();
}

/// A program without state, of inputs that are normal(0, 1) of seeds 1, 2, ...
Case plain(std::string name, std::vector<fm::Shape> sizes, Program program) {
  return {std::move(name),
          [sizes = std::move(sizes)] {
            Tensors inputs;
            for (const fm::Shape& s : sizes) inputs.push_back(normal(inputs.size() + 1, s));
            return inputs;
          },
          [program = std::move(program)] { return program; }};
}
Case unary(std::string name, const fm::Shape& sizes, Tensor (*program)(const Tensor&)) {
  return plain(std::move(name), {sizes}, [program](const Tensors& in) { return Tensors{program(in[0])}; });
}

/// 64K rows of 16 entries anywhere, times 64 columns.
Case sparse_product() {
  constexpr std::int64_t kRows = 1 << 16, kEntries = 16;
  return {"csr_matmul_64Kx16x64",
          [] {
            fm::Generator generator(1);
            const Tensor columns = fm::randint(0, kRows, {kRows * kEntries}, fm::DType::i64, generator);
            const Tensor matrix = fm::sparse_csr(fm::arange(kRows + 1) * kEntries, columns,
                                                 normal(2, {kRows * kEntries}), {kRows, kRows});
            return Tensors{matrix, normal(3, {kRows, 64})};
          },
          [] { return Program([](const Tensors& in) { return Tensors{fm::matmul(in[0], in[1])}; }); }};
}

/// Images with three channels at as many places as they have elements, anywhere.
Case sampled_images() {
  return {"grid_sample_8x3x256x256",
          [] {
            fm::Generator generator(2);
            return Tensors{normal(1, {8, 3, 256, 256}),
                           fm::uniform({8, 256, 256, 2}, -1, 1, fm::DType::f32, generator).sync()};
          },
          [] { return Program([](const Tensors& in) { return Tensors{fm::grid_sample(in[0], in[1])}; }); }};
}
/// 2048 sums of 32 rows of a table with 100000.
Case bags() {
  return {
      "embedding_bag_2048x32x64",
      [] {
        fm::Generator generator(1);
        return Tensors{fm::randint(0, 100000, {2048, 32}, fm::DType::i64, generator).sync(), normal(2, {100000, 64})};
      },
      [] {
        return Program(
            [](const Tensors& in) { return Tensors{fm::embedding_bag(in[0], in[1], {}, {.mode = fm::BagMode::sum})}; });
      }};
}

/// 512 rows of u8 times a weight of 4096 rows of i8, with a scale per row, requantized.
Case quantized_linear() {
  return {"quantized_linear_512x1024x4096",
          [] {
            const Tensor x = normal(1, {512, 1024}), w = normal(2, {4096, 1024});
            const Tensor qx = fm::quantize(x, 0.03, 128, fm::DType::qu8);
            const Tensor qw = fm::quantize(w, fm::fit_quantization(w, fm::DType::qi8, 0, true));
            fm::int_repr(qx).sync(), fm::int_repr(qw).sync();
            return Tensors{qx, qw};
          },
          [] {
            return Program([](const Tensors& in) {
              return Tensors{fm::int_repr(fm::quantized_linear(in[0], in[1], {}, 1.5, 3))};
            });
          }};
}

Case bf16_product() {
  return {"matmul_1024_bf16",
          [] {
            return Tensors{normal(1, {1024, 1024}).astype(fm::DType::bf16).sync(),
                           normal(2, {1024, 1024}).astype(fm::DType::bf16).sync()};
          },
          [] { return Program([](const Tensors& in) { return Tensors{fm::matmul(in[0], in[1])}; }); }};
}
/// u8 times i8, without zero points: sums in i32, as f32 numbers. The right side is laid out before.
Case byte_product() {
  return {"matmul_1024_int8",
          [] {
            fm::Generator generator(1);
            const Tensor lhs = fm::randint(0, 256, {1024, 1024}, fm::DType::u8, generator).sync(),
                         rhs = fm::randint(-128, 128, {1024, 1024}, fm::DType::i8, generator).sync();
            return Tensors{fm::quantized(lhs, 1, 0), fm::quantized(rhs, 1, 0)};
          },
          [] { return Program([](const Tensors& in) { return Tensors{fm::matmul(in[0], in[1])}; }); }};
}

/// Value, gradient and both means, updated in place.
Case adam() {
  return {"adam_16M",
          [] {
            return Tensors{normal(1, {k16M}), normal(2, {k16M}), fm::zeros(k16M).sync(), fm::zeros(k16M).sync()};
          },
          [] {
            return Program([adam = std::make_shared<Adam>()](const Tensors& in) {
              adam->value = in[0], adam->gradient = in[1], adam->mean = in[2], adam->square = in[3];
              return adam->step();
            });
          }};
}

std::vector<fm::Shape> small_matrices() { return std::vector<fm::Shape>(128, fm::Shape{32, 32}); }
Tensors small_products(const Tensors& in) {
  Tensors products;
  for (std::size_t i = 0; i < in.size(); i += 2) products.push_back(fm::matmul(in[i], in[i + 1]));
  return products;
}

/// The gradients of a fit through 200 steps of a simulation that is written out, call by call.
Tensors fit_through_steps(const Tensors& in) {
  Tensor w = in[0].detach(), b = in[1].detach(), x = in[2];
  w.requires_grad(true), b.requires_grad(true);
  for (int i = 0; i < 200; ++i) x = x + 0.01 * fm::tanh(x * w + b);
  const Tensor loss = fm::sum(fm::square(x - 2));
  Tensors results = fm::gradients(loss, {w, b});
  results.push_back(loss.detach());
  return results;
}

// The same formulas written out with elementwise ops and reductions.
Tensor softmax_by_hand(const Tensor& x) {
  const Tensor e = fm::exp(x - fm::max(x, -1, true));
  return e / fm::sum(e, -1, true);
}
Tensor layer_norm_by_hand(const Tensor& x) {
  const Tensor centered = x - fm::mean(x, -1, true);
  return centered / fm::sqrt(fm::mean(centered * centered, -1, true) + 1e-5);
}
/// No library has it: rows divided by the largest of their absolute values, softened.
Tensor peak_norm(const Tensor& x) {
  const Tensor peak = fm::max(fm::abs(x), -1, true);
  return x / (peak + fm::log(fm::sum(fm::exp(fm::abs(x) - peak), -1, true)));
}
/// What costs most is wanted by every pass over a row.
Tensor entropy_of_gelu(const Tensor& x) {
  const Tensor p = fm::softmax(fm::gelu(x), -1);
  return fm::sum(p * fm::log(p + 1e-6), -1);
}
Tensor biased_attention(const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& bias) {
  const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
  return fm::matmul(softmax_by_hand(fm::matmul(q, k.mT()) * scale + bias), v);
}

std::vector<Case> all() {
  const fm::Shape big{k16M}, rows{4096, 1024}, few{1024, 256}, heads{8, 8, 512, 64};
  return {
      unary("chain10_cheap_16M", big, &chain10_cheap),
      unary("chain10_math_16M", big, &chain10_math),
      unary("sum_chain10_16M", big, [](const Tensor& x) { return fm::sum(chain10_cheap(x)); }),
      unary("sumsq_16M", big, [](const Tensor& x) { return fm::sum(x * x); }),
      unary("softmax_4096x1024", rows, [](const Tensor& x) { return fm::softmax(x, -1); }),
      unary("softmax_by_hand_4096x1024", rows, &softmax_by_hand),
      unary("layer_norm_4096x1024", rows, [](const Tensor& x) { return fm::layer_norm(x); }),
      unary("layer_norm_by_hand_4096x1024", rows, &layer_norm_by_hand),
      unary("rms_norm_4096x1024", rows, [](const Tensor& x) { return fm::rms_norm(x); }),
      unary("peak_norm_4096x1024", rows, &peak_norm),
      unary("softmax_gelu_1024x256", few, [](const Tensor& x) { return fm::softmax(fm::gelu(x), -1); }),
      unary("layer_norm_gelu_1024x256", few, [](const Tensor& x) { return fm::layer_norm(fm::gelu(x)); }),
      unary("entropy_gelu_1024x256", few, &entropy_of_gelu),
      plain("matmul_1024", {{1024, 1024}, {1024, 1024}},
            [](const Tensors& in) { return Tensors{fm::matmul(in[0], in[1])}; }),
      bf16_product(),
      byte_product(),
      plain("matmul_32x64", small_matrices(), &small_products),
      plain("linear_64x1024x4096", {{64, 1024}, {4096, 1024}, {4096}},
            [](const Tensors& in) { return Tensors{fm::linear(in[0], in[1], in[2])}; }),
      plain("mlp_gelu_512x1024x4096", {{512, 1024}, {1024, 4096}, {4096}},
            [](const Tensors& in) { return Tensors{fm::gelu(fm::matmul(in[0], in[1]) + in[2])}; }),
      adam(),
      sparse_product(),
      quantized_linear(),
      sampled_images(),
      bags(),
      unary("dct_100x1000", {100, 1000}, [](const Tensor& x) { return fm::dct(x); }),
      unary("ldl_256", {256, 256}, [](const Tensor& x) { return fm::linalg::ldl(x).d; }),
      plain("attention_8x8x512x64", {heads, heads, heads},
            [](const Tensors& in) { return Tensors{attention(in[0], in[1], in[2])}; }),
      plain("attention_bias_8x8x512x64", {heads, heads, heads, {8, 512, 512}},
            [](const Tensors& in) { return Tensors{biased_attention(in[0], in[1], in[2], in[3])}; }),
      plain("conv_relu_16x64x56x56", {{16, 64, 56, 56}, {64, 64, 3, 3}, {64}},
            [](const Tensors& in) { return Tensors{fm::relu(fm::conv2d(in[0], in[1], in[2], 1, 1))}; }),
      plain("conv_relu_1x256x14x14", {{1, 256, 14, 14}, {256, 256, 3, 3}, {256}},
            [](const Tensors& in) { return Tensors{fm::relu(fm::conv2d(in[0], in[1], in[2], 1, 1))}; }),
      plain("fit_200_steps_64", {{64}, {64}, {64}}, &fit_through_steps),
      unary("max_pool_16x64x56x56", {16, 64, 56, 56}, [](const Tensor& x) { return fm::max_pool2d(x, 2); }),
  };
}

}  // namespace

const std::vector<Case>& cases() {
  static const std::vector<Case> table = [] {
    std::vector<Case> every = all();
    for (Case& c : kinds()) every.push_back(std::move(c));
    for (Case& c : loop_kinds()) every.push_back(std::move(c));
    for (Case& c : user_kinds()) every.push_back(std::move(c));
    return every;
  }();
  return table;
}

Tensors run(const Program& program, const Tensors& inputs) {
  Tensors results = program(inputs);
  fm::sync(results);
  return results;
}

}  // namespace bench
