// cond, while_loop, scan and fori_loop against the plain C++ that they stand for: in both modes, captured, with
// gradients of both kinds, and under vmap.
#include "fermata/control_flow.h"

#include <gtest/gtest.h>

#include "fermata/fermata.h"
#include "tests/dispatch/every_way.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;

class ControlFlow : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, ControlFlow, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

std::vector<double> values(const Tensor& x) { return x.to_vector<double>(); }
Tensor f64(double x) { return full({}, x, DType::f64); }
Tensor twice(const Tensor& x) { return x * 2; }
Tensor cubed(const Tensor& x) { return x * x * x; }

TEST_P(ControlFlow, CondTakesOneBranch) {
  const Tensor x = tensor({1.0, 2.0, 3.0}, DType::f64);
  for (const bool positive : {true, false}) {
    const Tensor y = cond(sum(x * (positive ? 1 : -1)) > 0, twice, cubed, x);
    EXPECT_EQ(values(y), positive ? (std::vector<double>{2, 4, 6}) : (std::vector<double>{1, 8, 27}));
  }
  // A number decides at once; operands and results of any form, and a tensor that is mentioned.
  EXPECT_EQ(values(cond(true, twice, cubed, x)), (std::vector<double>{2, 4, 6}));
  const auto [a, b] = cond(
      any(x > 2), [x](const Tensor& s, int k) { return std::pair(x + s, s * k); },
      [](const Tensor& s, int) { return std::pair(zeros({3}, DType::f64), s); }, f64(10), 7);
  EXPECT_EQ(values(a), (std::vector<double>{11, 12, 13}));
  EXPECT_EQ(b.item<double>(), 70);
}

TEST_P(ControlFlow, CondHasGradientsOfBothBranches) {
  const Tensor w = random_f64({3}, 0.5, 1.5, true, 9);
  for (const bool which : {true, false}) {
    const Function f = [&](const Inputs& in) {
      const Tensor scale = in[1];
      return cond(
          sum(in[1] * in[1]) > (which ? 0.0 : 1e9), [](const Tensor& a) { return sin(a) * a; },
          [scale](const Tensor& a) { return a * a * scale; }, in[0]);
    };
    check_both_orders(which ? "cond true" : "cond false", f, {random_f64({3}, 0.5, 1.5, true, 1), w});
  }
}

TEST_P(ControlFlow, CondUnderVmap) {
  const Tensor x = random_f64({5, 3}, 0.5, 1.5, true, 1), flag = full({}, true);
  const auto by_example = [](const Tensor& a) { return cond(sum(a) > 0, twice, cubed, a); };
  Inputs expected;
  for (int i = 0; i < 5; ++i) expected.push_back(by_example(x[i]));
  expect_close(vmap(by_example)(x), stack(expected), 1e-15);
  expect_close(vmap([&](const Tensor& a) { return cond(flag, cubed, twice, a); })(x), cubed(x), 1e-15);
  const auto summed = [&](const Tensor& a) { return sum(cond(flag, cubed, twice, a)); };
  expect_close(vmap(grad(summed))(x), x * x * 3, 1e-14);
  expect_close(grad([&](const Tensor& all) { return sum(vmap(summed)(all)); })(x), x * x * 3, 1e-14);
}

TEST_P(ControlFlow, WhileLoop) {
  const auto [n, x] = while_loop([](const Tensor& i, const Tensor&) { return i < 5; },
                                 [](const Tensor& i, const Tensor& a) { return std::tuple(i + 1, a * 2); },
                                 std::tuple(full({}, 0), tensor({1.0, 3.0}, DType::f64)));
  EXPECT_EQ(n.item<int>(), 5);
  EXPECT_EQ(values(x), (std::vector<double>{32, 96}));
  const Tensor never = while_loop([](const Tensor& a) { return any(a < 0); }, twice, x);
  EXPECT_EQ(values(never), values(x));
  const Tensor once = while_loop([](const Tensor& a) { return any(a < 40); }, twice, x);
  EXPECT_EQ(values(once), (std::vector<double>{64, 192}));
}

