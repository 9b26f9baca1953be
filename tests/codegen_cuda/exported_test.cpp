// Exported programs on CUDA: on the host executor, unless FERMATA_CUDA_EXECUTOR says otherwise. The engine, which makes
// files, and libfermata_run_cuda, which runs them, each have a device of their own then.
#include <fermata/program.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>

#include "codegen_cuda/api/libraries.h"
#include "codegen_cuda/runtime/device.h"
#include "fermata/control_flow.h"
#include "fermata/export.h"
#include "fermata/fermata.h"
#include "frontend/run/program_file.h"
#include "tests/codegen_cuda/device_case.h"
#include "tests/codegen_cuda/export_to_cuda.h"
#include "tests/error_message.h"
#include "tests/fuzz/random_program.h"
#include "tests/run/program_folder.h"
#include "tests/run/program_results.h"

namespace fermata {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using testing::message;

TEST_F(ExportToCuda, AModelGivesWhatTheFunctionGives) {
  manual_seed(3);
  const Tensor w = randn({12, 8}), b = randn({8}), v = randn({8, 5});
  const auto model = [&](const Tensor& x) { return softmax(matmul(gelu(matmul(x, w) + b), v), -1); };
  const Tensor x = randn({4, 12}).sync();
  const ExportSummary summary = export_program(path(), {.cuda = architectures()}, model, x);
  EXPECT_EQ(summary.calls, 2u);
  EXPECT_GT(summary.cuda_functions, 2u);
  EXPECT_EQ(summary.code_bytes, 0u);
  const run::Program program = loaded();
  for (int i = 0; i < 4; ++i) expect_result(program.run(views({x})), 0, model(x));  // recorded and replayed
  const gpu::DeviceInfo& info = gpu::current_device().info();
  const std::string own = "sm_" + std::to_string(info.major) + std::to_string(info.minor);
  EXPECT_EQ(program.target(), gpu::on_host_executor() ? "host" : own);
}

TEST_F(ExportToCuda, OneFileIsForProcessorsAndDevices) {
  if (!exports_for_processors(path())) GTEST_SKIP() << "this build has no compiler for processors";
  const Tensor w = randn({30, 30});
  const auto f = [&](const Tensor& x) { return matmul(x, w) + 1.0; };
  const Tensor x = randn({4, 30}).sync();
  const ExportSummary both = export_program(path(), {.targets = {Target::avx2}, .cuda = architectures()}, f, x);
  EXPECT_EQ(both.constant_bytes, 3600u);  // once
  EXPECT_GT(both.code_bytes, 0u);
  EXPECT_GT(both.cuda_bytes, 0u);
  EXPECT_EQ(run::Program(path()).target(), "avx2");
  EXPECT_EQ(run::Program(path(), "cpu").target(), "avx2");
  expect_result(run::Program(path(), "cpu").run(views({x})), 0, f(x));
  expect_result(run::Program(path(), "cuda:0").run(views({x})), 0, f(x));
  loaded().verify();
  export_program(path(), {.cuda = architectures()}, f, x);
  expect_result(run::Program(path()).run(views({x})), 0, f(x));  // there is no other code
}

TEST_F(ExportToCuda, SizesThatAreDynamicNeedNoCompiler) {
  manual_seed(4);
  const Tensor w = randn({12, 6});
  const auto model = [&](const Tensor& x, const Tensor& mask) {
    const Tensor y = reshape(matmul(x, w), {x.size(0) * x.size(1), 2, 3});
    const Tensor means = mean(y, {1, 2});
    const Tensor half = x.slice(1, 0, x.size(1) / 2);
    return std::array{where(mask, reshape(means, {x.size(0), x.size(1)}), 0), sum(half, {-1}), var(x),
                      transpose(reshape(x, {x.size(0) * x.size(1), 12})) * 2};
  };
  const auto arguments = [](std::int64_t batch, std::int64_t length) {
    const Tensor x = randn({batch, length, 12});
    const Tensor mask = rand({batch, length}) > 0.5;
    sync({x, mask});
    return std::array{x, mask};
  };
  const auto [x, mask] = arguments(3, 4);
  export_program(path(),
                 {.cuda = architectures(),
                  .dynamic = {{"x", 0, "batch"}, {"x", 1, "length"}, {"mask", 0, "batch"}, {"mask", 1, "length"}},
                  .inputs = {"x", "mask"}},
                 model, x, mask);
  const run::Program program = loaded();
  for (const auto& [batch, length] : {std::pair{3, 4}, {1, 1}, {1, 9}, {17, 1}, {5, 6}, {2, 2}, {1, 700}, {40, 3}}) {
    SCOPED_TRACE(std::to_string(batch) + " " + std::to_string(length));
    const auto [y, m] = arguments(batch, length);
    const run::Results results = program.run(views({y, m}));
    const auto wanted = model(y, m);
    for (std::size_t i = 0; i < wanted.size(); ++i) expect_result(results, i, wanted[i], 1e-4);
  }
}

TEST_F(ExportToCuda, KernelsOfIrregularOpsAreThereForAllSizes) {
  const auto f = [](const Tensor& x, const Tensor& at) {
    const Tensor zeros = x * 0;
    return std::array{sort(x, -1),
                      argsort(x, -1),
                      take(x, at, 1),
                      cumsum(x, 1),
                      cumsum(x, 0),
                      concat({x, zeros}, 1),
                      scatter(zeros, argsort(x, -1), x, 1),
                      flip(matmul(x, transpose(x)), {0})};
  };
  manual_seed(8);
  const Tensor x = randn({3, 7}), at = tensor({6, 0, 3});
  export_program(path(),
                 {.cuda = architectures(),
                  .dynamic = {{"input0", 0, "rows"}, {"input0", 1, "columns", 7}, {"input1", 0, "count"}}},
                 f, x, at);
  const run::Program program = loaded();
  std::vector<std::pair<std::int64_t, std::int64_t>> sizes{{3, 7}, {1, 7}, {50, 9}, {2, 600}, {600, 8}};
  std::mt19937_64 random(test::seed_or(5));
  for (std::int64_t i = test::fuzz_count_or(0); i > 0; --i) {
    const auto size = [&](std::int64_t least) {
      return std::max(least, static_cast<std::int64_t>(random() % (std::uint64_t{2} << random() % 10)));
    };
    sizes.emplace_back(size(1), size(7));
  }
  for (const auto& [rows, columns] : sizes) {
    SCOPED_TRACE(std::to_string(rows) + " " + std::to_string(columns));
    const Tensor y = randn({rows, columns});
    sync({y, at});
    const run::Results results = program.run(views({y, at}));
    const auto wanted = f(y, at);
    for (std::size_t i = 0; i < wanted.size(); ++i) expect_result(results, i, wanted[i], 1e-4);
  }
}

/// A step of a decoder with a cache of keys and values.
std::array<Tensor, 3> attend(const Tensor& query, const Tensor& keys, const Tensor& values, const Tensor& key,
                             const Tensor& value) {
  const Tensor all_keys = concat({keys, key}, 1), all_values = concat({values, value}, 1);
  const Tensor weights = softmax(matmul(query, transpose(all_keys)) * 0.25, -1);
  return {matmul(weights, all_values), all_keys, all_values};
}

TEST_F(ExportToCuda, ResultsMayStayOnTheDevice) {
  manual_seed(12);
  export_program(path(),
                 {.cuda = architectures(),
                  .dynamic = {{"keys", 1, "past"}, {"values", 1, "past"}},
                  .inputs = {"query", "keys", "values", "key", "value"},
                  .outputs = {"out", "keys", "values"}},
                 attend, randn({2, 1, 16}), randn({2, 3, 16}), randn({2, 3, 16}), randn({2, 1, 16}), randn({2, 1, 16}));
  const run::Program program = loaded();
  Tensor keys = randn({2, 1, 16}).sync(), values = randn({2, 1, 16}).sync();
  const auto start = views({keys, values});
  run::Tensor cached_keys = start[0], cached_values = start[1];
  std::vector<run::Results> steps;
  for (int step = 0; step < 6; ++step) {
    const Tensor query = randn({2, 1, 16}).sync(), key = randn({2, 1, 16}).sync(), value = randn({2, 1, 16}).sync();
    const auto host = views({query, key, value});
    steps.push_back(program.run_on_device({host[0], cached_keys, cached_values, host[1], host[2]}));
    const auto wanted = attend(query, keys, values, key, value);
    keys = wanted[1].sync(), values = wanted[2].sync();
    std::vector<float> out(32);
    steps.back().copy(0, out.data());
    const std::vector<float> want = wanted[0].to_vector<float>();
    for (std::size_t i = 0; i < out.size(); ++i) ASSERT_NEAR(out[i], want[i], 1e-5);
    cached_keys = steps.back()[1], cached_values = steps.back()[2];
    EXPECT_EQ(cached_keys.sizes, (std::vector<std::int64_t>{2, step + 2, 16}));
  }
  std::vector<float> last(2 * 7 * 16);
  steps.back().copy(1, last.data());
  EXPECT_EQ(last, keys.to_vector<float>());
  EXPECT_THROW(steps.back().copy(3, last.data()), run::Error);
  // Results of one run are read where they are, and results of another one go there.
  const Tensor query = randn({2, 1, 16}).sync(), key = randn({2, 1, 16}).sync(), value = randn({2, 1, 16}).sync();
  const auto host = views({query, key, value});
  std::vector<float> out(32);
  run::Program again = loaded();
  again.run_into({host[0], steps[0][1], steps[0][2], host[1], host[2]},
                 {run::tensor(out.data(), {2, 1, 16}), steps[1][1], {nullptr, FERMATA_F32, {}}});
  std::vector<float> written(2 * 3 * 16), first(2 * 2 * 16);
  steps[1].copy(1, written.data()), steps[0].copy(1, first.data());
  EXPECT_TRUE(std::equal(first.begin(), first.begin() + 32, written.begin()));
  again.wait();
}

TEST_F(ExportToCuda, ControlFlowOfAnySize) {
  manual_seed(9);
  const Tensor w = randn({5});
  const auto f = [&](const Tensor& x) {
    const auto done =
        while_loop([](const Tensor& y, const Tensor& i) { return logical_and(sum(abs(y)) < 1e4, i < 20); },
                   [&](const Tensor& y, const Tensor& i) {
                     const Tensor next = cond(
                         i == 3, [&](const Tensor& a) { return sort(a + w, -1); },
                         [](const Tensor& a) { return cumsum(a * 1.5 - 0.1, 0); }, y);
                     return std::tuple(next, i + 1);
                   },
                   std::tuple(x, full({}, 0, DType::i64)));
    const auto [last, sums] = scan(
        [&](const Tensor& carry, const Tensor& row) {
          const Tensor next = tanh(carry * 0.5 + row);
          return std::pair(next, sum(next));
        },
        full({x.size(1)}, 0.25), x, true);
    return std::array{std::get<0>(done) + std::get<1>(done), last, sums};
  };
  export_program(path(), {.cuda = architectures(), .dynamic = {{"input0", 0, "rows"}}}, f, randn({3, 5}));
  const run::Program program = loaded();
  for (const std::int64_t rows : {3, 1, 4, 19, 4}) {
    SCOPED_TRACE(rows);
    const Tensor y = randn({rows, 5}).sync();
    const run::Results results = program.run(views({y}));
    const auto wanted = f(y);
    for (std::size_t i = 0; i < wanted.size(); ++i) expect_result(results, i, wanted[i], 1e-4);
  }
}

TEST_F(ExportToCuda, AttentionRunsAsOneKernelOrAsThree) {
  manual_seed(14);
  const auto f = [](const Tensor& q, const Tensor& k, const Tensor& v, const Tensor& mask) {
    return matmul(softmax(where(mask, matmul(q, transpose(k)) / 4.0, -1e9), -1), v);
  };
  const auto arguments = [](std::int64_t batch, std::int64_t length) {
    const std::vector<Tensor> all{randn({batch, 2, length, 16}), randn({batch, 2, length, 16}),
                                  randn({batch, 2, length, 16}), rand({length, length}) > 0.3};
    sync(all);
    return all;
  };
  const std::vector<Tensor> x = arguments(2, 5);
  std::vector<DynamicAxis> dynamic;
  for (const char* const input : {"q", "k", "v"})
    dynamic.push_back({input, 0, "batch"}), dynamic.push_back({input, 2, "length"});
  dynamic.push_back({"mask", 0, "length"}), dynamic.push_back({"mask", 1, "length"});
  export_program(path(), {.cuda = architectures(), .dynamic = dynamic, .inputs = {"q", "k", "v", "mask"}}, f, x[0],
                 x[1], x[2], x[3]);
  const run::Program program = loaded();
  for (const auto& [batch, length] : {std::pair{2, 5}, {1, 1}, {1, 70}, {3, 2}}) {
    SCOPED_TRACE(std::to_string(batch) + " " + std::to_string(length));
    const std::vector<Tensor> y = arguments(batch, length);
    expect_result(program.run(views(y)), 0, f(y[0], y[1], y[2], y[3]), 1e-4);
  }
}

TEST_F(ExportToCuda, RandomNumbersAreThoseOfTheProcessor) {
  if (!exports_for_processors(path())) GTEST_SKIP() << "this build has no compiler for processors";
  const auto f = [](const Tensor& x) { return x + uniform({64}) + floor(normal({64})); };
  const Tensor x = full({64}, 0.0).sync();
  manual_seed(11);
  export_program(path(), {.targets = {Target::avx2}, .cuda = architectures()}, f, x);
  run::Program here(path(), "cpu"), there = loaded();
  for (const std::uint64_t seed : {21u, 22u}) {
    here.seed(seed), there.seed(seed);
    for (int i = 0; i < 3; ++i) {
      const run::Results a = here.run(views({x})), b = there.run(views({x}));
      EXPECT_TRUE(std::equal(a.data<float>(0), a.data<float>(0) + 64, b.data<float>(0)));
    }
  }
}

TEST_F(ExportToCuda, ThreadsRunOneProgramAtOnce) {
  const Tensor w = randn({16, 16});
  const auto f = [&](const Tensor& x) { return sum(tanh(matmul(x, w)), {1}); };
  export_program(path(), {.cuda = architectures(), .dynamic = {{.input = "input0"}}}, f, randn({4, 16}));
  expect_threads_share(loaded(), f, 8);
}

/// FERMATA_FUZZ_COUNT and FERMATA_SEED choose other ones.
TEST_F(ExportToCuda, RandomProgramsAgreeWithTheCpu) {
  constexpr std::int64_t kSizes[] = {1, 2, 3, 5, 8, 9, 17, 33, 64, 70};
  const std::uint64_t seed = test::seed_or(20250101), count = static_cast<std::uint64_t>(test::fuzz_count_or(6));
  std::size_t compared = 0, refused = 0;
  for (std::uint64_t i = 0; i < count; ++i) {
    SCOPED_TRACE("FERMATA_SEED=" + std::to_string(seed + i) + " FERMATA_FUZZ_COUNT=1");
    std::mt19937_64 random(seed + i);
    testing::AxisSizes sizes;
    for (std::int64_t& size : sizes) size = kSizes[random() % std::size(kSizes)];
    const testing::Program program = testing::random_program(random, 4 + random() % 12, sizes);
    std::vector<testing::Certainty> certainties;
    const auto f = [&](const Tensor& x) {
      testing::Execution execution(sizes);
      execution.run(program);
      std::vector<Tensor> values{x + 1.0};
      certainties.assign(1, testing::Certainty::exact);
      for (const std::uint32_t v : program.kept)
        if (execution.values[v].defined())
          values.push_back(execution.values[v].detach()), certainties.push_back(execution.certainty(v));
      return values;
    };
    const Tensor x = full({3}, 0.5).sync();
    try {
      export_program(path(), {.cuda = architectures()}, f, x);
    } catch (const UnsupportedError& error) {
      ASSERT_EQ(error.code(), 2221) << error.what();
      ++refused;
      continue;
    }
    const run::Results results = loaded().run(views({x}));
    const std::vector<Tensor> wanted = f(x);
    ASSERT_EQ(results.size(), wanted.size());
    for (std::size_t k = 0; k < wanted.size(); ++k) {
      const run::Tensor got = results[k];
      const Shape shape = wanted[k].shape();
      ASSERT_EQ(got.sizes, std::vector<std::int64_t>(shape.begin(), shape.end()));
      ASSERT_EQ(static_cast<int>(got.dtype), static_cast<int>(wanted[k].dtype()));
      if (certainties[k] != testing::Certainty::exact || wanted[k].numel() == 0) continue;
      const Tensor same = copy(wanted[k]).sync();
      const auto bytes = static_cast<std::size_t>(wanted[k].numel()) * byte_size(wanted[k].dtype());
      EXPECT_EQ(std::memcmp(got.data, views({same})[0].data, bytes), 0) << "kept value " << k;
      ++compared;
    }
  }
  std::printf("%zu values compared, %zu programs refused\n", compared, refused);
}

/// A stream of the caller's. The host executor of libfermata_run_cuda has none to give, but all of its streams are one
/// queue: it only reports that the stream is not being captured.
class CallersStream {
 public:
  CallersStream() {
    if (!gpu::on_host_executor()) gpu::check(gpu::driver().stream_create(&handle_, 0), "cuStreamCreate");
  }
  ~CallersStream() {
    if (!gpu::on_host_executor()) gpu::driver().stream_destroy(handle_);
  }
  void* get() { return gpu::on_host_executor() ? nothing_.data() : handle_; }

