// Complex numbers: every op of the table that takes them against the reference, in both modes and any layout;
// derivatives against finite differences; vmap against a loop; printing, files and errors.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdio>
#include <set>

#include "dispatch/operator.h"
#include "frontend/transforms/autograd/autograd_rules.h"
#include "tests/error_message.h"
#include "tests/frontend/reference_call.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;
using namespace std::complex_literals;

class ComplexNumbers : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, ComplexNumbers, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

const std::source_location kHere = std::source_location::current();
constexpr DType kComplexTypes[] = {DType::c64, DType::c128};

std::vector<Op> complex_ops(Family wanted) {
  std::vector<Op> ops;
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    const auto rule = apply_rule(info(op).rule, DType::c64);
    if (family(op) == wanted && rule && (rule->operand == DType::c64 || family(op) == Family::reduce))
      ops.push_back(op);
  }
  return ops;
}
Tensor call(Op op, const std::vector<Tensor>& in) {
  const OperatorEntry& entry = operator_entry(op);
  switch (in.size()) {
    case 1: return Dispatcher<UnaryCall>::call(entry, kHere, in[0]);
    case 2: return Dispatcher<BinaryCall>::call(entry, kHere, in[0], in[1]);
    default: return Dispatcher<TernaryCall>::call(entry, kHere, in[0], in[1], in[2]);
  }
}
Tensor reduce(Op op, const Tensor& x, std::int64_t mask, bool keepdims) {
  const std::int64_t integers[] = {mask, keepdims};
  return Dispatcher<GeneralCall>::call(operator_entry(op), kHere, {&x, 1},
                                       {.wanted = {}, .integers = integers, .scalars = {}});
}

/// The same numbers in layouts that a kernel may meet: dense, transposed, backwards, stretched.
std::vector<Tensor> layouts(const Tensor& x) {
  return {x, transpose(copy(transpose(x))), flip(copy(flip(x))), slice(copy(concat({x, x}, 1)), 1, 0, x.size(1))};
}

TEST_P(ComplexNumbers, EveryUnaryOp) {
  int checked = 0;
  for (const Op op : complex_ops(Family::unary))
    for (const DType t : kComplexTypes)
      for (const Shape& shape : {Shape{3, 4}, Shape{0, 2}})
        for (const Tensor& x : layouts(random_complex(shape, t, 1))) {
          SCOPED_TRACE(std::string(name(op)) + " " + to_string(t, shape));
          const TensorType type{apply_rule(info(op).rule, t)->result, shape};
          const Tensor y = call(op, {x});
          ASSERT_EQ(to_string(y.dtype(), y.shape()), to_string(type.dtype, type.shape));
          expect_near(y, reference(op, {x}, type), rounding(t));
          ++checked;
        }
  EXPECT_GE(checked, 200);
}

