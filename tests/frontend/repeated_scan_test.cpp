// Scans whose steps are one launch of compiled code, against the same functions called step by step.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "codegen_cpu/jit_compiler.h"
#include "fermata/control_flow.h"
#include "fermata/fermata.h"
#include "fermata/profile.h"
#include "runtime/thread_pool.h"
#include "tests/frontend/fast_code.h"

namespace fermata {
namespace {

class RepeatedScan : public ::testing::Test {
 protected:
  RepeatedScan() { manual_seed(7); }

 private:
  const testing::FastCode fast_code_;
};

using Step = std::function<std::vector<Tensor>(const std::vector<Tensor>& carried, const std::vector<Tensor>& now)>;

std::vector<Tensor> step_by_step(const Step& step, std::vector<Tensor> carried, const std::vector<Tensor>& sequences,
                                 std::int64_t length, bool reverse) {
  const std::size_t count = carried.size();
  std::vector<std::vector<Tensor>> made(static_cast<std::size_t>(length));
  for (std::int64_t i = 0; i < length; ++i) {
    const std::int64_t at = reverse ? length - 1 - i : i;
    std::vector<Tensor> now;
    for (const Tensor& s : sequences) now.push_back(s[at]);
    const std::vector<Tensor> results = step(carried, now);
    for (std::size_t k = 0; k < count; ++k) carried[k] = copy(results[k]);
    made[static_cast<std::size_t>(at)].assign(results.begin() + static_cast<std::ptrdiff_t>(count), results.end());
  }
  for (std::size_t k = 0; !made[0].empty() && k < made[0].size(); ++k) {
    std::vector<Tensor> all;
    for (const auto& of_step : made) all.push_back(of_step[k]);
    carried.push_back(stack(all));
  }
  return carried;
}

std::vector<Tensor> scan_of(const Step& step, const std::vector<Tensor>& init, std::vector<Tensor> sequences,
                            std::int64_t length, bool reverse) {
  const auto flat = [&](std::span<const Tensor> arguments) {
    const auto split = arguments.begin() + static_cast<std::ptrdiff_t>(init.size());
    return step({arguments.begin(), split}, {split, arguments.end()});
  };
  if (sequences.empty()) sequences.push_back(zeros({length}));
  std::vector<Tensor> results = detail::scan_flat(flat, init, sequences, reverse, Location::current());
  for (const Tensor& t : results) t.sync();
  return results;
}

bool ran_in_one_launch(const ProfileSummary& summary, std::int64_t steps) {
  const std::string text = std::to_string(steps) + " steps";
  return std::ranges::any_of(summary.steps, [&](const ProfileStep& s) { return s.detail.ends_with(text); });
}

void check(const std::string& what, const Step& step, const std::vector<Tensor>& init,
           const std::vector<Tensor>& sequences, std::int64_t length, bool in_one_launch = true) {
  for (const bool reverse : {false, true}) {
    const ModeGuard eager(Mode::eager);
    const std::vector<Tensor> wanted = step_by_step(step, init, sequences, length, reverse);
    for (const Mode mode : {Mode::compiled, Mode::eager}) {
      const ModeGuard guard(mode);
      Profile profile;
      const std::vector<Tensor> got = scan_of(step, init, sequences, length, reverse);
      ASSERT_EQ(got.size(), wanted.size());
      for (std::size_t i = 0; i < got.size(); ++i) {
        ASSERT_EQ(got[i].shape(), wanted[i].shape()) << what << ", result " << i;
        ASSERT_EQ(got[i].dtype(), wanted[i].dtype()) << what << ", result " << i;
        ASSERT_TRUE(
            all(equal(got[i], wanted[i]) | (not_equal(got[i], got[i]) & not_equal(wanted[i], wanted[i]))).item<bool>())
            << what << ", result " << i << (reverse ? ", reversed" : "");
      }
      if (mode == Mode::eager || !JitCompiler::instance().available()) continue;
      ASSERT_EQ(ran_in_one_launch(profile.summary(), length), in_one_launch) << what;
    }
  }
}

Tensor numbers(DType dtype, const Shape& shape) {
  const Tensor x = randn(shape);
  if (dtype == DType::boolean) return x > 0;
  if (is_integer(dtype)) return (x * 20 + 60).astype(dtype);
  return x.astype(dtype);
}

const Step kFilter = [](const std::vector<Tensor>& y, const std::vector<Tensor>& x) {
  const Tensor c = where(x[0] > y[0], 0.5, 0.25), next = c * y[0] + (1 - c) * x[0];
  return std::vector<Tensor>{next, next, x[0] - next};
};

TEST_F(RepeatedScan, OfEveryWidth) {
  for (const std::int64_t n : {1, 2, 7, 16, 31, 64, 100, 257, 5000})
    check("filter of " + std::to_string(n), kFilter, {numbers(DType::f32, {n})}, {numbers(DType::f32, {21, n})}, 21);
}

TEST_F(RepeatedScan, OfEveryRank) {
  for (const Shape& shape : {Shape{}, Shape{1}, Shape{3, 1}, Shape{5, 7}, Shape{2, 3, 4}, Shape{70, 90}}) {
    Shape stacked{9};
    for (const std::int64_t size : shape) stacked.push_back(size);
    check("filter of " + to_string(shape), kFilter, {numbers(DType::f64, shape)}, {numbers(DType::f64, stacked)}, 9);
  }
}

TEST_F(RepeatedScan, OfEveryDType) {
  const Step step = [](const std::vector<Tensor>& c, const std::vector<Tensor>& x) {
    if (c[0].dtype() == DType::boolean) return std::vector<Tensor>{c[0] ^ x[0], c[0] & x[0]};
    return std::vector<Tensor>{c[0] + x[0], c[0] * x[0] - c[0]};
  };
  for (const DType dtype : {DType::boolean, DType::u8, DType::i8, DType::i16, DType::u16, DType::i32, DType::u32,
                            DType::i64, DType::u64, DType::f16, DType::bf16, DType::f32, DType::f64})
    check(std::string(name(dtype)), step, {numbers(dtype, {45})}, {numbers(dtype, {12, 45})}, 12);
}

TEST_F(RepeatedScan, OfComplexNumbers) {
  const Step rotate = [](const std::vector<Tensor>& z, const std::vector<Tensor>& x) {
    const Tensor next = z[0] * x[0];
    return std::vector<Tensor>{next, next + 1};
  };
  const auto random = [](const Shape& shape) { return complex(randn(shape), randn(shape)); };
  check("rotations", rotate, {random({19})}, {random({8, 19})}, 8);
}

TEST_F(RepeatedScan, OfSeveralCarriedValues) {
  const Step fibonacci = [](const std::vector<Tensor>& c, const std::vector<Tensor>&) {
    return std::vector<Tensor>{c[1], c[0] + c[1], c[0]};
  };
  check("fibonacci", fibonacci, {numbers(DType::i64, {10}), numbers(DType::i64, {10})}, {}, 40);
  const Step exchange = [](const std::vector<Tensor>& c, const std::vector<Tensor>&) {
    return std::vector<Tensor>{c[1], c[0]};
  };
  check("exchange", exchange, {numbers(DType::f32, {33}), numbers(DType::f32, {33})}, {}, 7, false);
  const Step only_last = [](const std::vector<Tensor>&, const std::vector<Tensor>& x) {
    return std::vector<Tensor>{x[0] * 2, x[0] + 1};
  };
  check("the last", only_last, {numbers(DType::f32, {50})}, {numbers(DType::f32, {11, 50})}, 11);
  const Step untouched = [](const std::vector<Tensor>& c, const std::vector<Tensor>& x) {
    return std::vector<Tensor>{c[0], c[0] * x[0]};
  };
  check("untouched", untouched, {numbers(DType::f32, {50})}, {numbers(DType::f32, {11, 50})}, 11);
}

TEST_F(RepeatedScan, ReadsWhatEachStepIsGiven) {
  const Tensor column = randn({13, 1}), row = randn({90}), number = full({}, 0.75f);
  const Step step = [=](const std::vector<Tensor>& c, const std::vector<Tensor>&) {
    const Tensor next = c[0] * number + column * sin(row);
    return std::vector<Tensor>{next, next - column};
  };
  check("rows that are not joined", step, {randn({13, 90})}, {}, 10);
  const Step positions = [=](const std::vector<Tensor>& c, const std::vector<Tensor>&) {
    return std::vector<Tensor>{c[0] + arange(0, 90) * column, c[0] * 0.5};
  };
  const Step coefficients = [=](const std::vector<Tensor>& c, const std::vector<Tensor>& x) {
    const Tensor decay = exp(-column * column), next = decay * c[0] + (1 - decay) * x[0];
    return std::vector<Tensor>{next, next * sum(row)};
  };
  check("coefficients", coefficients, {randn({13, 90})}, {randn({12, 13, 90})}, 12);
  check("positions", positions, {randn({13, 90})}, {}, 10);
}

TEST_F(RepeatedScan, OfSequencesThatLieOtherwise) {
  const Tensor all = randn({40, 30, 25});
  check("every third", kFilter, {randn({30, 25})}, {all.index({Slice(kNone, kNone, 3)})}, 14);
  check("turned", kFilter, {randn({25, 30})}, {permute(all, {0, 2, 1})}, 40);
  check("along the last axis", kFilter, {randn({40, 30})}, {permute(all, {2, 0, 1})}, 25);
  check("flipped", kFilter, {randn({30, 25})}, {flip(all, {0})}, 40);
  check("one for all steps", kFilter, {randn({30, 25})}, {broadcast_to(all[0], {17, 30, 25})}, 17);
  check("turned init", kFilter, {randn({25, 30}).transpose(0, 1)}, {all}, 40);
}

TEST_F(RepeatedScan, OfReductions) {
  const Step running = [](const std::vector<Tensor>& c, const std::vector<Tensor>& x) {
    const Tensor next = c[0] * 0.9 + sum(x[0], -1) * 0.1;
    return std::vector<Tensor>{next, next * next};
  };
  check("rows", running, {randn({20})}, {randn({15, 20, 37})}, 15);
  const Step columns = [](const std::vector<Tensor>& c, const std::vector<Tensor>& x) {
    const Tensor next = maximum(c[0] * 0.9, max(x[0], 0));
    return std::vector<Tensor>{next, next + 1};
  };
  const Step normalized = [](const std::vector<Tensor>& c, const std::vector<Tensor>& x) {
    const Tensor next = c[0] / sqrt(sum(c[0] * c[0], -1, true)) + x[0];
    return std::vector<Tensor>{next, next};
  };
  check("normalized", normalized, {randn({20, 300})}, {randn({15, 20, 300})}, 15);
  const Step again = [](const std::vector<Tensor>& c, const std::vector<Tensor>& x) {
    return std::vector<Tensor>{c[1] + 1, c[0] - sum(c[0] * x[0], -1, true)};
  };
  check("read after it is written", again, {randn({20, 300}), randn({20, 300})}, {randn({15, 20, 300})}, 15, false);
  check("columns", columns, {randn({37})}, {randn({15, 20, 37})}, 15);
}

TEST_F(RepeatedScan, OfWhatIsReadElsewhereGoesStepByStep) {
  const auto stacked = [](const Tensor& next) { return std::vector<Tensor>{next, next * 2}; };
  const auto single = [&](auto f) {
    return Step([=](const std::vector<Tensor>& c, const std::vector<Tensor>&) { return stacked(f(c[0])); });
  };
  check("turned", single([](const Tensor& c) { return c.transpose(0, 1) * 0.5; }), {randn({20, 20})}, {}, 9, false);
  check("flipped", single([](const Tensor& c) { return flip(c, {0}) + 1; }), {randn({50})}, {}, 9, false);
  check("both", single([](const Tensor& c) { return flip(c, {0}) + c; }), {randn({50})}, {}, 9, false);
  check("one for all", single([](const Tensor& c) { return c * 0.5 + c.index({Slice(0, 1)}); }), {randn({50})}, {}, 9,
        false);
}

TEST_F(RepeatedScan, OnSeveralThreads) {
  set_thread_count(4);
  const Tensor init = randn({100'000}), x = randn({6, 100'000}), rows = randn({300, 200}), column = randn({300, 1});
  const Step step = [=](const std::vector<Tensor>& c, const std::vector<Tensor>&) {
    const Tensor next = c[0] * 0.5 + exp(column);
    return std::vector<Tensor>{next, next};
  };
  for (int time = 0; time < 3; ++time) {
    for (const bool reverse : {false, true}) {
      const std::vector<Tensor> wanted = step_by_step(kFilter, {init}, {x}, 6, reverse);
      const std::vector<Tensor> of_rows = step_by_step(step, {rows}, {}, 6, reverse);
      const ModeGuard guard(Mode::compiled);
      const std::vector<Tensor> got = scan_of(kFilter, {init}, {x}, 6, reverse);
      const std::vector<Tensor> rows_got = scan_of(step, {rows}, {}, 6, reverse);
      for (std::size_t i = 0; i < got.size(); ++i) ASSERT_TRUE(all(equal(got[i], wanted[i])).item<bool>());
      for (std::size_t i = 0; i < rows_got.size(); ++i) ASSERT_TRUE(all(equal(rows_got[i], of_rows[i])).item<bool>());
    }
  }
}

}  // namespace
}  // namespace fermata
