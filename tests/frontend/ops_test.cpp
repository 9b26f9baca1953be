// Pointwise functions and operators: what they compute in both modes, how dtypes promote, and what a cast does.
#include <gtest/gtest.h>

#include <cmath>

#include "fermata/fermata.h"

namespace fermata {
namespace {

class Ops : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Ops, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

using Floats = std::vector<float>;
using Ints = std::vector<int>;

Floats floats(const Tensor& x) { return x.to_vector<float>(); }
Ints ints(const Tensor& x) { return x.to_vector<int>(); }

TEST_P(Ops, InfixOperatorsTakeTensorsAndNumbersOnEitherSide) {
  const Tensor x = tensor({1.0, 2.0, 4.0}), y = tensor({2.0, 2.0, 2.0});
  EXPECT_EQ(floats(x + y), (Floats{3, 4, 6}));
  EXPECT_EQ(floats(x - 1), (Floats{0, 1, 3}));
  EXPECT_EQ(floats(1 - x), (Floats{0, -1, -3}));
  EXPECT_EQ(floats(x * 2.5), (Floats{2.5, 5, 10}));
  EXPECT_EQ(floats(1 / x), (Floats{1, 0.5, 0.25}));
  EXPECT_EQ(floats(x / y), (Floats{0.5, 1, 2}));
  EXPECT_EQ(floats(-x), (Floats{-1, -2, -4}));
  EXPECT_EQ(floats(-x % 3), (Floats{2, 1, 2}));
  EXPECT_EQ(ints(x < y), (Ints{1, 0, 0}));
  EXPECT_EQ(ints(x <= 2), (Ints{1, 1, 0}));
  EXPECT_EQ(ints(2 > x), (Ints{1, 0, 0}));
  EXPECT_EQ(ints(x >= y), (Ints{0, 1, 1}));
  EXPECT_EQ(ints(x == y), (Ints{0, 1, 0}));
  EXPECT_EQ(ints(x != y), (Ints{1, 0, 1}));
  EXPECT_EQ(ints(!(x == y)), (Ints{1, 0, 1}));
}

TEST_P(Ops, BitwiseOperators) {
  const Tensor x = tensor({12, 10, -1}), y = tensor({10, 3, 1});
  EXPECT_EQ(ints(x & y), (Ints{8, 2, 1}));
  EXPECT_EQ(ints(x | y), (Ints{14, 11, -1}));
  EXPECT_EQ(ints(x ^ y), (Ints{6, 9, -2}));
  EXPECT_EQ(ints(~x), (Ints{-13, -11, 0}));
  EXPECT_EQ(ints(x << 1), (Ints{24, 20, -2}));
  EXPECT_EQ(ints(x >> 1), (Ints{6, 5, -1}));
  EXPECT_EQ((x & y).dtype(), DType::i64);
  const Tensor t = tensor({true, false});
  EXPECT_EQ(ints(~t), (Ints{0, 1}));
  EXPECT_EQ((t & t).dtype(), DType::boolean);
}

TEST_P(Ops, NumbersTakePartByKindOnly) {
  for (const DType t : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const Tensor x = ones({2}, t);
    EXPECT_EQ((x * 2).dtype(), t);
    EXPECT_EQ((x * 2.0).dtype(), t);
    EXPECT_EQ((true * x).dtype(), t);
  }
  EXPECT_EQ((ones({2}, DType::i8) + 1).dtype(), DType::i8);
  EXPECT_EQ((ones({2}, DType::i8) + 1.5).dtype(), DType::f32);
  EXPECT_EQ((ones({2}, DType::u8) * 3).dtype(), DType::u8);
  EXPECT_EQ((ones({2}, DType::i32) / 2).dtype(), DType::f32);
  EXPECT_EQ((ones({2}, DType::boolean) | true).dtype(), DType::boolean);
  EXPECT_EQ(exp(3).dtype(), DType::f32);
  EXPECT_EQ(add(2, 3).dtype(), DType::i64);
  EXPECT_EQ(add(2, 3).item<int>(), 5);
  EXPECT_FLOAT_EQ(exp(1).item<float>(), std::exp(1.0f));
}

TEST_P(Ops, DtypesPromote) {
  const auto both = [](DType a, DType b) { return (ones({2}, a) + ones({2}, b)).dtype(); };
  EXPECT_EQ(both(DType::u8, DType::i8), DType::i16);
  EXPECT_EQ(both(DType::u32, DType::i32), DType::i64);
  EXPECT_EQ(both(DType::i64, DType::f16), DType::f16);
  EXPECT_EQ(both(DType::f16, DType::bf16), DType::f32);
  EXPECT_EQ(both(DType::f32, DType::f64), DType::f64);
  // A tensor without axes counts by kind, as a number does.
  EXPECT_EQ((ones({2}, DType::f16) + ones({}, DType::f64)).dtype(), DType::f16);
  EXPECT_EQ((ones({2}, DType::i32) + ones({}, DType::f64)).dtype(), DType::f64);
}

TEST_P(Ops, OperandsBroadcast) {
  const Tensor row = tensor({1, 2, 3}), column = tensor({{10}, {20}});
  EXPECT_EQ((row + column).shape(), Shape({2, 3}));
  EXPECT_EQ(ints(row + column), (Ints{11, 12, 13, 21, 22, 23}));
  EXPECT_EQ((zeros({0, 3}) + row).shape(), Shape({0, 3}));
  EXPECT_EQ((ones({2, 1, 1, 1, 1, 3}) + ones({4, 1})).shape(), Shape({2, 1, 1, 1, 4, 3}));
}

TEST_P(Ops, WhereChoosesAndNeedsNoTensorToChooseFrom) {
  const Tensor c = tensor({true, false, true});
  EXPECT_EQ(ints(where(c, tensor({1, 2, 3}), 0)), (Ints{1, 0, 3}));
  EXPECT_EQ(floats(where(c, 1.5, 2)), (Floats{1.5, 2, 1.5}));
  EXPECT_EQ(where(c, 1.5, 2).dtype(), DType::f32);
  EXPECT_EQ(where(c, 1, 2).dtype(), DType::i64);
  EXPECT_EQ(ints(where(tensor({2, 0, -1}), 7, 8)), (Ints{7, 8, 7}));
}

TEST_P(Ops, PowersWithSpecialExponents) {
  const Tensor x = tensor({1.0, 2.0, 3.0});
  EXPECT_EQ(floats(pow(x, 2)), (Floats{1, 4, 9}));
  EXPECT_EQ(floats(pow(x, 3.0)), (Floats{1, 8, 27}));
  EXPECT_EQ(floats(pow(x * x, 0.5)), (Floats{1, 2, 3}));
  EXPECT_EQ(floats(pow(x, -1)), (Floats{1, 0.5f, 1 / 3.0f}));
  EXPECT_EQ(pow(tensor({1, 2}), 2).dtype(), DType::i64);
  EXPECT_EQ(ints(pow(tensor({-3, 2}), 3)), (Ints{-27, 8}));
  EXPECT_EQ(ints(pow(tensor({1, -1, 2, 0}), -3)), (Ints{1, -1, 0, 0}));
  for (int e = 0; e < 20; ++e) {  // by products, where the exponent is a small number
    const Tensor base = tensor({-3, 2, 0, 7});
    EXPECT_EQ(ints(pow(base, e)), ints(pow(base, full({4}, e)))) << e;
    EXPECT_EQ(ints(pow(astype(base, DType::i8), e)), ints(pow(astype(base, DType::i8), full({4}, e, DType::i8)))) << e;
  }
  EXPECT_EQ(pow(tensor({1, 2}), 0.5).dtype(), DType::f32);
  EXPECT_NEAR(pow(x, 2.5).to_vector<double>()[2], std::pow(3.0, 2.5), 1e-5);
}

TEST(OpsRecording, PowersBecomeOtherOps) {
  const Tensor x = ones({2});
  EXPECT_EQ(pow(x, 2).node()->op, Op::square);
  EXPECT_EQ(pow(x, 0.5).node()->op, Op::sqrt);
  EXPECT_EQ(pow(x, -1).node()->op, Op::reciprocal);
  EXPECT_EQ(pow(x, 3).node()->op, Op::multiply);
  EXPECT_EQ(pow(x, 4).node()->op, Op::pow);
  EXPECT_EQ(pow(x, ones({})).node()->op, Op::pow);
}

TEST_P(Ops, CastsRoundTowardsZeroAndSaturate) {
  const Tensor x = tensor({1.9f, -1.9f, 300.0f, -300.0f, std::nanf(""), INFINITY});
  EXPECT_EQ(ints(x.astype(DType::i8)), (Ints{1, -1, 127, -128, 0, 127}));
  EXPECT_EQ(ints(x.astype(DType::boolean)), (Ints{1, 1, 1, 1, 1, 1}));
  EXPECT_EQ(ints(tensor({300, -1}).astype(DType::u8)), (Ints{44, 255}));
  EXPECT_EQ(floats(tensor({1.0, 65504.0, 1e6}).astype(DType::f16)), (Floats{1, 65504, INFINITY}));
  EXPECT_EQ(astype(x, DType::f32).impl(), x.impl());
}

TEST_P(Ops, Clip) {
  EXPECT_EQ(floats(clip(tensor({-2.0, 0.5, 3.0}), -1, 1)), (Floats{-1, 0.5, 1}));
  EXPECT_EQ(ints(clip(tensor({-2, 0, 3}), tensor({0, 1, 2}), 2)), (Ints{0, 1, 2}));
  EXPECT_TRUE(std::isnan(clip(tensor({std::nanf("")}), -1, 1).item<float>()));
}

TEST_P(Ops, MatrixProducts) {
  const Tensor a = tensor({{1.0, 2.0}, {3.0, 4.0}}), v = tensor({1.0, -1.0});
  EXPECT_EQ(floats(matmul(a, a)), (Floats{7, 10, 15, 22}));
  EXPECT_EQ(floats(matmul(a, v)), (Floats{-1, -1}));
  EXPECT_EQ(floats(matmul(v, a)), (Floats{-2, -2}));
  EXPECT_EQ(matmul(v, v).item<float>(), 2);
  EXPECT_EQ(matmul(v, v).shape(), Shape({}));
  EXPECT_EQ(dot(v, v).item<float>(), 2);
  EXPECT_EQ(matmul(ones({5, 1, 2, 3}), ones({4, 3, 6})).shape(), Shape({5, 4, 2, 6}));
  EXPECT_EQ(matmul(ones({2, 3}, DType::f16), ones({3, 2}, DType::i32)).dtype(), DType::f16);
  EXPECT_EQ(floats(matmul(ones({2, 3, 2}), v)), (Floats{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(floats(matmul(ones({2, 0}), ones({0, 2}))), (Floats{0, 0, 0, 0}));
}

TEST_P(Ops, JoiningPromotesAndKeepsOrder) {
  const Tensor a = tensor({{1, 2}}), b = tensor({{3.5, 4.0}});
  EXPECT_EQ(floats(concat({a, b})), (Floats{1, 2, 3.5, 4}));
  EXPECT_EQ(concat({a, b}).dtype(), DType::f32);
  EXPECT_EQ(concat({a, b}, -1).shape(), Shape({1, 4}));
  EXPECT_EQ(floats(concat({a, b, a}, 1)), (Floats{1, 2, 3.5, 4, 1, 2}));
  EXPECT_EQ(stack({a, b}).shape(), Shape({2, 1, 2}));
  EXPECT_EQ(floats(stack({a, b}, -1)), (Floats{1, 3.5, 2, 4}));
  EXPECT_EQ(stack(std::vector<Tensor>{a, b}, 1).shape(), Shape({1, 2, 2}));
}

TEST_P(Ops, GatheringAndScattering) {
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(ints(take(x, tensor({2, 0, -1}), 1)), (Ints{3, 1, 3, 6, 4, 6}));
  EXPECT_EQ(take(x, tensor({{1, 0}, {0, 1}}), 0).shape(), Shape({2, 2, 3}));
  EXPECT_EQ(ints(take(x, tensor(1))), (Ints{4, 5, 6}));
  const Tensor added = index_add(zeros({3}), tensor({0, 2, 0}), tensor({1, 2, 4}));
  EXPECT_EQ(floats(added), (Floats{5, 0, 2}));
  EXPECT_EQ(added.dtype(), DType::f32);
}

TEST_P(Ops, Triangles) {
  const Tensor x = ones({2, 3}, DType::i32);
  EXPECT_EQ(ints(tril(x)), (Ints{1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(ints(triu(x, 1)), (Ints{0, 1, 1, 0, 0, 1}));
  EXPECT_EQ(tril(x).dtype(), DType::i32);
}

TEST_P(Ops, Reductions) {
  const Tensor x = tensor({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(sum(x).item<int>(), 21);
  EXPECT_EQ(sum(x).dtype(), DType::i64);
  EXPECT_EQ(sum(ones({3}, DType::u8)).dtype(), DType::u64);
  EXPECT_EQ(ints(sum(x, 0)), (Ints{5, 7, 9}));
  EXPECT_EQ(ints(sum(x, -1)), (Ints{6, 15}));
  EXPECT_EQ(sum(x, -1, true).shape(), Shape({2, 1}));
  EXPECT_EQ(sum(x, {0, -1}).shape(), Shape({}));
  EXPECT_EQ(sum(x, {}, true).shape(), Shape({1, 1}));
  EXPECT_EQ(prod(x).item<int>(), 720);
  EXPECT_EQ(ints(max(x, 1)), (Ints{3, 6}));
  EXPECT_EQ(ints(min(x, 0)), (Ints{1, 2, 3}));
  EXPECT_EQ(ints(all(x > 1, 1)), (Ints{0, 1}));
  EXPECT_EQ(any(x > 5).item<bool>(), true);
  EXPECT_EQ(ints(argmax(x, 1)), (Ints{2, 2}));
  EXPECT_EQ(argmin(x).item<int>(), 0);
  EXPECT_EQ(sum(zeros({0, 3})).item<float>(), 0);
  EXPECT_EQ(prod(zeros({0})).item<float>(), 1);
  EXPECT_EQ(floats(sum(zeros({0, 2}), 0)), (Floats{0, 0}));
  EXPECT_TRUE(std::isnan(max(tensor({1.0f, std::nanf(""), 2.0f})).item<float>()));
}

TEST_P(Ops, ReductionsOfOneColumn) {
  const Tensor x = reshape(tensor({1.0, 5.0, 2.0, 4.0, 3.0, 6.0}), {2, 3, 1, 1});
  for (const std::int64_t axis : {0, 1}) {
    const Tensor dense = reshape(x, {2, 3});
    Shape kept = x.shape(), dropped;
    kept[static_cast<unsigned>(axis)] = 1;
    for (unsigned i = 0; i < 4; ++i)
      if (i != static_cast<unsigned>(axis)) dropped.push_back(x.shape()[i]);
    EXPECT_EQ(sum(x, axis).shape(), dropped);
    EXPECT_EQ(floats(sum(x, axis)), floats(sum(dense, axis)));
    EXPECT_EQ(max(x, axis, true).shape(), kept);
    EXPECT_EQ(floats(max(x, axis, true)), floats(max(dense, axis)));
  }
  EXPECT_EQ(mean(x, {0, 1}).shape(), Shape({1, 1}));
  EXPECT_EQ(mean(x, {0, 1}).item<float>(), 3.5f);
  EXPECT_EQ(sum(x, {0, 2}).shape(), Shape({3, 1}));
  EXPECT_EQ(floats(sum(x, {0, 2})), (Floats{5, 8, 8}));
  EXPECT_EQ(floats(var(x, 1)), floats(var(reshape(x, {2, 3}), 1)));
  EXPECT_EQ(floats(sum(zeros({0, 1}), 0)), Floats{0});
  EXPECT_THROW(max(zeros({0, 1}), 0), Error);
}

TEST_P(Ops, EveryPointwiseOpOfTheTableRuns) {
  const Tensor x = full({3}, 0.5), integers = full({3}, 2, DType::i32), words = full({3}, 2, DType::u64);
#define FERMATA_UNARY(name, rule, formula, vjp, doc) \
  EXPECT_EQ(name(DTypeRule::rule == DTypeRule::bits ? integers : x).sync().shape(), Shape({3})) << #name;
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc)                                      \
  {                                                                                                 \
    const bool bits = DTypeRule::rule == DTypeRule::bits || DTypeRule::rule == DTypeRule::integers; \
    const Tensor& operand = DTypeRule::rule == DTypeRule::words ? words : bits ? integers : x;      \
    EXPECT_EQ(name(operand, operand).sync().shape(), Shape({3})) << #name;                          \
  }
#include "ir/ops.def"
}

}  // namespace
}  // namespace fermata
