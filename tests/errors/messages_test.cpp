// What a caller reads when a call is wrong, as full text, in both modes; and that the engine works afterwards.
//
// Errors of files are in tests/frontend/io_test.cpp, those of gradients in autograd_test.cpp.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <charconv>
#include <cmath>

#include "fermata/fermata.h"
#include "frontend/ops/calls.h"
#include "tests/error_message.h"

namespace fermata {
namespace {

using fermata::testing::message, fermata::testing::message_without_place;

class Errors : public ::testing::TestWithParam<Mode> {
 protected:
  ~Errors() override { EXPECT_EQ((ones({2}) + 1).to_vector<int>(), (std::vector<int>{2, 2})); }
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Errors, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(Errors, Broadcasting) {
  const Tensor a = ones({2, 3}), b = ones({4}, DType::i32);
  EXPECT_EQ(message<ShapeError>([&] { a + b; }),
            "FM1001 ShapeError: add: shapes do not broadcast (3 and 4)\n"
            "  lhs  f32[2, 3]   axis 1 is 3\n"
            "  rhs  i32[4]      axis 0 is 4\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([&] { where(ones({2}, DType::boolean), ones({2}), ones({3})); }),
            "FM1001 ShapeError: where: shapes do not broadcast (2 and 3)\n"
            "  cond bool[2]   axis 0 is 2\n"
            "  x    f32[2]\n"
            "  y    f32[3]    axis 0 is 3\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([&] {
              broadcast_to(a, {2, 4});
            }),
            "FM1007 ShapeError: broadcast_to: cannot stretch to [2, 4]\n"
            "  x    f32[2, 3]\n"
            "  at   HERE");
}

TEST_P(Errors, Sizes) {
  EXPECT_EQ(message<ShapeError>([] {
              zeros({2, -3});
            }),
            "FM1002 ShapeError: zeros: a size is negative\n"
            "  shape f32[2, -3]   axis 1 is -3\n"
            "  at    HERE");
  EXPECT_EQ(message<ShapeError>([] {
              ones({1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1});
            }),
            "FM1003 ShapeError: ones: 17 axes, more than 16\n"
            "  shape f32[1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1]\n"
            "  at    HERE");
  EXPECT_EQ(message<ShapeError>([] {
              full({std::int64_t{1} << 40, std::int64_t{1} << 30}, 1);
            }),
            "FM1005 ShapeError: full: too many elements for a 64-bit size\n"
            "  shape i64[1099511627776, 1073741824]\n"
            "  at    HERE");
  // Two vectors that broadcast to more than there is.
  const std::int64_t n = std::int64_t{1} << 31;
  const Tensor tall = broadcast_to(ones({}), {n, 1}), wide = broadcast_to(ones({}), {n});
  EXPECT_EQ(message<ShapeError>([&] { tall* wide; }),
            "FM1005 ShapeError: multiply: too many elements for a 64-bit size\n"
            "  shape f32[2147483648, 2147483648]\n"
            "  at    HERE");
  EXPECT_EQ(message<ShapeError>([] {
              tensor(std::vector<float>(6), {4, 2});
            }),
            "FM1017 ShapeError: tensor: 6 values for shape [4, 2]\n  at   HERE");
  EXPECT_EQ(message<ShapeError>([] {
              tensor({{1, 2}, {3}});
            }),
            "FM1018 ShapeError: tensor: rows differ in length\n  at   HERE");
}

TEST_P(Errors, Reshaping) {
  const Tensor x = ones({4, 8});
  EXPECT_EQ(message<ShapeError>([&] {
              x.reshape({5, 6});
            }),
            "FM1006 ShapeError: reshape: [5, 6] has 30 elements\n"
            "  x    f32[4, 8]   32 elements\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([&] {
              reshape(x, {5, -1});
            }),
            "FM1006 ShapeError: reshape: the -1 in [5, -1] cannot be inferred\n"
            "  x    f32[4, 8]   32 elements\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] {
              reshape(x, {-1, -1});
            }),
            "FM1304 ValueError: reshape: more than one -1 in [-1, -1]\n"
            "  x    f32[4, 8]\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([&] { squeeze(x, 1); }),
            "FM1014 ShapeError: squeeze: axis 1 has size 8, not 1\n"
            "  x    f32[4, 8]\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([&] { split(x, 3); }),
            "FM1019 ShapeError: split: the axis does not divide into 3 equal parts\n"
            "  x    f32[4, 8]   axis 0 is 4\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([&] {
              split(x, {1, 2}, 1);
            }),
            "FM1019 ShapeError: split: the sizes [1, 2] do not add up to the axis\n"
            "  x    f32[4, 8]   axis 1 is 8\n"
            "  at   HERE");
}

