// Functions at the edges of what they take, by grids of shapes, dtypes and sizes: dtypes that must stay, operands that
// broadcast, masks without axes, pads that cut, empty matrices, complex sets.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <complex>
#include <map>

#include "fermata/fermata.h"
#include "ir/float16.h"
#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;
using Floats = std::vector<float>;
using Doubles = std::vector<double>;
using Ints = std::vector<std::int64_t>;
using Complex = std::complex<double>;
using Complexes = std::vector<Complex>;

class Edges : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, Edges, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

Floats floats(const Tensor& x) { return x.to_vector<float>(); }
Ints ints(const Tensor& x) { return x.to_vector<std::int64_t>(); }
Complexes complexes(const Tensor& x) { return x.to_vector<Complex>(); }

constexpr DType kAllDTypes[] = {DType::boolean, DType::u8,  DType::u16, DType::u32, DType::u64,
                                DType::i8,      DType::i16, DType::i32, DType::i64, DType::bf16,
                                DType::f16,     DType::f32, DType::f64, DType::c64, DType::c128};

TEST_P(Edges, WhatMovesElementsKeepsTheirDtype) {
  const std::map<std::string, Tensor (*)(const Tensor&)> moves{
      {"tril", [](const Tensor& x) { return tril(x); }},
      {"triu", [](const Tensor& x) { return triu(x, 1); }},
      {"roll", [](const Tensor& x) { return roll(x, 1, 0); }},
      {"flip", [](const Tensor& x) { return flip(x); }},
      {"repeat", [](const Tensor& x) { return repeat(x, 2, 0); }},
      {"repeat by counts",
       [](const Tensor& x) {
         return repeat(x, tensor({1, 0}), 0);
       }},
      {"tile",
       [](const Tensor& x) {
         return tile(x, {2, 1});
       }},
      {"pad",
       [](const Tensor& x) {
         return pad(x, {1, 1});
       }},
      {"pad circular",
       [](const Tensor& x) {
         return pad(x, {1, -1}, PadMode::circular);
       }},
      {"take",
       [](const Tensor& x) {
         return take(x, tensor({1, 0}), 1);
       }},
      {"gather",
       [](const Tensor& x) {
         return gather(x, tensor({{0, 1}, {1, 1}}), 1);
       }},
      {"scatter a number",
       [](const Tensor& x) {
         return scatter(x, tensor({{0}, {1}}), 0, 1);
       }},
      {"index_fill", [](const Tensor& x) { return index_fill(x, tensor({0}), 0, 1); }},
      {"masked_select",
       [](const Tensor& x) {
         return masked_select(x, tensor({true, false}));
       }},
      {"diagonal", [](const Tensor& x) { return linalg::diagonal(x); }},
      {"unique", [](const Tensor& x) { return unique_values(x); }},
      {"stack",
       [](const Tensor& x) {
         return stack({x, x});
       }},
  };
  for (const DType dtype : kAllDTypes)
    for (const auto& [name, move] : moves)
      EXPECT_EQ(move(astype(tensor({{1, 2}, {3, 4}}), dtype)).dtype(), dtype) << name;
  const Tensor mask = ones({2, 2}, DType::boolean);
  EXPECT_EQ(ints(tril(mask)), (Ints{1, 0, 1, 1}));
  EXPECT_EQ(ints(triu(mask)), (Ints{1, 1, 0, 1}));
}

TEST_P(Edges, LengthsOfVectorsAreThoseAfterBroadcasting) {
  EXPECT_NEAR(cosine_similarity(tensor({{3.0, 4.0}}), tensor({{1.0}, {1.0}}), 1).to_vector<double>()[0],
              7 / (5 * std::sqrt(2.0)), 1e-7);
  const Shape shapes[] = {{2, 3}, {1, 3}, {2, 1}, {1, 1}, {3}, {1}, {4, 2, 3}, {4, 1, 1}};
  for (const Shape& left : shapes)
    for (const Shape& right : shapes) {
      const Shape common = broadcast_shapes({left, right});
      const Tensor x = random_f64(left, 0.5, 2, true, 3), y = random_f64(right, 0.5, 2, true, 4);
      const Tensor whole_x = copy(broadcast_to(x, common)), whole_y = copy(broadcast_to(y, common));
      const auto expect_same = [](const Tensor& found, const Tensor& wanted) {
        ASSERT_EQ(found.shape(), wanted.shape());
        const Doubles a = found.to_vector<double>(), b = wanted.to_vector<double>();
        for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12);
      };
      SCOPED_TRACE(to_string(left) + " and " + to_string(right));
      for (std::int64_t axis = -static_cast<std::int64_t>(common.rank()); axis < common.rank(); ++axis)
        expect_same(cosine_similarity(x, y, axis), cosine_similarity(whole_x, whole_y, axis));
      expect_same(pairwise_distance(x, y), pairwise_distance(whole_x, whole_y));
      const Tensor sign = tensor(1.0);
      expect_same(cosine_embedding_loss(x, y, sign), cosine_embedding_loss(whole_x, whole_y, sign));
    }
  check_gradients("cosine_similarity", [](const Inputs& in) { return cosine_similarity(in[0], in[1], 1); },
                  {random_f64({1, 3}, 0.5, 2, true, 1), random_f64({2, 1}, 0.5, 2, true, 2)});
}

