// Every reduction of the table over a grid of shapes, axes and dtypes, against loops in plain C++: axes of one element
// and of none wherever they may stand, and the lists of axes that name all of them or none.
#include "fermata/reductions.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "fermata/fermata.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;
using Doubles = std::vector<double>;

class Reductions : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Reductions, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

/// What a reduction makes of some elements.
using Reduced = double (*)(const Doubles&);
struct Row {
  const char* name;
  Tensor (*of)(const Tensor&, const IntegerList&, bool, Location);
  Reduced wanted;
  bool of_none, one_axis;  // whether it has a value of no elements; whether it takes one axis or all
};

double sum_of(const Doubles& x) {
  double total = 0;
  for (const double v : x) total += v;
  return total;
}
double product_of(const Doubles& x) {
  double total = 1;
  for (const double v : x) total *= v;
  return total;
}
double largest_of(const Doubles& x) { return x.empty() ? -INFINITY : *std::ranges::max_element(x); }
double smallest_of(const Doubles& x) { return *std::ranges::min_element(x); }
double all_of(const Doubles& x) { return std::ranges::count(x, 0.0) == 0; }
double any_of(const Doubles& x) { return std::ranges::count(x, 0.0) < std::ssize(x); }
double place_of_largest(const Doubles& x) { return static_cast<double>(std::ranges::max_element(x) - x.begin()); }
double place_of_smallest(const Doubles& x) { return static_cast<double>(std::ranges::min_element(x) - x.begin()); }
double mean_of(const Doubles& x) { return sum_of(x) / static_cast<double>(x.size()); }
double logsumexp_of(const Doubles& x) {
  double total = 0;
  for (const double v : x) total += std::exp(v);
  return std::log(total);
}