TEST_P(Errors, Axes) {
  const Tensor x = ones({4, 8});
  EXPECT_EQ(message<IndexError>([&] { sum(x, 2); }),
            "FM1201 IndexError: sum: axis 2 is out of range for 2 axes\n"
            "  x    f32[4, 8]\n"
            "  at   HERE\n"
            "  hint axes go from -2 to 1");
  EXPECT_EQ(message<IndexError>([&] { softmax(ones({})); }),
            "FM1201 IndexError: softmax: axis -1 is out of range for a 0-d tensor\n"
            "  x    f32[]\n"
            "  at   HERE");
  EXPECT_EQ(message<IndexError>([&] {
              mean(x, {1, -1});
            }),
            "FM1202 IndexError: mean: axis 1 is named twice in [1, -1]\n"
            "  x    f32[4, 8]\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] {
              permute(x, {0, 0});
            }),
            "FM1302 ValueError: permute: [0, 0] is not a permutation of the axes\n"
            "  x    f32[4, 8]\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] {
              argmax(ones({2, 2, 2}), {0, 1});
            }),
            "FM1301 ValueError: argmax: takes one axis or all of them\n"
            "  x    f32[2, 2, 2]\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([&] {
              max(zeros({3, 0}), 1);
            }),
            "FM1009 ShapeError: max: no elements\n"
            "  x    f32[3, 0]   axis 1 is 0\n"
            "  at   HERE");
}

TEST_P(Errors, Positions) {
  const Tensor x = ones({4, 8});
  EXPECT_EQ(message<IndexError>([&] { x[4]; }),
            "FM1205 IndexError: select: position 4 is out of range for axis 0\n"
            "  x    f32[4, 8]   axis 0 is 4\n"
            "  at   HERE");
  EXPECT_EQ(message<IndexError>([&] {
              index(x, {Slice(1, 3), -9});
            }),
            "FM1205 IndexError: index: position -9 is out of range for axis 1\n"
            "  x    f32[4, 8]   axis 1 is 8\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] {
              index(x, {0, Slice(0, 2, 0)});
            }),
            "FM1303 ValueError: slice: the step along axis 1 is 0\n"
            "  x    f32[4, 8]\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { slice(x, 0, 0, 2, 0); }),
            "FM1303 ValueError: slice: the step along axis 0 is 0\n"
            "  x    f32[4, 8]\n"
            "  at   HERE");
  EXPECT_EQ(message<DTypeError>([&] { take(x, ones({2})); }),
            "FM1103 DTypeError: take: positions must be integers, not f32\n"
            "  x     f32[4, 8]\n"
            "  index f32[2]\n"
            "  at    HERE");
  EXPECT_EQ(message<ShapeError>([&] {
              index_add(x, tensor({0, 1, 2}), ones({2, 8}));
            }),
            "FM1011 ShapeError: index_add: the shape of source does not match\n"
            "  x      f32[4, 8]\n"
            "  index  i64[3]\n"
            "  source f32[2, 8]   should be [3, 8]\n"
            "  at     HERE");
}

TEST_P(Errors, DTypes) {
  EXPECT_EQ(message<DTypeError>([] { ones({2}) & 1; }),
            "FM1101 DTypeError: bitwise_and: not defined for f32\n"
            "  lhs  f32[2]\n"
            "  rhs  integer scalar\n"
            "  at   HERE");
  EXPECT_EQ(message<DTypeError>([] { ones({2}, DType::u64) + ones({2}, DType::i8); }),
            "FM1102 DTypeError: add: u64 and i8 have no common dtype\n"
            "  lhs  u64[2]\n"
            "  rhs  i8[2]\n"
            "  at   HERE\n"
            "  hint cast one of them with astype()");
  EXPECT_EQ(message<DTypeError>([] {
              matmul(ones({2, 2}, DType::boolean), ones({2, 2}, DType::boolean));
            }),
            "FM1101 DTypeError: matmul: does not take bool\n"
            "  lhs  bool[2, 2]\n"
            "  rhs  bool[2, 2]\n"
            "  at   HERE\n"
            "  hint convert it first, for example to i32");
  EXPECT_EQ(message<DTypeError>([] { randn({2}, DType::i32); }),
            "FM1104 DTypeError: random_normal: the result must be floating, not i32\n"
            "  at   HERE");
  EXPECT_EQ(message<UnsupportedError>([] { zeros({2}, DType::qi8); }),
            "FM2004 UnsupportedError: full: does not compute with qi8\n"
            "  at   HERE");
  EXPECT_EQ(message<DTypeError>([] { ones({2}, DType::c64).astype(DType::f32); }),
            "FM1110 DTypeError: cast: c64 does not convert to f32\n"
            "  x    c64[2]\n"
            "  at   HERE\n"
            "  hint take its real(), imag() or abs() first");
}