TEST_P(Edges, VariancesAreOfRows) {
  const Tensor x = random_f64({3, 3}, 0.5, 2, true, 1), target = zeros({3, 3}, DType::f64);
  const Tensor var = tensor({1.0, 2.0, 4.0});
  const Doubles by_row = gaussian_nll_loss(x, target, var, false, 1e-6, LossReduction::none).to_vector<double>();
  EXPECT_EQ(by_row,
            gaussian_nll_loss(x, target, broadcast_to(expand_dims(var, -1), {3, 3}), false, 1e-6, LossReduction::none)
                .to_vector<double>());
  EXPECT_EQ(by_row,
            gaussian_nll_loss(x, target, expand_dims(var, -1), false, 1e-6, LossReduction::none).to_vector<double>());
  EXPECT_EQ(message<ShapeError>([] {
              gaussian_nll_loss(ones({2, 3}), ones({2, 3}), ones({3}));
            }),
            "FM1022 ShapeError: gaussian_nll_loss: variances must have the axes of x\n"
            "  x    f32[2, 3]\n"
            "  var  f32[3]   should be [2, 3] or [2]\n"
            "  at   HERE");
}

TEST_P(Edges, ParametersOutOfRangeAreErrors) {
  const Tensor x = ones({2, 2});
  EXPECT_THROW(softshrink(x, -0.1), ValueError);
  EXPECT_THROW(hardtanh(x, 0.5, -0.5), ValueError);
  EXPECT_THROW(triplet_margin_loss(x, x, x, -1), ValueError);
  EXPECT_THROW(roll(x, {}), ValueError);
  EXPECT_THROW(roll(x, {}, {0}), ValueError);
  EXPECT_EQ(floats(hardtanh(x, 0.5, 0.5)), (Floats{0.5, 0.5, 0.5, 0.5}));
  EXPECT_EQ(floats(softshrink(x, 0)), floats(x));
}

TEST_P(Edges, MasksWithoutAxesKeepOrDropAll) {
  const Tensor yes = tensor(true), no = tensor(false);
  EXPECT_EQ(floats(masked_select(tensor(3.0f), yes)), Floats{3});
  EXPECT_EQ(floats(masked_select(tensor(3.0f), no)), Floats{});
  for (const Shape& shape : {Shape{}, Shape{2}, Shape{2, 3}, Shape{0, 2}}) {
    const Tensor x = astype(reshape(arange(element_count(shape)), shape), DType::f32);
    Shape kept{1}, dropped{0};
    for (const std::int64_t size : shape) kept.push_back(size), dropped.push_back(size);
    EXPECT_EQ(x[yes].shape(), kept);
    EXPECT_EQ(x[no].shape(), dropped);
    EXPECT_EQ(floats(x[yes]), floats(x));
    EXPECT_EQ(masked_select(x, yes).shape(), kept);
    EXPECT_EQ(index(x, {ellipsis, yes}).size(-1), 1);
    const Tensor written = copy(x);
    index_put(written, {no}, 9);
    EXPECT_EQ(floats(written), floats(x));
    index_put(written, {yes}, ones(kept) * 5);
    index_put(written, {yes}, 1, true);
    EXPECT_EQ(floats(written), Floats(static_cast<std::size_t>(x.element_count()), 6));
  }
}

