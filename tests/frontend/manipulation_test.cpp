// Moving elements about, questions about dtypes, DLPack. What NumPy gives is in tests/conformance; here are modes,
// aliasing, the edges and the errors.
#include <gtest/gtest.h>

#include "fermata/fermata.h"
#include "gradient_check.h"
#include "tests/error_message.h"
#if __has_include(<dlpack/dlpack.h>)
#include <dlpack/dlpack.h>
#endif

namespace fermata {
namespace {

using testing::message;
using Ints = std::vector<std::int64_t>;

class Manipulation : public ::testing::TestWithParam<Mode> {
 protected:
  ModeGuard mode_{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Modes, Manipulation, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

Ints ints(const Tensor& x) { return x.to_vector<std::int64_t>(); }

TEST_P(Manipulation, AxesMoveAsViews) {
  const Tensor x = reshape(arange(24), {2, 3, 4});
  EXPECT_EQ(moveaxis(x, {0, 1}, {-1, 0}).shape(), (Shape{3, 4, 2}));
  EXPECT_EQ(moveaxis(x, 2, 0).shape(), (Shape{4, 2, 3}));
  EXPECT_EQ(swapaxes(x, 0, 2).shape(), (Shape{4, 3, 2}));
  const Tensor view = moveaxis(x, 0, 2);
  view.assign(7);
  EXPECT_EQ(sum(x).item<int>(), 7 * 24);
  EXPECT_EQ(atleast_2d(tensor(3)).shape(), (Shape{1, 1}));
  EXPECT_EQ(atleast_1d(x).shape(), x.shape());
  EXPECT_EQ(unstack(x, 1).size(), 3u);
}

TEST_P(Manipulation, RollRepeatTile) {
  const Tensor x = reshape(arange(6), {2, 3});
  EXPECT_EQ(ints(roll(x, 1)), (Ints{5, 0, 1, 2, 3, 4}));
  EXPECT_EQ(ints(roll(x, 4, 1)), (Ints{2, 0, 1, 5, 3, 4}));
  EXPECT_EQ(ints(roll(x, 1, {0, 1})), (Ints{5, 3, 4, 2, 0, 1}));
  EXPECT_EQ(roll(zeros({0, 3}), 1, 0).shape(), (Shape{0, 3}));
  EXPECT_EQ(ints(repeat(x, 2)), (Ints{0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5}));
  EXPECT_EQ(repeat(x, 0, 1).shape(), (Shape{2, 0}));
  for (const DType t : {DType::u8, DType::i32, DType::u64})
    EXPECT_EQ(ints(repeat(x, astype(tensor({2, 0, 1}), t), 1)), (Ints{0, 0, 2, 3, 3, 5}));
  EXPECT_EQ(ints(repeat(x, tensor({2, 0, 1}), 1)), (Ints{0, 0, 2, 3, 3, 5}));
  EXPECT_EQ(ints(repeat(x, tensor({2, 0, 1}), 1, 3)), (Ints{0, 0, 2, 3, 3, 5}));
  EXPECT_EQ(ints(tile(tensor({1, 2}), {2, 2})), (Ints{1, 2, 1, 2, 1, 2, 1, 2}));
  EXPECT_EQ(tile(x, 0).shape(), (Shape{2, 0}));
  using testing::Inputs;
  const Tensor g = testing::random_f64({2, 3}, 0.5, 2, true, 3);
  testing::check_gradients("", [](const Inputs& in) { return roll(in[0], 1, 1); }, {g});
  testing::check_gradients("", [](const Inputs& in) { return tile(in[0], {2, 3}); }, {g});
  testing::check_gradients("", [](const Inputs& in) { return repeat(in[0], tensor({1, 0, 2}), 1); }, {g});
}

TEST_P(Manipulation, Grids) {
  const std::vector<Tensor> xy = meshgrid({tensor({1, 2, 3}), tensor({5, 6})});
  EXPECT_EQ(xy[0].shape(), (Shape{2, 3}));
  EXPECT_EQ(ints(xy[1]), (Ints{5, 5, 5, 6, 6, 6}));
  const std::vector<Tensor> ij = meshgrid({tensor({1, 2, 3}), tensor({5, 6}), tensor(9)}, MeshIndexing::ij);
  EXPECT_EQ(ij[2].shape(), (Shape{3, 2, 1}));
  EXPECT_EQ(broadcast_shapes({{3, 1}, {4}, {}}), (Shape{3, 4}));
  EXPECT_EQ(ints(eye(2, 3, 1, DType::i64)), (Ints{0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(ints(eye(3, 2, -1, DType::i64)), (Ints{0, 0, 1, 0, 0, 1}));
}

/// result_type(a, b) is the dtype that a op b is computed in, for every pair of dtypes, of tensors with axes, 0-d
/// tensors and numbers.
TEST(DTypes, ResultTypeIsThatOfOps) {
  std::vector<Tensor> tensors;
  for (const DType t :
       {DType::boolean, DType::u8, DType::u16, DType::u32, DType::u64, DType::i8, DType::i16, DType::i32, DType::i64,
        DType::f16, DType::bf16, DType::f32, DType::f64, DType::c64, DType::c128})
    for (const Shape& shape : {Shape{2}, Shape{}}) tensors.push_back(zeros(shape).astype(t));
  const Tensor condition = tensor(true);
  const auto expect_same = [&](const Operand& a, const Operand& b) {
    std::string wanted, got;
    try {
      wanted = name(where(condition, a, b).dtype());
    } catch (const DTypeError& e) { wanted = "FM" + std::to_string(e.code()); }
    try {
      got = name(result_type(a, b));
    } catch (const DTypeError& e) { got = "FM" + std::to_string(e.code()); }
    EXPECT_EQ(got, wanted) << (a.is_tensor() ? to_string(a.tensor()) : "number") << " and "
                           << (b.is_tensor() ? to_string(b.tensor()) : "number");
  };
  for (const Tensor& a : tensors) {
    for (const Tensor& b : tensors) expect_same(a, b);
    expect_same(a, true), expect_same(a, 1), expect_same(1u, a), expect_same(2.5, a);
  }
  EXPECT_EQ(result_type(zeros({2}, DType::f16), zeros({}, DType::f64)), DType::f16);
  EXPECT_EQ(result_type(zeros({}, DType::f16), zeros({}, DType::f64)), DType::f64);
}

TEST(DTypes, CombineAndHaveLimits) {
  EXPECT_EQ(result_type({DType::u8, DType::i8}), DType::i16);
  EXPECT_EQ(result_type(ones({2}, DType::f16), 2.5), DType::f16);
  EXPECT_EQ(result_type(1, 2.5), DType::f32);
  EXPECT_TRUE(can_cast(DType::u8, DType::i16));
  EXPECT_FALSE(can_cast(DType::i16, DType::u8));
  EXPECT_FALSE(can_cast(DType::u64, DType::i64));
  EXPECT_EQ(finfo(DType::f16).max, 65504);
  EXPECT_EQ(finfo(DType::bf16).eps, 0x1p-7);
  EXPECT_EQ(iinfo(DType::u64).max, ~std::uint64_t{0});
  EXPECT_EQ(iinfo(DType::i8).min, -128);
  EXPECT_TRUE(isdtype(DType::u8, "numeric"));
  EXPECT_FALSE(isdtype(DType::boolean, "integral"));
  EXPECT_EQ(message<DTypeError>([] {
              result_type({DType::u64, DType::i64});
            }),
            "FM1102 DTypeError: result_type: no dtype holds both u64 and i64\n  at   HERE");
  EXPECT_EQ(message<DTypeError>([] { iinfo(DType::f32); }),
            "FM1101 DTypeError: iinfo: f32 is not an integer dtype\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] { result_type({}); }), "FM1318 ValueError: result_type: no dtypes\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] { isdtype(DType::f32, "float"); }),
            "FM1318 ValueError: isdtype: unknown kind \"float\"\n  at   HERE\n  hint \"bool\", \"signed integer\", "
            "\"unsigned integer\", \"integral\", \"real floating\", \"complex floating\", \"numeric\"");
}

TEST(ManipulationErrors, SayWhatIsWrong) {
  EXPECT_EQ(message<ValueError>([] {
              moveaxis(ones({2, 3}), {0, 1}, 0);
            }),
            "FM1316 ValueError: moveaxis: 2 source axes for 1 destinations\n  x    f32[2, 3]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] {
              roll(ones({2, 3}), {1, 2, 3}, {0, 1});
            }),
            "FM1316 ValueError: roll: 3 shifts for 2 axes\n  x    f32[2, 3]\n  at   HERE");
  EXPECT_EQ(message<ValueError>([] {
              repeat(ones({2, 3}), -1, 0);
            }),
            "FM1317 ValueError: repeat: -1 times\n  x    f32[2, 3]\n  at   HERE");
  EXPECT_THROW(repeat(ones({2, 3}), INT64_MAX, 0), ShapeError);
  EXPECT_THROW(repeat(ones({2}), full({}, std::int64_t{1} << 50, DType::u64)).sync(), OutOfMemoryError);
  EXPECT_EQ(message<DTypeError>([&] { repeat(ones({2}), ones({2})); }),
            "FM1103 DTypeError: repeat: counts must be integers, not f32\n  x    f32[2]\n  at   HERE");
  EXPECT_EQ(message<ShapeError>([] {
              repeat(ones({2, 3}), tensor({1, 2}), 1);
            }),
            "FM1028 ShapeError: repeat: requires one count per element of the axis\n  x      f32[2, 3]   axis 1 is 3\n"
            "  counts i64[2]\n  at     HERE");
  EXPECT_THROW(moveaxis(ones({2, 3}), {0, 0}, {0, 1}), Error);
  EXPECT_THROW(broadcast_arrays({ones({2}), ones({3})}), ShapeError);
}

#if __has_include(<dlpack/dlpack.h>)
TEST(DLPack, RoundTrip) {
  for (std::size_t t = 0; t < kDTypeCount; ++t) {
    const auto dtype = static_cast<DType>(t);
    if (!kRealOrBoolean.has(dtype)) continue;
    const Tensor x = astype(reshape(arange(6) - 1, {2, 3}), dtype).sync();
    const Tensor y = from_dlpack(to_dlpack(x));
    EXPECT_EQ(y.dtype(), dtype);
    EXPECT_EQ(y.to_vector<double>(), x.to_vector<double>());
    EXPECT_EQ(from_dlpack(to_dlpack(x.mT())).to_vector<double>(), x.mT().to_vector<double>());
  }
}
TEST(DLPack, DoesNotEndAHistoryUnasked) {
  const Tensor x = ones({2}).requires_grad(true);
  EXPECT_EQ(
      message<GradientError>([&] { to_dlpack(x); }),
      "FM1720 GradientError: to_dlpack: x requires gradients, which other libraries do not propagate\n  x    f32[2]\n "
      " at   HERE\n"
      "  hint detach() it");
}
TEST(DLPack, ReadsStridesAndGivesBack) {
  static int deleted = 0;
  std::int64_t sizes[] = {2, 3}, strides[] = {1, 2};
  float elements[] = {0, 1, 2, 3, 4, 5, 6};
  DLManagedTensor managed{};
  managed.dl_tensor = {.data = elements,
                       .device = {kDLCPU, 0},
                       .ndim = 2,
                       .dtype = {kDLFloat, 32, 1},
                       .shape = sizes,
                       .strides = strides,
                       .byte_offset = 4};
  managed.deleter = [](DLManagedTensor*) { ++deleted; };
  EXPECT_EQ(from_dlpack(&managed).to_vector<float>(), (std::vector<float>{1, 3, 5, 2, 4, 6}));
  EXPECT_EQ(deleted, 1);
  managed.dl_tensor.dtype.lanes = 2;
  EXPECT_EQ(message<DTypeError>([&] { from_dlpack(&managed); }),
            "FM1101 DTypeError: from_dlpack: no counterpart of type code 2 with 32 bits and 2 lanes\n  at   HERE");
  EXPECT_EQ(deleted, 2);
}

TEST(DLPack, RefusesWhatIsNoTensor) {
  float elements[6] = {1, 2, 3, 4, 5, 6};
  std::int64_t sizes[] = {2, 3}, strides[] = {3, 1};
  static int deleted = 0;
  deleted = 0;
  int given = 0;
  DLManagedTensor managed{};
  managed.deleter = [](DLManagedTensor*) { ++deleted; };
  const auto said = [&](auto&& change) {
    DLTensor& t = managed.dl_tensor;
    sizes[0] = 2, sizes[1] = 3, strides[0] = 3, strides[1] = 1;
    t.data = elements, t.device = {kDLCPU, 0}, t.ndim = 2, t.dtype = {kDLFloat, 32, 1};
    t.shape = sizes, t.strides = strides, t.byte_offset = 0;
    change(t);
    ++given;
    try {
      from_dlpack(&managed);
    } catch (const Error& error) {
      const std::string text = error.what();
      return text.substr(0, text.find('\n'));
    }
    return std::string();
  };
  EXPECT_EQ(said([](DLTensor&) {}), "");
  EXPECT_EQ(said([](DLTensor& t) { t.ndim = -1; }), "FM1344 ValueError: from_dlpack: the number of axes is negative");
  EXPECT_EQ(said([](DLTensor& t) { t.ndim = 1'000'000; }),
            "FM1003 ShapeError: from_dlpack: 1000000 axes, more than 16");
  EXPECT_EQ(said([](DLTensor& t) { t.shape = nullptr; }),
            "FM1344 ValueError: from_dlpack: the tensor has axes but no sizes");
  EXPECT_EQ(said([](DLTensor& t) { t.data = nullptr; }),
            "FM1344 ValueError: from_dlpack: the tensor has elements but no data");
  EXPECT_EQ(said([](DLTensor& t) { t.data = nullptr, t.shape[1] = 0; }), "");
  EXPECT_EQ(said([](DLTensor& t) { t.shape[0] = -2; }), "FM1002 ShapeError: from_dlpack: a size is negative");
  EXPECT_EQ(said([](DLTensor& t) { t.shape[0] = INT64_MAX; }),
            "FM1005 ShapeError: from_dlpack: too many elements for a 64-bit size");
  EXPECT_EQ(said([](DLTensor& t) { t.shape[0] = std::int64_t{1} << 50, t.strides[0] = 0; }).substr(0, 24),
            "FM3001 OutOfMemoryError:");
  for (const std::int64_t stride : {INT64_MIN, INT64_MAX, INT64_MAX / 4})
    EXPECT_EQ(said([&](DLTensor& t) { t.strides[0] = stride; }),
              "FM1344 ValueError: from_dlpack: the strides exceed the memory");
  EXPECT_EQ(said([](DLTensor& t) { t.byte_offset = UINT64_MAX; }),
            "FM1344 ValueError: from_dlpack: the strides exceed the memory");
  EXPECT_EQ(deleted, given);
  EXPECT_EQ(message<ValueError>([&] { from_dlpack(nullptr); }),
            "FM1344 ValueError: from_dlpack: the tensor is null\n  at   HERE");
}
#endif

}  // namespace
}  // namespace fermata
