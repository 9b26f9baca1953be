// checkpoint(f): the values and gradients of f, with less kept in between.
#include "fermata/checkpoint.h"

#include <gtest/gtest.h>

#include "fermata/fermata.h"
#include "runtime/allocator.h"
#include "tests/frontend/gradient_check.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;

class Checkpoint : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Checkpoint, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

TEST_P(Checkpoint, HasTheDerivativesOfTheFunction) {
  const Function f = [](const Inputs& in) {
    const Tensor w = in[1];  // mentioned, and no argument
    const auto block = [w](const Tensor& x, int power) { return tanh(matmul(x, w)) * pow(x, power); };
    return checkpoint(block)(checkpoint(block)(in[0], 2), 3);
  };
  check_both_orders("checkpoint", f, {random_f64({2, 3}, 0.5, 1.5, true, 1), random_f64({3, 3}, 0.5, 1.5, true, 2)});
}

TEST_P(Checkpoint, OfSeveralResults) {
  const auto f = [](const std::vector<Tensor>& xs) { return std::tuple(xs[0] * xs[1], argmax(xs[0]), sum(xs[1])); };
  const std::vector<Tensor> xs{random_f64({3}, 0.5, 1.5, true, 1), random_f64({3}, 0.5, 1.5, true, 2)};
  const auto [value, gradient] = value_and_grad([&](const std::vector<Tensor>& at) {
    const auto [product, place, total] = checkpoint(f)(at);
    return std::pair(sum(product) * total, place);
  })(xs);
  const auto plain = grad([](const std::vector<Tensor>& at) { return sum(at[0] * at[1]) * sum(at[1]); })(xs);
  EXPECT_EQ(value.second.item<int>(), argmax(xs[0]).item<int>());
  for (std::size_t i = 0; i < 2; ++i) expect_close(gradient[i], plain[i], 1e-15);
}

TEST_P(Checkpoint, UnderVmap) {
  const Tensor w = random_f64({3}, 0.5, 1.5, true, 1), x = random_f64({4, 3}, 0.5, 1.5, true, 2);
  const auto f = [](const Tensor& weight, const Tensor& a) {
    return sum(checkpoint([weight](const Tensor& b) { return sin(b * weight); })(a));
  };
  const Tensor expected = cos(x * w) * x;
  expect_close(vmap(grad(f), {unbatched, 0})(w, x), expected, 1e-14);
  expect_close(grad([&](const Tensor& weight) {
                 return sum(vmap(f, {unbatched, 0})(weight, x));
               })(w),
               sum(expected, {0}), 1e-14);
  expect_close(grad<1>([&](const Tensor& weight, const Tensor& a) {
                 return sum(vmap(f, {unbatched, 0})(weight, a));
               })(w, x),
               cos(x * w) * w, 1e-14);
  const auto vector = [](const Tensor& a) { return checkpoint([](const Tensor& b) { return b * b * sum(b); })(a); };
  expect_close(jacrev(vector)(w), jacfwd(vector)(w), 1e-14);
}

TEST_P(Checkpoint, RepeatsItsDraws) {
  const auto dropped = [](const Tensor& x) { return x * rand(x.shape(), DType::f64); };
  const Tensor x = ones({5}, DType::f64);
  manual_seed(4);
  const auto [value, gradient] = value_and_grad([&](const Tensor& a) {
    const Tensor y = checkpoint(dropped)(a);
    return std::pair(sum(y), y);
  })(x);
  expect_close(gradient, value.second, 0);
  const Tensor next = rand({2}, DType::f64);
  manual_seed(4);
  expect_close(dropped(x), value.second, 0);
  expect_close(rand({2}, DType::f64), next, 0);
}

TEST_P(Checkpoint, LeavesCollectThroughIt) {
  const Tensor w = tensor({2.0, 3.0}, DType::f64).requires_grad(true),
               x = tensor({5.0, 7.0}, DType::f64).requires_grad(true);
  sum(checkpoint([w](const Tensor& a) { return a * a * w; })(x)).backward();
  expect_close(w.grad(), square(x).detach(), 0);
  expect_close(x.grad(), (x * w * 2).detach(), 0);
  EXPECT_FALSE(no_grad([&] { return checkpoint([w](const Tensor& a) { return a * w; })(x); }).requires_grad());
}

/// A deep chain of layers, each of which needs its result in the backward pass.
Tensor chain(const Tensor& x, bool checkpointed) {
  constexpr int kBlocks = 6, kLayers = 6;
  const auto block = [](const Tensor& a) {
    Tensor y = a;
    for (int i = 0; i < kLayers; ++i) y = tanh(sum(y * y, {1}, true) * 0.01 + y);
    return y;
  };
  Tensor y = x;
  for (int i = 0; i < kBlocks; ++i) y = checkpointed ? checkpoint(block)(y) : block(y);
  return sum(y);
}

std::uint64_t peak_of(const std::function<void()>& run) {
  reset_peak_memory();
  const std::uint64_t before = stats().peak_bytes;
  run();
  return stats().peak_bytes - before;
}

TEST_P(Checkpoint, KeepsLess) {
  const Tensor x = random_f64({256, 256}, 0.1, 0.2, true, 1);
  x.sync();
  Tensor kept, dropped;
  const std::uint64_t all = peak_of([&] { (kept = grad([](const Tensor& a) { return chain(a, false); })(x)).sync(); });
  const std::uint64_t less =
      peak_of([&] { (dropped = grad([](const Tensor& a) { return chain(a, true); })(x)).sync(); });
  expect_close(dropped, kept, 1e-12);

  // What is recorded is computed turn by turn of the chain, and keeps less than eager calls by that alone.
  if (GetParam() == Mode::compiled)
    EXPECT_LT(less * 3, all * 2);
  else
    EXPECT_LT(less * 2, all);
}

/// In one plan for both passes the recomputation waits for the gradient.
TEST(CheckpointCompiled, IsPartOfACompiledFunction) {
  auto plain = compile([](const Tensor& x) { return grad([](const Tensor& a) { return chain(a, false); })(x); });
  auto less = compile([](const Tensor& x) { return grad([](const Tensor& a) { return chain(a, true); })(x); });
  const Tensor x = random_f64({64, 256}, 0.1, 0.2, true, 1);
  for (int i = 0; i < 3; ++i) expect_close(less(x), plain(x), 1e-12);
  const std::uint64_t all = peak_of([&] { plain(x); }), some = peak_of([&] { less(x); });
  EXPECT_LT(some * 2, all);
}

}  // namespace
}  // namespace fermata