/// What torch.nn.functional.pad puts at place i of an axis: x without what is cut off, around which it repeats.
double padded(const Doubles& x, std::int64_t before, std::int64_t after, PadMode mode, std::int64_t i) {
  const std::int64_t size = std::ssize(x);
  if (mode == PadMode::circular) {
    const Doubles kept(x.begin() + std::max<std::int64_t>(-before, 0), x.end() - std::max<std::int64_t>(-after, 0));
    const std::int64_t n = std::ssize(kept);
    return kept[static_cast<std::size_t>(((i - std::max<std::int64_t>(before, 0)) % n + n) % n)];
  }
  std::int64_t at = i - before;
  if (mode == PadMode::constant) return at < 0 || at >= size ? 9 : x[static_cast<std::size_t>(at)];
  if (mode == PadMode::replicate) return x[static_cast<std::size_t>(std::clamp<std::int64_t>(at, 0, size - 1))];
  at = std::abs(at);
  return x[static_cast<std::size_t>(at < size ? at : 2 * size - 2 - at)];
}

TEST_P(Edges, PadsOfEitherSign) {
  for (const std::int64_t size : {1, 2, 4})
    for (const PadMode mode : {PadMode::constant, PadMode::reflect, PadMode::replicate, PadMode::circular})
      for (std::int64_t before = -4; before <= 4; ++before)
        for (std::int64_t after = -4; after <= 4; ++after) {
          const std::int64_t kept = size + std::min<std::int64_t>(before, 0) + std::min<std::int64_t>(after, 0);
          const std::int64_t most = std::max(before, after);
          const std::int64_t reach = mode == PadMode::circular ? kept : mode == PadMode::reflect ? size - 1 : 4;
          if (kept <= 0 || most > reach) continue;
          const Tensor x = arange(size) + 1.0;
          const Doubles elements = x.to_vector<double>(), found = pad(x, {before, after}, mode, 9).to_vector<double>();
          ASSERT_EQ(std::ssize(found), size + before + after);
          for (std::int64_t i = 0; i < std::ssize(found); ++i)
            ASSERT_EQ(found[static_cast<std::size_t>(i)], padded(elements, before, after, mode, i))
                << size << " elements, pads " << before << " and " << after << ", mode " << static_cast<int>(mode);
        }
  EXPECT_EQ(ints(pad(arange(4), {-1, 2}, PadMode::circular)), (Ints{1, 2, 3, 1, 2}));
  EXPECT_EQ(ints(pad(reshape(arange(6), {2, 3}), {1, -1, 0, 1}, PadMode::circular)), (Ints{1, 0, 1, 4, 3, 4, 1, 0, 1}));
}

TEST_P(Edges, OneCountRepeatsAll) {
  const Tensor x = tensor({{1, 2}, {3, 4}});
  for (const Tensor& count : {tensor({2}), tensor(2)}) {
    EXPECT_EQ(ints(repeat(x, count)), ints(repeat(x, 2)));
    EXPECT_EQ(ints(repeat(x, count, 1)), ints(repeat(x, 2, 1)));
  }
  EXPECT_EQ(ints(repeat(zeros({0}), tensor({3}))), Ints{});
}

TEST_P(Edges, SetsOfComplexNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const Complexes given{{1, 2}, {0, 0}, {1, -2}, {1, 2}, {-0.0, 5}, {0, 5}, {-3, 0}, {0, -0.0}};
  for (const DType dtype : {DType::c64, DType::c128}) {
    const Tensor x = astype(tensor(given), dtype);
    EXPECT_EQ(ints(nonzero(x)[0]), (Ints{0, 2, 3, 4, 5, 6}));
    EXPECT_EQ(ints(flatnonzero(x)), (Ints{0, 2, 3, 4, 5, 6}));
    EXPECT_EQ(count_nonzero(x).item<int>(), 6);
    const Complexes sorted{{-3, 0}, {0, 0}, {0, 5}, {1, -2}, {1, 2}};
    const Unique all = unique_all(x);
    EXPECT_EQ(complexes(all.values), sorted);
    EXPECT_EQ(complexes(unique_values(x)), sorted);
    EXPECT_EQ(ints(all.counts), (Ints{1, 2, 2, 1, 2}));
    EXPECT_EQ(ints(all.indices), (Ints{6, 1, 4, 2, 0}));
    EXPECT_EQ(complexes(take(all.values, all.inverse_indices)), complexes(x));
    EXPECT_EQ(all.values.dtype(), dtype);
    EXPECT_EQ(ints(isin(reshape(x, {2, 4}), astype(tensor(Complexes{{0, 5}, {7, 7}, {1, -2}}), dtype))),
              (Ints{0, 0, 1, 0, 1, 1, 0, 0}));
    EXPECT_EQ(ints(isin(x, tensor({-3.0f}), true)), (Ints{1, 1, 1, 1, 1, 1, 0, 1}));
  }
  const Tensor with_nan = complex(tensor({nan, 1.0f, nan}), tensor({0.0f, nan, 0.0f}));
  EXPECT_EQ(unique_values(with_nan).size(0), 3) << "each NaN is distinct";
  EXPECT_EQ(ints(isin(with_nan, with_nan)), (Ints{0, 0, 0}));
  const Tensor none = zeros({0}, DType::c64);
  EXPECT_EQ(unique_values(none).size(0), 0);
  EXPECT_EQ(isin(none, ones({2}, DType::c64)).size(0), 0);
}

