// Fusion: how many steps a program becomes, whether it is written with names or by hand, and that the values are right.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "fermata/fermata.h"
#include "ir/graph.h"
#include "passes/pipeline.h"
#include "runtime/thread_pool.h"

namespace fermata::testing {
namespace {

using Values = std::vector<Tensor>;
using Function = std::function<Values()>;

class Fuse : public ::testing::Test {
 protected:
  ~Fuse() override { set_compile_policy(policy_); }

  Tensor some(const IntegerList& sizes) {
    Tensor x = normal(sizes, 0, 1, DType::f32, generator_);
    return x.sync();
  }

  static std::size_t kernels_and_calls(const std::string& text) {
    return step_count(parse_graph(text), BackendKey::cpu);
  }

  /// The program becomes so many kernels and calls, and computes what it computes eagerly.
  static void expect_steps(std::size_t steps, const Function& program) {
    Values eager;
    {
      const ModeGuard guard(Mode::eager);
      eager = program();
    }
    const ModeGuard guard(Mode::compiled);
    const Values compiled = program();
    const std::string text = dump_ir(compiled);
    EXPECT_EQ(kernels_and_calls(text), steps) << explain(compiled);
    sync(compiled);
    ASSERT_EQ(compiled.size(), eager.size());
    for (std::size_t i = 0; i < eager.size(); ++i) {
      ASSERT_EQ(compiled[i].shape(), eager[i].shape());
      ASSERT_EQ(compiled[i].dtype(), eager[i].dtype());
      const std::vector<double> want = eager[i].to_vector<double>(), got = compiled[i].to_vector<double>();
      for (std::size_t k = 0; k < want.size(); ++k)
        ASSERT_NEAR(got[k], want[k], 2e-6 * std::max(1.0, std::abs(want[k])))
            << "value " << i << ", element " << k << "\n"
            << text;
    }
  }
  static void expect_steps(std::size_t steps, const std::function<Tensor()>& program) {
    expect_steps(steps, Function([&] { return Values{program()}; }));
  }

