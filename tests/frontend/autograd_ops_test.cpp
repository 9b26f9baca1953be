// Every derivative of the op table, of both orders, against finite differences. The list of ops is the table itself: a
// new row is tested without a change here.
#include <gtest/gtest.h>

#include <bit>
#include <set>

#include "dispatch/operator.h"
#include "frontend/transforms/autograd/autograd_rules.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;

class AutogradOps : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, AutogradOps, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

const std::source_location kHere = std::source_location::current();

Tensor call(Op op, const Operand& x) { return Dispatcher<UnaryCall>::call(operator_entry(op), kHere, x); }
Tensor call(Op op, const Operand& a, const Operand& b) {
  return Dispatcher<BinaryCall>::call(operator_entry(op), kHere, a, b);
}
Tensor call(Op op, const Tensor& x, std::int64_t mask, bool keepdims) {
  const std::int64_t integers[] = {mask, keepdims};
  const Attributes attributes{.wanted = {}, .integers = integers, .scalars = {}};
  return Dispatcher<GeneralCall>::call(operator_entry(op), kHere, {&x, 1}, attributes);
}

bool positive_only(Op op) {
  return std::set{Op::sqrt,  Op::rsqrt,   Op::log,  Op::log2,  Op::log10,  Op::log1p,  Op::pow,
                  Op::xlogy, Op::xlog1py, Op::entr, Op::ndtri, Op::lgamma, Op::digamma}
      .contains(op);
}
std::vector<Op> ops_of(Family wanted) {
  std::vector<Op> ops;
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (family(static_cast<Op>(i)) == wanted) ops.push_back(static_cast<Op>(i));
  return ops;
}
bool takes_floats(Op op) { return apply_rule(info(op).rule, DType::f64).has_value(); }
bool gives_floats(Op op) { return takes_floats(op) && is_floating(apply_rule(info(op).rule, DType::f64)->result); }

TEST_P(AutogradOps, EveryUnaryOp) {
  int checked = 0;
  for (const Op op : ops_of(Family::unary)) {
    if (!gives_floats(op)) continue;
    ASSERT_NE(vjp_rule(op).entry(0).kind, Derivative::none) << name(op);
    // Away from where the rounding functions jump.
    const double shift = op == Op::acosh ? 1.5 : positive_only(op) ? 0.5 : 0.0;
    const Tensor x = random_f64({2, 3}, 0.1, 0.4, shift == 0, 3) + shift;
    check_both_orders(std::string(name(op)), [&](const Inputs& xs) { return call(op, xs[0]); }, {x});
    ++checked;
  }
  EXPECT_GE(checked, 25);
}

TEST_P(AutogradOps, EveryBinaryOpBroadcast) {
  const std::vector<std::pair<Shape, Shape>> shapes = {{{2, 3}, {2, 3}}, {{2, 3}, {3}},       {{1, 3}, {2, 1}},
                                                       {{}, {2, 2}},     {{2, 1, 2}, {3, 1}}, {{1, 1}, {1}}};
  int checked = 0;
  for (const Op op : ops_of(Family::binary)) {
    if (!gives_floats(op)) continue;
    for (const auto& [a, b] : shapes) {
      const bool both_signs = !positive_only(op);
      const Inputs xs{random_f64(a, 0.6, 1.9, both_signs, 11), random_f64(b, 0.55, 1.3, both_signs, 12)};
      check_both_orders(
          std::string(name(op)) + " " + to_string(a) + " " + to_string(b),
          [&](const Inputs& in) { return call(op, in[0], in[1]); }, xs);
      ++checked;
    }
  }
  EXPECT_GE(checked, 40);
}

TEST_P(AutogradOps, EveryBinaryOpWithANumber) {
  for (const Op op : ops_of(Family::binary)) {
    if (!gives_floats(op)) continue;
    const Inputs xs{random_f64({3}, 0.6, 1.9, !positive_only(op), 21)};
    for (const double number : {2.0, 0.7}) {
      const std::string what = std::string(name(op)) + " with " + std::to_string(number);
      check_both_orders(
          "x " + what, [&](const Inputs& in) { return call(op, in[0], number); }, xs);
      check_both_orders(
          what + " x", [&](const Inputs& in) { return call(op, number, in[0]); }, xs);
    }
  }
}