constexpr Row kRows[] = {
#define FERMATA_ROW(name, wanted, ...) \
  { #name, &name, &wanted, __VA_ARGS__ }
    FERMATA_ROW(sum, sum_of, true, false),
    FERMATA_ROW(prod, product_of, true, false),
    FERMATA_ROW(max, largest_of, false, false),
    FERMATA_ROW(min, smallest_of, false, false),
    FERMATA_ROW(all, all_of, true, false),
    FERMATA_ROW(any, any_of, true, false),
    FERMATA_ROW(argmax, place_of_largest, false, true),
    FERMATA_ROW(argmin, place_of_smallest, false, true),
    FERMATA_ROW(mean, mean_of, true, false),
    FERMATA_ROW(logsumexp, logsumexp_of, true, false),
#undef FERMATA_ROW
};

TEST(ReductionRows, AreThoseOfTheTable) {
  constexpr std::string_view kNames[] = {
#define FERMATA_REDUCE(name, rule, vjp, doc) #name,
#include "ir/ops.def"
  };
  for (const std::string_view name : kNames)
    EXPECT_TRUE(std::ranges::any_of(kRows, [&](const Row& row) { return row.name == name; })) << name;
}

const Shape kShapes[] = {{},        {1},       {5},       {0},       {2, 3},       {3, 1},
                         {1, 3},    {1, 1},    {0, 3},    {3, 0},    {2, 3, 1},    {2, 1, 3},
                         {1, 2, 3}, {2, 1, 1}, {1, 1, 2}, {2, 0, 1}, {2, 3, 1, 1}, {2, 1, 3, 1}};
constexpr DType kDTypes[] = {DType::f32, DType::boolean, DType::f16, DType::f64, DType::i32, DType::u8};
constexpr std::size_t kCompiledDTypes = 2;  // each reduction of each dtype is a kernel of its own

/// The axes that a mask names.
std::vector<std::int64_t> axes_of(unsigned mask) {
  std::vector<std::int64_t> axes;
  for (std::int64_t i = 0; mask >> i != 0; ++i)
    if ((mask >> i & 1) != 0) axes.push_back(i);
  return axes;
}

/// The shape of the result, and the elements that each of its elements is made of.
struct Groups {
  Groups(const Doubles& x, const Shape& shape, unsigned mask, bool keepdims) {
    std::vector<std::int64_t> strides(shape.rank());
    std::int64_t count = 1;
    for (unsigned i = shape.rank(); i-- > 0;) {
      if ((mask >> i & 1) != 0) continue;
      strides[i] = count, count *= shape[i];
    }
    for (unsigned i = 0; i < shape.rank(); ++i)
      if ((mask >> i & 1) == 0)
        sizes.push_back(shape[i]);
      else if (keepdims)
        sizes.push_back(1);
    groups.resize(static_cast<std::size_t>(count));
    for (std::size_t at = 0; at < x.size(); ++at) {
      std::int64_t rest = static_cast<std::int64_t>(at), to = 0;
      for (unsigned i = shape.rank(); i-- > 0;) to += rest % shape[i] * strides[i], rest /= shape[i];
      groups[static_cast<std::size_t>(to)].push_back(x[at]);
    }
  }
  Shape sizes;
  std::vector<Doubles> groups;
};

void check(const Row& row, const Tensor& x, unsigned mask, bool keepdims, const IntegerList& axes) {
  SCOPED_TRACE(std::string(row.name) + " of " + to_string(x.dtype(), x.shape()) + " over " + std::to_string(mask));
  const Groups wanted(x.to_vector<double>(), x.shape(), mask, keepdims);
  const bool has_empty = std::ranges::any_of(axes_of(mask), [&](std::int64_t a) { return x.size(a) == 0; });
  if (has_empty && !row.of_none) {
    EXPECT_THROW(row.of(x, axes, keepdims, Location::current()), ShapeError);
    return;
  }
  const Tensor y = row.of(x, axes, keepdims, Location::current());
  EXPECT_EQ(to_string(y.shape()), to_string(wanted.sizes));
  const Doubles found = y.to_vector<double>();
  ASSERT_EQ(found.size(), wanted.groups.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const double expected = row.wanted(wanted.groups[i]);
    if (std::isnan(expected) || std::isinf(expected)
            ? !(std::isnan(expected) && std::isnan(found[i])) && found[i] != expected
            : std::abs(found[i] - expected) > 2e-3 * std::max(1.0, std::abs(expected)))
      ADD_FAILURE() << "element " << i << " is " << found[i] << ", not " << expected;
  }
}

TEST_P(Reductions, MeansOfEqualIntegersAreExact) {
  for (const std::int64_t count : {3, 7, 41, 100, 1000})
    for (const DType dtype : {DType::f32, DType::f64, DType::i32}) {
      const Tensor x = full({count, count + 2}, 800, dtype);
      EXPECT_EQ(mean(x).item<double>(), 800) << count;
      EXPECT_EQ(mean(x, {0}).to_vector<double>(), std::vector<double>(static_cast<std::size_t>(count + 2), 800));
      EXPECT_EQ(var(x, {1}).to_vector<double>(), std::vector<double>(static_cast<std::size_t>(count), 0));
    }
}

TEST_P(Reductions, AreThoseOfLoopsForEveryShapeAndAxes) {
  for (const DType dtype : std::span(kDTypes).first(GetParam() == Mode::eager ? std::size(kDTypes) : kCompiledDTypes))
    for (const Shape& shape : kShapes) {
      const Tensor x = astype(remainder(reshape(arange(element_count(shape)) * 7 + 3, shape), 5), dtype);
      const unsigned last = 1u << shape.rank();
      for (const Row& row : kRows)
        for (const bool keepdims : {false, true}) {
          check(row, x, last - 1, keepdims, {});
          for (unsigned mask = 1; mask < last; ++mask)
            if (!row.one_axis || std::has_single_bit(mask)) check(row, x, mask, keepdims, axes_of(mask));
          if (!row.one_axis && dtype == DType::f32) check(row, x, 0, keepdims, no_axes);
        }
    }
}

/// What docs/modes.md promises: another order of addition only over several axes of a strided or broadcast operand.
TEST(ReductionBits, AreThoseOfEagerModeOverOneAxisOrOfDenseOperands) {
  const CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  const auto bits_of = [](Mode mode, auto&& f) {
    const ModeGuard guard(mode);
    return f().template to_vector<float>();
  };
  for (const std::int64_t rows : {3, 5, 70})
    for (const std::int64_t columns : {1, 7, 100}) {
      const Tensor x = randn({rows, columns}).sync(), turned = randn({columns, rows}).sync();
      const Tensor operands[] = {randn({rows, columns}).sync(), randn({rows, 1}).sync(),
                                 randn({1, columns}).sync(),    randn({}).sync(),
                                 transpose(turned, 0, 1),       flip(x)};
      for (std::size_t i = 0; i < std::size(operands); ++i)
        for (const std::int64_t axis : {0, 1, 2}) {
          const Tensor& k = operands[i];
          const bool dense = k.shape() == x.shape() && i == 0, one_axis = axis < 2 || rows == 1 || columns == 1;
          if (!dense && !one_axis) continue;
          const auto f = [&] { return axis == 2 ? sum(x * k) : sum(x * k, axis); };
          const auto g = [&] { return axis == 2 ? var(x * k) : var(x * k, axis); };
          EXPECT_EQ(bits_of(Mode::eager, f), bits_of(Mode::compiled, f)) << rows << " x " << columns << ", " << i;
          EXPECT_EQ(bits_of(Mode::eager, g), bits_of(Mode::compiled, g)) << rows << " x " << columns << ", " << i;
        }
    }
  set_compile_policy(before);
}

/// Rows that a few vectors hold have loops of their own in eager mode; a compiled kernel that computes its operand has
/// the tree of the lanes. NaN, infinities and zeros of either sign are among the elements.
TEST(ReductionBits, AreTheSameForRowsOfEveryLength) {
  const CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  using Reduction = Tensor (*)(const Tensor&, const IntegerList&, bool, Location);
  for (std::int64_t columns = 1; columns <= 68; ++columns)
    for (const std::int64_t rows : {1, 19, 1100}) {
      if (rows > 100 && columns % 8 > 1) continue;
      const ModeGuard eager(Mode::eager);
      Tensor x = where(rand({rows, columns}) < 0.01, -0.0, randn({rows, columns}));
      x = where(rand({rows, columns}) < 0.002, std::numeric_limits<double>::infinity(), x);
      x = where(rand({rows, columns}) < 0.002, std::numeric_limits<double>::quiet_NaN(), x);
      x.slice(0, 0, 1).assign(-0.0);
      for (const DType dtype : {DType::f32, DType::f64, DType::i32, DType::i64, DType::bf16}) {
        const Tensor y = (is_floating(dtype) ? x : x * 10).astype(dtype).sync(), negated = negative(y).sync();
        for (const Reduction reduce : {Reduction(&sum), Reduction(&prod), Reduction(&max), Reduction(&min)}) {
          const Location here = Location::current();
          const std::vector<double> plain = reduce(y, {1}, false, here).astype(DType::f64).to_vector<double>();
          const ModeGuard compiled(Mode::compiled);
          const std::vector<double>
              called = reduce(y, {1}, false, here).astype(DType::f64).to_vector<double>(),
              fused = reduce(negative(negated), {1}, false, here).astype(DType::f64).to_vector<double>();
          for (std::size_t r = 0; r < plain.size(); ++r)
            for (const double other : {called[r], fused[r]})
              ASSERT_TRUE((std::isnan(plain[r]) && std::isnan(other)) ||
                          std::bit_cast<std::uint64_t>(plain[r]) == std::bit_cast<std::uint64_t>(other))
                  << rows << " x " << columns << " of " << name(dtype) << ", row " << r << ": " << plain[r] << ", "
                  << other;
        }
      }
    }
  set_compile_policy(before);
}

/// Sums of integers that are narrower than their sums are added as they are stored: those of their extremes do not fit.
TEST_P(Reductions, SumsOfNarrowIntegers) {
  const Shape shapes[] = {{300, 517}, {5000, 35}, {33, 9000}};
  for (const DType dtype : {DType::u8, DType::i8, DType::u16, DType::i16, DType::u32, DType::i32, DType::boolean})
    for (const Shape& shape : shapes) {
      const std::vector<std::int64_t> sizes(shape.begin(), shape.end());
      const double highest =
          dtype == DType::boolean
              ? 1
              : std::ldexp(1.0, static_cast<int>(8 * byte_size(dtype)) - (is_signed(dtype) ? 1 : 0)) - 1;
      const Tensor extremes =
          where(rand(sizes, DType::f64) < 0.9, is_signed(dtype) ? -highest - 1 : highest, highest / 2);
      const Tensor x = extremes.astype(dtype).sync(),
                   wide = x.astype(is_signed(dtype) ? DType::i64 : DType::u64).sync();
      const auto views = [](const Tensor& t) {
        return std::vector{t, t.mT(), flip(t, {1}), t.slice(1, 1, kNone, 2), t.slice(0, 1, kNone, 3).mT()};
      };
      const std::vector<Tensor> narrow = views(x), wanted = views(wide);
      for (std::size_t i = 0; i < narrow.size(); ++i)
        for (const std::int64_t axis : {0, 1})
          ASSERT_EQ(sum(narrow[i], axis).astype(DType::i64).to_vector<std::int64_t>(),
                    sum(wanted[i], axis).astype(DType::i64).to_vector<std::int64_t>())
              << name(dtype) << ' ' << shape << ", view " << i << ", axis " << axis;
    }
}

/// Operands whose neighbors lie along another axis than the last one are reduced by lanes that are columns of memory,
/// or, where any order will do, along memory. The trees stay those of the view's rows and columns.
TEST(ReductionBits, OfOperandsThatLieAcrossAreThoseOfCopies) {
  const CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  using Reduction = Tensor (*)(const Tensor&, std::int64_t);
  const Reduction reductions[] = {[](const Tensor& x, std::int64_t axis) { return sum(x, axis); },
                                  [](const Tensor& x, std::int64_t axis) { return prod(x, axis); },
                                  [](const Tensor& x, std::int64_t axis) { return max(x, axis); },
                                  [](const Tensor& x, std::int64_t axis) { return min(x, axis); },
                                  [](const Tensor& x, std::int64_t axis) { return argmax(x, axis); },
                                  [](const Tensor& x, std::int64_t axis) { return argmin(x, axis); }};
  const auto values_of = [](Mode mode, auto&& f) {
    const ModeGuard guard(mode);
    return f().astype(DType::f64).template to_vector<double>();
  };
  struct Case {
    Shape sizes;
    std::vector<std::int64_t> order;
  };
  const Case cases[] = {{{65, 300}, {1, 0}},      {{200, 100}, {1, 0}},           {{8300, 33}, {1, 0}},
                        {{33, 8300}, {1, 0}},     {{40, 1000}, {1, 0}},           {{3, 90, 130}, {0, 2, 1}},
                        {{90, 3, 64}, {2, 1, 0}}, {{3, 70, 5, 100}, {0, 3, 1, 2}}};
  for (const auto& [sizes, order] : cases) {
    const ModeGuard eager(Mode::eager);
    const std::vector<std::int64_t> lengths(sizes.begin(), sizes.end());
    Tensor x = where(rand(lengths) < 0.3, where(rand(lengths) < 0.5, -0.0, 0.0), randn(lengths));
    x = where(rand(lengths) < 0.001, std::numeric_limits<double>::quiet_NaN(), x);
    for (const DType dtype : {DType::f32, DType::f64, DType::i64, DType::i16, DType::u8, DType::bf16, DType::boolean}) {
      const Tensor y = (is_floating(dtype) ? x : nan_to_num(x) * 3).astype(dtype).sync();
      const Tensor view = permute_dims(y, order), dense = copy(view).sync();
      for (std::size_t r = 0; r < std::size(reductions); ++r)
        for (std::int64_t axis = 0; axis < view.rank(); ++axis) {
          const std::vector<double> wanted = values_of(Mode::eager, [&] { return reductions[r](dense, axis); });
          const std::vector<double> others[] = {
              values_of(Mode::eager, [&] { return reductions[r](view, axis); }),
              values_of(Mode::compiled, [&] { return reductions[r](view, axis); }),
              values_of(Mode::compiled, [&] { return reductions[r](permute_dims(y, order), axis); })};
          for (const std::vector<double>& other : others)
            for (std::size_t i = 0; i < wanted.size(); ++i)
              ASSERT_TRUE((std::isnan(wanted[i]) && std::isnan(other[i])) ||
                          std::bit_cast<std::uint64_t>(wanted[i]) == std::bit_cast<std::uint64_t>(other[i]))
                  << name(dtype) << ' ' << view.shape() << ", reduction " << r << " over axis " << axis << ", way "
                  << &other - others << ", element " << i << ": " << wanted[i] << ", " << other[i];
        }
    }
  }
  set_compile_policy(before);
}

/// What lies in another order is reduced in the order of memory, in both modes: its bits are those of the tensor that
/// it is a view of. Positions of extremes are counted along the axes of the view.
TEST_P(Reductions, OfTurnedOperandsAreInTheOrderOfMemory) {
  const CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  const auto values = [](const Tensor& x) { return x.astype(DType::f64).to_vector<double>(); };
  for (const DType dtype : {DType::f32, DType::f64, DType::bf16, DType::i16, DType::u8}) {
    const Tensor x = (rand({7, 130, 93}) * 20).astype(dtype).sync();
    const Tensor turned = permute_dims(x, {1, 2, 0}), dense = copy(turned).sync();
    const std::vector<std::int64_t> orders[] = {{2, 1, 0}, {1, 2, 0}, {2, 0, 1}, {0, 2, 1}};
    for (const std::vector<std::int64_t>& order : orders) {
      const Tensor view = permute_dims(x, order);
      for (int run = 0; run < 2; ++run) {
        EXPECT_EQ(values(sum(view)), values(sum(x))) << name(dtype);
        EXPECT_EQ(values(max(view)), values(max(x))) << name(dtype);
        EXPECT_EQ(values(argmax(view)), values(argmax(copy(view)))) << name(dtype);
      }
    }
    if (!is_floating(dtype)) { EXPECT_EQ(values(sum(turned, {0, 1})), values(sum(x, {1, 2}))) << name(dtype); }
    EXPECT_EQ(values(sum(flip(turned))), values(sum(flip(x)))) << name(dtype);
    EXPECT_EQ(values(argmin(turned)), values(argmin(dense))) << name(dtype);
    EXPECT_EQ(values(min(turned * turned)), values(min(dense * dense))) << name(dtype);
    const Tensor squares = sum(turned.astype(DType::f64) * turned);
    EXPECT_NEAR(squares.item<double>(), sum(dense.astype(DType::f64) * dense).item<double>(), 1e-4);
  }
  set_compile_policy(before);
}

/// An operand that a kernel knows to lie in rows, although its windows overlap and go down.
TEST_P(Reductions, OfWindowsThatGoDownBesideATurnedOperand) {
  const CompilePolicy before = set_compile_policy(CompilePolicy::immediate);
  const Tensor x = rand({300}).sync(), y = rand({50, 251}).sync(), dense = copy(y.mT()).sync();
  const auto windows = [&] { return flip(unfold(x * 1, 0, 50, 1), {0}); };
  for (int run = 0; run < 2; ++run)
    EXPECT_NEAR(sum(windows() * y.mT()).item<float>(), sum(copy(windows()) * dense).item<float>(), 0.1);
  set_compile_policy(before);
}

TEST_P(Reductions, OverNoAxesKeepTheShape) {
  const Tensor x = tensor({{1.0f, 0.0f}, {-3.0f, 4.0f}});
  EXPECT_EQ(var(x, no_axes).to_vector<float>(), (std::vector<float>{0, 0, 0, 0}));
  EXPECT_EQ(count_nonzero(x, no_axes).to_vector<int>(), (std::vector<int>{1, 0, 1, 1}));
  EXPECT_EQ(linalg::vector_norm(x, no_axes).to_vector<float>(), (std::vector<float>{1, 0, 3, 4}));
  EXPECT_EQ(linalg::vector_norm(x, no_axes, false, INFINITY).to_vector<float>(), (std::vector<float>{1, 0, 3, 4}));
  EXPECT_EQ(flip(x, no_axes).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(roll(x, 1, no_axes).to_vector<float>(), x.to_vector<float>());
  EXPECT_EQ(squeeze(ones({1, 2, 1}), no_axes).shape(), (Shape{1, 2, 1}));
  EXPECT_EQ(fft::fftn(x, {}, no_axes).shape(), x.shape());
  EXPECT_EQ(fft::fftshift(x, no_axes).to_vector<float>(), x.to_vector<float>());
  const auto square_of = [](const Inputs& in) { return sum(square(in[0]), no_axes); };
  check_gradients("sum over no axes", square_of, {astype(x, DType::f64)});
  EXPECT_THROW(argmax(x, no_axes), ValueError);
}

TEST_P(Reductions, ExponentialsOfAnEmptyAxis) {
  for (const Shape& shape : {Shape{0}, Shape{2, 0}, Shape{0, 3}})
    for (const std::int64_t axis : {std::int64_t{0}, std::int64_t{-1}}) {
      const Tensor x = zeros(shape);
      for (const Tensor& y : {softmax(x, axis), log_softmax(x, axis), softmin(x, axis)}) {
        EXPECT_EQ(y.shape(), shape);
        EXPECT_TRUE(y.to_vector<float>().empty());
      }
    }
  EXPECT_EQ(logsumexp(zeros({2, 0}), 1).to_vector<float>(), (std::vector<float>{-INFINITY, -INFINITY}));
  EXPECT_EQ(logsumexp(zeros({0})).item<float>(), -INFINITY);
}

TEST_P(Reductions, PoolsOfOneColumnGivePositions) {
  const Tensor x = reshape(tensor({1.0f, 5.0f, 2.0f, 4.0f}), {1, 1, 4, 1});
  const auto whole = max_pool2d_with_indices(x, {4, 1});  // one window in all
  EXPECT_EQ(whole.values.to_vector<float>(), (std::vector<float>{5}));
  EXPECT_EQ(whole.indices.to_vector<int>(), (std::vector<int>{1}));
  const auto pooled = max_pool2d_with_indices(x, {2, 1});
  EXPECT_EQ(pooled.values.to_vector<float>(), (std::vector<float>{5, 4}));
  EXPECT_EQ(pooled.indices.to_vector<int>(), (std::vector<int>{1, 3}));
}

}  // namespace
}  // namespace fermata