/// Parts that overflow, underflow, cancel or are NaN, compared with the C library: many at once, so that vectors are
/// filled.
TEST_P(ComplexNumbers, SpecialPartsAreThoseOfTheLibrary) {
  using Z = std::complex<float>;
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kNan = std::numeric_limits<float>::quiet_NaN();
  const float parts[] = {0,     -0.0f,   1,     -1,   0.5f, -2.75f, 1e-40f,    1e-30f,     3e38f, 79.5f,
                         81.0f, -100.0f, 89.0f, 0.6f, 0.8f, 1e6f,   kInfinity, -kInfinity, kNan};
  std::vector<Z> all, left, right;
  for (const float a : parts)
    for (const float b : parts) all.emplace_back(a, b);
  for (const Z a : all)
    for (const Z b : all) left.push_back(a), right.push_back(b);
  const auto expect_same = [](const Tensor& got, auto&& wanted) {
    const std::vector<Z> have = got.to_vector<Z>();
    for (std::size_t i = 0; i < have.size(); ++i) {
      const Z want = wanted(i);
      const float size = std::isfinite(std::abs(want)) ? std::abs(want) : 0;
      for (const auto& [h, w] : {std::pair(have[i].real(), want.real()), {have[i].imag(), want.imag()}}) {
        if (std::isnan(w))
          ASSERT_TRUE(std::isnan(h)) << i;
        else if (std::isinf(w) || w == 0)
          ASSERT_TRUE(h == w || std::fabs(h) <= 4e-7f * size) << i << ": " << h << " is not " << w;
        else
          ASSERT_NEAR(h, w, 4e-7f * (std::fabs(w) + size) + 1e-44f) << i;
      }
    }
  };
  const auto product = [](Z x, Z y) {  // as in the textbook, infinite parts too
    return Z(x.real() * y.real() - x.imag() * y.imag(), x.real() * y.imag() + x.imag() * y.real());
  };
  const Tensor z = tensor(all), a = tensor(left), b = tensor(right);
  expect_same(exp(z), [&](std::size_t i) { return std::exp(all[i]); });
  expect_same(log(z), [&](std::size_t i) { return std::log(all[i]); });
  expect_same(angle(z), [&](std::size_t i) { return Z(std::arg(all[i])); });
  expect_same(abs(z), [&](std::size_t i) { return Z(std::abs(all[i])); });
  expect_same(a * b, [&](std::size_t i) { return product(left[i], right[i]); });
  expect_same(a / b, [&](std::size_t i) { return left[i] / right[i]; });
  // Layouts: one number beside many, a row beside many, and backwards.
  const Tensor rows = z.reshape(19, 19), row = slice(rows, 0, 3, 4);
  expect_same((rows * row).reshape({-1}), [&](std::size_t i) { return product(all[i], all[57 + i % 19]); });
  expect_same(z / slice(z, 0, 45, 46), [&](std::size_t i) { return all[i] / all[45]; });
  expect_same(flip(z) * z, [&](std::size_t i) { return product(all[all.size() - 1 - i], all[i]); });
  expect_same(transpose(rows).reshape({-1}) / z, [&](std::size_t i) { return all[i % 19 * 19 + i / 19] / all[i]; });
}

/// The logarithm of what is near the unit circle, where the square of the size cancels.
TEST_P(ComplexNumbers, LogarithmsNearTheUnitCircle) {
  std::vector<std::complex<float>> all;
  for (int i = 0; i < 3000; ++i) {
    const double angle = i * 0.37, size = 1 + std::ldexp(i % 2 == 0 ? 1.0 : -1.0, -(i % 26));
    all.emplace_back(static_cast<float>(size * std::cos(angle)), static_cast<float>(size * std::sin(angle)));
  }
  const auto have = log(tensor(all)).to_vector<std::complex<float>>();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const std::complex<double> wanted = std::log(std::complex<double>(all[i]));
    ASSERT_NEAR(have[i].real(), wanted.real(), 1e-7 * std::fabs(wanted.real()) + 1e-44) << all[i];
    ASSERT_NEAR(have[i].imag(), wanted.imag(), 4e-7 * std::fabs(wanted.imag())) << all[i];
  }
}