TEST_P(AutogradOps, Where) {
  const Tensor condition = tensor({true, false, true});
  check_both_orders("where", [&](const Inputs& in) { return where(condition, in[0] * in[1], in[1]); },
                    {random_f64({2, 3}, 0.5, 2, true, 1), random_f64({3}, 0.5, 2, true, 2)});
  check_both_orders("where with a number", [&](const Inputs& in) { return where(condition, square(in[0]), 2.0); },
                    {random_f64({2, 1}, 0.5, 2, true, 1)});
}

TEST_P(AutogradOps, EveryReduction) {
  int checked = 0;
  for (const Op op : ops_of(Family::reduce)) {
    if (!gives_floats(op)) continue;
    for (const std::int64_t mask : {1, 2, 4, 5, 6, 7})
      for (const bool keepdims : {false, true}) {
        const std::string what = std::string(name(op)) + " over axes " + std::to_string(mask);
        check_both_orders(what, [&](const Inputs& in) { return call(op, square(in[0]), mask, keepdims); },
                          {random_f64({2, 3, 2}, 0.5, 1.5, true, 31)});
        ++checked;
      }
  }
  EXPECT_GE(checked, 40);
}

TEST_P(AutogradOps, ProductsWithZeros) {
  using Row = std::vector<double>;
  for (const Row& row : {Row{0, 2, 3}, Row{0, 0, 3}, Row{0, 0, 0}, Row{1.5, 2, -3}, Row{4, 0, 1, 2, 5}}) {
    const Tensor x = tensor(row);
    const Function f = [](const Inputs& in) { return prod(in[0]); };
    check_both_orders("prod", f, {x});
    check_gradients("third derivative of prod", gradient_sum(gradient_sum(f)), {x}, 2e-5);
  }
}

TEST_P(AutogradOps, TiesShareTheGradient) {
  const Tensor x = tensor({1.0, 3.0, 3.0, 2.0}, DType::f64).requires_grad(true);
  max(x).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 0.5, 0.5, 0}));
}

TEST_P(AutogradOps, Casts) {
  const Tensor x = tensor({1.0f, 2.0f}).requires_grad(true);
  const Tensor y = sum(square(x.astype(DType::f64)) * tensor({1.0, 10.0}, DType::f64));
  EXPECT_EQ(y.dtype(), DType::f64);
  y.backward();
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{2, 40}));
  EXPECT_FALSE(x.astype(DType::i32).requires_grad());
  // Gradients come back in each operand's own dtype when dtypes mix.
  const Tensor h = tensor({0.5, 1.0}, DType::f16).requires_grad(true);
  const Tensor d = tensor({3.0, 4.0}, DType::f64).requires_grad(true);
  sum(h * d).backward();
  EXPECT_EQ(h.grad().dtype(), DType::f16);
  EXPECT_EQ(h.grad().to_vector<double>(), (std::vector<double>{3, 4}));
  EXPECT_EQ(d.grad().dtype(), DType::f64);
}

