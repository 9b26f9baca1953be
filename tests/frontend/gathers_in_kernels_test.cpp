// take, gather and concat as parts of kernels: whatever positions are computed from, and whatever is made of the
// elements, the results and errors are those of eager mode.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <vector>

#include "tests/error_message.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;
using ::testing::HasSubstr;
using ::testing::Not;

using Function = std::function<Tensor(const std::vector<Tensor>&)>;

/// A result in one mode; computed twice, because the second run is of compiled code.
std::vector<double> in_mode(Mode mode, const Function& f, const std::vector<Tensor>& in) {
  const ModeGuard guard(mode);
  f(in).astype(DType::f64).sync();
  return f(in).astype(DType::f64).to_vector<double>();
}
void expect_same(const Function& f, const std::vector<Tensor>& in) {
  EXPECT_EQ(in_mode(Mode::compiled, f, in), in_mode(Mode::eager, f, in));
}

Tensor positions(const Shape& shape, std::int64_t size, DType dtype = DType::i64) {
  std::int64_t count = 1;
  for (const std::int64_t n : shape) count *= n;
  const Tensor numbers = reshape(arange(count) * 7919 % (2 * size), shape);
  return (is_signed(dtype) ? numbers - size : numbers % size).astype(dtype);
}
/// Elements that can be told apart in every dtype.
Tensor elements(const Shape& shape, DType dtype) {
  std::int64_t count = 1;
  for (const std::int64_t n : shape) count *= n;
  return reshape(arange(count) * 31 % 101, shape).astype(dtype);
}

TEST(GathersInKernels, AreOneKernelWithWhatIsAround) {
  const ModeGuard guard(Mode::compiled);
  const Tensor table = elements({50}, DType::f32), x = elements({300}, DType::f32) * 0.4f;
  const Tensor y = take(table, clamp(x, 0, 49).astype(DType::i32)) * 2 + x;
  const std::string text = explain(y);
  EXPECT_THAT(text, HasSubstr("take"));
  EXPECT_THAT(text, Not(HasSubstr("call take"))) << text;
  // Alone it is a call: a kernel would only copy.
  EXPECT_THAT(explain(take(table, positions({20}, 50))), HasSubstr("call take"));
}

TEST(GathersInKernels, TakeAlongEveryAxisOfEveryDtype) {
  for (std::size_t i = 0; i < kDTypeCount; ++i) {
    const auto t = static_cast<DType>(i);
    if (!kRealOrBoolean.has(t)) continue;
    for (const std::int64_t axis : {0, 1, 2}) {
      const Tensor x = elements({5, 7, 9}, t);
      const std::int64_t size = x.shape()[static_cast<std::size_t>(axis)];
      const Function f = [axis](const std::vector<Tensor>& in) {
        return where(take(in[0], in[1], axis) == take(in[0], in[1] * 0, axis), take(in[0], in[1], axis),
                     take(in[0], -1 - in[1], axis));
      };
      expect_same(f, {x, positions({4, 33}, size)});
      expect_same(f, {x, positions({}, size)});
      expect_same(f, {permute(elements({9, 5, 7}, t), {1, 2, 0}), positions({130}, size)});
      expect_same(f, {flip(x), positions({2, 3, 2}, size)});
    }
  }
}

TEST(GathersInKernels, PositionsOfEveryDtype) {
  for (const DType t : {DType::u8, DType::i8, DType::u16, DType::i16, DType::u32, DType::i32, DType::u64, DType::i64})
    for (const std::int64_t count : {1, 7, 16, 100, 1000}) {
      const Function f = [](const std::vector<Tensor>& in) { return take(in[0], in[1]) * 3 + 1; };
      expect_same(f, {elements({41}, DType::f32), positions({count}, 41, t)});
      expect_same(f, {elements({41, 3}, DType::f32), positions({count}, 41, t)});
      expect_same(f, {elements({41, 70}, DType::f64), flip(positions({count}, 41, t))});
    }
}

TEST(GathersInKernels, OneElementForEachPosition) {
  for (const DType t : {DType::f32, DType::u8, DType::f64, DType::bf16})
    for (const std::int64_t axis : {0, 1}) {
      const Function f = [&](const std::vector<Tensor>& in) {
        return gather(in[0], in[1], axis) + gather(in[0], -1 - in[1], axis);
      };
      const Tensor x = elements({13, 17}, t);
      const std::int64_t size = x.shape()[static_cast<std::size_t>(axis)];
      expect_same(f, {x, positions({13, 17}, size)});
      expect_same(f, {x, positions({axis == 0 ? 40 : 9, axis == 1 ? 40 : 9}, size)});
      expect_same(f, {transpose(elements({17, 13}, t)), transpose(positions({17, 13}, size))});
      expect_same([&](const std::vector<Tensor>& in) { return take_along_axis(in[0], in[1], axis) * 2; },
                  {x, positions({axis == 0 ? 40 : 1, axis == 1 ? 40 : 1}, size)});
    }
}