/// Newton's iteration for the square root: how often it runs depends on the number.
Tensor newton(const Tensor& x) {
  return while_loop([x](const Tensor& y) { return abs(y * y - x) > 1e-13; },
                    [x](const Tensor& y) { return (y + x / y) * 0.5; }, ones_like(x));
}

TEST_P(ControlFlow, WhileLoopUnderVmap) {
  const Tensor x = tensor({0.25, 2.0, 81.0, 1.0}, DType::f64);
  expect_close(vmap([](const Tensor& a) { return newton(a); })(x), sqrt(x), 1e-13);
}

TEST_P(ControlFlow, WhileLoopHasPushforwards) {
  const Tensor x = f64(2);
  expect_close(jvp([](const Tensor& a) { return newton(a); }, x, f64(1)).second, f64(0.5 / std::sqrt(2.0)), 1e-12);
  const Tensor all = tensor({0.25, 2.0, 81.0}, DType::f64);
  expect_close(
      vmap([](const Tensor& a) { return jvp([](const Tensor& b) { return newton(b); }, a, ones_like(a)).second; })(all),
      rsqrt(all) * 0.5, 1e-12);
  const auto slope = [](const Tensor& a) {
    return jvp([](const Tensor& b) { return newton(b); }, a, ones_like(a)).second;
  };
  auto compiled = compile([=](const Tensor& a) { return std::pair(slope(a), jvp(slope, a, ones_like(a)).second); });
  for (const double at : {2.0, 9.0}) {
    const auto [first, second] = compiled(f64(at));
    expect_close(first, f64(0.5 * std::pow(at, -0.5)), 1e-12);
    expect_close(second, f64(-0.25 * std::pow(at, -1.5)), 1e-10);
  }
}

TEST_P(ControlFlow, WhileLoopInReverseNeedsItsRuns) {
  expect_close(grad([](const Tensor& a) { return newton(a); })(f64(2)), f64(0.5 / std::sqrt(2.0)), 1e-12);
  auto compiled = compile([](const Tensor& a) { return grad([](const Tensor& b) { return newton(b); })(a); });
  if (GetParam() == Mode::eager) return;
  const std::string text = message<GradientError>([&] { compiled(f64(2)); });
  const std::size_t line = text.find("control_flow_test.cpp:");
  ASSERT_NE(line, std::string::npos) << text;
  EXPECT_EQ(
      text.substr(0, line),
      "FM1761 GradientError: while_loop: reverse-mode gradients need every state, but the number of iterations is not "
      "known\n"
      "  at   frontend/");
  EXPECT_EQ(text.substr(text.find("  hint")), "  hint use scan or fori_loop, jvp, or keep the loop out of compile()");
  EXPECT_EQ(twice(f64(2)).item<double>(), 4);
}

TEST_P(ControlFlow, Scan) {
  const Tensor xs = tensor({1.0, 2.0, 3.0, 4.0}, DType::f64);
  const auto f = [](const Tensor& s, const Tensor& x) { return std::pair(s + x, s * x); };
  const auto [total, products] = scan(f, f64(0), xs);
  EXPECT_EQ(total.item<double>(), 10);
  EXPECT_EQ(values(products), (std::vector<double>{0, 2, 9, 24}));
  const auto [again, backwards] = scan(f, f64(0), xs, true);
  EXPECT_EQ(again.item<double>(), 10);
  EXPECT_EQ(values(backwards), (std::vector<double>{9, 14, 12, 0}));
  // Tuples, integers, no results, and a view as the sequence.
  const auto g = [](const std::pair<Tensor, Tensor>& c, const std::tuple<Tensor, Tensor>& x) {
    return std::pair(std::pair(c.first + 1, c.second + std::get<0>(x) * std::get<1>(x)), std::tuple<>());
  };
  const Tensor table = arange(8, DType::f64).reshape({4, 2}).mT();
  const auto [last, none] =
      scan(g, std::pair(full({}, 0), zeros({4}, DType::f64)), std::tuple(table, full({2}, 3.0, DType::f64)));
  EXPECT_EQ(last.first.item<int>(), 2);
  EXPECT_EQ(values(last.second), (std::vector<double>{3, 15, 27, 39}));
  const auto [start, nothing] = scan(f, f64(7), zeros({0}, DType::f64));
  EXPECT_EQ(start.item<double>(), 7);
  EXPECT_EQ(nothing.shape(), (Shape{0}));
}