TEST_P(AutogradOps, IrregularOps) {
  const Inputs xs{random_f64({2, 3, 4}, 0.5, 2, true, 41)};
  const auto check = [&](const char* what, const std::function<Tensor(const Tensor&)>& f) {
    check_both_orders(
        what, [&](const Inputs& in) { return f(square(in[0])); }, xs);
  };
  check("copy", [](const Tensor& x) { return copy(x); });
  check("reshape", [](const Tensor& x) { return reshape(x, {4, 6}); });
  check("expand_dims", [](const Tensor& x) { return expand_dims(x, {0, 3}); });
  check("squeeze", [](const Tensor& x) { return squeeze(slice(x, 0, 1, 2), {0}); });
  check("permute", [](const Tensor& x) { return permute(x, {2, 0, 1}); });
  check("slice", [](const Tensor& x) { return slice(slice(x, 2, 0, 4, 2), 1, 2, 0, -1); });
  check("flip", [](const Tensor& x) { return flip(x, {0, 2}); });
  check("broadcast_to", [](const Tensor& x) { return broadcast_to(slice(x, 1, 0, 1), {3, 2, 5, 4}); });
  check("concat", [](const Tensor& x) { return concat({x, slice(x, 1, 1, 3) * slice(x, 1, 0, 1), x}, 1); });
  check("take", [](const Tensor& x) { return take(x, tensor({{2, 0}, {2, -1}}), 1); });
  check("index_add", [](const Tensor& x) { return index_add(x, tensor({1, 1, 0}), x * 2, 1); });
  check("transpose of a reshape", [](const Tensor& x) { return reshape(transpose(x), {6, 4}); });
}

TEST_P(AutogradOps, Matmul) {
  const std::vector<std::pair<Shape, Shape>> shapes = {
      {{2, 3}, {3, 4}},       {{3}, {3}},          {{3}, {3, 2}},
      {{2, 3}, {3}},          {{4, 2, 3}, {3, 2}}, {{2, 3}, {4, 3, 2}},
      {{3}, {4, 3, 2}},       {{4, 2, 3}, {3}},    {{2, 1, 2, 3}, {4, 3, 2}},
      {{1, 2, 3}, {2, 3, 1}}, {{2, 0}, {0, 3}}};
  for (const auto& [a, b] : shapes)
    check_both_orders("matmul " + to_string(a) + " " + to_string(b),
                      [](const Inputs& in) { return square(matmul(in[0], in[1])); },
                      {random_f64(a, 0.5, 1.5, true, 51), random_f64(b, 0.5, 1.5, true, 52)});
}

TEST_P(AutogradOps, Composites) {
  const Inputs x{random_f64({2, 3}, 0.5, 2, true, 61)};
  const Inputs three{x[0], random_f64({3}, 0.5, 2, true, 62), random_f64({3}, 0.5, 2, true, 63)};
  const Tensor labels = tensor({2, 0});
  check_both_orders(
      "mean", [](const Inputs& in) { return mean(square(in[0]), {1}); }, x);
  check_both_orders(
      "var", [](const Inputs& in) { return var(in[0], {0}); }, x);
  check_both_orders(
      "logsumexp", [](const Inputs& in) { return logsumexp(in[0], {1}); }, x);
  check_both_orders(
      "softmax", [](const Inputs& in) { return softmax(in[0]); }, x);
  check_both_orders(
      "log_softmax", [](const Inputs& in) { return log_softmax(in[0], 0); }, x);
  check_both_orders(
      "cross_entropy", [&](const Inputs& in) { return cross_entropy(in[0], labels); }, x);
  check_both_orders(
      "layer_norm", [](const Inputs& in) { return layer_norm(in[0], in[1], in[2]); }, three);
  check_both_orders(
      "rms_norm", [](const Inputs& in) { return rms_norm(in[0], in[1]); }, three);
  check_both_orders(
      "linear", [](const Inputs& in) { return linear(in[0], expand_dims(in[1], 0), slice(in[2], 0, 0, 1)); }, three);
}

TEST_P(AutogradOps, PowersAtZero) {
  const Tensor x = tensor({0.0, 2.0}, DType::f64).requires_grad(true);
  const Tensor e = tensor({0.0, 3.0}, DType::f64).requires_grad(true);
  sum(pow(x, e)).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (std::vector<double>{0, 12}));
  EXPECT_EQ(e.grad().to_vector<double>()[0], 0);
  EXPECT_NEAR(e.grad().to_vector<double>()[1], 8 * std::log(2.0), 1e-12);
  const Tensor z = tensor({0.0}, DType::f64);
  const auto second = grad(grad([](const Tensor& v) { return sum(pow(v, tensor({0.0}, DType::f64))); }));
  EXPECT_EQ(second(z).to_vector<double>(), std::vector<double>{0});
}

}  // namespace
}  // namespace fermata
