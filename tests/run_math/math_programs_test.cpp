// Every op of the table as an exported program, and programs of complex numbers, transforms and linear algebra.
#include <fermata/program.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstdio>
#include <thread>

#include "fermata/control_flow.h"
#include "fermata/export.h"
#include "fermata/fermata.h"
#include "frontend/engine/graph_runner.h"
#include "tests/frontend/close_values.h"
#include "tests/frontend/op_calls.h"
#include "tests/run/program_folder.h"

namespace fermata {
namespace {

run::Tensor view(const Tensor& t) {
  const Shape shape = t.shape();
  return {t.sync().node()->storage.load()->data, static_cast<fermata_dtype>(t.dtype()),
          std::vector<std::int64_t>(shape.begin(), shape.end())};
}

/// What a program computes, in a tensor like the one that is wanted; or what it says.
std::string difference(const run::Program& program, const std::vector<Tensor>& inputs, const Tensor& wanted) {
  const Tensor got = zeros(wanted.shape(), wanted.dtype()).sync();
  std::vector<run::Tensor> views;
  for (const Tensor& t : inputs) views.push_back(view(t));
  try {
    program.run_into(views, {view(got)});
  } catch (const run::Error& error) { return error.what(); }
  return test::difference(wanted, got);
}

class MathPrograms : public ProgramFolder {
 protected:
  /// The call on its operands, written, loaded and run. Empty where it gives what eager mode gives.
  std::string outcome(Op op, const OpCall& call) const {
    const Graph graph = parse_graph(test::text_of(op, call));
    const std::vector<Tensor> operands = test::operands_of(op, call);
    const Tensor wanted = [&] {
      const ModeGuard eager(Mode::eager);
      return run_graph(graph, operands)[0].sync();
    }();
    export_program(
        path(), [&](const std::vector<Tensor>& in) { return run_graph(graph, in)[0]; }, operands);
    return difference(run::Program(path()), operands, wanted);
  }
};

/// An op that is added is among them.
TEST_F(MathPrograms, HaveEveryOp) {
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    std::vector<OpCall> calls;
    if (const auto call = test::good_call(op)) calls.push_back(*call);
    if (traits(op).other_examples != nullptr)
      for (const OpCall& call : traits(op).other_examples()) calls.push_back(call);
    // Where it takes them, complex operands.
    if (!calls.empty()) {
      OpCall with_complex = calls[0];
      for (DType& dtype : with_complex.dtypes)
        if (is_floating(dtype)) dtype = dtype == DType::f64 ? DType::c128 : DType::c64;
      if (with_complex.dtypes != calls[0].dtypes && test::is_valid(op, with_complex)) calls.push_back(with_complex);
    }
    for (const OpCall& call : calls) EXPECT_EQ(outcome(op, call), "") << test::text_of(op, call);
  }
}

TEST_F(MathPrograms, FilterSignalsOfAnyLength) {
  const auto filter = [](const Tensor& signal, const Tensor& response) {
    const Tensor spectrum = fft::rfft(signal) * response;
    return std::vector<Tensor>{fft::irfft(spectrum), abs(spectrum), spectrum};
  };
  const auto response_of = [](std::int64_t n) {
    const Tensor wave = arange(n / 2 + 1, DType::f32);
    return complex(exp(-wave / 8), sin(wave)).sync();
  };
  const ExportSummary summary =
      export_program(path(), {.dynamic = {{"input0", 0, "signals"}}}, filter, randn({3, 64}), response_of(64));
  EXPECT_TRUE(summary.needs_math);
  const run::Program program(path());
  for (const std::int64_t signals : {1, 5, 33}) {
    const Tensor x = randn({signals, 64}).sync();
    const auto wanted = filter(x, response_of(64));
    const run::Results results = program.run({view(x), view(response_of(64))});
    ASSERT_EQ(results.size(), 3u);
    const auto* const spectrum = results.data<std::complex<float>>(2);
    const auto numbers = wanted[2].to_vector<std::complex<float>>();
    for (std::size_t i = 0; i < numbers.size(); ++i) ASSERT_LE(std::abs(spectrum[i] - numbers[i]), 1e-4f);
    const float* const filtered = results.data<float>(0);
    const auto signal = wanted[0].to_vector<float>();
    for (std::size_t i = 0; i < signal.size(); ++i) ASSERT_NEAR(filtered[i], signal[i], 1e-5);
  }
}

TEST_F(MathPrograms, SolveStacksOfMatricesOfAnySize) {
  const auto f = [](const Tensor& a, const Tensor& b) {
    const Tensor symmetric = matmul(a, a.mT()) + eye(a.size(-1));
    return linalg::solve(symmetric, b) + unsqueeze(linalg::eigh(symmetric).eigenvalues, -1);
  };
  export_program(path(),
                 {.dynamic = {{"input0", 0, "count"},
                              {"input0", 1, "n"},
                              {"input0", 2, "n"},
                              {"input1", 0, "count"},
                              {"input1", 1, "n"}}},
                 f, randn({4, 5, 5}, DType::f64), randn({4, 5, 1}, DType::f64));
  const run::Program program(path());
  for (const std::int64_t n : {2, 16, 17, 40}) {
    const Tensor a = randn({3, n, n}, DType::f64).sync(), b = randn({3, n, 1}, DType::f64).sync();
    EXPECT_EQ(difference(program, {a, b}, f(a, b)), "") << n;
  }
}

TEST_F(MathPrograms, AreErrorsWhereNumbersDoNotFitAndRunAgain) {
  export_program(
      path(), [](const Tensor& a) { return linalg::cholesky(a); }, eye(3));
  const run::Program program(path());
  const Tensor singular = zeros({3, 3}).sync();
  EXPECT_THAT(difference(program, {singular}, singular), testing::HasSubstr("cholesky"));
  EXPECT_EQ(difference(program, {(eye(3) * 4).sync()}, (eye(3) * 2).sync()), "");
}

TEST_F(MathPrograms, RunInLoopsAndThreads) {
  const auto f = [](const Tensor& a) {
    return fori_loop(
        0, 4, [](const Tensor&, const Tensor& x) { return linalg::inv(x) + real(fft::ifft(fft::fft(x))); }, a);
  };
  const Tensor a = (eye(20) * 3 + randn({20, 20}) * 0.05).sync();
  export_program(path(), f, a);
  const run::Program program(path());
  const Tensor wanted = f(a).sync();
  std::vector<std::thread> threads;
  std::array<std::string, 4> said;
  for (std::string& text : said)
    threads.emplace_back([&] {
      for (int i = 0; i < 20 && text.empty(); ++i) text = difference(program, {a}, wanted);
    });
  for (std::thread& t : threads) t.join();
  for (const std::string& text : said) EXPECT_EQ(text, "");
}

TEST_F(MathPrograms, MultiplyAndAddUpWhatTheSmallLibraryDoesNot) {
  const Tensor x = reshape(arange(36, DType::i64), {6, 6}) - 9, index = reshape(arange(36, DType::i64), {6, 6}) % 4;
  sync({x, index});
  for (const DType t :
       {DType::u8, DType::i8, DType::u16, DType::i16, DType::u64, DType::i64, DType::c64, DType::c128}) {
    const auto model = [&](const Tensor& a, const Tensor& at) {
      const Tensor y = astype(a, t);
      return is_complex(t) ? scatter_add(cumsum(y, 0), at, y, 1) : matmul(y, y);
    };
    EXPECT_TRUE(export_program(path(), model, x, index).needs_math) << name(t);
    EXPECT_EQ(difference(run::Program(path()), {x, index}, model(x, index).sync()), "") << name(t);
  }
}

/// libfermata_run has none of this, and says which library has.
TEST_F(MathPrograms, AreRefusedByTheSmallLibrary) {
  EXPECT_FALSE(export_program(
                   path(), [](const Tensor& x) { return exp(x) + sort(x); }, ones({5}))
                   .needs_math);
  EXPECT_TRUE(export_program(
                  path(), [](const Tensor& x) { return dct(x); }, ones({5}))
                  .needs_math);
  std::FILE* const pipe = popen(("'" FERMATA_RUNS_PROGRAM "' '" + path() + "' 0 2>&1").c_str(), "r");
  std::array<char, 4096> text{};
  const std::size_t length = std::fread(text.data(), 1, text.size() - 1, pipe);
  EXPECT_NE(pclose(pipe), 0);
  EXPECT_EQ(std::string(text.data(), length),
            "FM2204 UnsupportedError: " + path() +
                ": dct has no kernel in this library\n"
                "  hint libfermata_run_math has the kernels that this library leaves out\n");
}

}  // namespace
}  // namespace fermata
