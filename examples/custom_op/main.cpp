// Two operators from outside in everything that the engine does: eager and recorded, fused, compiled, differentiated,
// under autocast and under vmap. Returns non-zero where a result is wrong.
#include <fermata/fermata.h>

#include <cmath>
#include <iostream>

#include "dispatch/registration.h"
#include "series.h"

namespace fm = fermata;

namespace {

int wrong = 0;

void expect(bool holds, const std::string& what) {
  std::cout << (holds ? "  ok     " : "  WRONG  ") << what << '\n';
  wrong += holds ? 0 : 1;
}
bool close(const fm::Tensor& got, const std::vector<double>& wanted, double tolerance = 1e-5) {
  const std::vector<double> values = got.to_vector<double>();
  if (values.size() != wanted.size()) return false;
  for (std::size_t i = 0; i < values.size(); ++i)
    if (!(std::abs(values[i] - wanted[i]) < tolerance)) return false;
  return true;
}

std::vector<double> average(const std::vector<double>& x, std::size_t length, double decay) {
  std::vector<double> y(x.size());
  for (std::size_t i = 0; i < x.size(); ++i) y[i] = (i % length == 0 ? 0 : decay * y[i - 1]) + (1 - decay) * x[i];
  return y;
}

void values_and_views(const fm::Tensor& x) {
  const std::vector<double> in = x.to_vector<double>();
  expect(close(series::ema(x, 0.9), average(in, 8, 0.9)), "series::ema gives the average");
  expect(close(series::ema(x.mT(), 0.5), average(x.mT().to_vector<double>(), 4, 0.5)), "of a transposed view too");
  expect(series::ema(fm::astype(x, fm::DType::bf16), 0.9).dtype() == fm::DType::bf16, "bf16 stays bf16");
  std::vector<double> logs;
  for (const double v : in) logs.push_back(std::copysign(std::log1p(std::abs(v)), v));
  expect(close(series::symlog(x), logs), "series::symlog gives the signed logarithm");
}

void gradients(const fm::Tensor& x) {
  fm::Tensor leaf = fm::astype(x, fm::DType::f64);
  leaf.requires_grad(true);
  const auto f = [](const fm::Tensor& t) { return fm::sum(fm::square(series::symlog(series::ema(t, 0.7)))); };
  f(leaf).backward();
  const std::vector<double> at = leaf.to_vector<double>(), slope = leaf.grad().to_vector<double>();
  double worst = 0;
  for (std::size_t i = 0; i < at.size(); ++i) {
    constexpr double h = 1e-5;
    std::vector<double> up = at, down = at;
    up[i] += h, down[i] -= h;
    const auto value = [&](const std::vector<double>& v) {
      return f(fm::from_buffer(v.data(), fm::DType::f64, {4, 8})).item<double>();
    };
    worst = std::max(worst, std::abs((value(up) - value(down)) / (2 * h) - slope[i]));
  }
  expect(worst < 1e-6, "gradients through both agree with differences, worst " + std::to_string(worst));
  leaf.zero_grad();
}

void autocast(const fm::Tensor& x) {
  const fm::Tensor narrow = fm::astype(x, fm::DType::bf16);
  const fm::AutocastGuard region;
  expect(series::ema(narrow, 0.9).dtype() == fm::DType::f32, "autocast runs series::ema in f32");
}

void vmap(const fm::Tensor& x) {
  const auto loops = fm::stats().vmap_loops;
  const fm::Tensor each = fm::vmap([](const fm::Tensor& row) { return series::ema(series::symlog(row), 0.9); })(x);
  expect(close(each, series::ema(series::symlog(x), 0.9).to_vector<double>()), "vmap over rows gives the whole");
  const auto per_row = [](const fm::Tensor& row) { return fm::sum(fm::square(series::ema(row, 0.9))); };
  const fm::Tensor slopes = fm::vmap(fm::grad(per_row))(x);
  expect(slopes.shape() == x.shape(), "vmap(grad(f)) gives a gradient per row");
  expect(fm::stats().vmap_loops == loops, "by the batching rule and not in a loop");
}

void compiled(const fm::Tensor& x) {
  auto f = fm::compile([](const fm::Tensor& t) { return fm::exp(series::symlog(series::ema(t + 1, 0.9)) * 2) - 1; });
  const std::vector<double> wanted = f(x).to_vector<double>();
  const int before = series::kernel_runs();
  const auto kernels = fm::stats().kernels_compiled;
  expect(close(f(x), wanted), "a compiled function replays");
  expect(series::kernel_runs() == before + 1 && fm::stats().kernels_compiled == kernels,
         "with one call of the kernel, and nothing compiled");
}

}  // namespace

int main() {
  fm::manual_seed(3);
  const fm::Tensor x = fm::randn({4, 8});
  for (const fm::Mode mode : {fm::Mode::eager, fm::Mode::compiled}) {
    std::cout << (mode == fm::Mode::eager ? "eager\n" : "compiled\n");
    const fm::ModeGuard guard(mode);
    for (int sight = 0; sight < 2; ++sight) values_and_views(x);  // the second sight of a structure compiles it
    gradients(x);
    autocast(x);
    vmap(x);
  }
  std::cout << "compile(fn)\n";
  compiled(x);
  try {
    series::ema(fm::tensor(1.0f), 0.5);
    expect(false, "a 0-d tensor is an error");
  } catch (const fm::ShapeError& error) { std::cout << error.what() << '\n'; }

  const fm::Tensor y = fm::exp(series::symlog(series::ema(x + 1, 0.9)) * 2) - 1;
  std::cout << "\nsymlog fuses with its neighbors, ema is a call step among them\n"
            << fm::explain(y) << "\nthe rows\n"
            << fm::describe_row("series::ema") << fm::describe_row("series::symlog");
  return wrong == 0 ? 0 : 1;
}
