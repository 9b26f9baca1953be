// Exported programs give what the function gives: static and dynamic sizes, all kinds of constants, from many threads.
#include <fermata/program.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <thread>

#include "fermata/control_flow.h"
#include "fermata/export.h"
#include "fermata/fermata.h"
#include "runtime/bounds_check.h"
#include "tests/run/program_folder.h"
#include "tests/run/program_results.h"

namespace fermata {
namespace {

class Export : public ProgramFolder {};

TEST_F(Export, AModelGivesWhatTheFunctionGives) {
  manual_seed(3);
  const Tensor w = randn({12, 8}), b = randn({8}), v = randn({8, 5});
  const auto model = [&](const Tensor& x) { return softmax(matmul(gelu(matmul(x, w) + b), v), -1); };
  const Tensor x = randn({4, 12});
  const ExportSummary summary = export_program(path(), model, x);
  EXPECT_EQ(summary.inputs, std::vector<std::string>{"input0"});
  EXPECT_EQ(summary.outputs, std::vector<std::string>{"output0"});
  EXPECT_EQ(summary.calls, 2u);
  const run::Program program(path());
  expect_result(program.run(views({x})), 0, model(x));
}

TEST_F(Export, EagerModeExportsTheSame) {
  manual_seed(6);
  const Tensor w = randn({6, 4}), x = randn({3, 6}).sync();
  const auto model = [&](const Tensor& a) { return std::pair(tanh(matmul(a, w)), sum(a * 2, 1)); };
  const ModeGuard eager(Mode::eager);
  export_program(path(), {.dynamic = {{"input0", 0, "rows"}}}, model, x);
  EXPECT_EQ(mode(), Mode::eager);
  const run::Results results = run::Program(path()).run(views({x}));
  const auto [first, second] = model(x);
  expect_result(results, 0, first), expect_result(results, 1, second);
}

/// One reshape of two stays, which has another operand then than its record.
TEST_F(Export, OperandsMayBeReshapedTwice) {
  manual_seed(4);
  const auto model = [](const Tensor& x, const Tensor& m) { return einsum("bi,bij,bj->b", {x, m, x}); };
  const auto arguments = [](std::int64_t rows) {
    const Tensor x = randn({rows, 7}), m = randn({rows, 7, 7});
    sync({x, m});
    return std::array{x, m};
  };
  const auto [x, m] = arguments(50);
  export_program(path(), {.dynamic = {{0, 0, "rows"}, {1, 0, "rows"}}}, model, x, m);
  const run::Program program(path());
  for (const std::int64_t rows : {50, 1, 8}) {
    const auto [y, n] = arguments(rows);
    expect_result(program.run(views({y, n})), 0, model(y, n));
  }
}

TEST_F(Export, ChecksOfBoundsStayBehind) {
  const bool before = set_bounds_checks(true);
  export_program(
      path(), [](const Tensor& x) { return exp(x) * 2 + 1; }, ones({5}));
  EXPECT_TRUE(set_bounds_checks(before));
  expect_result(run::Program(path()).run(views({ones({5}).sync()})), 0, full({5}, 2 * std::exp(1.0) + 1));
}

TEST_F(Export, KernelsPickElementsAtAnySize) {
  manual_seed(6);
  const auto model = [](const Tensor& x, const Tensor& index) {
    return std::array{exp(take(x, index, 0)) * 2.0, roll(x, 1, 0) + roll(x, -1, 0) - x * 2.0,
                      tanh(concat({x, x * 2.0}, 0)) + 1.0, take(x, index + 1, 0) - take(x, index - 1, 0)};
  };
  const auto arguments = [](std::int64_t rows, std::int64_t positions) {
    const Tensor x = randn({rows, 300}), index = arange(positions, DType::i64) % (rows - 1);
    sync({x, index});
    return std::array{x, index};
  };
  const auto [x, index] = arguments(40, 70);
  const ExportSummary summary = export_program(
      path(), {.dynamic = {{"x", 0, "rows"}, {"index", 0, "positions"}}, .inputs = {"x", "index"}}, model, x, index);
  EXPECT_EQ(summary.calls, 0);
  const run::Program program(path());
  for (const auto& [rows, positions] : {std::pair{40, 70}, {3, 1}, {2, 9}, {500, 33}}) {
    SCOPED_TRACE(std::to_string(rows) + " " + std::to_string(positions));
    const auto [y, at] = arguments(rows, positions);
    const run::Results results = program.run(views({y, at}));
    const auto wanted = model(y, at);
    for (std::size_t i = 0; i < wanted.size(); ++i) expect_result(results, i, wanted[i], 1e-5);
  }
  const Tensor outside = (index + 39).sync();
  try {
    program.run(views({x, outside}));
    ADD_FAILURE() << "a position is out of range";
  } catch (const run::Error& error) {
    EXPECT_EQ(error.code, 1204);
    EXPECT_THAT(error.what(), testing::HasSubstr("take: a position leaves axis 0 of size 40"));
  }
  expect_result(program.run(views({x, index})), 0, model(x, index)[0], 1e-5);
}

/// One kernel of two calls cannot tell which of them it was.
TEST_F(Export, KernelsNameAllCallsWhosePositionItMayBe) {
  const Tensor x = randn({40, 300}), y = randn({30, 300}), index = arange(9, DType::i64);
  sync({x, y, index});
  const auto model = [](const Tensor& a, const Tensor& b, const Tensor& at) { return take(a, at, 0) + take(b, at, 0); };
  EXPECT_EQ(export_program(path(), model, x, y, index).calls, 0);
  const run::Program program(path());
  expect_result(program.run(views({x, y, index})), 0, model(x, y, index), 0);
  const Tensor outside = (index + 25).sync();
  try {
    program.run(views({x, y, outside}));
    ADD_FAILURE() << "a position is out of range";
  } catch (const run::Error& error) {
    EXPECT_STREQ(
        error.what(),
        "FM1204 IndexError: take: a position leaves axis 0 of size 40, or take: a position leaves axis 0 of size "
        "30\n"
        "  x     f32[40, 300]   axis 0 is 40\n"
        "  index i64[9]\n"
        "  x     f32[30, 300]   axis 0 is 30\n"
        "  index i64[9]\n"
        "  hint  compile(fn) names the position");
  }
}

TEST_F(Export, ShortRowsHaveCodeOfTheirOwn) {
  manual_seed(7);
  const auto model = [](const Tensor& x) {
    return std::array{sum(x * x, 1), astype(argmin(x, 1), DType::f32), softmax(x, 1), tanh(x) * 2.0 + x};
  };
  const auto code_bytes = [&](std::int64_t length) {
    return export_program(path(), model, randn({1000, length})).code_bytes;
  };
  EXPECT_GT(code_bytes(3), code_bytes(100) + 1000);
  for (const std::int64_t length : {1, 3, 7, 16, 24, 33}) {
    const Tensor x = randn({1000, length}).sync();
    export_program(path(), {.dynamic = {{"input0", 0, "rows"}, {"input0", 1, "length"}}}, model, x);
    const run::Program program(path());
    for (const std::int64_t other : {length, std::int64_t{2}, std::int64_t{5}, std::int64_t{64}}) {
      SCOPED_TRACE(std::to_string(length) + " " + std::to_string(other));
      const Tensor y = randn({777, other}).sync();
      const run::Results results = program.run(views({y}));
      const auto wanted = model(y);
      for (std::size_t i = 0; i < wanted.size(); ++i) expect_result(results, i, wanted[i], 1e-5);
    }
  }
}

/// Large results over columns are written in a second step (codegen_cpu/staged_columns.h).
TEST_F(Export, TallColumnsHaveCodeOfTheirOwn) {
  const auto model = [](const Tensor& x) { return softmax(x * 0.5, 0); };
  const Tensor first = normal({100, 70}).sync();
  export_program(path(), {.dynamic = {{0, 0, "rows"}, {0, 1, "columns"}}}, model, first);
  const run::Program program(path());
  for (const auto& [rows, columns] : {std::pair{100, 70}, std::pair{5000, 3000}, std::pair{3000, 3001}}) {
    const Tensor x = normal({rows, columns}).sync();
    expect_result(program.run(views({x})), 0, model(x), 0);
  }
}

TEST_F(Export, SizesThatAreDynamicNeedNoCompiler) {
  manual_seed(4);
  const Tensor w = randn({12, 6});
  const auto model = [&](const Tensor& x, const Tensor& mask) {
    const Tensor y = reshape(matmul(x, w), {x.size(0) * x.size(1), 2, 3});
    const Tensor means = mean(y, {1, 2});
    const Tensor half = x.slice(1, 0, x.size(1) / 2);
    return std::array{where(mask, reshape(means, {x.size(0), x.size(1)}), 0), sum(half, {-1}), var(x)};
  };
  const auto arguments = [](std::int64_t batch, std::int64_t length) {
    const Tensor x = randn({batch, length, 12});
    const Tensor mask = rand({batch, length}) > 0.5;
    sync({x, mask});
    return std::array{x, mask};
  };
  const auto [x, mask] = arguments(3, 4);
  export_program(path(),
                 {.dynamic = {{"x", 0, "batch"}, {"x", 1, "length"}, {"mask", 0, "batch"}, {"mask", 1, "length"}},
                  .inputs = {"x", "mask"}},
                 model, x, mask);
  const run::Program program(path());
  for (const auto& [batch, length] : {std::pair{3, 4}, {1, 1}, {1, 9}, {17, 1}, {5, 6}, {2, 2}}) {
    SCOPED_TRACE(std::to_string(batch) + " " + std::to_string(length));
    const auto [y, m] = arguments(batch, length);
    const run::Results results = program.run(views({y, m}));
    const auto wanted = model(y, m);
    for (std::size_t i = 0; i < wanted.size(); ++i) expect_result(results, i, wanted[i], 1e-4);
  }
}

TEST_F(Export, ConvolutionsHaveSizesOfTheirOwn) {
  manual_seed(5);
  const Tensor w = randn({4, 3, 3, 3}) * 0.2;
  const auto model = [&](const Tensor& x) {
    const Tensor y = relu(conv2d(x, w, {}, 2, 1));
    return std::array{mean(y, {2, 3}), reshape(y, {y.size(0), 4 * y.size(2) * y.size(3)})};
  };
  const Tensor x = randn({2, 3, 9, 11});
  export_program(path(), {.dynamic = {{"input0", 0, "batch"}, {"input0", 2, "height"}, {"input0", 3, "width"}}}, model,
                 x);
  const run::Program program(path());
  for (const auto& [height, width] : {std::pair{9, 11}, {8, 8}, {5, 17}, {1, 3}}) {
    const Tensor y = randn({3, 3, height, width});
    y.sync();
    const run::Results results = program.run(views({y}));
    const auto wanted = model(y);
    expect_result(results, 0, wanted[0], 1e-4), expect_result(results, 1, wanted[1], 1e-4);
  }
}

struct Pair {
  Tensor left, right;
};

TEST_F(Export, TreesNameInputsAndOutputs) {
  const auto swap = [](const Pair& p, const std::vector<Tensor>& more) {
    return Pair{p.right + more[0], p.left * 2.0};
  };
  const Pair p{full({2}, 1.0), full({3}, 2.0)};
  const std::vector<Tensor> more{full({3}, 5.0)};
  const ExportSummary summary = export_program(path(), {.inputs = {"pair", "more"}}, swap, p, more);
  EXPECT_EQ(summary.inputs, (std::vector<std::string>{"pair.left", "pair.right", "more.0"}));
  EXPECT_EQ(summary.outputs, (std::vector<std::string>{"left", "right"}));
  sync({p.left, p.right, more[0]});
  const run::Program program(path());
  const run::Results results = program.run(views({p.left, p.right, more[0]}));
  expect_result(results, 0, full({3}, 7.0)), expect_result(results, 1, full({2}, 2.0));
}

TEST_F(Export, ResultsMayBeArgumentsConstantsAndOneAnother) {
  const Tensor constant = full({2}, 3.0);
  const auto f = [&](const Tensor& x, const Tensor&) {
    const Tensor y = x + 1.0;
    return std::array{x, y, y, constant, transpose(x)};
  };
  const Tensor x = reshape(arange(6, DType::f32), {2, 3}), unused = full({4}, 0.0);
  export_program(path(), f, x, unused);
  sync({x, unused});
  const run::Program program(path());
  const run::Results results = program.run(views({x, unused}));
  const auto wanted = f(x, unused);
  for (std::size_t i = 0; i < wanted.size(); ++i) expect_result(results, i, wanted[i]);
}

TEST_F(Export, ConstantsMayBeViewsAndOfAnyDType) {
  const Tensor table = reshape(arange(12, DType::f64), {3, 4});
  sync({table});
  const Tensor reversed = transpose(table).index({Slice(kNone, kNone, -1)});
  sync({reversed});
  const Tensor choice = tensor({true, false, true});
  const auto f = [&](const Tensor& x) { return where(choice, x.astype(DType::f64) + reversed, -1.0); };
  const Tensor x = randn({4, 3});
  export_program(path(), f, x);
  x.sync();
  expect_result(run::Program(path()).run(views({x})), 0, f(x));
}

TEST_F(Export, SearchesSortsAndGathers) {
  const auto f = [](const Tensor& x, const Tensor& at) {
    return std::array{sort(x, -1), argsort(x, -1), take(x, at, 1), cumsum(x, 1), max(x, {0})};
  };
  manual_seed(8);
  const Tensor x = randn({3, 7}), at = tensor({6, 0, 3});
  export_program(path(), {.dynamic = {{"input0", 0, "rows"}, {"input1", 0, "count"}}}, f, x, at);
  const run::Program program(path());
  for (const std::int64_t rows : {3, 1, 50}) {
    const Tensor y = randn({rows, 7});
    sync({y, at});
    const run::Results results = program.run(views({y, at}));
    const auto wanted = f(y, at);
    for (std::size_t i = 0; i < wanted.size(); ++i) expect_result(results, i, wanted[i]);
  }
}

TEST_F(Export, ErrorsThatDependOnValuesAreErrorsOfARun) {
  const auto f = [](const Tensor& x, const Tensor& at) { return take(x, at, 0); };
  const Tensor x = full({3}, 1.0), at = tensor({1, 2}), wrong = tensor({1, 3});
  export_program(path(), f, x, at);
  sync({x, at, wrong});
  const run::Program program(path());
  EXPECT_THROW(program.run(views({x, wrong})), run::Error);
  expect_result(program.run(views({x, at})), 0, f(x, at));  // it still works
}

TEST_F(Export, RandomNumbersFollowASeed) {
  const auto f = [](const Tensor& x) { return x + uniform({64}) + normal({64}); };
  const Tensor x = full({64}, 0.0);
  x.sync();
  manual_seed(11);
  export_program(path(), f, x);
  run::Program program(path());
  program.seed(21);
  const auto values = [&] {
    const run::Results r = program.run(views({x}));
    return std::vector<float>(r.data<float>(0), r.data<float>(0) + 64);
  };
  const auto first = values(), second = values();
  EXPECT_NE(first, second);
  program.seed(21);
  EXPECT_EQ(first, values());
  const auto compiled = compile(f);
  manual_seed(21);
  EXPECT_EQ(first, compiled(x).to_vector<float>());
  EXPECT_EQ(second, compiled(x).to_vector<float>());
}

/// An iteration with a nested function, which reads a captured tensor.
std::array<Tensor, 3> iterate(const Tensor& x, const Tensor& w) {
  const auto done = while_loop([](const Tensor& y, const Tensor& i) { return logical_and(sum(abs(y)) < 1e4, i < 20); },
                               [&](const Tensor& y, const Tensor& i) {
                                 const Tensor next = cond(
                                     i == 3, [&](const Tensor& a) { return a + w; },
                                     [](const Tensor& a) { return a * 1.5 - 0.1; }, y);
                                 return std::tuple(next, i + 1);
                               },
                               std::tuple(x, full({}, 0, DType::i64)));
  const auto [last, sums] = scan(
      [&](const Tensor& carry, const Tensor& row) {
        const Tensor next = tanh(carry * 0.5 + row);
        return std::pair(next, sum(next));
      },
      full({x.size(1)}, 0.25), x, true);
  return {std::get<0>(done) + std::get<1>(done), last, sums};
}

TEST_F(Export, ControlFlowOfAnySize) {
  manual_seed(9);
  const Tensor w = randn({5});
  const auto f = [&](const Tensor& x) { return iterate(x, w); };
  const Tensor x = randn({3, 5});
  export_program(path(), {.dynamic = {{"input0", 0, "rows"}}}, f, x);
  const run::Program program(path());
  for (const std::int64_t rows : {3, 1, 4, 19, 4}) {
    SCOPED_TRACE(rows);
    const Tensor y = randn({rows, 5}).sync();
    const run::Results results = program.run(views({y}));
    const auto wanted = f(y);
    for (std::size_t i = 0; i < wanted.size(); ++i) expect_result(results, i, wanted[i]);
  }
  std::vector<std::thread> threads;
  std::array<bool, 3> is_right{};
  const Tensor ones = full({2, 5}, 1.0).sync();
  const std::vector<float> wanted = f(ones)[1].to_vector<float>();
  for (bool& right : is_right)
    threads.emplace_back([&] {
      right = true;
      for (int i = 0; i < 50; ++i) {
        const run::Results r = program.run(views({ones}));
        right &= std::equal(wanted.begin(), wanted.end(), r.data<float>(1),
                            [](float a, float b) { return std::abs(a - b) < 1e-5f; });
      }
    });
  for (std::thread& t : threads) t.join();
  for (const bool right : is_right) EXPECT_TRUE(right);
}

TEST_F(Export, BothBranchesAreInTheProgram) {
  const auto f = [](const Tensor& x, const Tensor& wide) {
    return cond(
        sum(x) > 0,
        [](const Tensor& a, const Tensor& b) {
          return std::array{a * 2, sum(b, {0}), b > 0};
        },
        [](const Tensor& a, const Tensor& b) {
          return std::array{-a, max(b, {0}), b < 0};
        },
        x, wide);
  };
  const Tensor x = full({3}, 1.0).sync(), less = full({3}, -1.0).sync();
  export_program(path(), {.dynamic = {{"input1", 0, "rows"}, {"input1", 1, "columns"}}}, f, x, randn({4, 3}));
  const run::Program program(path());
  for (const auto& [rows, columns] : {std::pair{4, 3}, {1, 1}, {7, 33}})
    for (const Tensor& which : {x, less}) {
      const Tensor wide = randn({rows, columns}).sync();
      const run::Results results = program.run(views({which, wide}));
      const auto wanted = f(which, wide);
      for (std::size_t i = 0; i < wanted.size(); ++i) expect_result(results, i, wanted[i]);
    }
}

TEST_F(Export, GradientsOfLoopsAreLoops) {
  const auto f = [](const Tensor& w, const Tensor& xs) {
    return grad([&](const Tensor& v) {
      const auto [last, all] = scan(
          [&](const Tensor& h, const Tensor& x) {
            const Tensor next = tanh(h * v + x);
            return std::pair(next, next * next);
          },
          full({4}, 0.1), xs);
      return sum(last) + sum(all);
    })(w);
  };
  manual_seed(2);
  const Tensor w = randn({4}).sync(), xs = randn({6, 4}).sync();
  export_program(path(), {.dynamic = {{"input1", 0, "steps"}}}, f, w, xs);
  const run::Program program(path());
  for (const std::int64_t steps : {6, 1, 11}) {
    const Tensor more = randn({steps, 4}).sync();
    const run::Results results = program.run(views({w, more}));
    expect_result(results, 0, f(w, more), 1e-4);
  }
}

TEST_F(Export, LoopsDrawFromStreamsOfTheirOwn) {
  const auto f = [](const Tensor& x) {
    return scan([](const Tensor& c, const Tensor& row) { return std::pair(c + uniform({8}), row + normal({8})); }, x,
                full({3, 8}, 0.0))
        .second;
  };
  const Tensor x = full({8}, 0.0).sync();
  manual_seed(11);
  export_program(path(), f, x);
  run::Program program(path());
  program.seed(21);
  const auto values = [&] {
    const run::Results r = program.run(views({x}));
    return std::vector<float>(r.data<float>(0), r.data<float>(0) + 24);
  };
  const auto first = values(), second = values();
  EXPECT_NE(first, second);
  const auto compiled = compile(f);
  manual_seed(21);
  EXPECT_EQ(first, compiled(x).to_vector<float>());
  EXPECT_EQ(second, compiled(x).to_vector<float>());
}

TEST_F(Export, FunctionsOfLoopsMayNotChangeWithSizes) {
  const auto f = [](const Tensor& x) {
    return scan(
        [&](const Tensor& c, const Tensor& row) {
          const Tensor next = x.size(0) > 4 ? c + row : c * row;
          return std::pair(next, next);
        },
        full({3}, 1.0), x);
  };
  try {
    export_program(path(), {.dynamic = {{"input0", 0, "rows"}}}, f, randn({3, 3}));
    FAIL();
  } catch (const UnsupportedError& error) {
    EXPECT_EQ(error.code(), 2222);
    EXPECT_NE(std::string(error.what()).find("export_test.cpp"), std::string::npos) << error.what();
  }
}

TEST_F(Export, ResultsGoWhereTheCallerWants) {
  const auto f = [](const Tensor& x) { return std::array{x * 2.0, sum(x)}; };
  const Tensor x = arange(5, DType::f32);
  x.sync();
  export_program(path(), f, x);
  const run::Program program(path());
  std::array<float, 5> twice{};
  program.run_into(views({x}), {run::tensor(twice.data(), {5}), {nullptr, FERMATA_F32, {}}});
  EXPECT_EQ(twice, (std::array<float, 5>{0, 2, 4, 6, 8}));
  EXPECT_THROW(program.run_into(views({x}), {run::tensor(twice.data(), {4}), {nullptr, FERMATA_F32, {}}}), run::Error);
}

TEST_F(Export, ThreadsRunOneProgramAtOnce) {
  const Tensor w = randn({16, 16});
  const auto f = [&](const Tensor& x) { return sum(tanh(matmul(x, w)), {1}); };
  export_program(path(), {.dynamic = {{.input = "input0"}}}, f, randn({4, 16}));
  expect_threads_share(run::Program(path()), f, 100);
}

TEST_F(Export, WhatProgramsCannotDoIsRefused) {
  const Tensor x = randn({3, 3}), outside = full({3, 3}, 0.0);
  const auto code = [&](auto&& f, const ExportOptions& options = {}) {
    try {
      export_program(path(), options, f, x);
    } catch (const Error& error) { return error.code(); }
    return 0;
  };
  EXPECT_EQ(code([&](const Tensor& t) {
              Tensor same = outside;
              same += t;
              return same * 1.0;
            }),
            2221);
  EXPECT_EQ(code([](const Tensor& t) { return t + 1.0; }, {.dynamic = {{"x", 0, "rows"}}}), 2220);
  EXPECT_EQ(code([](const Tensor& t) { return t + 1.0; }, {.dynamic = {{"input0", 2, "rows"}}}), 2220);
  EXPECT_EQ(code([](const Tensor& t) { return t + 1.0; }, {.outputs = {"a", "b"}}), 2220);
  const auto by_size = [](const Tensor& t) { return t.size(0) > 4 ? t + 1.0 : exp(t); };
  EXPECT_EQ(code(by_size, {.dynamic = {{"input0", 0, "rows"}}}), 2222);
  EXPECT_EQ(code(by_size), 0);
  const auto power = [](const Tensor& t) { return t * std::pow(1.25, static_cast<double>(t.size(0))); };
  EXPECT_EQ(code(power, {.dynamic = {{"input0", 0, "rows"}}}), 2223);
  const auto table = [](const Tensor& t) {
    return t + reshape(tensor(std::vector<float>(static_cast<std::size_t>(t.size(0)), 1.f)), {t.size(0), 1});
  };
  EXPECT_EQ(code(table, {.dynamic = {{"input0", 0, "rows"}}}), 2223);
  x.sync();
  export_program(
      path(), [](const Tensor& t) { return t + 1.0; }, x);  // after all these errors
  expect_result(run::Program(path()).run(views({x})), 0, x + 1.0);
}

TEST_F(Export, AnInputMayBeANumberAndAnAxisWithoutAName) {
  const auto f = [](const Tensor& a, const Tensor& b) { return a * 2 + sum(b); };
  const Tensor a = randn({3, 4}), b = randn({5});
  export_program(path(), {.dynamic = {{.input = 0}, {.input = 1, .name = "count"}}}, f, a, b);
  const run::Program program(path());
  const Tensor more = randn({7, 4}).sync(), fewer = randn({2}).sync();
  expect_result(program.run(views({more, fewer})), 0, f(more, fewer));
  const char* const nowhere = nullptr;
  EXPECT_THROW(export_program(nowhere, f, a, b), FileError);
}

TEST_F(Export, RefusalsNameTheLine) {
  const Tensor x = randn({3, 3});
  const auto message = [&](auto&& f, const ExportOptions& options = {}) -> std::string {
    try {
      export_program(path(), options, f, x);
    } catch (const Error& error) {
      const std::string text = error.what();
      const std::size_t line = text.find("export_test.cpp:");
      return text.substr(0, text.find("  at ")) + (line == std::string::npos ? "" : "  at   here") +
             (text.find("\n  hint") == std::string::npos ? "" : text.substr(text.find("\n  hint")));
    }
    return "";
  };
  const ExportOptions rows{.dynamic = {{"input0", 0, "rows"}}};
  EXPECT_EQ(message([](const Tensor& t) { return t; }, {.dynamic = {{"y", 0, "rows"}}}),
            "FM2220 ValueError: export_program: no input named 'y'\n  at   here\n  hint inputs are: input0");
  EXPECT_EQ(message([](const Tensor& t) { return t; }, {.dynamic = {{.input = 1}}}),
            "FM2220 ValueError: export_program: no input 1\n  at   here\n  hint inputs are: input0");
  const char* const nothing = nullptr;
  EXPECT_EQ(message([](const Tensor& t) { return t; }, {.dynamic = {{.input = nothing}}}),
            "FM2220 ValueError: export_program: no input named ''\n  at   here\n  hint inputs are: input0");
  const std::string other = message([](const Tensor& t) { return t.size(0) > 4 ? t + 1.0 : exp(t); }, rows);
  EXPECT_TRUE(other.starts_with(
      "FM2222 UnsupportedError: export_program: the function makes different calls for different sizes"))
      << other;
  EXPECT_TRUE(other.ends_with("  at   here\n  hint make the size fixed, or export the function once per size"))
      << other;
  EXPECT_EQ(message([](const Tensor& t) { return t * std::pow(1.25, static_cast<double>(t.size(0))); }, rows),
            "FM2223 UnsupportedError: export_program: a number of multiply depends on the dynamic sizes in a way that "
            "cannot be expressed\n  at   here\n  hint compute it from tensors");
}

TEST_F(Export, InputsThatDoNotFitAreRefused) {
  const Tensor x = full({4, 3}, 1.0);
  export_program(
      path(), {.dynamic = {{.input = "input0", .axis = 0, .name = "rows", .least = 2, .most = 8, .multiple_of = 2}}},
      [](const Tensor& t) { return t * 2.0; }, x);
  x.sync();
  const run::Program program(path());
  std::vector<float> data(64);
  const auto message = [&](const std::vector<run::Tensor>& inputs) -> std::string {
    try {
      program.run(inputs);
    } catch (const run::Error& error) {
      EXPECT_EQ(error.code, 2210);
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(
      message({run::tensor(data.data(), {5, 3})}),
      "FM2210 ValueError: rows of input 'input0' is 5\n  input0 f32[5, 3]\n  hint   from 2 to 8, a multiple of 2");
  EXPECT_EQ(message({run::tensor(data.data(), {4, 2})}),
            "FM2210 ValueError: input 'input0' is f32[4, 3], not f32[4, 2]");
  EXPECT_NE(message({}), "");
  EXPECT_NE(message({run::tensor(reinterpret_cast<double*>(data.data()), {4, 3})}), "");
  EXPECT_NE(message({run::Tensor{nullptr, FERMATA_F32, {4, 3}}}), "");
  EXPECT_EQ(message({run::tensor(data.data(), {8, 3})}), "");
}

}  // namespace
}  // namespace fermata
