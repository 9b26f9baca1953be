// Quantized tensors against references in 64-bit integers and double, in both modes; errors as full text.
#include "fermata/quantized.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <random>

#include "fermata/fermata.h"
#include "frontend/layouts/quantized_tensor.h"
#include "runtime/stats.h"
#include "tests/error_message.h"

namespace fermata {
namespace {

using fermata::testing::message;

class Quantized : public ::testing::TestWithParam<Mode> {
 protected:
  ~Quantized() override { EXPECT_EQ((ones({2}) + 1).to_vector<int>(), (std::vector<int>{2, 2})); }
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Quantized, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

using Integers = std::vector<std::int64_t>;
using Floats = std::vector<float>;

Integers bytes_of(const Tensor& q) { return int_repr(q).to_vector<std::int64_t>(); }

/// The definition, on one number.
std::int64_t quantized_byte(float x, float scale, std::int64_t zero, DType dtype) {
  const double low = dtype == DType::qi8 ? -128 : 0;
  if (std::isnan(x)) return zero;
  const auto steps = static_cast<double>(std::nearbyint(x / scale)) + static_cast<double>(zero);
  return static_cast<std::int64_t>(std::clamp(steps, low, low + 255));
}

Tensor random_bytes(const Shape& shape, DType dtype, std::uint64_t seed) {
  Generator g(seed);
  return dtype == DType::qi8 ? randint(-128, 128, shape, DType::i8, g) : randint(0, 256, shape, DType::u8, g);
}

TEST_P(Quantized, RoundsHalfToEvenAndSaturates) {
  const Floats values{0.5f, 1.5f, 2.5f, -0.5f, -1.5f, 0.49f, 1e9f, -1e9f, INFINITY, -INFINITY, NAN, 63.4f, -64.2f, 0};
  for (const DType dtype : {DType::qi8, DType::qu8})
    for (const float scale : {1.0f, 0.5f, 0.3f})
      for (const std::int64_t zero : {std::int64_t{0}, std::int64_t{17}, std::int64_t{127}}) {
        Integers wanted;
        for (const float v : values) wanted.push_back(quantized_byte(v, scale, zero, dtype));
        const Tensor q = quantize(tensor(values), scale, zero, dtype);
        EXPECT_EQ(q.dtype(), dtype);
        EXPECT_EQ(bytes_of(q), wanted) << scale << " " << zero;
      }
  // Halves in f16 are divided in f32.
  EXPECT_EQ(bytes_of(quantize(tensor({0.5, 1.5, -2.5}, DType::f16), 1.0)), (Integers{0, 2, -2}));
  EXPECT_EQ(bytes_of(quantize(zeros({0, 3}), 1.0)), Integers());
}

TEST_P(Quantized, PerChannel) {
  Generator g(3);
  const Tensor x = normal({4, 3, 5}, 0, 20, DType::f32, g);
  const Floats scales{0.5f, 0.25f, 1.5f};
  const Integers zeros{0, -3, 100};
  const Tensor q = quantize(x, tensor(scales), tensor(zeros), DType::qi8, -2);
  const Floats values = x.to_vector<float>();
  const Integers bytes = bytes_of(q);
  const Floats back = dequantize(q).to_vector<float>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::size_t c = i / 5 % 3;
    EXPECT_EQ(bytes[i], quantized_byte(values[i], scales[c], zeros[c], DType::qi8)) << i;
    EXPECT_EQ(back[i], static_cast<float>(bytes[i] - zeros[c]) * scales[c]) << i;
  }
  EXPECT_EQ(quantization_of(q).axis, 1);
  EXPECT_EQ(quantization_of(q).scale.to_vector<float>(), scales);
  EXPECT_EQ(quantization_of(q).zero_point.to_vector<std::int64_t>(), zeros);
  const Tensor moved = permute(q, {2, 0, 1});
  EXPECT_EQ(quantization_of(moved).axis, 2);
  EXPECT_EQ(dequantize(moved).to_vector<float>(), permute(dequantize(q), {2, 0, 1}).to_vector<float>());
}

TEST_P(Quantized, FitsItsRange) {
  const Tensor x = tensor({-1.0, 0.5, 3.0});
  const Quantization how = fit_quantization(x, DType::qu8);
  EXPECT_FLOAT_EQ(how.scale.item<float>(), 4.0f / 255);
  EXPECT_EQ(how.zero_point.item<int>(), 64);  // 1 / scale is 63.75
  const Floats back = dequantize(quantize(x, how, DType::qu8)).to_vector<float>();
  for (std::size_t i = 0; i < back.size(); ++i) EXPECT_NEAR(back[i], x.to_vector<float>()[i], 4.0 / 255);
  const Quantization middle = fit_quantization(x, DType::qi8, {}, true);
  EXPECT_FLOAT_EQ(middle.scale.item<float>(), 3.0f / 127);
  EXPECT_EQ(middle.zero_point.item<int>(), 0);
  EXPECT_EQ(fit_quantization(zeros({3})).scale.item<float>(), 1);
  EXPECT_EQ(fit_quantization(tensor({{1., 2.}, {3., -8.}}), DType::qi8, 0, true).scale.to_vector<float>(),
            (Floats{2.0f / 127, 8.0f / 127}));
}

/// The f32 result of a product, by its definition: exact sums, one conversion, and the product of the scales.
Floats product_reference(const Tensor& a, const Tensor& b, std::int64_t m, std::int64_t n, std::int64_t k) {
  const Quantization ha = quantization_of(a), hb = quantization_of(b);
  const Integers ab = bytes_of(a), bb = bytes_of(b), za = ha.zero_point.to_vector<std::int64_t>(),
                 zb = hb.zero_point.to_vector<std::int64_t>();
  const Floats sa = ha.scale.to_vector<float>(), sb = hb.scale.to_vector<float>();
  Floats result;
  for (std::int64_t i = 0; i < m; ++i)
    for (std::int64_t j = 0; j < n; ++j) {
      const std::size_t channel = hb.axis ? static_cast<std::size_t>(j) : 0;
      std::int64_t total = 0;
      for (std::int64_t p = 0; p < k; ++p)
        total +=
            (ab[static_cast<std::size_t>(i * k + p)] - za[0]) * (bb[static_cast<std::size_t>(p * n + j)] - zb[channel]);
      result.push_back(static_cast<float>(total) * (sa[0] * sb[channel]));
    }
  return result;
}

TEST_P(Quantized, ProductsAreExactInIntegers) {
  std::mt19937_64 random(5);
  const auto below = [&](std::int64_t n) {
    return static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(n));
  };
  for (int round = 0; round < 24; ++round) {
    const std::int64_t m = round == 0 ? 1 : 1 + below(70), n = 1 + below(150), k = 1 + below(200);
    const DType left = round % 2 == 0 ? DType::qi8 : DType::qu8, right = round % 3 == 0 ? DType::qu8 : DType::qi8;
    const bool channels = round % 4 == 1, centered = round % 5 == 2 && right == DType::qi8;
    const auto seed = static_cast<std::uint64_t>(round);
    const Tensor a = quantized(random_bytes({m, k}, left, 2 * seed), 0.02, 5);
    const Tensor b_bytes = random_bytes({k, n}, right, 2 * seed + 1);
    Generator g(seed);
    const Tensor b =
        channels ? quantized(b_bytes, uniform({n}, 0.01, 0.1, DType::f32, g), randint(0, 9, {n}, DType::i32, g), 1)
                 : quantized(b_bytes, 0.03, centered ? 0 : 9);
    if (round % 2 == 0) b_bytes.sync();  // laid out once, or as a product of what is pending
    const Floats wanted = product_reference(a, b, m, n, k);
    EXPECT_EQ(matmul(a, b).to_vector<float>(), wanted) << round;
    EXPECT_EQ(matmul(a, b).to_vector<float>(), wanted) << round;
    EXPECT_EQ(linear(a, transpose(b)).to_vector<float>(), wanted) << round;
    const Tensor result = quantized_matmul(a, b, 3.5, 11, DType::qu8);
    Integers bytes;
    for (const float v : wanted) bytes.push_back(quantized_byte(v, 3.5f, 11, DType::qu8));
    EXPECT_EQ(bytes_of(result), bytes) << round;
  }
}

TEST_P(Quantized, Batches) {
  const Tensor a = quantized(random_bytes({3, 1, 5, 70}, DType::qu8, 1), 0.1, 7);
  const Tensor b = quantized(random_bytes({2, 70, 9}, DType::qi8, 2), 0.2, -4);
  const Tensor wanted = matmul(astype(int_repr(a), DType::f64) - 7, astype(int_repr(b), DType::f64) + 4);
  const Floats got = matmul(a, b).to_vector<float>();
  ASSERT_EQ(matmul(a, b).shape(), Shape({3, 2, 5, 9}));
  const std::vector<double> exact = wanted.to_vector<double>();
  for (std::size_t i = 0; i < exact.size(); ++i) EXPECT_EQ(got[i], static_cast<float>(exact[i]) * (0.1f * 0.2f));
  // Vectors are rows and columns, and one matrix serves a whole batch.
  const Tensor v = quantized(random_bytes({70}, DType::qi8, 3), 0.5),
               w = quantized(random_bytes({70, 4}, DType::qi8, 4), 0.5);
  EXPECT_EQ(matmul(v, v).shape(), Shape());
  EXPECT_EQ(matmul(a, w).shape(), Shape({3, 1, 5, 4}));
  EXPECT_EQ(matmul(v, w).to_vector<float>(), matmul(reshape(v, {1, 70}), w).to_vector<float>());
  EXPECT_EQ(linear(v, transpose(w)).to_vector<float>(), matmul(v, w).to_vector<float>());
}

TEST_P(Quantized, LinearAddsItsBias) {
  const Tensor x = quantized(random_bytes({6, 33}, DType::qi8, 1), 0.05, 3);
  const Tensor w = quantized(random_bytes({10, 33}, DType::qi8, 2), uniform({10}, 0.01, 0.2), 0, 0);
  const Tensor bias = normal({10}).sync();
  const Floats wanted = (linear(x, w) + bias).to_vector<float>();
  EXPECT_EQ(linear(x, w, bias).to_vector<float>(), wanted);
  Integers bytes;
  for (const float v : wanted) bytes.push_back(quantized_byte(v, 0.7f, -20, DType::qi8));
  EXPECT_EQ(bytes_of(quantized_linear(x, w, bias, 0.7, -20)), bytes);
}

TEST_P(Quantized, ReluAndAdd) {
  const Tensor a = quantized(random_bytes({200}, DType::qu8, 1), 0.1, 100),
               b = quantized(random_bytes({200}, DType::qi8, 2), 0.3, -7);
  EXPECT_EQ(relu(a).dtype(), DType::qu8);
  EXPECT_EQ(dequantize(relu(a)).to_vector<float>(), relu(dequantize(a)).to_vector<float>());
  const Tensor total = dequantize(a) + dequantize(b);
  EXPECT_EQ((a + b).to_vector<float>(), total.to_vector<float>());
  EXPECT_EQ(bytes_of(quantized_add(a, b, 0.35, 4)), bytes_of(quantize(total, 0.35, 4)));
}

TEST_P(Quantized, Views) {
  const Tensor q = quantized(random_bytes({4, 6}, DType::qi8, 1), 0.5, 3);
  const Tensor x = dequantize(q);
  EXPECT_EQ(dequantize(reshape(q, {3, -1})).to_vector<float>(), reshape(x, {3, -1}).to_vector<float>());
  EXPECT_EQ(dequantize(unfold(q, 0, 1, 1)).to_vector<float>(), unfold(x, 0, 1, 1).to_vector<float>());
  EXPECT_EQ(dequantize(transpose(q)).to_vector<float>(), transpose(x).to_vector<float>());
  EXPECT_EQ(dequantize(q[2]).to_vector<float>(), x[2].to_vector<float>());
  EXPECT_EQ(dequantize(q.slice(1, 1, kNone, 2)).to_vector<float>(), x.slice(1, 1, kNone, 2).to_vector<float>());
  EXPECT_EQ(dequantize(broadcast_to(q, {2, 4, 6})).to_vector<float>(), broadcast_to(x, {2, 4, 6}).to_vector<float>());
  EXPECT_EQ(dequantize(squeeze(expand_dims(q, 0))).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(q.astype(DType::f64).to_vector<double>(), x.to_vector<double>());
  EXPECT_EQ(copy(q).dtype(), DType::qi8);
  // The parts never change: a write through the bytes reaches the writer's own tensor only.
  const Tensor bytes = int_repr(q);
  bytes.assign(0);
  EXPECT_EQ(dequantize(q).to_vector<float>(), x.to_vector<float>());
}

TEST_P(Quantized, WeightsAreLaidOutOnce) {
  const Tensor w = quantized(random_bytes({130, 70}, DType::qi8, 2).sync(), 0.1);
  const Tensor x = quantized(random_bytes({3, 70}, DType::qi8, 1), 0.1);
  const QuantizedPayload* payload = quantized_payload(w);
  const Floats first = linear(x, w).to_vector<float>();
  ASSERT_TRUE(payload->packed[1].has_value());
  EXPECT_FALSE(payload->packed[0].has_value());
  const Node* blocks = payload->packed[1]->blocks.node();
  EXPECT_EQ(payload->packed[1]->blocks.shape(), Shape({3, 32, 64, 4}));
  EXPECT_EQ(linear(x, w).to_vector<float>(), first);
  EXPECT_EQ(payload->packed[1]->blocks.node(), blocks);
}

TEST_P(Quantized, InCompiledFunctions) {
  const Tensor w = quantized(random_bytes({20, 30}, DType::qi8, 2).sync(), 0.1);
  const auto layer = [&](const Tensor& x) { return linear(quantize(x, 0.05, 3), w); };
  auto compiled = compile(layer);
  for (std::uint64_t i = 0; i < 3; ++i) {
    Generator g(i);
    const Tensor x = normal({4, 30}, 0, 1, DType::f32, g);
    EXPECT_EQ(compiled(x).to_vector<float>(), layer(x).to_vector<float>()) << i;
  }
  // Bytes that are an argument are not frozen into the plan.
  auto of_bytes = compile([&](const Tensor& bytes) {
    return matmul(quantized(ones({2, 5}, DType::i8), 1.0), quantized(bytes, 1.0));
  });
  for (const int fill : {1, 2, 3})
    EXPECT_EQ(of_bytes(full({5, 1}, fill, DType::i8)).to_vector<float>(), Floats(2, static_cast<float>(5 * fill)));
  // A quantized argument or result makes no plan; the function is run.
  auto through = compile([](const Tensor& q) { return relu(q); });
  EXPECT_EQ(through(w).dtype(), DType::qi8);
  auto makes = compile([](const Tensor& x) { return quantize(x, 1.0); });
  EXPECT_EQ(bytes_of(makes(tensor({1.0, 2.0}))), (Integers{1, 2}));
  EXPECT_EQ(bytes_of(makes(tensor({3.0, 2.0}))), (Integers{3, 2}));
}

TEST_P(Quantized, Prints) {
  const Tensor q = quantize(tensor({{0.5, -1.0}, {2.0, 0.0}}), 0.5, 3);
  EXPECT_EQ(to_string(q), "tensor([[ 0.5, -1.0],\n        [ 2.0,  0.0]], qi8, scale=0.5, zero_point=3)");
  EXPECT_EQ(to_string(quantize(tensor({1.0, 2.0}), tensor({0.5, 0.25}), 0, DType::qi8, 0)),
            "tensor([1., 2.], qi8, scale=[0.5, 0.25], zero_point=[0, 0], axis=0)");
}

TEST_P(Quantized, ScalesCanBeLearned) {
  Tensor scale = tensor(0.5);
  scale.requires_grad(true);
  const Tensor bytes = tensor({1, 2, 5}, DType::i8);
  sum(dequantize(quantized(bytes, scale, 1))).backward();
  EXPECT_EQ(scale.grad().item<float>(), 0 + 1 + 4);
}

TEST_P(Quantized, MissingKernelsSaySo) {
  const Tensor q = quantized(ones({2, 3}, DType::i8), 0.5);
  EXPECT_EQ(message<UnsupportedError>([&] { exp(q); }),
            "FM2001 UnsupportedError: exp: no kernel for Quantized/CPU\n"
            "  x    qi8[2, 3]\n"
            "  at   HERE\n"
            "  hint dequantize() returns floats, which every op accepts");
  EXPECT_EQ(message<UnsupportedError>([&] { q + 1; }),
            "FM2001 UnsupportedError: add: no kernel for Quantized/CPU\n"
            "  x    qi8[2, 3]\n"
            "  at   HERE\n"
            "  hint dequantize() returns floats, which every op accepts");
  EXPECT_EQ(message<UnsupportedError>([&] {
              matmul(ones({4, 2}), q);
            }),
            "FM2001 UnsupportedError: matmul: no kernel for Quantized/CPU\n"
            "  lhs  f32[4, 2]\n"
            "  rhs  qi8[2, 3]\n"
            "  at   HERE\n"
            "  hint dequantize() returns floats, which every op accepts");
  EXPECT_EQ(message<UnsupportedError>([&] { softmax(q); }),
            "FM2001 UnsupportedError: softmax: no kernel for Quantized/CPU\n"
            "  x    qi8[2, 3]\n"
            "  at   HERE\n"
            "  hint dequantize() returns floats, which every op accepts");
  EXPECT_EQ(message<UnsupportedError>([&] { q.to_vector<float>(); }),
            "FM2005 UnsupportedError: to_vector: a quantized tensor has no elements to read\n"
            "  x    qi8[2, 3]\n"
            "  at   HERE\n"
            "  hint dequantize() returns its values, int_repr() its bytes");
}

TEST_P(Quantized, Channels) {
  const Tensor rows = quantized(ones({2, 3}, DType::i8), tensor({0.5, 1.0}), 0, 0);
  EXPECT_EQ(message<UnsupportedError>([&] { reshape(rows, {6}); }),
            "FM2020 UnsupportedError: reshape: the channels of the result would not be along one axis\n"
            "  x    qi8[2, 3]\n"
            "  at   HERE\n"
            "  hint dequantize() returns floats, which every op accepts");
  EXPECT_EQ(message<UnsupportedError>([&] {
              matmul(quantized(ones({4, 2}, DType::i8), 1.0), rows);
            }),
            "FM2020 UnsupportedError: matmul: channels are along a contracted or batch axis\n"
            "  lhs  qi8[4, 2]\n"
            "  rhs  qi8[2, 3]\n"
            "  at   HERE\n"
            "  hint dequantize() returns floats, which every op accepts");
}

TEST_P(Quantized, WrongArguments) {
  const Tensor x = ones({2, 3});
  EXPECT_EQ(message<ValueError>([&] { quantize(x, -1.0); }),
            "FM1350 ValueError: quantize: a scale must be positive and finite, not -1\n"
            "  x    f32[2, 3]\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { quantize(x, 1.0, 200); }),
            "FM1350 ValueError: quantize: a zero point of qi8 must be -128 to 127, not 200\n"
            "  x    f32[2, 3]\n"
            "  at   HERE");
  EXPECT_EQ(message<DTypeError>([&] { quantize(x, 1.0, 0, DType::i8); }),
            "FM1150 DTypeError: quantize: the result must be qi8 or qu8, not i8\n"
            "  x    f32[2, 3]\n"
            "  at   HERE");
  EXPECT_EQ(message<DTypeError>([&] { dequantize(x); }),
            "FM1151 DTypeError: dequantize: not a quantized tensor\n"
            "  x    f32[2, 3]\n"
            "  at   HERE\n"
            "  hint create one with quantize()");
  EXPECT_EQ(message<ShapeError>([&] { quantize(x, ones({2}), 0, DType::qi8, 1); }),
            "FM1050 ShapeError: quantize: the shape of scale does not match\n"
            "  x     f32[2, 3]\n"
            "  scale f32[2]   should be [3]\n"
            "  at    HERE");
  EXPECT_EQ(message<ShapeError>([&] { quantize(x, ones({3})); }),
            "FM1050 ShapeError: quantize: the shape of scale does not match\n"
            "  x     f32[2, 3]\n"
            "  scale f32[3]   should have no axes\n"
            "  at    HERE\n"
            "  hint  per-channel numbers need an axis");
  EXPECT_THROW(matmul(quantized(ones({2, 3}, DType::i8), 1.0), quantized(ones({4, 3}, DType::i8), 1.0)), ShapeError);
}

TEST_P(Quantized, GradientsStopWithAnError) {
  Tensor x = ones({2, 3});
  x.requires_grad(true);
  const Tensor q = quantize(x, 0.5);
  const Tensor w = quantized(ones({3, 2}, DType::i8), 1.0);
  const std::string text = "FM1716 GradientError: quantize: has no derivative with respect to operand 0\n";
  for (const Tensor& y : {dequantize(q), matmul(q, w), matmul(quantized_matmul(relu(q), w, 1.0), transpose(w))}) {
    const std::string got = message<GradientError>([&] { sum(y).backward(); });
    EXPECT_EQ(got.substr(0, text.size()), text);
  }
  EXPECT_FALSE(dequantize(quantize(x.detach(), 0.5)).requires_grad());
}

}  // namespace
}  // namespace fermata
