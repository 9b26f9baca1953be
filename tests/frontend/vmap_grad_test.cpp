// vmap and gradients, one inside the other in every order: against loops, finite differences and closed forms.
#include <gtest/gtest.h>

#include "fermata/custom_function.h"
#include "tests/error_message.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;
using Row = std::vector<double>;

class VmapGrad : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, VmapGrad, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

Row row(const Tensor& x) { return x.to_vector<double>(); }

/// A loss with views, reductions, a matmul and a softmax in it.
Tensor loss(const Tensor& w, const Tensor& x) {
  const Tensor h = tanh(matmul(w, x));
  return sum(softmax(h) * square(h[0])) + sum(slice(x, 0, 0, 2) * h[1]) + mean(w);
}

TEST_P(VmapGrad, PerSampleGradients) {
  const Tensor w = random_f64({3, 4}, 0.2, 1, true, 1), xs = random_f64({5, 4}, 0.2, 1, true, 2);
  const auto gradient = grad<0, 1>(loss);
  const auto [dw, dx] = vmap(gradient, {unbatched, 0})(w, xs);
  ASSERT_EQ(dw.shape(), (Shape{5, 3, 4}));
  for (std::int64_t i = 0; i < 5; ++i) {
    const auto [one_dw, one_dx] = gradient(w, xs[i]);
    expect_close(dw[i], one_dw, 1e-12);
    expect_close(dx[i], one_dx, 1e-12);
  }
  // A weight that the function mentions instead of taking it.
  const Tensor mentioned =
      vmap([&](const Tensor& x) { return grad([&](const Tensor& v) { return loss(v, x); })(w); })(xs);
  expect_close(mentioned, dw, 1e-12);
  // With the value, through an axis that is not the first.
  const auto [value, column] = vmap(value_and_grad<1>(loss), {unbatched, 1}, {0, 1})(w, transpose(xs));
  EXPECT_EQ(column.shape(), (Shape{4, 5}));
  for (std::int64_t i = 0; i < 5; ++i) EXPECT_NEAR(value[i].item<double>(), loss(w, xs[i]).item<double>(), 1e-12);
}

TEST_P(VmapGrad, GradientsThroughABatch) {
  const Tensor w = random_f64({3, 4}, 0.2, 1, true, 1), xs = random_f64({5, 4}, 0.2, 1, true, 2);
  const testing::Function batched = [](const Inputs& in) { return vmap(loss, {unbatched, 0})(in[0], in[1]); };
  check_both_orders("grad(vmap(f))", batched, {w, xs});
  check_both_orders("grad(vmap(vmap(f)))",
                    [](const Inputs& in) {
                      return vmap([&](const Tensor& a) {
                        return vmap([&](const Tensor& b) { return sum(sin(a) * b) * a[0]; })(in[1]);
                      })(in[0]);
                    },
                    {random_f64({2, 3}, 0.2, 1, true, 3), random_f64({4, 3}, 0.2, 1, true, 4)});
  check_both_orders(
      "out_axes",
      [](const Inputs& in) {
        return vmap([](const Tensor& a, const Tensor& b) { return exp(a) * b; }, {1, unbatched}, -1)(in[0], in[1]);
      },
      {w, random_f64({3}, 0.2, 1, true, 5)});
}

TEST_P(VmapGrad, EveryOrderOfNesting) {
  const auto f = [](const Tensor& x) { return sum(sin(x) * x * x); };
  const Tensor xs = random_f64({4, 3}, 0.2, 1, true, 6);
  // Second derivatives inside: the diagonal of the Hessian, for it is one.
  const auto second = [&](const Tensor& x) { return grad([&](const Tensor& v) { return sum(grad(f)(v)); })(x); };
  const Tensor inside = vmap(second)(xs);
  for (std::int64_t i = 0; i < 4; ++i) expect_close(inside[i], second(xs[i]), 1e-12);
  // One gradient inside, one outside.
  const Tensor outside = grad([&](const Tensor& v) { return sum(vmap(grad(f))(v)); })(xs);
  expect_close(outside, inside, 1e-12);
  // Both outside.
  const Tensor both =
      grad([&](const Tensor& v) { return sum(grad([&](const Tensor& u) { return sum(vmap(f)(u)); })(v)); })(xs);
  expect_close(both, inside, 1e-12);
  // vmap between two gradients and around all of it.
  const Tensor stacks = random_f64({2, 4, 3}, 0.2, 1, true, 7);
  const Tensor sandwich = vmap(grad([&](const Tensor& v) { return sum(vmap(grad(f))(v)); }))(stacks);
  for (std::int64_t i = 0; i < 2; ++i)
    for (std::int64_t j = 0; j < 4; ++j) expect_close(sandwich[i][j], second(stacks[i][j]), 1e-12);
  // Third derivatives.
  const auto third = grad([&](const Tensor& v) { return sum(second(v)); });
  const Tensor mixed = grad([&](const Tensor& v) { return sum(vmap(second)(v)); })(xs);
  for (std::int64_t i = 0; i < 4; ++i) expect_close(mixed[i], third(xs[i]), 1e-11);
}