 private:
  gpu::Handle handle_ = nullptr;
  std::array<std::uint64_t, 8> nothing_{};
};

TEST_F(ExportToCuda, RunsGoToAStreamOfTheCallers) {
  const Tensor w = randn({8, 8});
  const auto f = [&](const Tensor& x) { return matmul(x, w) + 1.0; };
  const Tensor x = randn({2, 8}).sync();
  export_program(path(), {.cuda = architectures()}, f, x);
  CallersStream stream;
  run::Program program = loaded();
  const run::Results before = program.run_on_device(views({x}));
  program.set_stream(stream.get());
  for (int i = 0; i < 3; ++i) expect_result(program.run(views({x})), 0, f(x));
  // What another stream has made is waited for.
  const run::Results after = program.run_on_device({before[0]});
  program.set_stream(nullptr);
  std::vector<float> copied(16);
  after.copy(0, copied.data());
  const std::vector<float> wanted = f(f(x)).to_vector<float>();
  for (std::size_t i = 0; i < copied.size(); ++i) EXPECT_NEAR(copied[i], wanted[i], 1e-4);
  expect_result(program.run(views({x})), 0, f(x));
}

TEST_F(ExportToCuda, ErrorsThatDependOnValuesAreErrorsOfARun) {
  const auto f = [](const Tensor& x, const Tensor& at) { return take(x, at, 0); };
  const Tensor x = full({3}, 1.0).sync(), at = tensor({1, 2}).sync(), wrong = tensor({1, 3}).sync();
  export_program(path(), {.cuda = architectures()}, f, x, at);
  run::Program program = loaded();
  try {
    program.run(views({x, wrong}));
    ADD_FAILURE();
  } catch (const run::Error& error) { EXPECT_EQ(error.code, 1204); }
  expect_result(program.run(views({x, at})), 0, f(x, at));  // it still works
  const run::Results later = program.run_on_device(views({x, wrong}));
  EXPECT_THROW(program.wait(), run::Error);
  program.set_stream(nullptr);
  expect_result(program.run(views({x, at})), 0, f(x, at));
}

TEST_F(ExportToCuda, CallsWithoutAKernelAreAllNamed) {
  const int line = __LINE__ + 2;
  const auto f = [](const Tensor& x) {
    const Tensor y = linalg::cholesky(x);
    return std::array{y, abs(fft::fft(x)), sort(x)};
  };
  try {
    export_program(path(), {.cuda = architectures()}, f, randn({3, 3}));
    FAIL();
  } catch (const UnsupportedError& error) {
    const auto at = [&](int more) {
      return "   at codegen_cuda/exported_test.cpp:" + std::to_string(line + more) + "\n";
    };
    EXPECT_EQ(error.what(),
              "FM2221 UnsupportedError: export_program: CUDA has no kernel for 4 of the calls\n"
              "  cholesky f32" +
                  at(0) + "  cast     f32" + at(1) + "  fft      c64" + at(1) + "  abs      c64" + at(1) +
                  "  at       codegen_cuda/exported_test.cpp:" + std::to_string(line + 4) +
                  "\n  hint     omit ExportOptions::cuda, or use other ops");
  }
}

TEST_F(ExportToCuda, DevicesThatTheFileOrTheMachineHasNotAreNamed) {
  const auto f = [](const Tensor& x) { return x + 1.0; };
  const Tensor x = full({3}, 1.0).sync();
  if (exports_for_processors(path("cpu.fermata"))) {
    EXPECT_EQ(refusal(path("cpu.fermata"), "cuda", 2203),
              "FM2203 UnsupportedError: " + path("cpu.fermata") +
                  " has code only for the CPU\n  hint export it with ExportOptions::cuda");
    run::Program cpu(path("cpu.fermata"));
    EXPECT_THROW(cpu.set_stream(nullptr), run::Error);
    cpu.wait();
  }
  export_program(path(), {.cuda = architectures()}, f, x);
  EXPECT_EQ(refusal(path(), "cpu", 2203), "FM2203 UnsupportedError: " + path() +
                                              " has code only for CUDA\n"
                                              "  hint export it with ExportOptions::targets, or load it for cuda");
  const gpu::DeviceInfo& info = gpu::current_device().info();
  const std::string own = "sm_" + std::to_string(info.major) + std::to_string(info.minor);
  const std::string other = with([](ProgramFile& file) {
    std::erase_if(file.images, [](const ProgramImage& image) { return image.target != 0; });  // PTX runs anywhere
    file.targets = {"sm_10"};
  });
  EXPECT_EQ(refusal(other, "cuda", 2203), "FM2203 UnsupportedError: " + other + " has code for sm_10; CUDA device 0 (" +
                                              info.name + ") is " + (gpu::on_host_executor() ? "host" : own) +
                                              "\n  hint export it with {" + std::to_string(info.major) + ", " +
                                              std::to_string(info.minor) + "} among its architectures");
  EXPECT_EQ(refusal(path(), "cuda:99", 1406), "FM1406 DeviceError: cuda: no device 99: there " +
                                                  std::string(gpu::device_count() == 1 ? "is" : "are") + " " +
                                                  std::to_string(gpu::device_count()));
  for (const char* const device : {"gpu", "cuda:", "cuda:x", "cuda:-1", "cuda:1 "})
    EXPECT_EQ(refusal(path(), device, 2211),
              std::string("FM2211 ValueError: unknown device '") + device + "': expected cpu, cuda or cuda:N");
}

TEST_F(ExportToCuda, AKernelThatIsMissingIsNamed) {
  const auto f = [](const Tensor& x) { return cumprod(x, 0); };
  export_program(path(), {.cuda = architectures(), .dynamic = {{"input0", 0, "rows"}}}, f,
                 randn({3}).astype(DType::f64));
  const std::string other = with([](ProgramFile& file) {
    for (ProgramImage& image : file.images)
      std::erase_if(image.functions, [](const std::string& f) { return f.starts_with("fm_scan_totals"); });
  });
  const run::Program program(other, "cuda");
  const Tensor few = randn({5}).astype(DType::f64).sync(), many = full({700}, 1.0, DType::f64).sync();
  expect_result(program.run(views({few})), 0, f(few));
  try {
    program.run(views({many}));
    ADD_FAILURE();
  } catch (const run::Error& error) {
    const std::string text = error.what();
    const std::size_t begin = text.find("fm_scan_totals"), end = text.find(')', begin);
    ASSERT_NE(begin, std::string::npos) << text;
    EXPECT_EQ(text.substr(0, begin) + text.substr(end),
              "FM2205 UnsupportedError: cumulative_prod: the program has no CUDA kernel for these sizes ()\n"
              "  hint export it with an example of such sizes");
  }
  expect_result(program.run(views({few})), 0, f(few));
}

TEST_F(ExportToCuda, EveryChangeIsFound) {
  const Tensor w = randn({6, 4});
  export_program(
      path(), {.cuda = architectures()}, [&](const Tensor& x) { return softmax(matmul(x, w) + 1.0, -1); },
      randn({3, 6}));
  const std::string bytes = whole();
  const FilePart description = decode_head(bytes, "").cuda;
  const ProgramFile program = decode_program(bytes.substr(description.offset, description.bytes), "");
  std::mt19937_64 random(7);
  for (int i = 0; i < 60; ++i) {
    const std::size_t at = random() % bytes.size();
    const auto is_in = [&](const FilePart& part) { return at >= part.offset && at - part.offset < part.bytes; };
    // PTX is for devices that the file has no machine code for.
    const bool is_checked =
        is_in(description) || at < 80 ||
        std::ranges::any_of(program.images, [&](const auto& image) { return image.target == 0 && is_in(image.code); });
    std::string changed = bytes;
    changed[at] = static_cast<char>(changed[at] ^ (1 << random() % 8));
    std::ofstream(path("changed.fermata"), std::ios::binary) << changed;
    fermata_program* loaded = nullptr;
    const int code = fermata_program_load_on(path("changed.fermata").c_str(), "cuda", &loaded);
    fermata_program_free(loaded);
    if (is_checked) { EXPECT_TRUE(code == 2201 || code == 2202) << at << " " << code; }
  }
}

TEST_F(ExportToCuda, RunsWhereThereIsNeitherEngineNorCompiler) {
  manual_seed(2);
  const Tensor w = randn({6, 4});
  const auto f = [&](const Tensor& x) { return softmax(matmul(x, w) + 0.5, -1); };
  export_program(path(), {.cuda = architectures(), .dynamic = {{"input0", 0, "rows"}}}, f, randn({3, 6}));
  const Outcome outcome = run_in_c("", "'" + path() + "' 5 cuda");
  ASSERT_EQ(outcome.status, 0) << outcome.out;
  const Tensor x = reshape(arange(30, DType::f32) / 64, {5, 6});
  std::istringstream in(outcome.out.substr(outcome.out.find(':') + 1));
  for (const float wanted : f(x).to_vector<float>()) {
    float got = 0;
    in >> got;
    EXPECT_NEAR(got, wanted, 1e-5);
  }
}

TEST_F(ExportToCuda, ThePartForCudaLiesBesideTheLibrary) {
#ifdef FERMATA_SANITIZED
  GTEST_SKIP() << "the library is not linked to the sanitizer";
#endif
  export_program(
      path(), {.cuda = architectures()}, [](const Tensor& x) { return x + 1.0; }, full({3}, 1.0));
  const std::filesystem::path library(FERMATA_RUN_LIBRARY);
  std::filesystem::copy(library, path(library.filename()));
  const std::string folder = std::filesystem::path(path()).parent_path();
  const Outcome outcome = run_in_c("LD_PRELOAD='" + path(library.filename()) + "' ", "'" + path() + "' 1 cuda");
  EXPECT_EQ(outcome.status, 1);
  const std::string part = folder + "/libfermata_run_cuda.so." FERMATA_RUN_VERSION;
  EXPECT_EQ(outcome.out, "FM2206 UnsupportedError: libfermata_run_cuda cannot be loaded: " + part +
                             ": cannot open shared object file: No such file or directory\n"
                             "  hint install libfermata_run_cuda.so next to libfermata_run.so\n");
}

/// What NVRTC makes, which needs neither a driver nor a device.
class CudaWithoutDeviceExport : public ExportToCuda {
 protected:
  void SetUp() override {
    if (gpu::on_host_executor()) GTEST_SKIP() << "ctest runs this once more without the host executor";
    std::string failure_reason;
    if (gpu::nvrtc_library(&failure_reason) == nullptr) GTEST_SKIP() << failure_reason;
  }
  static Tensor example(const Tensor& x) { return cumsum(softmax(matmul(x, transpose(x)), -1), 0); }
};

/// The architecture of a cubin, as its head has it: in the second byte of the flags since version 8 of the ABI, in the
/// first one before.
int architecture_of(const std::string& cubin) {
  constexpr std::size_t kAbiAt = 8, kFlagsAt = 48;
  std::uint32_t flags = 0;
  std::memcpy(&flags, cubin.data() + kFlagsAt, sizeof flags);
  return static_cast<int>(cubin[kAbiAt] >= 8 ? flags >> 8 & 0xff : flags & 0xff);
}

TEST_F(CudaWithoutDeviceExport, EveryImageIsForTheArchitectureThatIsNamed) {
  const ExportSummary summary = export_program(
      path(), {.cuda = {{8, 0}, {9, 0}, {8, 0}}, .dynamic = {{"input0", 0, "rows"}}}, example, randn({3, 5}));
  const std::string bytes = whole();
  const FilePart description = decode_head(bytes, "").cuda;
  const ProgramFile program = decode_program(bytes.substr(description.offset, description.bytes), "");
  EXPECT_EQ(program.targets, (std::vector<std::string>{"sm_80", "sm_90", "compute_90"}));
  std::array<std::size_t, 3> functions{};
  for (const ProgramImage& image : program.images) {
    const std::string code = bytes.substr(image.code.offset, image.code.bytes);
    functions[image.target] += image.functions.size();
    if (image.target == 2) {
      EXPECT_THAT(code, ContainsRegex("\n\\.target sm_90\n"));
      EXPECT_EQ(code.back(), '\0');
      for (const std::string& f : image.functions) EXPECT_THAT(code, HasSubstr(".entry " + f + "("));
      continue;
    }
    constexpr char kMachineOfCuda = static_cast<char>(190);
    ASSERT_EQ(code.substr(1, 3), "ELF");
    EXPECT_EQ(code[18], kMachineOfCuda);
    EXPECT_EQ(architecture_of(code), image.target == 0 ? 80 : 90);
    for (const std::string& f : image.functions) EXPECT_THAT(code, HasSubstr(".text." + f));
  }
  for (const std::size_t count : functions) EXPECT_EQ(count, summary.cuda_functions);
}

TEST_F(CudaWithoutDeviceExport, PtxIsLeftOutWhereItIsNotWanted) {
  export_program(path(), {.cuda = {{9, 0}}, .cuda_ptx = false}, example, randn({3, 5}));
  const std::string bytes = whole();
  const FilePart description = decode_head(bytes, "").cuda;
  EXPECT_EQ(decode_program(bytes.substr(description.offset, description.bytes), "").targets,
            std::vector<std::string>{"sm_90"});
}

TEST_F(CudaWithoutDeviceExport, ArchitecturesThatNvrtcDoesNotKnowAreRefused) {
  const std::string text = message<UnsupportedError>([&] {
    export_program(path(), {.cuda = {{1, 0}}}, example, randn({3, 5}));
  });
  EXPECT_THAT(text, ContainsRegex("^FM2224 UnsupportedError: export_program: NVRTC [0-9]+\\.[0-9]+ does not support "
                                  "sm_10\n  at   HERE$"));
}

TEST_F(CudaWithoutDeviceExport, AMachineWithoutADeviceSaysSo) {
  if (gpu::usable()) GTEST_SKIP() << "there is a device";
  export_program(path(), {.cuda = {{8, 0}}}, example, randn({3, 5}));
  const Outcome outcome = run_in_c("", "'" + path() + "' 1 cuda");
  EXPECT_EQ(outcome.status, 1);
  EXPECT_TRUE(outcome.out.starts_with("FM1405 DeviceError: load: CUDA is not available: ")) << outcome.out;
  EXPECT_TRUE(outcome.out.ends_with("\n  hint `fermata doctor` shows what was searched for and how to fix it\n"))
      << outcome.out;
}

}  // namespace
}  // namespace fermata