TEST_P(ControlFlow, ForiLoop) {
  const auto [sum_of, product] = fori_loop(
      1, 6, [](const Tensor& i, const Tensor& s, const Tensor& p) { return std::tuple(s + i, p * i); },
      std::tuple(full({}, 0), full({}, 1)));
  EXPECT_EQ(sum_of.item<int>(), 15);
  EXPECT_EQ(product.item<int>(), 120);
  EXPECT_EQ(fori_loop(
                3, 3, [](const Tensor&, const Tensor& s) { return s + 1; }, f64(2))
                .item<double>(),
            2);
  const Function power = [](const Inputs& in) {
    const Tensor x = in[0];
    return fori_loop(
        0, 4, [x](const Tensor&, const Tensor& s) { return s * x; }, ones_like(x));
  };
  check_both_orders("x to the fourth", power, {random_f64({2}, 0.5, 1.5, true, 3)});
}

/// A recurrent cell with a weight that is an argument and one that is mentioned.
Tensor recurrent(const Tensor& w, const Tensor& b, const Tensor& h, const Tensor& xs) {
  const auto cell = [w, b](const Tensor& state, const Tensor& x) {
    const Tensor next = tanh(matmul(w, state) + x + b);
    return std::pair(next, next * x);
  };
  const auto [last, outputs] = scan(cell, h, xs);
  return sum(outputs, {0}) + last;
}

TEST_P(ControlFlow, ScanHasGradients) {
  const Inputs at{random_f64({2, 2}, 0.2, 0.8, true, 1), random_f64({2}, 0.2, 0.8, true, 2),
                  random_f64({2}, 0.2, 0.8, true, 3), random_f64({3, 2}, 0.2, 0.8, true, 4)};
  check_both_orders(
      "recurrent", [](const Inputs& in) { return recurrent(in[0], in[1], in[2], in[3]); }, at);
}

TEST_P(ControlFlow, ScanUnderVmapAndJacobians) {
  const Tensor w = random_f64({2, 2}, 0.2, 0.8, true, 1), b = random_f64({2}, 0.2, 0.8, true, 2);
  const Tensor h = random_f64({4, 2}, 0.2, 0.8, true, 3), xs = random_f64({4, 3, 2}, 0.2, 0.8, true, 4);
  const auto loss = [=](const Tensor& weight, const Tensor& start, const Tensor& x) {
    return sum(recurrent(weight, b, start, x));
  };
  Inputs expected, gradients;
  for (int i = 0; i < 4; ++i) {
    expected.push_back(recurrent(w, b, h[i], xs[i]));
    gradients.push_back(grad(loss)(w, h[i], xs[i]));
  }
  expect_close(vmap([=](const Tensor& s, const Tensor& x) { return recurrent(w, b, s, x); })(h, xs), stack(expected),
               1e-14);
  expect_close(vmap(grad(loss), {unbatched, 0, 0})(w, h, xs), stack(gradients), 1e-13);
  const auto total = [&](const Tensor& weight) {
    return sum(vmap([=](const Tensor& s, const Tensor& x) { return loss(weight, s, x); })(h, xs));
  };
  expect_close(grad(total)(w), sum(stack(gradients), {0}), 1e-13);
  const auto of_weight = [=](const Tensor& weight) { return recurrent(weight, b, h[0], xs[0]); };
  expect_close(jacrev(of_weight)(w), jacfwd(of_weight)(w), 1e-13);
}