TEST_P(Edges, NormsOfEmptyMatrices) {
  for (const DType dtype : {DType::f32, DType::f64, DType::c64})
    for (const Shape& shape : {Shape{0, 3}, Shape{3, 0}, Shape{0, 0}, Shape{2, 0, 3}}) {
      const Tensor x = zeros(shape, dtype);
      const Floats wanted(shape.rank() == 3 ? 2 : 1, 0.0f);
      for (const bool keepdims : {false, true}) {
        for (const char* ord : {"fro", "nuc"}) EXPECT_EQ(floats(linalg::matrix_norm(x, keepdims, ord)), wanted) << ord;
        for (const double ord : {1.0, 2.0, HUGE_VAL})
          EXPECT_EQ(floats(linalg::matrix_norm(x, keepdims, ord)), wanted) << ord << " of " << to_string(shape);
        EXPECT_EQ(linalg::matrix_norm(x, keepdims, 2.0).rank(), keepdims ? shape.rank() : shape.rank() - 2u);
        // The least sum of columns that are empty is 0 as well; that of no columns is nothing.
        EXPECT_EQ(message_without_place<ShapeError>([&] { linalg::matrix_norm(x, keepdims, -2); }),
                  "FM1009 ShapeError: matrix_norm: no elements\n  x    " + to_string(dtype, shape));
      }
    }
  EXPECT_EQ(floats(linalg::matrix_norm(zeros({0, 3}), false, -1.0)), Floats{0});
  EXPECT_THROW(linalg::matrix_norm(zeros({3, 0}), false, -1.0), ShapeError);
}

TEST_P(Edges, SignsOfZerosAreZero) {
  for (const DType dtype : {DType::f16, DType::bf16, DType::f32, DType::f64}) {
    const Doubles found = sign(astype(tensor(Doubles{-0.0, 0, -2, 3, INFINITY, -INFINITY}), dtype)).to_vector<double>();
    EXPECT_EQ(found, (Doubles{0, 0, -1, 1, 1, -1}));
    EXPECT_FALSE(std::signbit(found[0])) << name(dtype);
  }
}

TEST_P(Edges, TolerancesOfEachMatrix) {
  const Tensor x = stack({tensor({{1.0, 0.0}, {0.0, 0.1}}), tensor({{1.0, 0.0}, {0.0, 0.1}})});
  const Tensor rtol = tensor({0.01, 0.5});
  EXPECT_EQ(ints(linalg::matrix_rank(x, rtol)), (Ints{2, 1}));
  EXPECT_EQ(ints(linalg::matrix_rank(x, tensor(0.5))), (Ints{1, 1}));
  EXPECT_EQ(linalg::matrix_rank(x[0], tensor(0.5f)).item<int>(), 1);
  const Tensor inverse = linalg::pinv(x, rtol);
  for (std::int64_t i : {0, 1})
    EXPECT_EQ(inverse[i].to_vector<double>(),
              linalg::pinv(x[i], rtol.to_vector<double>()[static_cast<std::size_t>(i)]).to_vector<double>());
  EXPECT_THROW(linalg::pinv(x, ones({3})), ShapeError);
  EXPECT_THROW(linalg::matrix_rank(x, ones({2, 2})), ShapeError);
}

TEST_P(Edges, ComplexAndOpenRanges) {
  EXPECT_EQ(complexes(full({2}, Complex(1, -2))), (Complexes{{1, -2}, {1, -2}}));
  EXPECT_EQ(full({2}, std::complex<float>(1, -2)).dtype(), DType::c64);
  EXPECT_EQ(full({}, Complex(0.1, 0.2), DType::c128).item<Complex>(), Complex(0.1, 0.2));
  EXPECT_THROW(full({2}, Complex(1, 2), DType::f32), DTypeError);
  EXPECT_EQ(complexes(linspace(Complex(0, 1), Complex(2, -1), 3)), (Complexes{{0, 1}, {1, 0}, {2, -1}}));
  EXPECT_EQ(complexes(linspace(0.0, Complex(0, 4), 4, DType::c128, false)),
            (Complexes{{0, 0}, {0, 1}, {0, 2}, {0, 3}}));
  EXPECT_THROW(linspace(Complex(0, 1), 1.0, 3, DType::f64), DTypeError);
  EXPECT_EQ(floats(linspace(0, 1, 4, DType::f32, false)), (Floats{0, 0.25, 0.5, 0.75}));
  EXPECT_EQ(floats(linspace(3, 9, 1, DType::f32, false)), Floats{3});
  EXPECT_EQ(linspace(3, 9, 0, DType::f32, false).shape(), Shape{0});
  EXPECT_EQ(ints(linspace(0, -8, 4, DType::i32, false)), (Ints{0, -2, -4, -6}));
}

