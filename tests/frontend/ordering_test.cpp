// Scans, sorting and searching: against the reference for every dtype and layout, in both modes; sets; errors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "fermata/fermata.h"
#include "frontend/ops/calls.h"
#include "runtime/thread_pool.h"
#include "tests/error_message.h"
#include "tests/frontend/reference_call.h"

namespace fermata {
namespace {

using testing::message;
using Ints = std::vector<std::int64_t>;
using Doubles = std::vector<double>;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

class Ordering : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Ordering, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

Ints ints(const Tensor& x) { return x.to_vector<std::int64_t>(); }
Doubles doubles(const Tensor& x) { return x.to_vector<double>(); }

/// What an op gives for these tensors, and what the reference says.
void expect_as_reference(Op op, const std::vector<Tensor>& inputs, const std::vector<std::int64_t>& attributes,
                         const TensorType& wanted = {}) {
  const Tensor got =
      general_call(op, inputs, {.wanted = wanted, .integers = attributes, .scalars = {}}, Location::current());
  const std::vector<testing::Complex> exact = testing::reference(op, inputs, type_of(got), attributes);
  const Doubles have = doubles(got);
  ASSERT_EQ(have.size(), exact.size());
  const double unit = is_floating(got.dtype()) ? 4 * finfo(got.dtype()).eps : 0;
  for (std::size_t i = 0; i < have.size(); ++i) {
    const double wanted_value = exact[i].real();
    if (std::isnan(wanted_value))
      ASSERT_TRUE(std::isnan(have[i])) << name(op) << " element " << i;
    else if (unit == 0 || std::isinf(wanted_value))
      ASSERT_EQ(have[i], wanted_value) << name(op) << " element " << i;
    else
      ASSERT_NEAR(have[i], wanted_value, unit * (1 + std::fabs(wanted_value))) << name(op) << " element " << i;
  }
}

/// Values with repetitions, some NaN and signed zeros where the dtype has them.
Tensor values(const Shape& shape, DType dtype, int salt) {
  Doubles v;
  for (std::int64_t i = 0; i < element_count(shape); ++i) {
    const auto h = static_cast<int>((i * 2654435761u + static_cast<unsigned>(salt) * 40503u) >> 7 & 1023);
    double value = h % 23 - 8;
    if (is_floating(dtype))
      value = h == 5 ? kNan : h % 97 == 0 ? -0.0 : value * 0.5;
    else if (!is_signed(dtype))
      value = std::fabs(value);
    v.push_back(value);
  }
  return astype(tensor(v, shape), dtype).sync();
}

struct Layout {
  const char* name;
  Tensor (*make)(DType dtype);
};
const Layout kLayouts[] = {
    {"dense",
     [](DType t) {
       return values({3, 130, 4}, t, 1);
     }},
    {"vector", [](DType t) { return values({1500}, t, 2); }},
    {"transposed",
     [](DType t) {
       return values({5, 70, 3}, t, 3).permute({2, 1, 0});
     }},
    {"reversed",
     [](DType t) {
       return flip(values({4, 60}, t, 4));
     }},
    {"every second",
     [](DType t) {
       return slice(values({3, 140}, t, 5), 1, 1, kNone, 2);
     }},
    {"broadcast",
     [](DType t) {
       return broadcast_to(values({1, 40}, t, 6), {3, 40});
     }},
    {"empty",
     [](DType t) {
       return values({3, 0, 2}, t, 7);
     }},
    {"no lines",
     [](DType t) {
       return values({0, 5}, t, 8);
     }},
};

/// sort and argsort of a vector, compared with a stable sort of the numbers; NaN above all others.
void expect_sorted(const Tensor& x) {
  const Doubles given = doubles(x);
  for (const bool descending : {false, true}) {
    const auto before = [&](std::int64_t a, std::int64_t b) {
      const double l = given[static_cast<std::size_t>(descending ? b : a)],
                   r = given[static_cast<std::size_t>(descending ? a : b)];
      return std::isnan(r) ? !std::isnan(l) : l < r;
    };
    Ints order(given.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
    std::stable_sort(order.begin(), order.end(), before);
    const Doubles sorted = doubles(sort(x, 0, descending));
    ASSERT_EQ(ints(argsort(x, 0, descending)), order);
    ASSERT_EQ(sorted.size(), order.size());
    for (std::size_t i = 0; i < order.size(); ++i) {
      const double wanted = given[static_cast<std::size_t>(order[i])];
      ASSERT_TRUE(sorted[i] == wanted || (std::isnan(sorted[i]) && std::isnan(wanted))) << i << " of " << order.size();
    }
  }
}

/// Lengths around those of vectors, of what registers hold and of what threads share.
TEST_P(Ordering, SortsLinesOfEveryLength) {
  for (std::size_t t = 0; t < kDTypeCount; ++t) {
    const auto dtype = static_cast<DType>(t);
    if (!kRealOrBoolean.has(dtype)) continue;
    for (const std::int64_t size :
         {1, 2, 3, 5, 8, 9, 16, 31, 33, 64, 100, 127, 129, 255, 256, 257, 300, 513, 1000, 5000}) {
      SCOPED_TRACE(name(dtype));
      expect_sorted(values({size}, dtype, static_cast<int>(size)));
    }
  }
}

/// Lines that are sorted side by side, wherever they lie.
TEST_P(Ordering, SortsManyShortLines) {
  for (std::size_t t = 0; t < kDTypeCount; ++t) {
    const auto dtype = static_cast<DType>(t);
    if (!kRealOrBoolean.has(dtype)) continue;
    SCOPED_TRACE(name(dtype));
    for (const std::int64_t size : {1, 2, 3, 4, 5, 7, 8, 11, 16, 17, 31, 33, 40, 41, 64, 65, 128, 129}) {
      const int salt = static_cast<int>(size);
      struct Lines {
        Tensor x;
        std::int64_t axis;
      };
      std::vector<Lines> all{{values({37, size}, dtype, salt), 1},
                             {values({size, 70}, dtype, salt), 0},
                             {flip(values({33, size}, dtype, salt), {0, 1}), 1},
                             {permute_dims(values({2, 19, size}, dtype, salt), {1, 2, 0}), 1}};
      if (size < 6) all.push_back({values({3, size, 1500}, dtype, salt), 1});
      for (const auto& [x, axis] : all)
        for (const std::int64_t descending : {0, 1}) {
          expect_as_reference(Op::sort, {x}, {axis, descending});
          expect_as_reference(Op::argsort, {x}, {axis, descending});
          expect_as_reference(Op::top_k_indices, {x}, {axis, (size + 1) / 2, descending});
        }
    }
  }
}

/// Keys of two bytes are counted in long lines, those of one byte in shorter ones, wherever lines lie.
TEST_P(Ordering, SortsNarrowKeysByCounting) {
  for (const DType dtype : {DType::i16, DType::u16, DType::f16, DType::bf16, DType::i8, DType::boolean}) {
    SCOPED_TRACE(name(dtype));
    for (const std::int64_t size : {16384, 16385, 40001}) expect_sorted(values({size}, dtype, static_cast<int>(size)));
    const Tensor columns = values({17001, 3}, dtype, 5);
    for (const bool descending : {false, true}) {
      const Tensor down = sort(columns, 0, descending), along = sort(copy(columns.mT()), 1, descending);
      const Doubles got = doubles(copy(down.mT())), wanted = doubles(along);
      for (std::size_t i = 0; i < wanted.size(); ++i)
        ASSERT_TRUE(got[i] == wanted[i] || (std::isnan(got[i]) && std::isnan(wanted[i]))) << i;
      expect_sorted(select(copy(columns.mT()), 0, 1).sync());
    }
  }
}

TEST_P(Ordering, SortsLinesThatThreadsShare) {
  const int threads = thread_count();
  set_thread_count(3);
  constexpr std::int64_t kSize = 140'003;
  Generator generator(3);
  const Tensor x = normal({kSize}, 0, 1, DType::f64, generator).sync(), narrow = x.astype(DType::f32).sync();
  expect_sorted(x);
  expect_sorted(narrow);
  expect_sorted((x * 1e-12 + 1.0).sync());                       // agrees in the highest bits
  expect_sorted((arange(kSize) % 7).sync());                     // few numbers
  expect_sorted(flip(arange(kSize)).astype(DType::i32).sync());  // the wrong way round
  expect_sorted(full({kSize}, std::numeric_limits<double>::infinity(), DType::f64).sync());
  const Ints order = ints(argsort(narrow, 0, true));
  EXPECT_EQ(ints(topk(narrow, 1000).indices), Ints(order.begin(), order.begin() + 1000));
  set_thread_count(1);
  EXPECT_EQ(ints(argsort(narrow, 0, true)), order);
  EXPECT_EQ(ints(topk(narrow, 1000).indices), Ints(order.begin(), order.begin() + 1000));
  set_thread_count(threads);
}

/// Keys that pass through memory in four parts at a time, by one thread.
TEST_P(Ordering, SortsLinesThatNoCacheHolds) {
  const int threads = thread_count();
  set_thread_count(1);
  constexpr std::int64_t kSize = 600'011;
  Generator generator(4);
  const Tensor x = normal({kSize}, 0, 1, DType::f64, generator).sync(), places = arange(kSize).sync();
  const std::vector<Tensor> all{x.astype(DType::f32),
                                x,
                                (places % 5).astype(DType::i32),
                                where(places % 1000 == 0, places, 3),  // nearly all equal
                                flip(places).astype(DType::u32),
                                where(x > 2.5, full_like(x, kNan), x)};
  for (const Tensor& given : all)
    for (const bool descending : {false, true}) {
      SCOPED_TRACE(name(given.dtype()));
      Doubles wanted = doubles(given);
      const auto number = std::partition(wanted.begin(), wanted.end(), [](double v) { return !std::isnan(v); });
      std::sort(wanted.begin(), number);
      if (descending) std::reverse(wanted.begin(), wanted.end());
      const Doubles sorted = doubles(sort(given, 0, descending));
      std::int64_t wrong = 0;
      for (std::size_t i = 0; i < wanted.size(); ++i)
        wrong += sorted[i] == wanted[i] || (std::isnan(sorted[i]) && std::isnan(wanted[i])) ? 0 : 1;
      EXPECT_EQ(wrong, 0);
    }
  expect_sorted(all[0]);
  set_thread_count(threads);
}

/// Bits that comparisons cannot tell: signs of zeros, and the one NaN that is stored.
TEST_P(Ordering, SortsZerosBySign) {
  const Tensor x = tensor(Doubles{0.0, -0.0, kNan, 0.0, -0.0, -kNan, 1, -1}, {8});
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const Doubles up = doubles(sort(x.astype(dtype))), down = doubles(sort(x.astype(dtype), 0, true));
    const std::vector<bool> signs{true, true, true, false, false, false};
    for (std::size_t i = 0; i < signs.size(); ++i) {
      EXPECT_EQ(std::signbit(up[i]), signs[i]);
      EXPECT_EQ(std::signbit(down[7 - i]), signs[i]);
    }
    EXPECT_TRUE(std::isnan(up[6]) && std::isnan(up[7]) && std::isnan(down[0]) && std::isnan(down[1]));
    EXPECT_EQ(ints(argsort(x.astype(dtype))), (Ints{7, 0, 1, 3, 4, 6, 2, 5}));
  }
}

TEST_P(Ordering, MatchesTheReferenceForEveryDTypeAndLayout) {
  for (std::size_t t = 0; t < kDTypeCount; ++t) {
    const auto dtype = static_cast<DType>(t);
    if (!kRealOrBoolean.has(dtype)) continue;
    for (const Layout& layout : kLayouts) {
      SCOPED_TRACE(layout.name);
      const Tensor x = layout.make(dtype);
      for (std::int64_t axis = 0; axis < x.rank(); ++axis) {
        if (dtype == DType::u64 || dtype == DType::i64 || is_floating(dtype)) {
          expect_as_reference(Op::cumulative_sum, {x}, {axis});
          if (dtype != DType::f16) expect_as_reference(Op::cumulative_prod, {x}, {axis});  // it overflows
        }
        expect_as_reference(Op::cumulative_max, {x}, {axis});
        expect_as_reference(Op::cumulative_min, {x}, {axis});
        for (const std::int64_t descending : {0, 1}) {
          expect_as_reference(Op::sort, {x}, {axis, descending});
          expect_as_reference(Op::argsort, {x}, {axis, descending});
          for (const std::int64_t k : {std::int64_t{0}, x.size(axis) / 3, x.size(axis)})
            expect_as_reference(Op::top_k_indices, {x}, {axis, k, descending});
        }
      }
      for (const std::int64_t n : {0, 7, 5000}) expect_as_reference(Op::flatnonzero, {x}, {}, {DType::i64, {n}});
      const Tensor sorted = sort(flatten(values({50}, dtype, 9)));
      for (const std::int64_t right : {0, 1}) {
        expect_as_reference(Op::searchsorted, {sorted, x}, {right});
        expect_as_reference(Op::searchsorted, {slice(sorted, 0, 0, 0), x}, {right});
        expect_as_reference(Op::searchsorted, {slice(sorted, 0, 0, kNone, 3), x}, {right});
      }
    }
  }
}

TEST_P(Ordering, ScansAgreeForAnyNumberOfThreadsAndLayout) {
  const Tensor x = randn({40, 3000});
  const Tensor whole = cumulative_sum(x, 1).sync();
  const Tensor turned = cumulative_sum(copy(x.mT()), 0).mT();
  EXPECT_EQ(whole.to_vector<float>(), turned.to_vector<float>());
}

TEST_P(Ordering, ScansPromoteAndStartFromTheirIdentity) {
  EXPECT_EQ(cumulative_sum(tensor({true, true, false}), 0).dtype(), DType::i64);
  EXPECT_EQ(cumulative_sum(tensor({1, 2, 3}, DType::u8)).dtype(), DType::u64);
  EXPECT_EQ(cumulative_max(tensor({1, 2, 3}, DType::u8)).dtype(), DType::u8);
  EXPECT_EQ(ints(cumulative_sum(tensor({1, 2, 3}), 0, true)), (Ints{0, 1, 3, 6}));
  EXPECT_EQ(ints(cumulative_prod(tensor({2, 3, 4}), 0, true)), (Ints{1, 2, 6, 24}));
  EXPECT_EQ(ints(cumulative_max(tensor({2, 1}, DType::i8), 0, true)), (Ints{-128, 2, 2}));
  EXPECT_EQ(ints(cumulative_min(tensor({2, 1}, DType::u16), 0, true)), (Ints{65535, 2, 1}));
  EXPECT_EQ(doubles(cumulative_min(tensor({2.0, 1.0}), 0, true)), (Doubles{INFINITY, 2, 1}));
  EXPECT_EQ(ints(diff(tensor({1, 4, 9, 16}), 2)), (Ints{2, 2}));
  EXPECT_EQ(ints(cumulative_sum(tensor({{1, 2}, {3, 4}}), 0)), (Ints{1, 2, 4, 6}));
}

TEST_P(Ordering, SortsWithNaNLastAndTiesInOrder) {
  EXPECT_EQ(ints(argsort(tensor({kNan, 1.0, -0.0, 0.0, 1.0}))), (Ints{2, 3, 1, 4, 0}));
  EXPECT_EQ(ints(argsort(tensor({kNan, 1.0, -0.0, 0.0, 1.0}), -1, true)), (Ints{0, 1, 4, 2, 3}));
  const TopK best = topk(tensor({{3.0, 7.0, 7.0, 1.0}, {0.0, -1.0, 5.0, 2.0}}), 2);
  EXPECT_EQ(ints(best.indices), (Ints{1, 2, 2, 3}));
  EXPECT_EQ(doubles(best.values), (Doubles{7, 7, 5, 2}));
  const TopK worst = topk(tensor({3, 1, 2}), 2, 0, false);
  EXPECT_EQ(ints(worst.values), (Ints{1, 2}));
  EXPECT_EQ(ints(topk(tensor({{3, 1}, {2, 9}}), 1, 0).values), (Ints{3, 9}));
}

/// Whole blocks and what is left of a chunk, of elements of each width, few of which or nearly all are not zero.
TEST_P(Ordering, FindsWhatIsNotZeroAmongMany) {
  Generator generator(11);
  for (const std::int64_t n : {63, 64, 200, 16384, 40000})
    for (const double share : {0.0, 0.02, 0.5, 0.97, 1.0}) {
      const Tensor draws = uniform({n}, 0, 1, DType::f64, generator).sync();
      const std::vector<double> drawn = draws.to_vector<double>();
      std::vector<std::int64_t> expected;
      for (std::int64_t i = 0; i < n; ++i)
        if (drawn[static_cast<std::size_t>(i)] < share) expected.push_back(i);
      for (const DType t : {DType::boolean, DType::u8, DType::i16, DType::f32, DType::i64, DType::f64}) {
        const Tensor x = where(draws < share, is_floating(t) ? -0.25 : 1.0, -0.0).astype(t);
        EXPECT_EQ(flatnonzero(x).to_vector<std::int64_t>(), expected) << name(t) << " " << n << " " << share;
        if (expected.size() < 9) continue;
        const std::vector<std::int64_t> few(expected.begin(), expected.begin() + 9);
        EXPECT_EQ(flatnonzero(x, 9).to_vector<std::int64_t>(), few) << name(t) << " " << n << " " << share;
      }
    }
}

TEST_P(Ordering, FindsAndCounts) {
  const Tensor x = tensor({{0.0, 1.0, 0.0}, {2.0, 0.0, 3.0}});
  const std::vector<Tensor> at = nonzero(x);
  ASSERT_EQ(at.size(), 2u);
  EXPECT_EQ(ints(at[0]), (Ints{0, 1, 1}));
  EXPECT_EQ(ints(at[1]), (Ints{1, 0, 2}));
  EXPECT_EQ(ints(argwhere(x)), (Ints{0, 1, 1, 0, 1, 2}));
  EXPECT_EQ(ints(flatnonzero(x, 5)), (Ints{1, 3, 5, 6, 6}));
  EXPECT_EQ(ints(flatnonzero(x, 2)), (Ints{1, 3}));
  EXPECT_EQ(count_nonzero(x).item<int>(), 3);
  EXPECT_EQ(ints(count_nonzero(x, 0)), (Ints{1, 1, 1}));
  EXPECT_EQ(flatnonzero(zeros({4})).shape(), (Shape{0}));
  EXPECT_EQ(ints(searchsorted(tensor({10, 30, 20}), tensor({25, 5}), Side::left, tensor({0, 2, 1}))), (Ints{2, 0}));
  EXPECT_EQ(searchsorted(tensor({1, 2}), tensor(1.5)).item<int>(), 1);
}

TEST_P(Ordering, Sets) {
  const Tensor x = tensor({{3, 1, 3}, {2, 1, 3}});
  const Unique all = unique_all(x);
  EXPECT_EQ(ints(all.values), (Ints{1, 2, 3}));
  EXPECT_EQ(ints(all.indices), (Ints{1, 3, 0}));
  EXPECT_EQ(ints(all.inverse_indices), (Ints{2, 0, 2, 1, 0, 2}));
  EXPECT_EQ(all.inverse_indices.shape(), x.shape());
  EXPECT_EQ(ints(all.counts), (Ints{2, 1, 3}));
  EXPECT_EQ(ints(unique_values(x)), (Ints{1, 2, 3}));
  const Unique padded = unique_counts(x, 5);
  EXPECT_EQ(ints(padded.values), (Ints{1, 2, 3, 3, 3}));
  EXPECT_EQ(ints(padded.counts), (Ints{2, 1, 3, 0, 0}));
  EXPECT_EQ(unique_values(tensor({kNan, 1.0, kNan})).shape(), (Shape{3}));
  EXPECT_EQ(unique_all(zeros({0})).counts.shape(), (Shape{0}));
  EXPECT_EQ(ints(isin(x, tensor({1, 7}))), (Ints{0, 1, 0, 0, 1, 0}));
  EXPECT_EQ(ints(isin(x, tensor({1, 7}), true)), (Ints{1, 0, 1, 1, 0, 1}));
  EXPECT_EQ(ints(isin(x, zeros({0}, DType::i64))), (Ints{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(ints(intersect1d(x, tensor({3, 9, 1}))), (Ints{1, 3}));
  EXPECT_EQ(ints(union1d(x, tensor({9}))), (Ints{1, 2, 3, 9}));
  EXPECT_EQ(ints(setdiff1d(x, tensor({3}))), (Ints{1, 2}));
}

TEST_P(Ordering, Quantiles) {
  EXPECT_EQ(median(tensor({3, 1, 2, 10})).item<double>(), 2.5);
  EXPECT_EQ(doubles(median(tensor({{3.0, 1.0, 2.0}, {5.0, 5.0, kNan}}), 1))[0], 2);
  EXPECT_TRUE(std::isnan(median(tensor({3.0, kNan})).item<double>()));
  EXPECT_EQ(quantile(tensor({0.0, 10.0}), 0.25).item<double>(), 2.5);
  EXPECT_EQ(quantile(tensor({INFINITY, INFINITY}), 0.5).item<double>(), INFINITY);
  EXPECT_EQ(median(ones({2, 3}), {}, true).shape(), (Shape{1, 1}));
}

TEST_P(Ordering, Gradients) {
  using testing::Inputs;
  const Tensor x = testing::random_f64({3, 5}, 0.5, 2, true, 3);
  testing::check_gradients("", [](const Inputs& in) { return cumulative_sum(in[0], 1); }, {x});
  testing::check_gradients("", [](const Inputs& in) { return cumulative_prod(in[0], 0); }, {x});
  testing::check_gradients("", [](const Inputs& in) { return cumulative_max(in[0], 1); }, {x});
  testing::check_gradients("", [](const Inputs& in) { return cumulative_min(in[0], 1); }, {x});
  testing::check_gradients("", [](const Inputs& in) { return sort(in[0], 0, true); }, {x});
  testing::check_gradients("", [](const Inputs& in) { return topk(in[0], 2).values; }, {x});
  testing::check_gradients("", [](const Inputs& in) { return square(cumulative_prod(in[0], 1)); }, {x});
  const Tensor with_zeros = tensor({{1.5, 0.0, 2.0, 0.0, 3.0}, {2.0, 3.0, 0.0, 1.0, 4.0}}, DType::f64);
  testing::check_gradients("", [](const Inputs& in) { return cumulative_prod(in[0], 1); }, {with_zeros});
}

TEST(OrderingErrors, SayWhatIsWrong) {
  EXPECT_EQ(message<ValueError>([] {
              topk(ones({2, 3}), 4);
            }),
            "FM1312 ValueError: top_k_indices: k is 4, not 0 to 3\n  x    f32[2, 3]   axis 1 is 3\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] {
              cumulative_sum(ones({2, 3}));
            }),
            "FM1313 ValueError: cumulative_sum: a tensor of 2 axes requires an axis\n  x    f32[2, 3]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] { diff(ones({2}), -1); }),
            "FM1314 ValueError: diff: -1 differences\n  x    f32[2]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] { quantile(ones({2}), 50); }),
            "FM1315 ValueError: quantile: q is 50, not between 0 and 1\n  x    f32[2]\n  at   HERE");
  EXPECT_EQ(message<ShapeError>([] {
              searchsorted(ones({2, 2}), ones({2}));
            }),
            "FM1024 ShapeError: searchsorted: the first operand must be a sorted vector\n"
            "  lhs  f32[2, 2]   2 axes\n  rhs  f32[2]\n  at   HERE");
  EXPECT_EQ(message<ShapeError>([] { nonzero(tensor(1.0)); }),
            "FM1026 ShapeError: nonzero: a 0-d tensor has no axes\n  x    f32[]\n  at   HERE\n"
            "  hint use flatnonzero");
  EXPECT_EQ(message<ShapeError>([] { median(zeros({0})); }),
            "FM1027 ShapeError: quantile: no elements\n  x    f32[0]\n  at   HERE");
  EXPECT_EQ(message<UnsupportedError>([] {
              vmap([](const Tensor& x) { return unique_values(x); })(ones({2, 3}));
            }),
            "FM2022 UnsupportedError: unique_values: the size of the result depends on values, which are not available "
            "inside vmap\n  x    f32[3]\n  at   HERE\n"
            "  hint pass the number of elements as `size`; the result is padded to it");
  EXPECT_EQ(message<ShapeError>([] {
              general_call(Op::flatnonzero, std::vector{ones({3})},
                           {.wanted = {DType::i64, {2, 2}}, .integers = {}, .scalars = {}}, Location::current());
            }),
            "FM1025 ShapeError: flatnonzero: the result must have one axis, not [2, 2]\n  x    f32[3]\n  at   HERE");
  EXPECT_THROW(sort(ones({2}), 1), IndexError);
}

TEST(OrderingInsideCompile, TakesASize) {
  auto f = compile([](const Tensor& x) { return take(x, minimum(flatnonzero(x > 0, 2), x.size(0) - 1)); });
  EXPECT_EQ(doubles(f(tensor({-1.0, 5.0, 6.0}))), (Doubles{5, 6}));
  EXPECT_EQ(doubles(f(tensor({7.0, -5.0, 6.0}))), (Doubles{7, 6}));
  auto without = compile([](const Tensor& x) { return take(x, flatnonzero(x > 0)); });
  EXPECT_THROW(without(tensor({1.0})), UnsupportedError);
  EXPECT_EQ(doubles(vmap([](const Tensor& x) { return unique_values(x, 2); })(tensor({{1.0, 1.0}, {4.0, 3.0}}))),
            (Doubles{1, 1, 3, 4}));
}

}  // namespace
}  // namespace fermata