TEST_P(ControlFlow, Nested) {
  const auto inner = [](const Tensor& s, const Tensor& x) {
    const Tensor stepped = fori_loop(
        0, 3, [x](const Tensor&, const Tensor& a) { return a + x * x; }, s);
    return std::pair(cond(sum(stepped) > 20, twice, cubed, stepped) * 0.1, stepped);
  };
  const Function f = [=](const Inputs& in) {
    const auto [last, all] = scan(inner, in[0], in[1]);
    return last + sum(all, {0});
  };
  check_both_orders("nested", f, {random_f64({2}, 0.5, 1.5, true, 1), random_f64({3, 2}, 0.5, 1.5, true, 2)});
}

TEST_P(ControlFlow, AreCaptured) {
  auto compiled = compile([](const Tensor& x, const Tensor& flag) {
    const Tensor y = cond(flag, twice, cubed, x);
    const auto [n, last] = while_loop([](const Tensor&, const Tensor& a) { return sum(a) < 100; },
                                      [](const Tensor& i, const Tensor& a) { return std::tuple(i + 1, a * 2); },
                                      std::tuple(full({}, 0), y));
    return std::tuple(y, n, last,
                      scan([](const Tensor& s, const Tensor& a) { return std::pair(s + a, s); }, f64(0), x).first);
  });
  const Tensor x = tensor({1.0, 2.0}, DType::f64), z = tensor({3.0, 4.0}, DType::f64);
  for (const Tensor& at : {x, z, x})
    for (const bool flag : {true, false}) {
      const auto [y, n, last, total] = compiled(at, full({}, flag));
      const Tensor expected = flag ? twice(at) : cubed(at);
      EXPECT_EQ(values(y), values(expected));
      double s = sum(expected).item<double>();
      int runs = 0;
      for (; s < 100; s *= 2) ++runs;
      EXPECT_EQ(n.item<int>(), runs);
      EXPECT_EQ(sum(last).item<double>(), s);
      EXPECT_EQ(total.item<double>(), sum(at).item<double>());
    }
  EXPECT_EQ(compiled.captures(), GetParam() == Mode::compiled ? 1u : 0u);
}

/// A compiled function uses the present value of what its loops mention.
TEST_P(ControlFlow, HiddenInputsAreBoundByIdentity) {
  const Tensor w = f64(2);
  auto compiled = compile([&w](const Tensor& x) {
    return fori_loop(
        0, 2, [w](const Tensor&, const Tensor& s) { return s * w; }, x);
  });
  EXPECT_EQ(compiled(f64(1)).item<double>(), 4);
  w.assign(3);
  EXPECT_EQ(compiled(f64(1)).item<double>(), 9);
}

TEST(ControlFlowWays, HaveTheSameElementsInEveryWay) {
  const Tensor x = random_f64({5, 3}, 0.5, 1.5, true, 3).sync(), w = random_f64({3, 3}, 0.5, 1.5, true, 4).sync();
  const auto results = in_every_way([&] {
    const Tensor twofold = x * 2 + 1;  // beside the functions there are kernels
    const Tensor scanned = recurrent(w, w[0], twofold[0], twofold);
    const Tensor doubled = while_loop([](const Tensor& s) { return sum(s) < 100; }, twice, twofold);
    return std::vector{scanned, doubled, cond(sum(doubled) > 0, cubed, twice, scanned)};
  });
  for (const auto& [way, got] : results) EXPECT_EQ(got, results[0].second) << way;
}