TEST_P(VmapGrad, JacobiansAndHessians) {
  const auto f = [](const Tensor& x) { return sum(exp(x)) * square(x) + x[0]; };
  const Tensor x = random_f64({4}, 0.2, 1, true, 8), basis = eye(4, {}, DType::f64);
  // One row for each element of the result: all backward passes as one.
  const Tensor jacobian =
      vmap([&](const Tensor& e) { return grad([&](const Tensor& v) { return sum(f(v) * e); })(x); })(basis);
  for (std::int64_t i = 0; i < 4; ++i)
    expect_close(jacobian[i], grad([&](const Tensor& v) { return f(v)[i]; })(x), 1e-12);
  const auto g = [&](const Tensor& v) { return sum(f(v)); };
  const Tensor hessian =
      vmap([&](const Tensor& e) { return grad([&](const Tensor& v) { return sum(grad(g)(v) * e); })(x); })(basis);
  expect_close(hessian, transpose(hessian), 1e-11);
  for (std::int64_t i = 0; i < 4; ++i)
    expect_close(hessian[i], grad([&](const Tensor& v) { return grad(g)(v)[i]; })(x), 1e-11);
}

TEST_P(VmapGrad, LeavesFromOutside) {
  const Tensor xs = random_f64({5, 4}, 0.2, 1, true, 2);
  Tensor w = random_f64({3, 4}, 0.2, 1, true, 1).requires_grad(true);
  const Tensor plain = w.detach();
  sum(vmap([&](const Tensor& x) { return loss(w, x); })(xs)).backward();
  const Tensor expected = grad([&](const Tensor& v) {
    Tensor total = loss(v, xs[0]);
    for (std::int64_t i = 1; i < 5; ++i) total = total + loss(v, xs[i]);
    return total;
  })(plain);
  expect_close(w.grad(), expected, 1e-12);
  // A gradient inside, of something else: the leaf's belongs to the outside and is not lost.
  w.zero_grad();
  const auto inner = [&](const Tensor& v) {
    return [&](const Tensor& x) { return sum(square(grad([&](const Tensor& u) { return loss(v, u); })(x))); };
  };
  sum(vmap(inner(w))(xs)).backward();
  const Tensor of_gradient = grad([&](const Tensor& v) {
    Tensor total = inner(v)(xs[0]);
    for (std::int64_t i = 1; i < 5; ++i) total = total + inner(v)(xs[i]);
    return total;
  })(plain);
  expect_close(w.grad(), of_gradient, 1e-11);
  // What does not depend on the batch, too.
  w.zero_grad();
  sum(vmap([&](const Tensor& x) { return grad([&](const Tensor& u) { return sum(matmul(w, u)); })(x); })(xs))
      .backward();
  expect_close(w.grad(), full({3, 4}, 5.0, DType::f64), 1e-12);
  EXPECT_FALSE(no_grad([&] { return vmap([&](const Tensor& x) { return loss(w, x); })(xs); }).requires_grad());
}

TEST_P(VmapGrad, BackwardInsideTheFunction) {
  const Tensor xs = random_f64({5, 4}, 0.2, 1, true, 2), w = random_f64({3, 4}, 0.2, 1, true, 1);
  const Tensor expected = vmap(grad<1>(loss), {unbatched, 0})(w, xs);
  const Tensor collected = vmap([&](const Tensor& x) {
    Tensor leaf = x.detach().requires_grad(true);
    loss(w, leaf).backward();
    loss(w, leaf).backward();
    return leaf.grad();
  })(xs);
  expect_close(collected, expected * 2, 1e-12);
  const Tensor asked = vmap([&](const Tensor& x) {
    const Tensor leaf = x.detach().requires_grad(true);
    const Tensor first = gradients(loss(w, leaf), {leaf}, {}, true)[0];
    return gradients(sum(square(first)), {leaf})[0];
  })(xs);
  const auto norm = [&](const Tensor& x) { return sum(square(grad<1>(loss)(w, x))); };
  for (std::int64_t i = 0; i < 5; ++i) expect_close(asked[i], grad(norm)(xs[i]), 1e-11);
  // A seed that is batched: one row of a Jacobian each.
  const Tensor seeds = eye(3, {}, DType::f64), x = xs[0];
  const Tensor rows = vmap([&](const Tensor& seed) {
    const Tensor leaf = (x + seed[0] * 0).detach().requires_grad(true);
    return gradients(matmul(w, leaf), {leaf}, seed)[0];
  })(seeds);
  expect_close(rows, w, 1e-12);
}