TEST(GathersInKernels, UnderReductions) {
  const Tensor x = elements({90, 20}, DType::f32) * 0.37f, weights = elements({50, 6}, DType::f32);
  const Tensor neighbors = positions({50, 6}, 90);
  for (const std::int64_t axis : {0, 1, 2})
    expect_same([&](const std::vector<Tensor>& in) { return sum(take(in[0], in[1]) * unsqueeze(in[2], -1), {axis}); },
                {x, neighbors, weights});
  expect_same([](const std::vector<Tensor>& in) { return softmax(take(in[0], in[1]) * 0.1f, -1); }, {x, neighbors});
  expect_same([](const std::vector<Tensor>& in) { return sum(take(in[0], in[1] % 20, 1) * 0.5f); }, {x, neighbors});
  // Where a maximum is, in another tensor.
  expect_same([](const std::vector<Tensor>& in) { return take(in[1], argmax(in[0], 1)) * 2.5f; },
              {x, elements({20}, DType::f32)});
  expect_same([](const std::vector<Tensor>& in) { return take_along_axis(in[0], argmin(in[0], 0, true), 0) - in[0]; },
              {x});
}

TEST(GathersInKernels, OfWhatWasComputedBefore) {
  const Tensor x = elements({30, 11}, DType::f32);
  // The operand must be in memory before the kernel that gathers from it.
  expect_same(
      [](const std::vector<Tensor>& in) {
        const Tensor y = in[0] * 2 + 1;
        return take(y, in[1]) * sum(y, {1}).slice(0, 0, 25).unsqueeze(1) + take(y * y, in[1]);
      },
      {x, positions({25}, 30)});
  expect_same(
      [](const std::vector<Tensor>& in) {
        const Tensor once = take(in[0] + 1, in[1]) * 2, twice = take(once, in[1] % 25) * 2;
        return take(twice, in[1] % 25) + once;
      },
      {x, positions({25}, 30)});
  expect_same([](const std::vector<Tensor>& in) { return take(reshape(in[0], {-1}), in[1] * 3 % 330) + 1; },
              {x, positions({4, 9}, 100)});
  expect_same(
      [](const std::vector<Tensor>& in) {
        return relu(take(matmul(in[0], transpose(in[0])), in[1])) + matmul(in[0], transpose(in[0])).slice(0, 0, 25);
      },
      {x, positions({25}, 30)});
}

TEST(GathersInKernels, SizesThatChange) {
  const Function f = [](const std::vector<Tensor>& in) { return take(in[0], in[1]) + 0.5f; };
  for (const std::int64_t size : {3, 1, 200, 64})
    for (const std::int64_t count : {0, 1, 5, 3000}) {
      expect_same(f, {elements({size}, DType::f32), positions({count}, size)});
      expect_same(f, {elements({size, 4}, DType::f32), positions({count}, size)});
    }
}

TEST(GathersInKernels, InPlaceWritesAreSeenInOrder) {
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    for (int run = 0; run < 3; ++run) {
      Tensor x = elements({40}, DType::f32);
      const Tensor p = positions({40}, 40), before = take(x, p) * 2;
      x += 100;
      x = take(x, p) - x;
      EXPECT_EQ(before.to_vector<float>(), (take(elements({40}, DType::f32), p) * 2).to_vector<float>());
      const Tensor shifted = elements({40}, DType::f32) + 100;
      EXPECT_EQ(x.to_vector<float>(), (take(shifted, p) - shifted).to_vector<float>());
    }
  }
}