TEST_P(Errors, Products) {
  EXPECT_EQ(message<ShapeError>([] {
              matmul(ones({4, 8}), ones({7, 3}));
            }),
            "FM1004 ShapeError: matmul: contracted sizes differ (8 and 7)\n"
            "  lhs  f32[4, 8]   axis 1 is 8\n"
            "  rhs  f32[7, 3]   axis 0 is 7\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([] {
              matmul(ones({4, 8}), ones({7}));
            }),
            "FM1004 ShapeError: matmul: contracted sizes differ (8 and 7)\n"
            "  lhs  f32[4, 8]   axis 1 is 8\n"
            "  rhs  f32[7]      axis 0 is 7\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([] { matmul(ones({}), ones({7})); }),
            "FM1010 ShapeError: matmul: a 0-d tensor has no rows\n"
            "  lhs  f32[]\n"
            "  rhs  f32[7]\n"
            "  at   HERE\n"
            "  hint use multiply to scale a tensor");
  EXPECT_EQ(message<ShapeError>([] {
              dot(ones({2, 2}), ones({2}));
            }),
            "FM1015 ShapeError: dot: a vector must have one axis\n"
            "  lhs  f32[2, 2]\n"
            "  rhs  f32[2]\n"
            "  at   HERE\n"
            "  hint use matmul for matrices");
  EXPECT_EQ(message<ShapeError>([] { tril(ones({2})); }),
            "FM1015 ShapeError: tril: a matrix must have two axes\n"
            "  x    f32[2]\n"
            "  at   HERE");
}

TEST_P(Errors, Joining) {
  EXPECT_EQ(message<ShapeError>([] { concat({}); }),
            "FM1012 ShapeError: concat: requires at least one tensor\n  at   HERE");
  EXPECT_EQ(message<ShapeError>([] {
              concat({ones({4, 8}), ones({4, 7})});
            }),
            "FM1008 ShapeError: concat: shapes differ in an axis other than 0\n"
            "  x0   f32[4, 8]\n"
            "  x1   f32[4, 7]\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([] {
              stack({ones({4}), ones({1})});
            }),
            "FM1016 ShapeError: stack: shapes differ\n"
            "  lhs  f32[4]\n"
            "  rhs  f32[1]\n"
            "  at   HERE");
}

TEST_P(Errors, InPlaceWrites) {
  Tensor x = zeros({3}, DType::i32);
  EXPECT_EQ(message<DTypeError>([&] { x += 0.5; }),
            "FM1105 DTypeError: operator+=: the result is f32, which does not convert to i32\n"
            "  x    i32[3]\n"
            "  at   HERE");
  EXPECT_EQ(message<DTypeError>([&] { x /= 2; }),
            "FM1105 DTypeError: operator/=: the result is f32, which does not convert to i32\n"
            "  x    i32[3]\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([&] {
              x *= ones({2, 3}, DType::i32);
            }),
            "FM1020 ShapeError: operator*=: shape [2, 3] does not match the tensor that is written\n"
            "  x    i32[3]\n"
            "  at   HERE");
  EXPECT_EQ(message<ShapeError>([&] { x.assign(ones({2})); }),
            "FM1020 ShapeError: assign: shape [2] does not match the tensor that is written\n"
            "  x    i32[3]\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] {
              broadcast_to(x, {2, 3}).assign(1);
            }),
            "FM1308 ValueError: an in-place write to a view whose elements share memory\n"
            "  x    i32[2, 3]\n"
            "  at   HERE\n"
            "  hint copy() returns a writable tensor");
  EXPECT_EQ(x.to_vector<int>(), (std::vector<int>{0, 0, 0}));
  EXPECT_EQ(x.version(), 0u);
}

TEST_P(Errors, ReadingValues) {
  const Tensor x = ones({2, 3});
  EXPECT_EQ(message<ValueError>([&] { x.item<float>(); }),
            "FM1310 ValueError: item: 6 elements, not one\n"
            "  x    f32[2, 3]\n"
            "  at   HERE");
  EXPECT_EQ(message<DTypeError>([&] { x.data<double>(); }),
            "FM1106 DTypeError: data: the element type is f32, not f64\n"
            "  x    f32[2, 3]\n"
            "  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { x.mT().data<float>(); }),
            "FM1309 ValueError: data: the elements of this view are not contiguous\n"
            "  x    f32[3, 2]\n"
            "  at   HERE\n"
            "  hint copy() returns a contiguous tensor");
  const Tensor complex = from_buffer(std::vector<std::complex<float>>(2).data(), DType::c64, {2});
  EXPECT_EQ(message<DTypeError>([&] { complex.to_vector<float>(); }),
            "FM1110 DTypeError: to_vector: c64 does not convert to a real number\n"
            "  at   HERE\n"
            "  hint take its real(), imag() or abs() first");
}