TEST_P(VmapGrad, DetachCutsEveryLevel) {
  const Tensor xs = random_f64({3, 2}, 0.2, 1, true, 9);
  const auto f = [](const Tensor& x) { return sum(x * x.detach()); };
  expect_close(grad([&](const Tensor& v) { return sum(vmap(f)(v)); })(xs), xs, 0);
  expect_close(vmap(grad(f))(xs), xs, 0);
  expect_close(grad([&](const Tensor& v) { return sum(vmap(grad(f))(v)); })(xs), zeros({3, 2}, DType::f64), 0);
  const auto quiet = [](const Tensor& x) { return no_grad([&] { return x * 2; }) * x; };
  expect_close(grad([&](const Tensor& v) { return sum(vmap(quiet)(v)); })(xs), xs * 2, 0);
}

TEST_P(VmapGrad, WritesInPlaceAndViews) {
  const Tensor xs = random_f64({3, 4}, 0.2, 1, true, 10);
  const auto f = [](const Tensor& x) {
    Tensor y = x * 2;
    const Tensor tail = slice(y, 0, 1, kNone);
    y += square(x);
    y[0] *= x[1];
    tail.assign(tail * x[0]);
    return sum(sin(y)) + sum(tail);
  };
  const Tensor expected = stack({grad(f)(xs[0]), grad(f)(xs[1]), grad(f)(xs[2])});
  expect_close(vmap(grad(f))(xs), expected, 1e-12);
  expect_close(grad([&](const Tensor& v) { return sum(vmap(f)(v)); })(xs), expected, 1e-12);
}

TEST_P(VmapGrad, GatheringAndScattering) {
  const Tensor xs = random_f64({3, 4}, 0.2, 1, true, 11);
  const Tensor at = tensor({{0, 3}, {1, 1}, {-1, 2}});
  const auto f = [](const Tensor& x, const Tensor& i) {
    return sum(square(take(x, i))) + sum(sin(index_add(x, i, take(x, i) * x[0])));
  };
  const Tensor expected = stack({grad(f)(xs[0], at[0]), grad(f)(xs[1], at[1]), grad(f)(xs[2], at[2])});
  expect_close(vmap(grad(f))(xs, at), expected, 1e-12);
  expect_close(grad([&](const Tensor& v) { return sum(vmap(f)(v, at)); })(xs), expected, 1e-12);
}

TEST_P(VmapGrad, InACompiledFunction) {
  const Tensor w = random_f64({3, 4}, 0.2, 1, true, 1), xs = random_f64({5, 4}, 0.2, 1, true, 2);
  auto step = compile([](const Tensor& v, const Tensor& batch) { return vmap(grad(loss), {unbatched, 0})(v, batch); });
  const Tensor expected = vmap(grad(loss), {unbatched, 0})(w, xs);
  expect_close(step(w, xs), expected, 1e-12);
  expect_close(step(w, xs * 1), expected, 1e-12);
}

/// Twice x, whose gradient claims to be 5 x.
struct Claims : fermata::Function<Claims> {
  static Tensor forward(FunctionContext& context, const Tensor& x) {
    context.save_for_backward(std::array{x});
    return x * 2;
  }
  static std::vector<Tensor> backward(FunctionContext& context, std::span<const Tensor> gradients) {
    return {gradients[0] * context.saved()[0] * 5};
  }
};