  Generator generator_{11};
  const CompilePolicy policy_ = set_compile_policy(CompilePolicy::immediate);
};

/// Plans are for all sizes, but lanes along a last axis of one element would be idle: such leaves have plans of their
/// own, in which the axis before it takes the lanes.
TEST_F(Fuse, LanesAreNotAlongALastAxisOfOneElement) {
  const auto program = [](const Tensor& x, const Tensor& y) { return max((x - abs(y)) * x, 0, true) * x; };
  const auto axes_of_kernel = [&](const Tensor& x, const Tensor& y) {
    const ModeGuard guard(Mode::compiled);
    return std::get<KernelStep>(compile_plan(parse_graph(dump_ir({program(x, y)})), {}, BackendKey::cpu)->steps.back())
        .axes.size();
  };
  std::uint64_t before = 0;
  for (const std::int64_t last : {1, 5, 1, 7}) {
    const Tensor x = some({31, 27, last}), y = some({1, 1, last});
    EXPECT_EQ(axes_of_kernel(x, y), last == 1 ? 2u : 3u);
    expect_steps(1, [&] { return program(x, y); });
    expect_steps(1, [&] { return sum(x * 2, -1); });  // an axis that is reduced is fused as any other
    expect_steps(1, [&] { return program(permute(x, {0, 2, 1}), permute(y, {0, 2, 1})); });
    const std::uint64_t plans = stats().plans_compiled;
    if (last == 7) {
      EXPECT_EQ(plans, before);  // sizes above 1 share their plans
    }
    before = plans;
  }
}

/// What calls do well from the start, and kernels only along other lanes.
TEST_F(Fuse, RearrangedCopiesAndReductionsOfShortRowsAreCalls) {
  const auto calls = [](const std::string& op, const Function& program) {
    const ModeGuard guard(Mode::compiled);
    const Values values = program();
    const std::string plan = explain(values), call = ": call " + op + "\n";
    sync(values);
    std::size_t count = 0;
    for (std::size_t at = plan.find(call); at != std::string::npos; at = plan.find(call, at + 1)) ++count;
    return count;
  };
  const Tensor x = some({90, 70});
  const auto windows = [&] { return unfold(unfold(x, 0, 3, 1), 1, 3, 1); };
  EXPECT_EQ(calls("copy", [&] { return Values{copy(x.mT())}; }), 1u);
  EXPECT_EQ(calls("copy", [&] { return Values{copy((x * 2).mT())}; }), 0u);  // fused
  EXPECT_EQ(calls("copy", [&] { return Values{sort(reshape(windows(), {88, 68, 9}), 2)}; }), 1u);
  EXPECT_EQ(calls("copy",
                  [&] {
                    const Tensor y = x * 2;
                    return Values{y, copy(y.mT())};
                  }),
            1u);
  EXPECT_EQ(calls("max", [&] { return Values{max(windows(), {2, 3})}; }), 1u);
  EXPECT_EQ(calls("max", [&] { return Values{max(windows() * 2, {2, 3})}; }), 0u);
  EXPECT_EQ(calls("max", [&] { return Values{max(x, 1)}; }), 0u);
}

/// What several calls read, each at indices of its own, is computed where they are, unless that is much to repeat.
TEST_F(Fuse, ReadersOfPartsComputeWhatTheyRead) {
  const Tensor x = some({2, 40, 50}), y = some({60, 70}), small = (x * 100).astype(DType::i8).sync();
  const auto wide = [&](const Tensor& of) { return of.astype(DType::f32) * 0.5; };
  expect_steps(1, [&] { return wide(small)[0] * 77 + wide(small)[1] * 178; });
  const auto smooth = [](const Tensor& v) {
    return (slice(v, 0, 0, 58) + slice(v, 0, 1, 59) * 2) * slice(v, 0, 2, 60) - slice(v, 0, 1, 59);
  };
  expect_steps(1, [&] { return smooth(abs(y)); });
  expect_steps(2, [&] { return smooth(erf(y)); });         // thrice what takes longer than an element in memory
  expect_steps(1, [&] { return exp(y)[0] + exp(y)[1]; });  // two rows of sixty
  expect_steps(2, [&] {
    const Tensor z = abs(y);
    return Values{smooth(z), z};
  });
}

/// What is better apart is left apart: vectors of short rows have empty lanes, and few rows leave threads waiting.
/// Sizes only matter for this choice; any plan serves any size.
TEST_F(Fuse, CostlyProducersOfShortOrFewRowsAreKernelsOfTheirOwn) {
  const auto program = [](const Tensor& x, int axis) { return softmax(gelu(x), axis); };
  const int threads = thread_count();
  set_thread_count(1);
  for (const std::int64_t length : {64, 257, 1000}) {
    const Tensor x = some({100, length}), flipped = some({100, length});
    expect_steps(1, [&] { return program(x, -1); });
    expect_steps(1, [&] { return program(flipped, 0); });
  }
  const Tensor narrow = some({20000, 33}), turned = some({20000, 5}), tiny = some({20, 3}), row = some({1, 60000}),
               long_rows = some({100, 300});
  expect_steps(2, [&] { return program(narrow, -1); });
  expect_steps(2, [&] { return program(narrow, 0); });
  expect_steps(1, [&] { return softmax(narrow * 2, -1); });  // nothing costly waits for a reduction
  expect_steps(1, [&] { return program(turned, -1); });      // lanes are rows
  expect_steps(1, [&] { return log_softmax(turned, -1); });
  expect_steps(3, [&] { return log_softmax(narrow, -1); });  // a logarithm for each row: of many rows at once
  expect_steps(1, [&] { return log_softmax(long_rows, -1); });
  expect_steps(1, [&] { return program(tiny, -1); });
  expect_steps(1, [&] { return program(row, -1); });
  set_thread_count(8);
  expect_steps(2, [&] { return program(row, -1); });
  expect_steps(1, [&] { return sum(gelu(row), -1); });  // can be split
  set_thread_count(threads);
}

TEST_F(Fuse, ReductionsOfManyStoredShortRowsAreCalls) {
  const Tensor three = some({2000, 3}), few = some({20, 3}), twelve = some({2000, 12});
  expect_steps(2, [&] { return exp(sum(three, {1})); });
  expect_steps(2, [&] { return exp(sum(twelve, {1})); });
  expect_steps(1, [&] { return exp(sum(few, {1})); });
  expect_steps(1, [&] { return sum(three * 2, {1}); });  // storing the rows would cost more
  expect_steps(1, [&] { return sum(twelve * 2, {1}); });
  expect_steps(1, [&] { return three / sum(three, {1}, true); });  // rows are used again
  expect_steps(1, [&] { return var(three, {1}); });
}

// ---- Pointwise ------------------------------------------------------------------------------------------------------

TEST_F(Fuse, ChainOfTenIsOneKernel) {
  const Tensor x = some({1000});
  expect_steps(1, [&] { return sqrt(abs(sigmoid(exp(tanh(x * 1.01 + 0.5) * -2) + 0.1) - x)); });
}

TEST_F(Fuse, TreeWithBroadcastsAndCastsIsOneKernel) {
  const Tensor x = some({17, 33}), row = some({33}), column = some({17, 1}), one = some({});
  expect_steps(1, [&] { return where(x > row, astype(x * column, DType::f16), row - one) + astype(x, DType::i32); });
}

TEST_F(Fuse, SeveralOutputsAreOneKernel) {
  const Tensor x = some({9, 40});
  expect_steps(1, [&]() -> Values {
    const Tensor y = exp(x), z = y + 1;
    return {y, z, log(z)};
  });
}

TEST_F(Fuse, ConstantsAndPositionsNeedNoBuffer) {
  const Tensor x = some({6, 11});
  expect_steps(1, [&] { return where(iota({6, 11}, 1) < 5, x + full({6, 11}, 2.5), zeros({6, 11})); });
}

// ---- Views ----------------------------------------------------------------------------------------------------------

TEST_F(Fuse, ViewsOfInputsAreLoads) {
  const Tensor x = some({12, 10}), y = some({10, 6});
  expect_steps(1, [&] { return exp(slice(transpose(x), 1, 10, kNone, -2)) * slice(y, 1, 0, 6); });
}

TEST_F(Fuse, ProducersAreComputedWhereAPermutedReaderNeedsThem) {
  const Tensor x = some({12, 10}), y = some({10, 12});
  expect_steps(1, [&] { return transpose(x * 2) + y; });
}

TEST_F(Fuse, ReshapeOfAComputedValueIsFoldedOrStored) {
  const Tensor x = some({12, 10}), y = some({120});
  expect_steps(1, [&] { return reshape(x * 2, -1) + y; });
}

TEST_F(Fuse, RandomNumbersKeepTheirPositionsThroughViews) {
  const auto draw = [&](auto&& change) {
    Generator generator(7);
    return change(uniform({6, 10}, 0, 1, DType::f32, generator));
  };
  expect_steps(2, [&] { return draw([](const Tensor& x) { return exp(reshape(x, {3, 2, 10})); }); });
  expect_steps(1, [&] { return draw([](const Tensor& x) { return exp(x) * 2; }); });
  const auto through_views = [&]() -> Values {
    return {draw([](const Tensor& x) { return exp(transpose(x)); }),
            draw([](const Tensor& x) { return exp(slice(x, 1, 9, kNone, -3)); }),
            draw([](const Tensor& x) { return sum(reshape(x, -1), 0); })};
  };
  const ModeGuard guard(Mode::compiled);
  expect_steps(kernels_and_calls(dump_ir(through_views())), through_views);
}

TEST_F(Fuse, SmallDTypesAreConvertedInTheKernelsThatReadAndWriteThem) {
  const Tensor x = astype(some({64, 64}), DType::f8e4m3fn).sync();
  expect_steps(1, [&] { return astype(exp(x * 0.25) + astype(x, DType::i4), DType::f8e5m2); });
  expect_steps(1, [&] { return sum(x * 2, 1); });
}

TEST_F(Fuse, CheapBroadcastValuesAreComputedAgainAndDearOnesStored) {
  const Tensor x = some({64, 32}), row = some({32});
  expect_steps(1, [&] { return x * (row + 1); });
  expect_steps(2, [&] { return x * gelu(row); });
}

// ---- Reductions -----------------------------------------------------------------------------------------------------

TEST_F(Fuse, SoftmaxIsOneKernelHoweverItIsWritten) {
  const Tensor x = some({37, 129});
  expect_steps(1, [&] { return softmax(x); });
  expect_steps(1, [&] {
    const Tensor e = exp(x - max(x, -1, true));
    return e / sum(e, -1, true);
  });
  expect_steps(1, [&] { return log_softmax(x); });
  expect_steps(1, [&] {
    const Tensor centered = x - expand_dims(max(x, 1), 1);
    return centered - log(sum(exp(centered), -1, true));
  });
}

TEST_F(Fuse, NormalizationsAreOneKernelHoweverTheyAreWritten) {
  const Tensor x = some({37, 129}), weight = some({129}), bias = some({129});
  expect_steps(1, [&] { return layer_norm(x, weight, bias); });
  expect_steps(1, [&] {
    const Tensor centered = x - sum(x, -1, true) / 129;
    return centered / sqrt(sum(centered * centered, -1, true) / 129 + 1e-5) * weight + bias;
  });
  expect_steps(1, [&] { return rms_norm(x, weight); });
  // One that has no name: by the largest magnitude, and the share of positive elements.
  expect_steps(1, [&] {
    const Tensor scaled = x / (max(abs(x), -1, true) + 1e-3);
    return scaled * sum(astype(scaled > 0, DType::f32), -1, true);
  });
}

TEST_F(Fuse, ProducersGoIntoReductionsAndReductionsIntoConsumersOfRows) {
  const Tensor x = some({21, 50}), y = some({21, 1});
  expect_steps(1, [&] { return sum(exp(x) * 2, 1); });
  expect_steps(1, [&] { return sqrt(sum(square(x), 1, true)) + y; });
  expect_steps(1, [&] { return x - mean(x, 1, true); });
  expect_steps(1, [&] { return sum(x * 3); });
}

TEST_F(Fuse, SiblingsThatReadTheSameAreOneKernel) {
  const Tensor x = some({21, 50});
  expect_steps(1, [&]() -> Values { return {sum(x, 1), max(x, 1)}; });
  expect_steps(1, [&]() -> Values { return {sum(x, 1), sum(square(x), 1), argmax(x, 1)}; });
  expect_steps(1, [&]() -> Values { return {exp(x), max(x, 1)}; });
}

TEST_F(Fuse, ReductionsOfOtherAxesAreOtherKernels) {
  const Tensor x = some({21, 50});
  expect_steps(2, [&]() -> Values { return {sum(x, 1), sum(x, 0)}; });
}

TEST_F(Fuse, ColumnReductionsTakeTheirProducers) {
  const Tensor x = some({60, 40});
  expect_steps(1, [&] { return sum(exp(x) + 1, 0); });
  expect_steps(1, [&] { return mean(x, 0); });
}

TEST_F(Fuse, NormalizationOverColumnsIsRight) {
  const Tensor x = some({60, 40});
  expect_steps(1, [&] { return softmax(x, 0); });
}

TEST_F(Fuse, MiddleAxesAreRight) {
  const Tensor x = some({5, 6, 7});
  expect_steps(1, [&] { return softmax(x, 1); });
  expect_steps(1, [&] { return x / sum(x, {0, 2}, true); });
}

TEST_F(Fuse, CrossEntropyIsAKernelOfRowsAndOneOverThem) {
  const Tensor logits = some({32, 10});
  const Tensor labels = randint(0, 10, {32}, DType::i64, generator_);
  labels.sync();
  expect_steps(2, [&] { return cross_entropy(logits, labels); });
}

// ---- What stands between --------------------------------------------------------------------------------------------

TEST_F(Fuse, MatmulDividesGroups) {
  const Tensor x = some({8, 16}), w = some({16, 12}), bias = some({12}), v = some({12, 4});
  expect_steps(4, [&] { return softmax(matmul(relu(matmul(x, w) + bias), v)); });
}

TEST_F(Fuse, ADiamondAroundAMatmulIsNoCircle) {
  const Tensor x = some({8, 8}), w = some({8, 8});
  expect_steps(3, [&] {
    const Tensor y = exp(x);
    return y + matmul(y, w);
  });
  // Twice: the second reads what comes before and after the first.
  expect_steps(5, [&]() -> Values {
    const Tensor y = exp(x), z = matmul(y, w);
    const Tensor u = z + y;
    return {u * matmul(tanh(u), y), z - y};
  });
}

TEST_F(Fuse, ADiamondOfReductionsIsNoCircle) {
  const Tensor x = some({30, 20});
  // The column sums stand between the two uses of y, and the row sums wait for them.
  expect_steps(2, [&] {
    const Tensor y = exp(x);
    return sum(y - sum(y, 0), 1);
  });
  expect_steps(3, [&]() -> Values {
    const Tensor y = exp(x), rows = sum(y, 1, true), columns = sum(y / rows, 0, true);
    return {y * columns - rows, sum(columns)};
  });
}

TEST_F(Fuse, SiblingsThatWaitForEachOtherThroughALaterGroupStayApart) {
  // The multiply waits for `all`, whose group waits for the argmin and so for `where`, which reads the same input.
  const Tensor x = astype(some({40}) * 8, DType::i32).sync(), y = some({7, 9}), table = some({5});
  const Tensor choice = (full({}, 1) > 0).sync();
  const auto program = [&]() -> Values {
    const Tensor every = all(y, {0, 1}, true);
    const Tensor scaled = x * astype(reshape(slice(every, 0, 0, 1), 1), DType::i32);
    const Tensor at = argmin(slice(take(table, remainder(where(choice, 1, x), 5)), 0, 3, kNone) * 2, 0, true);
    return {scaled + 1, exp(where(astype(at, DType::boolean), astype(every, DType::f64), 0.5) * 2)};
  };
  const ModeGuard guard(Mode::compiled);
  expect_steps(kernels_and_calls(dump_ir(program())), program);
  EXPECT_NO_THROW(step_count(parse_graph("%0 = input : i32[8]\n"
                                         "%1 = input : i32[8]\n"
                                         "%2 = input : f32[7, 33]\n"
                                         "%3 = all(%2) {axes=[0, 1], keepdims=true} : bool[1, 1]\n"
                                         "%4 = slice(%3) {start=[0, 0], step=[1, 1]} : bool[1, 1]\n"
                                         "%5 = squeeze(%4) {axes=[1]} : bool[1]\n"
                                         "%6 = cast(%5) : i32[1]\n"
                                         "%7 = multiply(%1, %6) : i32[8]\n"
                                         "%8 = update(%0, %7) {offset=0, strides=[1]} : i32[8]\n"
                                         "%9 = input : bool[]\n"
                                         "%10 = where(%9, 1, %1) : i32[8]\n"
                                         "%11 = input : u16[3]\n"
                                         "%12 = cast(%10) : i64[8]\n"
                                         "%13 = remainder(%12, 3) : i64[8]\n"
                                         "%14 = take(%11, %13) {axis=0} : u16[8]\n"
                                         "%15 = slice(%14) {start=[3], step=[1]} : u16[4]\n"
                                         "%16 = cast(%15) : i16[4]\n"
                                         "%17 = argmin(%16) {axes=[0], keepdims=true} : i64[1]\n"
                                         "%18 = cast(%17) : bool[1]\n"
                                         "%19 = cast(%3) : f64[1, 1]\n"
                                         "%20 = input : f64[]\n"
                                         "%21 = where(%18, %19, %20) : f64[1, 1]\n"
                                         "%22 = exp(%21) : f64[1, 1]\n"
                                         "return %8, %22\n"),
                             BackendKey::cpu));
}

TEST_F(Fuse, UpdatesAreInOrder) {
  const Tensor x = some({6, 8});
  expect_steps(4, [&] {
    Tensor y = x * 2;
    y[1] += 1;
    return y + 0.5;
  });
}

// ---- Size and switches ----------------------------------------------------------------------------------------------

TEST_F(Fuse, LongChainsAreCutIntoKernels) {
  const Tensor x = some({100});
  const Function program = [&]() -> Values {
    Tensor y = x;
    for (int i = 0; i < 400; ++i) y = y * 0.999 + 0.001;
    return {y};
  };
  const std::uint32_t limit = set_pending_limit(2000);
  const ModeGuard guard(Mode::compiled);
  const std::size_t steps = kernels_and_calls(dump_ir(program()));
  EXPECT_GT(steps, 1u);
  EXPECT_LE(steps, 16u);
  expect_steps(steps, program);
  set_pending_limit(limit);
}

TEST_F(Fuse, AValueReadAtTwoPlacesOfARowIsRight) {
  // The square of the first column is computed again where it is read; the kernel it is part of must not then be the
  // one that computes the columns.
  const Tensor x = some({5, 3}), one = some({3});
  expect_steps(2, [&] {
    const Tensor h = tanh(x), s = one * square(slice(h, 1, 0, 1));
    return s * sum(h, 1, true) + sum(s * h, 1, true);
  });
}

TEST_F(Fuse, WithoutThePassEveryOpIsAKernel) {
  const Tensor x = some({30, 20});
  set_disabled_passes({"fuse"});
  expect_steps(4, [&] { return sum(tanh(x * 2 + 1), 1); });
  set_disabled_passes({});
}

TEST_F(Fuse, WhatIsNotFusedIsExplained) {
  const Tensor x = some({30, 20});
  const ModeGuard guard(Mode::compiled);
  const std::string text = explain(Values{sum(x, 1) + sum(transpose(x) * 2, 0), sum(exp(x) - sum(exp(x), 0), 1)});
  EXPECT_NE(text.find("not fused"), std::string::npos) << text;
  EXPECT_NE(text.find("they reduce different axes"), std::string::npos) << text;
}

}  // namespace
}  // namespace fermata::testing