TEST_P(Errors, UndefinedTensors) {
  const Tensor none;
  for (const auto& text : {message<ValueError>([&] { exp(none); }), message<ValueError>([&] { none.sync(); })})
    EXPECT_NE(text.find("an operand is an undefined tensor\n  at   HERE"), std::string::npos) << text;
  EXPECT_EQ(message<ValueError>([&] { 1 + none; }),
            "FM1306 ValueError: add: an operand is an undefined tensor\n  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { sum(none); }),
            "FM1306 ValueError: sum: an operand is an undefined tensor\n  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { matmul(ones({2}), none); }),
            "FM1306 ValueError: matmul: an operand is an undefined tensor\n  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { none.reshape({1}); }),
            "FM1306 ValueError: reshape: an operand is an undefined tensor\n  at   HERE");
  EXPECT_EQ(message<ValueError>([&] { none.grad(); }),
            "FM1306 ValueError: grad: an operand is an undefined tensor\n  at   HERE");
  EXPECT_EQ(message_without_place<ValueError>([&] { none.version(); }),
            "FM1306 ValueError: an operand is an undefined tensor");
}

TEST_P(Errors, IntegersOutOfBounds) {
  const Tensor bytes = tensor({0, 1}, DType::u8), small = tensor({1, 2}, DType::i8);
  EXPECT_EQ(message<ValueError>([&] { maximum(small, 1000); }),
            "FM1329 ValueError: maximum: 1000 does not fit i8\n  at   HERE\n"
            "  hint cast the tensor to a wider dtype with astype()");
  EXPECT_EQ(message<ValueError>([&] { static_cast<void>(bytes <= -1); }),
            "FM1329 ValueError: less_equal: -1 does not fit u8\n  at   HERE\n"
            "  hint cast the tensor to a wider dtype with astype()");
  // Every dtype, its limits and one beyond them; beside a tensor, in a creation and in a write.
  for (const DType t : {DType::u8, DType::u16, DType::u32, DType::u64, DType::i8, DType::i16, DType::i32, DType::i64}) {
    const IntegerInfo limits = iinfo(t);
    const Tensor x = zeros({2}, t), y = x.reshape({2, 1});
    EXPECT_EQ((x + limits.max).to_vector<std::uint64_t>()[1], limits.max) << name(t);
    EXPECT_EQ((x + limits.min).to_vector<std::int64_t>()[1], limits.min) << name(t);
    EXPECT_EQ(where(x == 0, limits.max, y).to_vector<std::uint64_t>()[3], limits.max) << name(t);
    std::vector<Scalar> beyond;
    if (limits.max != std::numeric_limits<std::uint64_t>::max()) beyond.push_back(limits.max + 1);
    if (limits.min != std::numeric_limits<std::int64_t>::min()) beyond.push_back(limits.min - 1);
    for (const Scalar& s : beyond)
      for (const auto& text : {message_without_place<ValueError>([&] { multiply(x, s); }),
                               message_without_place<ValueError>([&] { subtract(s, y); }),
                               message_without_place<ValueError>([&] { where(x == 0, s, y); }),
                               message_without_place<ValueError>([&] { full({2}, s, t); }),
                               message_without_place<ValueError>([&] { x.assign(s); })})
        EXPECT_THAT(text, ::testing::HasSubstr("does not fit " + std::string(name(t))));
  }
}

TEST_P(Errors, ArgumentsOfCreation) {
  EXPECT_EQ(message<ValueError>([] { arange(0, 5, 0); }), "FM1307 ValueError: arange: the step is 0\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] { arange(0.0, INFINITY); }),
            "FM1307 ValueError: arange: start, stop and step must be finite\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] { randint(3, 3, {2}); }),
            "FM1311 ValueError: randint: empty range from 3 to 3\n  at   HERE");
}