TEST_P(VmapGrad, CustomFunctions) {
  const Tensor xs = random_f64({3, 2}, 0.2, 1, true, 9);
  const auto f = [](const Tensor& x) { return sum(Claims::apply(x)); };
  expect_close(vmap([](const Tensor& x) { return Claims::apply(x); })(xs), xs * 2);
  expect_close(vmap(grad(f))(xs), xs * 5, 1e-12);
  expect_close(grad([&](const Tensor& v) { return sum(vmap(f)(v)); })(xs), xs * 5, 1e-12);
  // Gradients of unbatched tensors are summed over the batch, also in an outer gradient, and to second order.
  struct Product : fermata::Function<Product> {
    static Tensor forward(FunctionContext& context, const Tensor& x, const Tensor& w) {
      context.save_for_backward(std::array{x, w});
      return x * w;
    }
    static std::vector<Tensor> backward(FunctionContext& context, std::span<const Tensor> g) {
      const std::vector<Tensor> saved = context.saved();
      return {g[0] * saved[1], g[0] * saved[0]};
    }
  };
  const Tensor w = random_f64({2}, 0.2, 1, true, 10);
  const auto total = [&](const Tensor& v) {
    return sum(
        square(vmap([](const Tensor& x, const Tensor& u) { return Product::apply(x, u); }, {0, unbatched})(xs, v)));
  };
  check_both_orders("a custom function in a batch", [&](const Inputs& in) { return total(in[0]); }, {w});
  expect_close(
      grad([&](const Tensor& v) { return sum(vmap([&](const Tensor& x) { return Product::apply(x, v); })(xs)); })(w),
      sum(xs, {0}), 1e-12);
  expect_close(vmap([&](const Tensor& v) { return grad(total)(v); })(stack({w, w * 2})),
               stack({grad(total)(w), grad(total)(w * 2)}), 1e-12);
}

TEST_P(VmapGrad, InATrace) {
  const Tensor w = random_f64({3, 4}, 0.2, 1, true, 1), xs = random_f64({5, 4}, 0.2, 1, true, 2);
  const auto step = [](const Tensor& v, const Tensor& batch) { return vmap(grad(loss), {unbatched, 0})(v, batch); };
  const Trace program = trace(step, w, xs);
  EXPECT_TRUE(program.constants.empty()) << to_string(program);
  const Inputs others{w * 2, xs + 1};
  expect_close(run_trace(program, others)[0], step(others[0], others[1]), 1e-12);
}

TEST_P(VmapGrad, UnderAutocast) {
  const Tensor w = random_f64({3, 4}, 0.2, 1, true, 1).astype(DType::f32);
  const Tensor xs = random_f64({5, 4}, 0.2, 1, true, 2).astype(DType::f32);
  const AutocastGuard narrow(DType::bf16);
  const auto product = [&](const Tensor& x) { return matmul(w, x); };
  const auto slope = [&](const Tensor& v, const Tensor& x) { return grad(loss)(v, x); };
  const Tensor products = vmap(product)(xs), slopes = vmap(slope, {unbatched, 0})(w, xs);
  EXPECT_EQ(products.dtype(), DType::bf16);
  EXPECT_EQ(slopes.dtype(), DType::f32);
  for (std::int64_t i = 0; i < 5; ++i) {
    expect_close(products[i], product(xs[i]), 1e-2);
    expect_close(slopes[i], slope(w, xs[i]), 3e-2);
  }
}

TEST_P(VmapGrad, ErrorsAcrossLevels) {
  const auto text = [](auto&& f) -> std::string {
    try {
      f();
    } catch (const GradientError& error) {
      const std::string all = error.what();
      const std::size_t at = all.find("  at "), end = all.find('\n', at);
      return all.substr(0, at) + all.substr(end + 1);
    }
    return "no error";
  };
  const Tensor xs = ones({3, 2});
  Tensor w = ones({2});
  w.requires_grad(true);
  EXPECT_EQ(
      text([&] {
        vmap([&](const Tensor& x) {
          sum(w * x).backward();
          return x;
        })(xs);
      }),
      "FM1714 GradientError: backward: y has no history inside this vmap\n"
      "  y    f32[]\n"
      "  hint use grad(f) for gradients inside vmap; take gradients of captured tensors outside, of the result of vmap");
  EXPECT_EQ(text([&] { vmap([&](const Tensor& x) { return gradients(sum(w * x), {w})[0]; })(xs); }),
            "FM1747 GradientError: gradients: x was not computed inside the vmap that y was computed in\n"
            "  x    f32[2]\n"
            "  hint pass x to grad(f) as an argument; take gradients of the whole batch outside vmap");
  EXPECT_FALSE(w.grad().defined());
  // A gradient that fails inside leaves the thread as it was.
  EXPECT_THROW(vmap(grad([](const Tensor& x) { return sum(x + ones({5})); }))(xs), ShapeError);
  EXPECT_TRUE(grad_enabled());
  EXPECT_EQ(row(vmap(grad([](const Tensor& x) { return sum(x * x); }))(xs)), Row(6, 2));
}

}  // namespace
}  // namespace fermata