TEST_P(ComplexNumbers, LongSums) {
  for (const DType t : kComplexTypes)
    for (const std::int64_t size : {1, 63, 64, 65, 2048, 2049, 70'001}) {
      const Tensor x = random_complex({size, 2}, t, 5), lines = copy(transpose(x));
      expect_near(sum(lines, 1), reference(Op::sum, {lines}, {t, {2}}, {2, 0}), rounding(t));
      expect_near(sum(x, 0), reference(Op::sum, {x}, {t, {2}}, {1, 0}), rounding(t));
    }
}

TEST_P(ComplexNumbers, EveryBinaryOp) {
  for (const Op op : complex_ops(Family::binary))
    for (const DType t : kComplexTypes)
      for (const auto& [a, b] :
           {std::pair<Shape, Shape>{{3, 4}, {3, 4}}, {{3, 1}, {4}}, {{}, {2, 2}}, {{0, 3}, {3}}, {{}, {}}}) {
        SCOPED_TRACE(std::string(name(op)) + " " + to_string(t, a) + " " + to_string(b));
        const Tensor x = random_complex(a, t, 1), y = random_complex(b, t, 2);
        const TensorType type{apply_rule(info(op).rule, t)->result, *broadcast_shapes(a, b)};
        const Tensor z = call(op, {x, y});
        ASSERT_EQ(to_string(z.dtype(), z.shape()), to_string(type.dtype, type.shape));
        expect_near(z, reference(op, {x, y}, type), rounding(t));
        expect_near(call(op, {x, x}), reference(op, {x, x}, {type.dtype, a}), rounding(t));
      }
}

TEST_P(ComplexNumbers, NumbersAndRealOperandsBesideThem) {
  for (const DType t : kComplexTypes) {
    const Tensor z = random_complex({2, 3}, t, 3);
    expect_near(z * 2.5, elements(z * full({}, 2.5, t)), 0);
    expect_near(2 - z, elements(full({}, 2, t) - z), 0);
    expect_near(z / 3, elements(z / full({}, 3, t)), 0);
    EXPECT_EQ((z * 2.5).dtype(), t);
    expect_near(where(tensor({true, false, true}), z, 1.5),
                elements(where(tensor({true, false, true}), z, full({}, 1.5, t))), 0);
    expect_near(where(tensor({true, false, true}), 1.5, z),
                elements(where(tensor({true, false, true}), full({}, 1.5, t), z)), 0);
    const Tensor r = random_f64({3}, 0.5, 2, true, 4);
    EXPECT_EQ((z + r.astype(DType::f32)).dtype(), t);
    EXPECT_EQ((z + r).dtype(), DType::c128);
    EXPECT_EQ((z + tensor({1, 2, 3})).dtype(), t);
    EXPECT_EQ((z * tensor(2i)).dtype(), t);  // 0-d tensors do not widen
    expect_near(z + r, elements(z.astype(DType::c128) + r.astype(DType::c128)), 0);
  }
  const Tensor powers = pow(tensor({1.0 + 1i, -2.0 + 0.5i}), 2);
  expect_near(powers, {2i, 3.75 - 2i}, 1e-6);
  expect_near(pow(tensor({0.0 + 0i, 0.0 + 0i, 2.0 + 0i}), tensor({0.0 + 0i, 1.0 + 1i, 0.5 + 0i})),
              {1, 0, std::sqrt(2.0)}, 1e-6);
}

TEST_P(ComplexNumbers, EveryReduction) {
  for (const Op op : complex_ops(Family::reduce))
    for (const DType t : kComplexTypes)
      for (const Shape& shape : {Shape{3, 4}, Shape{70, 90}, Shape{0, 3}})
        for (const std::int64_t mask : {0, 1, 2, 3})
          for (const bool keepdims : {false, true}) {
            SCOPED_TRACE(std::string(name(op)) + " " + to_string(t, shape) + " over " + std::to_string(mask));
            const Tensor x = op == Op::prod ? sign(random_complex(shape, t, 5)) : random_complex(shape, t, 5);
            const Tensor y = reduce(op, x, mask, keepdims);
            expect_near(y, reference(op, {x}, {y.dtype(), y.shape()}, {mask, keepdims}), 4 * rounding(t));
            expect_near(reduce(op, transpose(x), mask, keepdims),
                        reference(op, {copy(transpose(x))},
                                  {y.dtype(), reduce(op, transpose(x), mask, keepdims).shape()}, {mask, keepdims}),
                        4 * rounding(t));
          }
  const Tensor x = random_complex({4, 5}, DType::c128, 6);
  expect_near(mean(x, 1), elements(sum(x, 1) / 5), 1e-15);
  expect_near(var(x), elements(mean(square(abs(x - mean(x))))), 1e-15);
  EXPECT_EQ(var(x).dtype(), DType::f64);
  EXPECT_EQ(mean(x.astype(DType::c64)).dtype(), DType::c64);
}

TEST_P(ComplexNumbers, Products) {
  for (const DType t : kComplexTypes)
    for (const auto& [a, b] : {std::pair<Shape, Shape>{{2, 3}, {3, 4}},
                               {{5, 2, 3}, {3, 4}},
                               {{2, 1, 2, 3}, {4, 3, 2}},
                               {{70, 65}, {65, 66}},
                               {{2, 0}, {0, 3}},
                               {{0, 2}, {2, 3}}}) {
      SCOPED_TRACE(to_string(t, a));
      const Tensor x = random_complex(a, t, 7), y = random_complex(b, t, 8), z = matmul(x, y);
      expect_near(z, reference(Op::matmul, {x, y}, {t, z.shape()}), rounding(t));
      expect_near(matmul(transpose(copy(transpose(x))), flip(copy(flip(y)))), elements(z), rounding(t));
    }
  expect_near(matmul(tensor({1i, 2.0 + 0i}), tensor({1.0 + 0i, 1i})), {3i}, 1e-6);
}

TEST_P(ComplexNumbers, WhatMovesElements) {
  for (const DType t : kComplexTypes) {
    const Tensor x = random_complex({3, 4}, t, 9);
    const auto at = elements(x);
    expect_near(x[1], {at[4], at[5], at[6], at[7]}, 0);
    expect_near(take(x, tensor({2, 0}), 1)[0], {at[2], at[0]}, 0);
    expect_near(concat({x, x})[3], {at[0], at[1], at[2], at[3]}, 0);
    expect_near(reshape(transpose(x), {12}), elements(copy(transpose(x))), 0);
    expect_near(index_add(zeros({2}, t), tensor({1, 1}), slice(x[0], 0, 0, 2)), {0, at[0] + at[1]}, 1e-7);
    Tensor written = copy(x);
    written[0].assign(full({}, 2, t));
    written[1] *= 2;
    expect_near(written, {2, 2, 2, 2, 2. * at[4], 2. * at[5], 2. * at[6], 2. * at[7], at[8], at[9], at[10], at[11]},
                1e-7);
    expect_near(zeros({2}, t), {0, 0}, 0), expect_near(full({1}, 1.5, t), {1.5}, 0);
    expect_near(eye(2, {}, t), {1, 0, 0, 1}, 0);
    expect_near(tril(slice(x, 1, 0, 3)), {at[0], 0, 0, at[4], at[5], 0, at[8], at[9], at[10]}, 0);
    EXPECT_EQ(x[0][0].item<Complex>(), at[0]);
    EXPECT_EQ(elements(x.astype(DType::c128).astype(t)), at);
    EXPECT_EQ(x.astype(DType::boolean).to_vector<int>(), std::vector<int>(12, 1));
    EXPECT_EQ(logical_not(zeros({2}, t)).to_vector<int>(), (std::vector<int>{1, 1}));
  }
  for (const DType from : {DType::boolean, DType::u8, DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64})
    expect_near(tensor({0, 1, 1}).astype(from).astype(DType::c64), {0, 1, 1}, 0);
}

TEST_P(ComplexNumbers, ScansScattersAndWindows) {
  for (const DType t : kComplexTypes)
    for (const Tensor& x : layouts(random_complex({3, 4}, t, 60)))
      for (std::int64_t axis = 0; axis < 2; ++axis) {
        SCOPED_TRACE(to_string(t, x.shape()) + " axis " + std::to_string(axis));
        const TensorType type{t, x.shape()};
        expect_near(cumulative_sum(x, axis), reference(Op::cumulative_sum, {x}, type, {axis}), rounding(t));
        expect_near(cumulative_prod(x, axis), reference(Op::cumulative_prod, {x}, type, {axis}), rounding(t));
        const Tensor index = remainder(reshape(arange(x.element_count()), x.shape()), 2), source = flip(copy(x));
        expect_near(take_along_axis(x, index, axis), reference(Op::gather, {x, index}, type, {axis}), 0);
        expect_near(scatter(x, index, source, axis), reference(Op::scatter, {x, index, source}, type, {axis}), 0);
        expect_near(scatter_add(x, index, source, axis), reference(Op::scatter_add, {x, index, source}, type, {axis}),
                    rounding(t));
        expect_near(scatter_reduce(x, index, source, axis, ScatterReduction::prod),
                    reference(Op::scatter_multiply, {x, index, source}, type, {axis}), rounding(t));
        const Tensor windows = unfold(x, axis, 2, 1);
        const Shape& shape = windows.shape();
        expect_near(windows, reference(Op::unfold, {x}, {t, shape}, {axis, 2, 1, 1}), 0);
      }
  expect_near(cumulative_sum(random_complex({3000}, DType::c64, 61)),
              elements(cumulative_sum(random_complex({3000}, DType::c64, 61).astype(DType::c128))), 1e-5);
  expect_near(cumulative_sum(tensor({1i, 2.0 + 0i}), 0, true), {0, 1i, 2.0 + 1i}, 0);
  expect_near(cumulative_prod(tensor({1i, 2.0 + 0i}), 0, true), {1, 1i, 2i}, 0);
}

TEST_P(ComplexNumbers, SpecialValues) {
  const double inf = HUGE_VAL;
  const Tensor z = tensor({Complex(inf, 1), Complex(NAN, 0), Complex(0, -inf), Complex(1, 1)}, DType::c128);
  EXPECT_EQ(isnan(z).to_vector<int>(), (std::vector<int>{0, 1, 0, 0}));
  EXPECT_EQ(isinf(z).to_vector<int>(), (std::vector<int>{1, 0, 1, 0}));
  EXPECT_EQ(isfinite(z).to_vector<int>(), (std::vector<int>{0, 0, 0, 1}));
  EXPECT_EQ((z == z).to_vector<int>(), (std::vector<int>{1, 0, 1, 1}));
  // C99, Annex G: what the Python array API asks for.
  expect_near(exp(tensor({Complex(-inf, 3)}, DType::c128)), {0}, 0);
  expect_near(sqrt(tensor({Complex(-4, 0.0), Complex(-4, -0.0)}, DType::c128)), {2i, -2i}, 1e-15);
  expect_near(log(tensor({Complex(-1, 0.0), Complex(-1, -0.0)}, DType::c128)), {Complex(0, M_PI), Complex(0, -M_PI)},
              1e-15);
  expect_near(angle(tensor({Complex(-1, -0.0), 1i}, DType::c128)), {-M_PI, M_PI / 2}, 1e-15);
  expect_near(sign(tensor({Complex(0, 0), 3.0 + 4i}, DType::c128)), {0, 0.6 + 0.8i}, 1e-15);
  // Near zero, where the plain formulas lose everything.
  expect_near(expm1(tensor({Complex(1e-9, 2e-9)}, DType::c128)), {Complex(1e-9, 2e-9)}, 3e-9);
  expect_near(log1p(tensor({Complex(1e-9, 2e-9)}, DType::c128)), {Complex(1e-9, 2e-9)}, 3e-9);
}

TEST_P(ComplexNumbers, PartsOfRealNumbers) {
  const Tensor x = tensor({-1.5f, 0.0f, 2.0f});
  EXPECT_EQ(real(x).to_vector<double>(), (std::vector<double>{-1.5, 0, 2}));
  EXPECT_EQ(imag(x).to_vector<double>(), (std::vector<double>{0, 0, 0}));
  EXPECT_EQ(conj(tensor({1, 2})).dtype(), DType::i64);
  EXPECT_FLOAT_EQ(angle(x).to_vector<float>()[0], 3.14159265f);
  const Tensor z = complex(x, tensor({{1.0}, {2.0}}, DType::f64));
  EXPECT_EQ(to_string(z.dtype(), z.shape()), "c128[2, 3]");
  EXPECT_EQ(complex(1, 2).item<Complex>(), Complex(1, 2));
  EXPECT_EQ(complex(tensor({1, 2}), 0.5).dtype(), DType::c64);
}

/// Every op, of both orders, as a function of the real and imaginary parts.
TEST_P(ComplexNumbers, EveryDerivative) {
  int checked = 0;
  for (const Op op : complex_ops(Family::unary)) {
    if (!is_inexact(apply_rule(info(op).rule, DType::c128)->result) || op == Op::round) continue;
    check_both_orders(std::string(name(op)), of_parts([&](const std::vector<Tensor>& z) { return call(op, {z[0]}); }),
                      parts_of({random_complex({3}, DType::c128, 11)}));
    ++checked;
  }
  EXPECT_GE(checked, 20);
  for (const Op op : {Op::add, Op::subtract, Op::multiply, Op::divide, Op::pow})
    check_both_orders(std::string(name(op)), of_parts([&](const std::vector<Tensor>& z) {
                        return call(op, {z[0], z[1]});
                      }),
                      parts_of({random_complex({2, 2}, DType::c128, 12), random_complex({2}, DType::c128, 13)}));
  const auto check = [](const char* what, const std::function<Tensor(const Tensor&)>& f) {
    check_both_orders(what, of_parts([&](const std::vector<Tensor>& z) { return f(z[0]); }),
                      parts_of({random_complex({2, 3}, DType::c128, 14)}));
  };
  check("sum", [](const Tensor& z) { return sum(square(z), 1); });
  check("prod", [](const Tensor& z) { return prod(z, 1); });
  check("mean", [](const Tensor& z) { return mean(square(z)); });
  check("where", [](const Tensor& z) { return where(tensor({true, false, true}), square(z), z); });
  check("matmul", [](const Tensor& z) { return matmul(z, transpose(square(z))); });
  check("power of a number", [](const Tensor& z) { return pow(z, 3); });
  check("slices", [](const Tensor& z) { return slice(z, 1, 0, 2) * slice(flip(z), 1, 1, 3); });
  check("take", [](const Tensor& z) { return square(take(z, tensor({2, 0}), 1)); });
  check("index_add", [](const Tensor& z) { return square(index_add(z, tensor({1, 1}), slice(z, 1, 0, 2), 1)); });
  check("cumulative_sum", [](const Tensor& z) { return square(cumulative_sum(z, 1)); });
  check("cumulative_prod", [](const Tensor& z) { return cumulative_prod(z, 1); });
  const Tensor along = tensor({{0, 1, 1}, {1, 1, 0}});
  check("take_along_axis", [&](const Tensor& z) { return square(take_along_axis(z, along, 0)); });
  check("scatter", [&](const Tensor& z) { return square(scatter(z, along, z * z, 0)); });
  check("scatter_add", [&](const Tensor& z) { return square(scatter_add(z, along, z * z, 0)); });
  check("scatter prod", [&](const Tensor& z) { return scatter_reduce(z, along, z * 2, 0, ScatterReduction::prod); });
  check("unfold", [](const Tensor& z) { return square(unfold(z, 1, 2, 1)); });
  check("concat", [](const Tensor& z) { return square(concat({z, z * z}, 0)); });
  check("narrowing", [](const Tensor& z) { return square(conj(z.astype(DType::c128))) * tensor(1i, DType::c128); });
}

TEST_P(ComplexNumbers, GradientsMeetRealOperands) {
  const Tensor z = random_complex({3}, DType::c128, 15);
  check_both_orders("real times complex", [&](const Inputs& in) { return real(in[0] * z * z); },
                    {random_f64({3}, 0.5, 2, true, 16)});
  check_both_orders("cast", [&](const Inputs& in) { return imag(exp(in[0].astype(DType::c128) * z)); },
                    {random_f64({3}, 0.5, 2, true, 17)});
  // PyTorch's convention: the gradient of |z|^2 is 2 z, that of a holomorphic function's real part conj(f').
  const Tensor x = tensor({1.0 + 2i, -3.0 + 0.5i}, DType::c128).requires_grad(true);
  sum(square(abs(x))).backward();
  expect_near(x.grad(), {2.0 + 4i, -6.0 + 1i}, 1e-12);
  x.zero_grad();
  sum(real(square(x))).backward();
  expect_near(x.grad(), {2.0 - 4i, -6.0 - 1i}, 1e-12);
  const Tensor seeded = gradients(square(x), {x}, tensor({1i, 1.0 + 0i}, DType::c128))[0];
  expect_near(seeded, {1i * (2.0 - 4i), -6.0 - 1i}, 1e-12);
}

TEST_P(ComplexNumbers, Vmap) {
  const auto batch = [](const Shape& shape, std::uint64_t seed) {
    BatchOperand o;
    for (std::uint64_t i = 0; i < 3; ++i) o.elements.push_back(random_complex(shape, DType::c128, seed + i));
    return o;
  };
  const auto check = [&](const char* what, const Function& f, const std::vector<BatchOperand>& operands) {
    const Function parts = [&](const Inputs& in) {
      const Tensor y = f(in);
      return is_complex(y) ? stack({real(y), imag(y)}) : y;
    };
    check_vmap(what, parts, operands, 3, 0, 1e-12);
  };
  for (const Op op : complex_ops(Family::unary))
    if (op != Op::isnan)
      check(std::string(name(op)).c_str(), [&](const Inputs& in) { return call(op, in); }, {batch({2, 2}, 20)});
  for (const Op op : complex_ops(Family::binary))
    check(std::string(name(op)).c_str(), [&](const Inputs& in) { return call(op, in); },
          {batch({2, 2}, 20), batch({2}, 30)});
  check("matmul", [](const Inputs& in) { return matmul(in[0], in[1]); }, {batch({2, 2}, 20), batch({2, 2}, 30)});
  check("sum", [](const Inputs& in) { return sum(in[0], 1); }, {batch({2, 2}, 20)});
  check("complex", [](const Inputs& in) { return complex(real(in[0]), imag(in[1])); },
        {batch({2}, 20), batch({2}, 30)});
}

TEST_P(ComplexNumbers, PrintingAndFiles) {
  EXPECT_EQ(to_string(tensor({1.0 + 2i, -0.5 - 1i})), "tensor([ 1.0+2.0j, -0.5-1.0j], c64)");
  EXPECT_EQ(to_string(tensor(1i, DType::c128)), "tensor(0.+1.j, c128)");
  for (const DType t : kComplexTypes) {
    const Tensor x = random_complex({2, 3}, t, 40);
    const std::string path = ::testing::TempDir() + "fermata_complex" + std::to_string(::getpid()) + ".npy";
    save_npy(path, transpose(x));
    const Tensor back = load_npy(path);
    EXPECT_EQ(to_string(back.dtype(), back.shape()), to_string(t, Shape{3, 2}));
    EXPECT_EQ(elements(back), elements(copy(transpose(x))));
    std::remove(path.c_str());
  }
}

TEST_P(ComplexNumbers, CompiledFunctionsReplay) {
  auto f = compile([](const Tensor& z) { return sum(exp(z * 0.5) * conj(z)) + real(z[0]); });
  for (std::uint64_t seed = 50; seed < 54; ++seed) {
    const Tensor z = random_complex({static_cast<std::int64_t>(seed - 46)}, DType::c128, seed);
    expect_near(f(z), elements(sum(exp(z * 0.5) * conj(z)) + real(z[0])), 1e-14);
  }
}

}  // namespace
}  // namespace fermata
