// Autocast: the dtype that every policy gives, which casts are kept and for how long, gradients, and what a region does
// not reach.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <stdexcept>
#include <thread>

#include "codegen_cpu/library/matmul.h"
#include "dispatch/operator.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

class Autocast : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Autocast, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

Tensor matrix(std::int64_t rows, std::int64_t columns, std::uint64_t seed = 1) {
  return astype(random_f64({rows, columns}, 0.1, 1, true, seed), DType::f32);
}
std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }
double largest_difference(const Tensor& a, const Tensor& b) {
  const std::vector<double> x = values(a), y = values(b);
  double largest = 0;
  for (std::size_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(x[i] - y[i]));
  return largest;
}
std::size_t count(const std::string& text, const std::string& part) {
  std::size_t n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST_P(Autocast, ContractionsRunInTheNarrowDType) {
  const Tensor x = matrix(4, 8), w = matrix(3, 8, 2), b = astype(random_f64({3}, 0.1, 1, true, 3), DType::f32);
  const AutocastGuard region;
  EXPECT_EQ(matmul(x, w.mT()).dtype(), DType::bf16);
  EXPECT_EQ(linear(x, w, b).dtype(), DType::bf16);
  EXPECT_EQ(dot(x[0], x[1]).dtype(), DType::bf16);
  EXPECT_EQ(matmul(astype(x, DType::bf16), w.mT()).dtype(), DType::bf16);
  EXPECT_EQ(matmul(astype(x, DType::f16), w.mT()).dtype(), DType::bf16);
  const Tensor expected = matmul(astype(x, DType::bf16), astype(w, DType::bf16).mT());
  EXPECT_EQ(values(matmul(x, w.mT())), values(expected));
}

TEST_P(Autocast, FragileFunctionsRunInF32) {
  const Tensor x = astype(matrix(4, 8), DType::bf16);
  const AutocastGuard region;
  for (const auto function : {exp, exp2, expm1, log, log2, log10, log1p, reciprocal, rsqrt, erf, softplus})
    EXPECT_EQ(function(x).dtype(), DType::f32);
  for (const double exponent : {2.0, 3.0, 0.5, -1.0, 1.7}) EXPECT_EQ(pow(x, exponent).dtype(), DType::f32) << exponent;
  EXPECT_EQ(pow(2.0, x).dtype(), DType::f32);
  EXPECT_EQ(pow(x, x).dtype(), DType::f32);
  for (const Tensor& y : {sum(x), prod(x), cumulative_sum(x, 0), cumulative_prod(x, 0), mean(x), var(x), logsumexp(x),
                          softmax(x), log_softmax(x), layer_norm(x), rms_norm(x)})
    EXPECT_EQ(y.dtype(), DType::f32);
  EXPECT_EQ(cross_entropy(x, tensor({0, 1, 2, 3})).dtype(), DType::f32);
  EXPECT_EQ(values(exp(x)), values(exp(astype(x, DType::f32))));  // and not rounded on the way
}

TEST_P(Autocast, OtherFunctionsKeepTheirDType) {
  const Tensor wide = matrix(4, 8), narrow = astype(wide, DType::bf16);
  const AutocastGuard region;
  for (const auto function : {negative, abs, square, sqrt, sin, cos, tanh, sigmoid, gelu, silu, relu, floor}) {
    EXPECT_EQ(function(narrow).dtype(), DType::bf16);
    EXPECT_EQ(function(wide).dtype(), DType::f32);
  }
  EXPECT_EQ(max(narrow).dtype(), DType::bf16);
  EXPECT_EQ(argmax(narrow, 0).dtype(), DType::i64);
  EXPECT_EQ(reshape(narrow, {8, 4}).dtype(), DType::bf16);
  EXPECT_EQ(take(narrow, tensor({1, 0})).dtype(), DType::bf16);
  EXPECT_EQ(astype(narrow, DType::f16).dtype(), DType::f16);
}

TEST_P(Autocast, MixedOperandsAreWidened) {
  const Tensor wide = matrix(4, 8), narrow = astype(wide, DType::bf16), half = astype(wide, DType::f16);
  const AutocastGuard region;
  EXPECT_EQ((wide + narrow).dtype(), DType::f32);
  EXPECT_EQ((narrow * half).dtype(), DType::f32);
  EXPECT_EQ((narrow + narrow).dtype(), DType::bf16);
  EXPECT_EQ((narrow * 2.5).dtype(), DType::bf16);
  EXPECT_EQ(where(wide > 0, narrow, wide).dtype(), DType::f32);
  EXPECT_EQ(concat({narrow, wide}).dtype(), DType::f32);
  EXPECT_EQ(concat({narrow, narrow}).dtype(), DType::bf16);
}

TEST_P(Autocast, F64AndIntegersAreLeftAlone) {
  const Tensor d = random_f64({4, 4}, 0.1, 1, true, 5), i = astype(tensor({1, 2, 3, 4}), DType::i32).reshape({2, 2});
  const Tensor f = matrix(4, 4);
  const AutocastGuard region;
  EXPECT_EQ(matmul(d, d).dtype(), DType::f64);
  EXPECT_EQ(matmul(f, d).dtype(), DType::f64);
  EXPECT_EQ(values(matmul(f, d)), values(matmul(astype(f, DType::f64), d)));  // f was not rounded first
  EXPECT_EQ(linear(f, d).dtype(), DType::f64);
  EXPECT_EQ(exp(d).dtype(), DType::f64);
  EXPECT_EQ(softmax(d).dtype(), DType::f64);
  EXPECT_EQ(matmul(i, i).dtype(), DType::i32);
  EXPECT_THAT(values(matmul(i, i)), ElementsAre(7, 10, 15, 22));
  EXPECT_EQ(sum(i).dtype(), DType::i64);
  EXPECT_EQ(exp(i).dtype(), DType::f32);
  EXPECT_EQ(cached_cast(d, DType::bf16).dtype(), DType::f64);
  EXPECT_EQ(cached_cast(i, DType::bf16).dtype(), DType::i32);
}

struct Parts final : TensorPayload {
  std::string_view kind() const override { return "a tensor of parts"; }
  std::string_view hint() const override { return ""; }
};

TEST_P(Autocast, TensorsOfPartsAreLeftAlone) {
  const DispatchKeySet keys = DispatchKeySet(BackendKey::cpu) | Functionality::quantized;
  const Tensor x(TensorType{DType::f32, {2, 2}}, keys, std::make_unique<Parts>());
  const AutocastGuard region;
  EXPECT_EQ(cached_cast(x, DType::bf16).impl(), x.impl());
}

TEST_P(Autocast, RegionsNestAndEnd) {
  const Tensor x = matrix(4, 4);
  EXPECT_FALSE(autocast_enabled());
  {
    const AutocastGuard outer;
    EXPECT_EQ(matmul(x, x).dtype(), DType::bf16);
    {
      const AutocastGuard none(false);
      EXPECT_FALSE(autocast_enabled());
      EXPECT_EQ(matmul(x, x).dtype(), DType::f32);
      const AutocastGuard again(DType::f16);
      EXPECT_EQ(matmul(x, x).dtype(), DType::f16);
    }
    EXPECT_EQ(matmul(x, x).dtype(), DType::bf16);
    try {
      const AutocastGuard inner(DType::f16);
      EXPECT_EQ(autocast_dtype(), DType::f16);
      throw std::runtime_error("leaves the region");
    } catch (const std::runtime_error&) {}
    EXPECT_EQ(autocast_dtype(), DType::bf16);
    EXPECT_THROW(matmul(x, matrix(3, 3)), ShapeError);  // from below the key
    EXPECT_EQ(matmul(x, x).dtype(), DType::bf16);
  }
  EXPECT_FALSE(autocast_enabled());
  EXPECT_EQ(matmul(x, x).dtype(), DType::f32);
}

TEST_P(Autocast, NarrowDTypesOnly) {
  const int line = __LINE__ + 2;
  try {
    const AutocastGuard region(DType::f32);
    FAIL() << "no error";
  } catch (const DTypeError& error) {
    EXPECT_EQ(std::string(error.what()),
              "FM1140 DTypeError: autocast: f32 is not a narrow floating dtype\n  at   frontend/autocast_test.cpp:" +
                  std::to_string(line) + "\n  hint use f16 or bf16");
  }
  EXPECT_FALSE(autocast_enabled());
}

TEST_P(Autocast, AWeightUsedTwiceIsCastOnce) {
  const Tensor x = matrix(4, 8).sync(), w = matrix(8, 8, 2).sync().detach().requires_grad(true);
  const AutocastCounts before = autocast_counts();
  {
    const AutocastGuard region;
    const Tensor y = matmul(matmul(x, w), w);  // casts of x and w; the inner product is narrow already
    EXPECT_EQ(autocast_counts().casts - before.casts, 2u);
    EXPECT_EQ(autocast_counts().reused - before.reused, 1u);
    EXPECT_EQ(autocast_counts().kept, 1u);
    if (GetParam() == Mode::compiled) { EXPECT_EQ(count(dump_ir(y), "cast("), 2u); }
    linear(x, w);
    EXPECT_EQ(autocast_counts().reused - before.reused, 2u);
    { const AutocastGuard inner; }
    EXPECT_EQ(autocast_counts().kept, 1u);
  }
  EXPECT_EQ(autocast_counts().kept, 0u);
}

TEST_P(Autocast, OnlyLeavesThatWantAGradientAreKept) {
  const Tensor x = matrix(8, 8), w = matrix(8, 8, 2);
  const Tensor leaf = matrix(8, 8, 3).requires_grad(true), computed = leaf * 2;
  const AutocastGuard region;
  matmul(x, w);
  matmul(x, computed);
  matmul(x, leaf.mT());
  EXPECT_EQ(autocast_counts().kept, 0u);
  matmul(x, leaf);
  EXPECT_EQ(autocast_counts().kept, 1u);
}

TEST_P(Autocast, AKeptCastIsOfThePresentValue) {
  const Tensor x = matrix(2, 2);
  Tensor w = matrix(2, 2, 2).requires_grad(true);
  const AutocastGuard region;
  const std::vector<double> before = values(matmul(x, w));
  no_grad([&] { w *= 2; });
  const std::vector<double> after = values(matmul(x, w));
  for (std::size_t i = 0; i < before.size(); ++i) EXPECT_EQ(after[i], 2 * before[i]);
  float* address = w.data<float>();  // what is written there has no version
  matmul(x, w).sync();
  address = w.data<float>();
  for (int i = 0; i < 4; ++i) address[i] = 0;
  EXPECT_THAT(values(matmul(x, w)), Each(0));
}

TEST_P(Autocast, ACastWithoutHistoryIsNotUsedForOneWith) {
  const Tensor x = matrix(4, 4);
  Tensor w = matrix(4, 4, 2).requires_grad(true);
  const AutocastGuard region;
  EXPECT_FALSE(no_grad([&] { return matmul(x, w); }).requires_grad());
  const Tensor y = matmul(x, w);
  ASSERT_TRUE(y.requires_grad());
  EXPECT_FALSE(no_grad([&] { return matmul(x, w); }).requires_grad());
  w.requires_grad(false).requires_grad(true);  // another leaf, as far as the tape goes
  sum(matmul(x, w)).backward();
  EXPECT_TRUE(w.grad().defined());
}

Tensor mlp_loss(const Tensor& x, const Tensor& w1, const Tensor& b1, const Tensor& w2, const Tensor& labels) {
  return cross_entropy(linear(gelu(layer_norm(linear(x, w1, b1))), w2), labels);
}

TEST_P(Autocast, GradientsArriveInF32AndAreThoseOfF32WithinRounding) {
  const Tensor x = matrix(6, 8), labels = tensor({0, 1, 2, 0, 1, 2});
  std::vector<Tensor> weights{matrix(16, 8, 2), reshape(matrix(1, 16, 3), {16}), matrix(3, 16, 4)};
  for (Tensor& w : weights) w = copy(w).requires_grad(true);
  const auto loss = [&] { return mlp_loss(x, weights[0], weights[1], weights[2], labels); };
  const Tensor exact_loss = loss();
  const std::vector<Tensor> exact = gradients(exact_loss, weights);
  Tensor y;
  {
    const AutocastGuard region;
    y = loss();
  }
  EXPECT_EQ(y.dtype(), DType::f32);
  y.backward();
  EXPECT_NEAR(y.item<double>(), exact_loss.item<double>(), 0.02);
  for (std::size_t i = 0; i < weights.size(); ++i) {
    ASSERT_EQ(weights[i].grad().dtype(), DType::f32);
    const double scale = max(abs(exact[i])).item<double>(), error = largest_difference(weights[i].grad(), exact[i]);
    EXPECT_LT(error, 0.05 * scale) << i;
    EXPECT_GT(error, 0) << i;  // else nothing was narrow
  }
}

TEST(AutocastPolicies, NarrowProductsAreOfferedToTheLibrary) {
  if (!has_onednn()) GTEST_SKIP() << "built without oneDNN";
  const ModeGuard compiled(Mode::compiled);
  const Tensor x = matrix(64, 128).sync(), w = matrix(128, 128, 2).sync();
  const AutocastGuard region;
  EXPECT_THAT(explain(matmul(x, w)), HasSubstr("onednn (library"));  // which kernel wins depends on the processor
}

TEST_P(Autocast, ABackwardPassInsideARegionIsTheOneOutside) {
  const Tensor x = matrix(6, 8), w = matrix(8, 8, 2).requires_grad(true);
  const auto forward = [&] { return sum(square(tanh(matmul(exp(x), w)))); };
  Tensor y;
  {
    const AutocastGuard region;
    y = forward();
  }
  const std::vector<double> outside = values(gradients(y, {w})[0]);
  const AutocastGuard region;
  EXPECT_EQ(values(gradients(forward(), {w})[0]), outside);
}

TEST_P(Autocast, Threads) {
  const AutocastGuard region;
  const Tensor x = matrix(4, 4).sync();
  DType other = DType::boolean, own = DType::boolean;
  std::thread([&] {
    other = matmul(x, x).dtype();
    const AutocastGuard inside(DType::f16);
    own = matmul(x, x).dtype();
  }).join();
  EXPECT_EQ(other, DType::f32);
  EXPECT_EQ(own, DType::f16);
  EXPECT_EQ(matmul(x, x).dtype(), DType::bf16);
}

TEST_P(Autocast, CompiledFunctionsAreCapturedPerRegion) {
  const Tensor x = matrix(4, 4), w = matrix(4, 4, 2).requires_grad(true);
  auto f = compile([&](const Tensor& t) { return matmul(matmul(t, w.detach()), w.detach()); });
  EXPECT_EQ(f(x).dtype(), DType::f32);
  const Tensor wide = f(x);
  const AutocastGuard region;
  EXPECT_EQ(f(x).dtype(), DType::bf16);
  EXPECT_EQ(values(f(x)), values(matmul(matmul(x, w), w)));
  {
    const AutocastGuard none(false);
    EXPECT_EQ(values(f(x)), values(wide));
  }
  const AutocastGuard half(DType::f16);
  EXPECT_EQ(f(x).dtype(), DType::f16);
  EXPECT_EQ(f.captures(), GetParam() == Mode::compiled ? 3u : 0u);
}

TEST_P(Autocast, KeptCastsDoNotCrossACapture) {
  const Tensor x = matrix(4, 4);
  Tensor w = matrix(4, 4, 2).requires_grad(true);
  auto step = compile([&](const Tensor& t) {
    const Tensor g = gradients(sum(square(matmul(t, w))), {w})[0];
    no_grad([&] { w -= 0.1 * g; });
    return g;
  });
  Tensor reference = copy(w.detach()).requires_grad(true);
  const AutocastGuard region;
  matmul(x, w);  // keeps a cast, which is no part of the function
  for (int i = 0; i < 3; ++i) {
    const Tensor g = step(x);
    EXPECT_EQ(g.dtype(), DType::f32);
    const Tensor expected = gradients(sum(square(matmul(x, reference))), {reference})[0];
    no_grad([&] { reference -= 0.1 * expected; });
    EXPECT_EQ(values(g), values(expected)) << i;
    EXPECT_EQ(values(w), values(reference)) << i;
    EXPECT_EQ(values(matmul(x, w)), values(matmul(x, reference))) << i;
  }
}

TEST(AutocastPolicies, OpsThatAreNotCastSkipTheKey) {
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    const AutocastPolicy policy = autocast_policy(op);
    const bool casts = policy == AutocastPolicy::lower || policy == AutocastPolicy::f32;
    const auto& alive = operator_entry(op).not_fallthrough[DispatchKeySet(BackendKey::cpu).column()];
    EXPECT_EQ(DispatchKeySet(alive.load()).has(Functionality::autocast), casts) << name(op);
  }
  EXPECT_EQ(autocast_policy(Op::matmul), AutocastPolicy::lower);
  EXPECT_EQ(autocast_policy(Op::softmax), AutocastPolicy::f32);
  EXPECT_EQ(autocast_policy(Op::add), AutocastPolicy::widest);
  EXPECT_EQ(autocast_policy(Op::tanh), AutocastPolicy::untouched);
}

}  // namespace
}  // namespace fermata
