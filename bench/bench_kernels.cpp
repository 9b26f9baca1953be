// How fast the work itself is: every program eager and compiled, on one thread and on two, beside what the machine can
// do.
//
// A row's time is wall time of one run: recording, playing, and freeing the results. Inputs are there before. A
// compiled row is only timed if it gives what eager mode gives.
#include <benchmark/benchmark.h>
#include <fermata/fermata.h>

#include <atomic>
#include <chrono>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "bench/check.h"
#include "bench/machine_limits.h"
#include "bench/programs.h"
#include "runtime/allocator.h"
#include "runtime/thread_pool.h"

namespace bench {
namespace {

constexpr std::int64_t k16M = std::int64_t{1} << 24;
constexpr std::size_t kCopyBytes = std::size_t{64} << 20;

using Results = std::vector<Tensor>;
/// A program with its inputs in place.
using Body = std::function<Results()>;
struct Case {
  std::string name;
  std::function<Body()> prepare;  // the same inputs at every call
};

Tensor normal(std::uint64_t seed, const fm::Shape& sizes) {
  fm::Generator generator(seed);
  return fm::normal(sizes, 0, 1, fm::DType::f32, generator).sync();
}

Case unary_case(std::string name, const fm::Shape& sizes, Tensor (*program)(const Tensor&)) {
  return {std::move(name), [=] { return Body([x = normal(1, sizes), program] { return Results{program(x)}; }); }};
}

Body prepare_small_products() {
  std::vector<Tensor> a, b;
  for (std::uint64_t i = 0; i < 64; ++i) a.push_back(normal(2 * i, {32, 32})), b.push_back(normal(2 * i + 1, {32, 32}));
  return [a, b] {
    Results products;
    for (std::size_t i = 0; i < a.size(); ++i) products.push_back(fm::matmul(a[i], b[i]));
    return products;
  };
}

/// 64K rows of 16 entries anywhere, times 64 columns.
Body prepare_sparse_product() {
  constexpr std::int64_t kRows = 1 << 16, kEntries = 16;
  fm::Generator generator(1);
  const Tensor columns = fm::randint(0, kRows, {kRows * kEntries}, fm::DType::i64, generator);
  const Tensor matrix =
      fm::sparse_csr(fm::arange(kRows + 1) * kEntries, columns, normal(2, {kRows * kEntries}), {kRows, kRows});
  return [matrix, dense = normal(3, {kRows, 64})] { return Results{fm::matmul(matrix, dense)}; };
}

/// 512 rows of u8 times a weight of 4096 rows of i8, with a scale per row, requantised.
Body prepare_quantized_linear() {
  const Tensor x = normal(1, {512, 1024}), w = normal(2, {4096, 1024});
  const Tensor qx = fm::quantize(x, 0.03, 128, fm::DType::qu8), qw = fm::quantize(w, fm::fit_quantization(w, fm::DType::qi8, 0, true));
  fm::int_repr(qx).sync(), fm::int_repr(qw).sync();
  return [qx, qw] { return Results{fm::int_repr(fm::quantized_linear(qx, qw, {}, 1.5, 3))}; };
}

Body prepare_adam() {
  auto adam = std::make_shared<Adam>();
  adam->value = normal(1, {k16M}), adam->gradient = normal(2, {k16M});
  adam->mean = fm::zeros(k16M).sync(), adam->square = fm::zeros(k16M).sync();
  return [adam] { return adam->step(); };
}

std::vector<Case> cases() {
  const fm::Shape big{k16M}, rows{4096, 1024};
  return {
      unary_case("chain10_cheap_16M", big, &chain10_cheap),
      unary_case("chain10_math_16M", big, &chain10_math),
      unary_case("sum_chain10_16M", big, [](const Tensor& x) { return fm::sum(chain10_cheap(x)); }),
      unary_case("sumsq_16M", big, [](const Tensor& x) { return fm::sum(x * x); }),
      unary_case("softmax_4096x1024", rows, [](const Tensor& x) { return fm::softmax(x, -1); }),
      unary_case("layer_norm_4096x1024", rows, [](const Tensor& x) { return fm::layer_norm(x); }),
      unary_case("rms_norm_4096x1024", rows, [](const Tensor& x) { return fm::rms_norm(x); }),
      {"matmul_1024",
       [] {
         return Body([a = normal(1, {1024, 1024}), b = normal(2, {1024, 1024})] { return Results{fm::matmul(a, b)}; });
       }},
      {"matmul_32x64", &prepare_small_products},
      {"mlp_gelu_512x1024x4096",
       [] {
         return Body([x = normal(1, {512, 1024}), w = normal(2, {1024, 4096}), b = normal(3, {4096})] {
           return Results{fm::gelu(fm::matmul(x, w) + b)};
         });
       }},
      {"adam_16M", &prepare_adam},
      {"csr_matmul_64Kx16x64", &prepare_sparse_product},
      {"quantized_linear_512x1024x4096", &prepare_quantized_linear},
      {"attention_8x8x512x64",
       [] {
         const fm::Shape sizes{8, 8, 512, 64};
         return Body([q = normal(1, sizes), k = normal(2, sizes), v = normal(3, sizes)] {
           return Results{attention(q, k, v)};
         });
       }},
      {"conv_relu_16x64x56x56",
       [] {
         return Body([x = normal(1, {16, 64, 56, 56}), w = normal(2, {64, 64, 3, 3}), b = normal(3, {64})] {
           return Results{fm::relu(fm::conv2d(x, w, b, 1, 1))};
         });
       }},
      unary_case("max_pool_16x64x56x56", {16, 64, 56, 56}, [](const Tensor& x) { return fm::max_pool2d(x, 2); }),
  };
}

Results run(const Body& body) {
  Results results = body();
  fm::sync(results);
  return results;
}

void kernel(benchmark::State& state, const Case& c, fm::Mode mode, int threads) {
  fm::set_thread_count(threads);
  const fm::ModeGuard guard(mode);
  if (mode == fm::Mode::compiled) {
    Results wanted;
    {
      const fm::ModeGuard eager(fm::Mode::eager);
      wanted = run(c.prepare());
    }
    if (const std::string d = difference(run(c.prepare()), wanted); !d.empty()) return state.SkipWithError(d.c_str());
  }
  const Body body = c.prepare();
  run(body);
  for (auto _ : state) run(body);
}

/// Two ranges of warm pages.
struct CopyRanges {
  fm::Allocation from = fm::allocate_bytes(kCopyBytes), to = fm::allocate_bytes(kCopyBytes);
  CopyRanges() { std::memset(from.data, 1, kCopyBytes), std::memset(to.data, 2, kCopyBytes); }
  ~CopyRanges() { fm::release_bytes(from), fm::release_bytes(to); }
};

void copy_64MiB(benchmark::State& state, int threads) {
  using Clock = std::chrono::steady_clock;
  const CopyRanges ranges;
  const Copy* best = nullptr;
  auto least = Clock::duration::max();
  for (int round = 0; round < 10; ++round)
    for (const Copy& copy : copies()) {
      const auto start = Clock::now();
      copy_on_threads(copy, ranges.to.data, ranges.from.data, kCopyBytes, threads);
      if (const auto time = Clock::now() - start; time < least) least = time, best = &copy;
    }
  state.SetLabel(std::string(best->name));
  for (auto _ : state) copy_on_threads(*best, ranges.to.data, ranges.from.data, kCopyBytes, threads);
  if (std::memcmp(ranges.from.data, ranges.to.data, kCopyBytes) != 0) state.SkipWithError("the copy differs");
}

void fma_peak(benchmark::State& state, int threads) {
  constexpr std::size_t kRounds = 1'000'000;
  constexpr double kNanoseconds = 3e6;  // more than the pool wants for splitting a loop
  fm::set_thread_count(threads);
  double operations = 0;
  const auto start = std::chrono::steady_clock::now();
  for (auto _ : state) {
    std::atomic<double> done{0};
    fm::parallel_for(0, threads, kNanoseconds, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) done.fetch_add(run_fma(kRounds));
    });
    operations += done;
  }
  state.counters["flops"] =
      operations / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

void register_all() {
  for (const int threads : {1, 2}) {
    const std::string suffix = "/threads:" + std::to_string(threads);
    benchmark::RegisterBenchmark(("copy_64MiB" + suffix).c_str(), copy_64MiB, threads)->Unit(benchmark::kMillisecond);
    benchmark::RegisterBenchmark(("fma_peak" + suffix).c_str(), fma_peak, threads)->Unit(benchmark::kMillisecond);
  }
  for (const Case& c : cases())
    for (const fm::Mode mode : {fm::Mode::eager, fm::Mode::compiled})
      for (const int threads : {1, 2}) {
        const std::string name =
            c.name + (mode == fm::Mode::eager ? "/eager" : "/compiled") + "/threads:" + std::to_string(threads);
        benchmark::RegisterBenchmark(name.c_str(), kernel, c, mode, threads)->Unit(benchmark::kMillisecond);
      }
}

}  // namespace
}  // namespace bench

int main(int argc, char** argv) {
  fermata::set_compile_policy(fermata::CompilePolicy::immediate);
  bench::register_all();
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
}
