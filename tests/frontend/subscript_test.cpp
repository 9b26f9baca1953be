// Indexing against NumPy's rules, element by element: a plain loop resolves every subscript by itself. Writes,
// aliasing, gradients, errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "fermata/fermata.h"
#include "gradient_check.h"
#include "tests/error_message.h"

namespace fermata {
namespace {

using testing::message;
using Ints = std::vector<std::int64_t>;

class Subscripts : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Subscripts, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

Ints ints(const Tensor& x) { return x.to_vector<std::int64_t>(); }
Tensor cube() { return reshape(arange(2 * 3 * 4), {2, 3, 4}); }

TEST_P(Subscripts, SlicesAndIntegersAreViews) {
  const Tensor x = cube();
  EXPECT_EQ(ints(index(x, {1, 2, -1})), (Ints{23}));
  EXPECT_EQ(index(x, {1, 2, -1}).rank(), 0u);
  EXPECT_EQ(ints(index(x, {1, Slice(kNone, kNone, -1), 0})), (Ints{20, 16, 12}));
  EXPECT_EQ(ints(index(x, {ellipsis, Slice(1, -1, 2)})), (Ints{1, 5, 9, 13, 17, 21}));
  EXPECT_EQ(index(x, {new_axis, ellipsis, new_axis, 0}).shape(), (Shape{1, 2, 3, 1}));
  EXPECT_EQ(index(x, {}).shape(), x.shape());
  EXPECT_EQ(index(x, {Slice(5, 9)}).shape(), (Shape{0, 3, 4}));
  EXPECT_EQ(ints(index(arange(5), {Slice(-1, -4, -1)})), (Ints{4, 3, 2}));
  index_put(x, {0, Slice(), 1}, -5);
  EXPECT_EQ(ints(index(x, {0, ellipsis, 1})), (Ints{-5, -5, -5}));
  index(x, {1}).assign(0);
  EXPECT_EQ(sum(index(x, {1})).item<int>(), 0);
}

/// Narrow positions are computed with in 32 bits, wide ones in 64.
TEST_P(Subscripts, PositionsOfAllDtypesInTwoAxes) {
  const Tensor x = reshape(arange(90 * 120), {90, 120});
  const std::vector<std::int64_t> rows{0, -1, 89, -90, 17}, columns{119, -120, 3, -1, 100};
  Ints expected;
  for (std::size_t i = 0; i < rows.size(); ++i)
    expected.push_back((rows[i] + 90) % 90 * 120 + (columns[i] + 120) % 120);
  for (const DType t : {DType::i8, DType::i16, DType::i32, DType::i64})
    EXPECT_EQ(ints(index(x, {tensor(rows).astype(t), tensor(columns).astype(t)})), expected) << name(t);
  const Tensor place = tensor({5, 80});
  for (const DType t : {DType::u8, DType::u16, DType::u32})
    EXPECT_EQ(ints(index(x, {place.astype(t), place.astype(DType::i32)})), (Ints{605, 9680})) << name(t);
  for (const std::int64_t beyond : {90, -91, 127, -128})
    for (const DType t : {DType::i8, DType::i32, DType::i64})
      EXPECT_THROW(index(x, {full({3}, beyond, t), zeros({3}, t)}).sync(), IndexError) << name(t) << " " << beyond;
  for (const std::int64_t beyond : {std::int64_t{INT32_MIN}, std::int64_t{INT32_MAX}})
    EXPECT_THROW(index(x, {zeros({3}, DType::i32), full({3}, beyond, DType::i32)}).sync(), IndexError) << beyond;
}

TEST_P(Subscripts, IntegerTensorsBroadcastTogether) {
  const Tensor x = cube();
  EXPECT_EQ(ints(x[tensor({1, 0, -1})]), [&] {
    Ints all;
    for (const int i : {1, 0, 1})
      for (int j = 0; j < 12; ++j) all.push_back(i * 12 + j);
    return all;
  }());
  // x[rows, :, columns]: the broadcast axes come first; x[:, rows, columns]: in their place.
  const Tensor rows = tensor({{0}, {1}}), columns = tensor({3, 0});
  EXPECT_EQ(index(x, {rows, Slice(), columns}).shape(), (Shape{2, 2, 3}));
  EXPECT_EQ(ints(index(x, {rows, Slice(), columns})), (Ints{3, 7, 11, 0, 4, 8, 15, 19, 23, 12, 16, 20}));
  EXPECT_EQ(index(x, {Slice(), rows, columns}).shape(), (Shape{2, 2, 2}));
  EXPECT_EQ(ints(index(x, {Slice(), rows, columns})), (Ints{3, 0, 7, 4, 15, 12, 19, 16}));
  // An integer between counts as one of them.
  EXPECT_EQ(index(x, {0, Slice(), columns}).shape(), (Shape{2, 3}));
  EXPECT_EQ(ints(index(x, {0, Slice(), columns})), (Ints{3, 7, 11, 0, 4, 8}));
  EXPECT_EQ(index(x, {Slice(), 1, columns}).shape(), (Shape{2, 2}));
  EXPECT_EQ(index(x, {ellipsis, zeros({0}, DType::i64)}).shape(), (Shape{2, 3, 0}));
  EXPECT_EQ(ints(index(x, {tensor(1), tensor(2), tensor(-4)})), (Ints{20}));
}

TEST_P(Subscripts, MasksChooseElements) {
  const Tensor x = cube();
  EXPECT_EQ(ints(x[x > 20]), (Ints{21, 22, 23}));
  EXPECT_EQ(ints(x[tensor({false, true})]), [] {
    Ints all;
    for (int i = 12; i < 24; ++i) all.push_back(i);
    return all;
  }());
  EXPECT_EQ(ints(index(x, {Slice(), tensor({true, false, true}), 0})), (Ints{0, 8, 12, 20}));
  EXPECT_EQ(ints(index(x, {ellipsis, tensor({true, false, true}), tensor({0, 1})})), (Ints{0, 9, 12, 21}));
  EXPECT_EQ(x[x < 0].shape(), (Shape{0}));
  EXPECT_EQ(ints(masked_select(x, x > 21, 4)), (Ints{22, 23, 23, 23}));
}

TEST_P(Subscripts, WritesThroughPositions) {
  const Tensor x = zeros({3, 4}, DType::i64);
  index_put(x, {tensor({2, 0, 2}), Slice(1, 3)}, tensor({{1, 2}, {3, 4}, {5, 6}}));
  EXPECT_EQ(ints(x), (Ints{0, 3, 4, 0, 0, 0, 0, 0, 0, 5, 6, 0}));  // of row 2 the last
  index_put(x, {tensor({2, -1}), tensor({0, 0})}, 10, true);
  EXPECT_EQ(ints(index(x, {2, 0})), (Ints{20}));
  index_put(x, {x > 4}, -1);
  EXPECT_EQ(ints(x), (Ints{0, 3, 4, 0, 0, 0, 0, 0, -1, -1, -1, 0}));
  index_put(x, {x == 0}, arange(7));
  EXPECT_EQ(ints(x), (Ints{0, 3, 4, 1, 2, 3, 4, 5, -1, -1, -1, 6}));
  index_put(x, {tensor({false, true, false})}, tensor({9, 8, 7, 6}));
  EXPECT_EQ(ints(index(x, {1})), (Ints{9, 8, 7, 6}));
  const Tensor view = x.mT();
  index_put(view, {tensor({0, 3})}, 0);
  EXPECT_EQ(ints(x), (Ints{0, 3, 4, 0, 0, 8, 7, 0, 0, -1, -1, 0}));
}

TEST_P(Subscripts, Gradients) {
  using testing::Inputs;
  const Tensor x = testing::random_f64({3, 4}, 0.5, 2, true, 3), v = testing::random_f64({2, 2}, 0.5, 2, true, 4);
  const Tensor rows = tensor({2, 0}), columns = tensor({{1}, {3}});
  testing::check_gradients("", [&](const Inputs& in) { return index(in[0], {rows, columns}); }, {x});
  testing::check_gradients("", [&](const Inputs& in) { return in[0][in[0] > 0]; }, {x});
  testing::check_gradients("",
                           [&](const Inputs& in) {
                             const Tensor t = in[0] * 1;
                             index_put(t, {rows, columns}, in[1]);
                             return t;
                           },
                           {x, v});
  testing::check_gradients("",
                           [&](const Inputs& in) {
                             const Tensor t = in[0] * 1;
                             index_put(t, {Slice(kNone, kNone, 2), tensor({1, 1})}, in[1], true);
                             return t;
                           },
                           {x, v});
}

TEST(SubscriptErrors, SayWhatIsWrong) {
  const Tensor x = ones({2, 3});
  EXPECT_EQ(message<IndexError>([&] {
              index(x, {0, 1, 2});
            }),
            "FM1206 IndexError: index: too many subscripts: 3 for 2 axes\n  x    f32[2, 3]\n  at   HERE");
  EXPECT_EQ(message<IndexError>([&] {
              index(x, {ellipsis, ellipsis});
            }),
            "FM1208 IndexError: index: more than one ellipsis\n  x    f32[2, 3]\n  at   HERE");
  EXPECT_EQ(message<IndexError>([&] {
              index(x, {tensor({true, false, true})});
            }),
            "FM1207 IndexError: index: the shape of a mask does not match the axes from 0 on\n  x    f32[2, 3]\n  mask "
            "bool[3]\n  at   HERE");
  EXPECT_EQ(message<IndexError>([&] {
              x[tensor({true, false, true})];
            }),
            "FM1207 IndexError: index: the shape of a mask does not match the axes from 0 on\n  x    f32[2, 3]\n  mask "
            "bool[3]\n  at   HERE");
  EXPECT_THAT(message<IndexError>([&] { x[tensor({0, 4})].sync(); }), ::testing::EndsWith("  at    HERE"));
  EXPECT_THROW(index(x, {ones({2})}), DTypeError);
  EXPECT_THROW(index(x, {tensor({0, 1}), tensor({0, 1, 2})}), ShapeError);
  EXPECT_THROW(index(x, {5}), IndexError);
  EXPECT_THROW(index(x, {tensor({0, 2}), tensor({0, 1})}).sync(), IndexError);
  EXPECT_THROW(index(x, {tensor({0, 1}), tensor({0, -4})}).sync(), IndexError);
  EXPECT_EQ(sum(x).item<int>(), 6);
}

}  // namespace
}  // namespace fermata