TEST(GathersInKernels, ErrorsAreThoseOfCalls) {
  const Tensor x = elements({4, 10}, DType::f32), wide = elements({5000}, DType::f32);
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    for (int run = 0; run < 3; ++run) {
      const Tensor bad = run == 1 ? tensor({0, 3, -5, 9}) : tensor({1, -4, 7, 2});
      EXPECT_EQ(message<IndexError>([&] { (take(x, bad) * 2).sync(); }),
                std::string("FM1204 IndexError: take: position ") + (run == 1 ? "-5" : "7") +
                    " leaves axis 0 of size 4\n"
                    "  x     f32[4, 10]   axis 0 is 4\n"
                    "  index i64[4]       element 2 is " +
                    (run == 1 ? "-5" : "7") + "\n  at    HERE");
      EXPECT_EQ((take(x, tensor({3, 0})) * 2).shape(), (Shape{2, 10}));  // the engine still works
      // Of two calls the first one is named.
      const Tensor far = arange(3000) * 2;
      EXPECT_THAT(message<IndexError>([&] {
                    const Tensor first = take(wide, far);
                    (first + gather(wide, far + 1)).sync();
                  }),
                  HasSubstr("take: position 5000 leaves axis 0 of size 5000"));
      // Nothing is read there, but what is asked for is wrong.
      EXPECT_THAT(message<IndexError>([&] {
                    (take(zeros({5, 0}), tensor({7})) * 2).sync();
                  }),
                  HasSubstr("take: position 7 leaves axis 0 of size 5"));
      EXPECT_THAT(message<IndexError>([&] { (take(x, bad) * 2).slice(0, 0, 2).sync(); }), HasSubstr("FM1204"));
      EXPECT_THAT(message<IndexError>([&] { sum(take(x, bad) * 2, {0}).sync(); }), HasSubstr("element 2 is"));
      EXPECT_THAT(message<IndexError>([&] { (take(wide, tensor({-1}).astype(DType::u64)) * 2).sync(); }),
                  HasSubstr("18446744073709551615"));
    }
  }
}

/// Parts of what a kernel goes over.
class PartsInKernels : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Dtypes, PartsInKernels,
                         ::testing::Values(DType::f32, DType::f64, DType::u8, DType::i16, DType::bf16, DType::boolean));

TEST_P(PartsInKernels, AreReadWhereTheyLie) {
  const DType t = GetParam();
  for (const std::int64_t axis : {0, 1, 2}) {
    const Function f = [axis](const std::vector<Tensor>& in) {
      const Tensor all = concat(in, axis);
      return where(all == flip(all), all, all == all);
    };
    const auto shape = [axis](std::int64_t size) {
      Shape s{5, 7, 300};
      s[static_cast<std::size_t>(axis)] = size;
      return s;
    };
    expect_same(f, {elements(shape(3), t), elements(shape(290), t)});
    expect_same(f, {elements(shape(1), t), elements(shape(0), t), elements(shape(400), t), elements(shape(64), t)});
    expect_same(f, {flip(elements(shape(300), t)), broadcast_to(elements({1, 1, 1}, t), shape(5))});
    expect_same(f, {permute(elements({300, 5, 7}, t), {1, 2, 0}), elements({5, 7, 300}, t)});
  }
}

TEST(GathersInKernels, RolledAndPaddedNeighbors) {
  const Function laplacian = [](const std::vector<Tensor>& in) {
    const Tensor& x = in[0];
    return roll(x, 1, 0) + roll(x, -1, 0) + roll(x, 1, 1) + roll(x, -300, 1) - 4 * x;
  };
  const Function padded = [](const std::vector<Tensor>& in) {
    const Tensor wide = pad(in[0], {0, 0, 2, 1}, PadMode::constant, 3) * 2;
    return wide.slice(0, 2) - wide.slice(0, 0, -2);
  };
  const Function summed = [](const std::vector<Tensor>& in) {
    return sum(concat({in[0], in[0] * 2, ones({3, 300})}, 0) * 0.5f, {0}) + max(roll(in[0], 7, 1), {0});
  };
  for (const std::int64_t rows : {4, 1, 90})
    for (const Function& f : {laplacian, padded, summed}) {
      expect_same(f, {elements({rows, 300}, DType::f32)});
      expect_same(f, {transpose(elements({300, rows}, DType::f32))});
    }
  const ModeGuard guard(Mode::compiled);
  const Tensor x = elements({40, 300}, DType::f32);
  EXPECT_THAT(explain(laplacian({x})), Not(HasSubstr("call concat")));
  EXPECT_THAT(explain(concat({x, x}, 0)), HasSubstr("call concat"));
}

TEST(GathersInKernels, HaveDerivatives) {
  const Tensor x = elements({12, 3}, DType::f64), p = positions({20}, 12);
  const Function f = [&](const std::vector<Tensor>& in) {
    return grad([&](const Tensor& at) { return sum(sin(take(at, p) * 0.3)); })(in[0]);
  };
  expect_same(f, {x});
}

}  // namespace
}  // namespace fermata
