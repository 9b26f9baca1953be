// What a device does with the programs of docs/benchmarks.md: one line for each, its name and milliseconds for one run,
// eager and compiled; with an argument, those whose names have it. scripts/gpu-check.sh puts it beside the same
// programs in PyTorch (scripts/gpu_bench_torch.py).
//
// No library for benchmarks, so that it runs wherever Fermata does.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <string_view>
#include <vector>

#include "fermata/fermata.h"

namespace {

namespace fm = fermata;
using fm::Tensor;
using Program = std::function<Tensor()>;

/// The best of several batches, each waited for once: what is enqueued overlaps, as in a program.
double milliseconds(const Program& program) {
  using Clock = std::chrono::steady_clock;
  for (int i = 0; i < 3; ++i) program().sync();
  double best = 1e30;
  for (int batch = 0; batch < 7; ++batch) {
    constexpr int kRuns = 10;
    const auto start = Clock::now();
    Tensor last;
    for (int i = 0; i < kRuns; ++i) {
      last = program();
      fm::flush({last});
    }
    last.sync();
    best = std::min(best, std::chrono::duration<double, std::milli>(Clock::now() - start).count() / kRuns);
  }
  return best;
}

std::string_view wanted;  // a part of the names to run

void report(const char* name, const Program& program) {
  if (std::string_view(name).find(wanted) == std::string_view::npos) return;
  for (const fm::Mode mode : {fm::Mode::eager, fm::Mode::compiled}) {
    const fm::ModeGuard guard(mode);
    std::printf("%-24s %-9s %10.4f\n", name, mode == fm::Mode::eager ? "eager" : "compiled", milliseconds(program));
    std::fflush(stdout);
  }
}

Tensor chain10_cheap(const Tensor& x) {
  return fm::abs(fm::maximum(((((x + 0.5) * x - 1.5) * x + 0.25) * x - 0.75), 0.1) * -2);
}
Tensor chain10_math(const Tensor& x) {
  return fm::sqrt(fm::abs(fm::sigmoid(fm::exp(fm::tanh(x * 1.01 + 0.5) * -2) + 0.1) - x));
}

}  // namespace

int main(int argc, char** argv) try {
  if (argc > 1) wanted = argv[1];
  if (!fm::cuda_available()) {
    std::puts("CUDA cannot be used here; `fermata doctor` says why");
    return 1;
  }
  const auto random = [](const fm::IntegerList& sizes) { return fm::randn(sizes).to(fm::cuda()); };
  const Tensor x = random({1 << 24}), rows = random({4096, 1024}),
               ones = fm::ones({1024}, fm::DType::f32, fm::cuda()).sync();
  report("chain10_cheap_16M", [&] { return chain10_cheap(x); });
  report("chain10_math_16M", [&] { return chain10_math(x); });
  report("sum_chain10_16M", [&] { return fm::sum(chain10_cheap(x)); });
  report("sumsq_16M", [&] { return fm::sum(fm::square(x)); });
  report("softmax_4096x1024", [&] { return fm::softmax(rows, -1); });
  report("layer_norm_4096x1024", [&] { return fm::layer_norm(rows, ones, ones); });
  report("rms_norm_4096x1024", [&] { return fm::rms_norm(rows, ones); });
  const Tensor left = random({1024, 1024}), right = random({1024, 1024});
  report("matmul_1024", [&] { return fm::matmul(left, right); });
  const Tensor m = random({64, 32, 32}), n = random({64, 32, 32});
  report("matmul_32x64", [&] { return fm::matmul(m, n); });
  const Tensor hidden = random({512, 1024}), up = random({4096, 1024}), bias = random({4096}),
               down = random({1024, 4096}), last = random({1024});
  report("mlp_gelu_512x1024x4096", [&] { return fm::linear(fm::gelu(fm::linear(hidden, up, bias)), down, last); });
  const Tensor q = random({8, 8, 512, 64}), k = random({8, 8, 512, 64}), v = random({8, 8, 512, 64});
  const auto attention = [](const Tensor& a, const Tensor& b, const Tensor& c) {
    return fm::matmul(fm::softmax(fm::matmul(a, b.mT()) * 0.125, -1), c);
  };
  report("attention_8x8x512x64", [&] { return attention(q, k, v); });
  const Tensor hq = q.astype(fm::DType::f16), hk = k.astype(fm::DType::f16), hv = v.astype(fm::DType::f16);
  report("attention_8x8x512x64_f16", [&] { return attention(hq, hk, hv); });
  const Tensor square = random({4096, 4096}), half_square = square.astype(fm::DType::bf16);
  report("matmul_4096", [&] { return fm::matmul(square, square); });
  report("matmul_4096_bf16", [&] { return fm::matmul(half_square, half_square); });
  report("transpose_4096", [&] { return fm::copy(square.mT()); });
  report("add_transposed_4096", [&] { return square + square.mT(); });
  report("sum_axis0_4096", [&] { return fm::sum(square, 0); });
  report("softmax_axis0_4096", [&] { return fm::softmax(square, 0); });
  report("cumsum_16M", [&] { return fm::cumsum(x); });
  report("cumsum_axis0_4096", [&] { return fm::cumsum(square, 0); });
  report("sort_4096x4096", [&] { return fm::sort(square); });
  const Tensor some = fm::take(x, fm::arange(1 << 20).to(fm::cuda()));
  report("sort_1M", [&] { return fm::sort(some); });
  const Tensor order = fm::argsort(random({4096}));
  report("take_rows_4096", [&] { return fm::take(square, order); });
  report("index_add_rows_4096", [&] { return fm::index_add(square, order, square); });
  const Tensor image = random({16, 64, 56, 56}), filter = random({64, 64, 3, 3});
  report("conv2d_16x64x56x56", [&] { return fm::conv2d(image, filter, {}, 1, 1); });
  const Tensor half_image = image.astype(fm::DType::f16), half_filter = filter.astype(fm::DType::f16);
  report("conv2d_16x64x56x56_f16", [&] { return fm::conv2d(half_image, half_filter, {}, 1, 1); });
  const auto loss = [](const Tensor& a, const Tensor& w) { return fm::sum(fm::conv2d(a, w, {}, 1, 1)); };
  report("conv2d_gradients", [&] {
    const auto [da, dw] = fm::grad<0, 1>(loss)(image, filter);
    return fm::sum(da) + fm::sum(dw);
  });
  const Tensor mix = random({256, 64, 1, 1});
  report("conv2d_1x1", [&] { return fm::conv2d(image, mix); });
  const Tensor small = random({1000});
  report("calls_100_of_1000", [&] {
    Tensor y = small;
    for (int i = 0; i < 100; ++i) y = fm::sin(y) + small;
    return y;
  });
  return 0;
} catch (const fm::Error& error) {
  std::puts(error.what());
  return 1;
}