/// The floats of a dtype in order, from -infinity on.
Tensor all_halves(DType dtype) {
  std::vector<float> values;
  for (int bits = 0; bits < 0x10000; ++bits) {
    const auto raw = static_cast<std::uint16_t>(bits);
    const float value = dtype == DType::f16 ? to_float(Float16{raw}) : to_float(BFloat16{raw});
    if (!std::isnan(value) && (value != 0 || bits == 0)) values.push_back(value);
  }
  std::ranges::sort(values);
  return tensor(values);
}

TEST_P(Edges, NextNumbersOfEveryHalf) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    const Tensor all = all_halves(dtype), x = astype(all, dtype);
    const Floats sorted = floats(all), above = floats(nextafter(x, INFINITY)), below = floats(nextafter(x, -INFINITY));
    for (std::size_t i = 0; i < sorted.size(); ++i) {
      ASSERT_EQ(above[i], sorted[std::min(i + 1, sorted.size() - 1)]) << name(dtype) << " above " << sorted[i];
      ASSERT_EQ(below[i], sorted[i == 0 ? 0 : i - 1]) << name(dtype) << " below " << sorted[i];
    }
  }
}

TEST_P(Edges, NextNumbersAreThoseOfC) {
  const auto check = [](auto zero) {
    using T = decltype(zero);
    using L = std::numeric_limits<T>;
    std::vector<T> values{0,
                          -T(0),
                          1,
                          -1,
                          3,
                          L::max(),
                          L::min(),
                          L::denorm_min(),
                          L::infinity(),
                          L::quiet_NaN(),
                          -L::max(),
                          -L::min(),
                          -L::denorm_min(),
                          -L::infinity(),
                          T(0.1)};
    const auto n = static_cast<std::int64_t>(values.size());
    const Tensor x = tensor(values);
    const std::vector<T> found = nextafter(reshape(x, {n, 1}), x).template to_vector<T>();
    for (std::size_t i = 0; i < found.size(); ++i) {
      const T a = values[i / values.size()], b = values[i % values.size()], wanted = std::nextafter(a, b);
      EXPECT_TRUE(std::isnan(wanted) ? std::isnan(found[i])
                                     : wanted == found[i] && std::signbit(wanted) == std::signbit(found[i]))
          << a << " towards " << b << " is " << found[i];
    }
  };
  check(0.0f);
  check(0.0);
  EXPECT_EQ(nextafter(tensor({1, 2}), 9).dtype(), DType::f32);
  EXPECT_EQ(nextafter(ones({2}, DType::f16), ones({2}, DType::f64)).dtype(), DType::f64);
  EXPECT_EQ(nextafter(1.0f, zeros({2, 1}, DType::bf16)).shape(), (Shape{2, 1}));
}

TEST_P(Edges, DifferencesOfWhatIsJoined) {
  const Tensor x = tensor({{1, 4, 9}, {2, 3, 5}});
  EXPECT_EQ(ints(diff(x, 1, 1, zeros({2, 1}, DType::i64))), (Ints{1, 3, 5, 2, 1, 2}));
  EXPECT_EQ(ints(diff(x, 1, -1, {}, x)), (Ints{3, 5, -8, 3, 5, 1, 2, -3, 1, 2}));
  EXPECT_EQ(ints(diff(x, 1, 0, x, x)), (Ints{1, -1, -4, -1, 1, 4, 1, -1, -4, -1, 1, 4, 1, -1, -4}));
  EXPECT_EQ(ints(diff(x, 0, 0, x)).size(), 12u);
  EXPECT_EQ(diff(x, 1, 1, zeros({2, 1})).dtype(), DType::f32);
  EXPECT_THROW(diff(x, 1, 1, zeros({3, 1})), ShapeError);
}

}  // namespace
}  // namespace fermata