TEST_P(Errors, NeuralNetworks) {
  const Tensor x = ones({4, 8});
  EXPECT_EQ(message<ShapeError>([&] { cross_entropy(x, zeros({3}, DType::i64)); }),
            "FM1022 ShapeError: cross_entropy: labels must have the axes of x without axis 1\n"
            "  x      f32[4, 8]\n"
            "  target i64[3]   should be [4]\n"
            "  at     HERE");
  EXPECT_EQ(message<DTypeError>([&] { cross_entropy(x, zeros({4})); }),
            "FM1107 DTypeError: cross_entropy: labels must be integers\n"
            "  x      f32[4, 8]\n"
            "  target f32[4]\n"
            "  at     HERE");
  EXPECT_EQ(message<ShapeError>([&] { layer_norm(x, ones({4})); }),
            "FM1021 ShapeError: layer_norm: the shape of weight does not match the last axis of x\n"
            "  x      f32[4, 8]\n"
            "  weight f32[4]   should be [8]\n"
            "  at     HERE");
  EXPECT_EQ(message<ShapeError>([&] {
              linear(x, ones({3, 7}), ones({3}));
            }),
            "FM1023 ShapeError: linear: x [.., I], weight [O, I] and bias [O] do not match\n"
            "  x      f32[4, 8]\n"
            "  weight f32[3, 7]\n"
            "  bias   f32[3]\n"
            "  at     HERE");
}

TEST_P(Errors, PositionsInATensorAreCheckedWhenTheyAreRead) {
  const Tensor x = arange(4);
  EXPECT_EQ(message<IndexError>([&] {
              take(x, tensor({0, 7})).sync();
            }),
            "FM1204 IndexError: take: position 7 leaves axis 0 of size 4\n"
            "  x     i64[4]   axis 0 is 4\n"
            "  index i64[2]   element 1 is 7\n"
            "  at    HERE");
  EXPECT_EQ(take(x, tensor({0, 3})).to_vector<int>(), (std::vector<int>{0, 3}));
}

/// A call as a kernel of another op makes it, past the checks of the public functions.
Tensor direct(Op op, const std::vector<Tensor>& in, const std::vector<std::int64_t>& integers = {},
              const TensorType& wanted = {}) {
  return general_call(op, in, {.wanted = wanted, .integers = integers, .scalars = {}}, Location::current());
}

TEST_P(Errors, OfCallsThatPublicFunctionsDoNotMake) {
  const Tensor image = zeros({1, 1, 4, 4}), filters = zeros({1, 1, 3, 3});
  EXPECT_EQ(message_without_place<ShapeError>([&] {
              direct(Op::convolution_weight_gradient, {image, zeros({1, 1, 9, 9})}, {1, 1, 1, 0, 0, 0, 0, 1, 1},
                     {DType::f32, {1, 1, 3, 3}});
            }),
            "FM1074 ShapeError: convolution_weight_gradient: the shape of the gradient does not match\n"
            "  x        f32[1, 1, 4, 4]\n"
            "  gradient f32[1, 1, 9, 9]   should be [1, 1, 2, 2]");
  EXPECT_EQ(message_without_place<ValueError>([&] {
              direct(Op::convolution, {image, filters}, {1, 1, 1, -1, 0, 0, 0, 1, 1});
            }),
            "FM1371 ValueError: convolution: a padding is negative\n"
            "  x      f32[1, 1, 4, 4]\n"
            "  weight f32[1, 1, 3, 3]\n"
            "  hint   slice x instead");
  EXPECT_EQ(message_without_place<ShapeError>([] {
              direct(Op::complex, {zeros({2}), zeros({3})});
            }),
            "FM1091 ShapeError: complex: the parts differ in shape\n  re   f32[2]\n  im   f32[3]");
  EXPECT_EQ(
      message_without_place<ShapeError>([] {
        direct(Op::pinv, {zeros({2, 3, 3}), zeros({3})});
      }),
      "FM1092 ShapeError: pinv: requires one tolerance per matrix\n  x    f32[2, 3, 3]\n  rtol f32[3]   should be [2]");
  EXPECT_EQ(message_without_place<ShapeError>([] {
              direct(Op::fft, {zeros({0}, DType::c64)}, {0, 0});
            }),
            "FM1093 ShapeError: fft: no elements to transform\n  x    c64[0]   axis 0 is 0");
}

TEST_P(Errors, JacobiansOfComplexNumbers) {
  EXPECT_EQ(message<UnsupportedError>([] { jacrev([](const Tensor& z) { return z * z; })(zeros({2}, DType::c64)); }),
            "FM2761 UnsupportedError: the Jacobian with respect to complex numbers is not a complex matrix\n"
            "  x    c64[2]\n"
            "  at   HERE\n"
            "  hint use jvp or pullback, or split it into real() and imag()");
}

}  // namespace
}  // namespace fermata