TEST(ControlFlowDraws, AreTheSameInBothModesAndFreshInEveryRun) {
  std::vector<std::vector<double>> by_mode;
  for (const Mode m : {Mode::eager, Mode::compiled}) {
    const ModeGuard mode(m);
    manual_seed(3);
    const auto noise = [](const Tensor& s, const Tensor&) {
      const Tensor r = rand({2}, DType::f64);
      return std::pair(s + r, r);
    };
    const auto [total, draws] = scan(noise, zeros({2}, DType::f64), arange(3));
    const Tensor branch = cond(
        sum(total) > 0, [](const Tensor& a) { return a + rand({2}, DType::f64); }, twice, total);
    const Tensor loop = while_loop([](const Tensor& a) { return sum(a) < 5; },
                                   [](const Tensor& a) { return a + rand({2}, DType::f64); }, zeros({2}, DType::f64));
    by_mode.push_back(values(concat({reshape(draws, {-1}), total, branch, loop, rand({1}, DType::f64)})));
    const std::vector<double> d = values(draws);
    EXPECT_NE(d[0], d[2]);
    EXPECT_NE(d[2], d[4]);
  }
  EXPECT_EQ(by_mode[0], by_mode[1]);
  auto compiled = compile([] {
    return fori_loop(
        0, 2, [](const Tensor&, const Tensor& s) { return s + rand({}, DType::f64); }, f64(0));
  });
  manual_seed(8);
  const double first = compiled().item<double>(), second = compiled().item<double>();
  EXPECT_NE(first, second);
  manual_seed(8);
  EXPECT_EQ(compiled().item<double>(), first);
}

TEST_P(ControlFlow, Errors) {
  const Tensor x = zeros({2}), n = full({}, 0);
  EXPECT_EQ(message<ValueError>([&] { cond(x > 0, twice, cubed, x); }),
            "FM1764 ValueError: cond: the predicate is not one bool\n"
            "  x    bool[2]\n"
            "  at   HERE\n"
            "  hint reduce it with any() or all()");
  const auto wider = [](const Tensor& a) { return concat({a, a}); };
  if (GetParam() == Mode::compiled) {
    EXPECT_EQ(message<ShapeError>([&] { cond(any(x > 0), twice, wider, x); }),
              "FM1762 ShapeError: cond: the functions return different results, tensor 0\n"
              "  true  f32[2]\n"
              "  false f32[4]\n"
              "  at    HERE");
  }
  EXPECT_EQ(message<ShapeError>([&] { while_loop([](const Tensor& a) { return all(a < 1); }, wider, x); }),
            "FM1763 ShapeError: while_loop: the body changes the shape or dtype of the state, tensor 0\n"
            "  takes f32[2]\n"
            "  gives f32[4]\n"
            "  at    HERE");
  EXPECT_EQ(
      message<ShapeError>([&] { scan([](const Tensor& s, const Tensor& a) { return std::pair(s + a, s); }, n, x); }),
      "FM1763 ShapeError: scan: the function changes the shape or dtype of the carry, tensor 0\n"
      "  takes i64[]\n"
      "  gives f32[]\n"
      "  at    HERE");
  EXPECT_EQ(message<ShapeError>([&] {
              scan([](const Tensor& s, const auto&) { return std::pair(s, s); }, n, std::pair(x, ones({3})));
            }),
            "FM1765 ShapeError: scan: sequences of different lengths\n"
            "  first f32[2]\n"
            "  other f32[3]\n"
            "  at    HERE");
  EXPECT_EQ(message<ShapeError>(
                [&] { scan([](const Tensor& s, const auto&) { return std::pair(s, s); }, n, std::tuple<>()); }),
            "FM1765 ShapeError: scan: xs has no tensors\n"
            "  at   HERE\n"
            "  hint use fori_loop for a count");
  if (GetParam() == Mode::compiled) {
    EXPECT_EQ(message<UnsupportedError>([&] {
                while_loop([](const Tensor& a) { return all(a < 1); },
                           [x](const Tensor& a) {
                             Tensor(x) += 1;
                             return a;
                           },
                           x);
              }),
              "FM2760 UnsupportedError: while_loop: a function writes a captured tensor in place\n"
              "  x    f32[2]\n"
              "  at   HERE\n"
              "  hint make it an argument and a result of the function");
    EXPECT_NE(message<UserError>([&] {
                cond(
                    any(x > 0), [](const Tensor& a) { return a * a.item<float>(); }, cubed, x[0]);
              }).find("FM1701"),
              std::string::npos);
  }
  EXPECT_EQ(values(x), (std::vector<double>{0, 0}));
  EXPECT_EQ(values(cond(
                any(x > 0), twice, [](const Tensor& a) { return a + 1; }, x)),
            (std::vector<double>{1, 1}));
}

}  // namespace
}  // namespace fermata
