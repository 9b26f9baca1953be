// Functions that are written as models give the same results when they are read back.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "fermata/fermata.h"
#include "fermata/modules.h"
#include "fermata/onnx.h"
#include "tests/frontend/scratch_folder.h"

namespace fermata::test {
namespace {

class OnnxSave : public InScratchFolder {
 protected:
  /// Writes fn, reads it back, and compares on the arguments.
  template <class F, class... A> static void round_trip(F fn, const A&... args) {
    const Tensor wanted = fn(args...);
    onnx::save("f.onnx", {}, fn, args...);
    const onnx::Model model = onnx::load("f.onnx");
    const std::vector<Tensor> got = model(std::vector<Tensor>{args...});
    ASSERT_EQ(got.size(), 1u);
    EXPECT_EQ(got[0].dtype(), wanted.dtype());
    EXPECT_EQ(got[0].shape(), wanted.shape());
    EXPECT_TRUE(allclose(got[0].astype(DType::f64), wanted.astype(DType::f64), 1e-4, 1e-5)) << wanted << got[0];
  }
};

TEST_F(OnnxSave, NamesInputsAndOutputs) {
  const Tensor w = tensor({{1.0f, 2.0f}, {3.0f, 4.0f}});
  onnx::save(
      "f.onnx", {.input_names = {"a", "b"}, .output_names = {"sum"}},
      [&](const Tensor& a, const Tensor& b) { return std::pair(matmul(a, w) + b, a * 2); }, ones({3, 2}), ones({2}));
  const onnx::Model model = onnx::load("f.onnx");
  EXPECT_EQ(to_string(model.inputs()[0]), "a f32[3, 2]");
  EXPECT_EQ(to_string(model.inputs()[1]), "b f32[2]");
  EXPECT_EQ(to_string(model.outputs()[0]), "sum f32[3, 2]");
  EXPECT_EQ(to_string(model.outputs()[1]), "y1 f32[3, 2]");
  EXPECT_EQ(nn::named_parameters(model).size(), 1u);
  const NamedTensors y = model({{"a", ones({3, 2})}, {"b", zeros({2})}});
  EXPECT_EQ(y.at("sum").to_vector<float>(), (std::vector<float>{4, 6, 4, 6, 4, 6}));
}

TEST_F(OnnxSave, PointwiseFormulas) {
  manual_seed(1);
  const Tensor x = randn({4, 5}), y = randn({5});
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    round_trip([](const Tensor& a) { return gelu(a) + silu(a) * softplus(a) - gelu(a, "tanh"); }, x);
    round_trip([](const Tensor& a) { return exp2(a) + expm1(a) + log1p(abs(a)) + log2(square(a) + 1); }, x);
    round_trip([](const Tensor& a, const Tensor& b) { return hypot(a, b) + maximum(a, b) % 0.7 - trunc(b * 3); }, x, y);
    round_trip([](const Tensor& a, const Tensor& b) { return where((a > b) & !isnan(b), a, b / 2); }, x, y);
    round_trip([](const Tensor& a) { return astype(floor(a * 10), DType::i32) % 3 != 0; }, x);
    round_trip([](const Tensor& a) { return hardsigmoid(a) + relu6(a) + log_sigmoid(a) + rsqrt(abs(a) + 1); }, x);
  }
}

TEST_F(OnnxSave, ShapesReductionsAndIndices) {
  manual_seed(2);
  const Tensor x = randn({3, 4, 6});
  round_trip([](const Tensor& a) { return softmax(a, 1) + var(a, {0, 2}, true); }, x);
  round_trip([](const Tensor& a) { return concat({flip(a, 1), a.slice(2, 0, 6, 1)}, 2).permute({2, 0, 1}); }, x);
  round_trip([](const Tensor& a) { return slice(slice(a, 2, 5, kNone, -2), 0, 1, 3) * 1; }, x);
  round_trip([](const Tensor& a) { return all(a > -9, 1) | any(a > 2, 1); }, x);
  round_trip([](const Tensor& a) { return argmax(a, 1, true) + sum(astype(a, DType::i32), 1, true); }, x);
  round_trip([](const Tensor& a) { return take(a, tensor({2, 0, 2}), 1) * 1; }, x);
  round_trip([](const Tensor& a) { return sum(unfold(a, 2, 3, 2), -1) + cumulative_sum(a, 2).slice(2, 0, 2); }, x);
  round_trip([](const Tensor& a) { return topk(a, 2, 2).values + full({1}, 2.0f); }, x);
  round_trip([](const Tensor& a) { return pad(a, {1, 2, 0, 1}, PadMode::constant, 0.5); }, x);
  round_trip(
      [](const Tensor& a) {
        Tensor b = a + 1;
        b.slice(2, 0, kNone, 2).assign(a.slice(2, 1, kNone, 2));
        return b * 2;
      },
      x);
  round_trip([](const Tensor& a) { return scatter_add(a, zeros({3, 1, 6}, DType::i64), ones({3, 1, 6}), 1); }, x);
}

TEST_F(OnnxSave, Networks) {
  manual_seed(3);
  const nn::Conv2d c1(3, 8, 3, {.stride = 2, .padding = 1}), c2(8, 8, 3, {.groups = 4});
  const nn::Linear out(8, 5);
  round_trip(
      [&](const Tensor& a) {
        return out(mean(relu(c2(max_pool2d(silu(c1(a)), 3, 2, 1))), {2, 3}));
      },
      randn({2, 3, 16, 16}));
  const nn::ConvTranspose2d up(8, 4, 3, {.stride = 2, .padding = 1, .output_padding = 1});
  round_trip([&](const Tensor& a) { return up(a); }, randn({1, 8, 5, 4}));
  const nn::LayerNorm norm(16);
  const nn::MultiheadAttention attention(16, 4);
  round_trip([&](const Tensor& a) { return a + attention.forward(norm(a)); }, randn({2, 5, 16}));
}

TEST_F(OnnxSave, SizesMayBeDynamic) {
  manual_seed(4);
  const nn::Conv2d conv(3, 8, 3, {.stride = 2, .padding = 1});
  const nn::LayerNorm norm(16);
  const nn::MultiheadAttention attention(16, 4);
  const nn::Linear head(8, 5);
  for (const Mode mode : {Mode::eager, Mode::compiled}) {
    const ModeGuard guard(mode);
    const auto image = [&](const Tensor& x) {
      return head(mean(relu(conv(x)), {2, 3}).reshape({x.size(0), 8})) + mean(x);
    };
    onnx::save("image.onnx", {.input_names = {"image"}, .dynamic = {{"image", 0, "batch"}}}, image,
               randn({1, 3, 8, 8}));
    const onnx::Model net = onnx::load("image.onnx");
    EXPECT_EQ(to_string(net.inputs()[0]), "image f32[batch, 3, 8, 8]");
    EXPECT_EQ(to_string(net.outputs()[0]), "y0 f32[batch, 5]");
    for (const std::int64_t batch : {1, 2, 5}) {
      const Tensor x = randn({batch, 3, 8, 8});
      EXPECT_TRUE(allclose(net(x), image(x), 1e-4, 1e-5)) << batch;
    }
    const auto text = [&](const Tensor& x, const Tensor& ids) {
      const std::int64_t n = x.size(0), length = x.size(1);
      const Tensor y = x + attention.forward(norm(x), {.is_causal = true});
      const Tensor places = astype(iota({length}, 0), DType::f32).reshape({1, length, 1});
      return std::pair(mean(y * places, 1), (take(y.reshape({n * length, 16}), ids, 0)).sum(1));
    };
    onnx::save("text.onnx",
               {.input_names = {"x", "ids"}, .dynamic = {{"x", 0, "batch"}, {"x", 1}, {"ids", -1, "count"}}}, text,
               randn({2, 5, 16}), tensor({0, 3}));
    const onnx::Model model = onnx::load("text.onnx");
    EXPECT_EQ(to_string(model.inputs()[0]), "x f32[batch, x_axis1, 16]");
    EXPECT_EQ(to_string(model.outputs()[1]), "y1 f32[count]");
    for (const auto& [n, length] : {std::pair(2, 5), std::pair(3, 7), std::pair(1, 4)}) {
      const Tensor x = randn({n, length, 16}), ids = tensor({1, 0, 2});
      const auto wanted = text(x, ids);
      const std::vector<Tensor> got = model(std::vector<Tensor>{x, ids});
      EXPECT_TRUE(allclose(got[0], wanted.first, 1e-4, 1e-5)) << n << " " << length;
      EXPECT_TRUE(allclose(got[1], wanted.second, 1e-4, 1e-5)) << n << " " << length;
    }
  }
}

TEST_F(OnnxSave, SaysWhichSizesCannotBeDynamic) {
  const auto says = [](const onnx::SaveOptions& options, const auto& fn) {
    try {
      onnx::save("f.onnx", options, fn, ones({4, 6}));
    } catch (const Error& error) { return std::string(error.what()); }
    return std::string("nothing");
  };
  const auto twice = [](const Tensor& x) { return x * 2; };
  using ::testing::HasSubstr;
  EXPECT_THAT(says({.dynamic = {{"y", 0}}}, twice),
              HasSubstr("FM5745 ValueError: onnx: no input named 'y' for a dynamic axis"));
  EXPECT_THAT(says({.dynamic = {{"x0", 2}}}, twice), HasSubstr("input 'x0' of 2 axes has no axis 2"));
  EXPECT_THAT(says({.dynamic = {{"x0", 0, "n"}, {"x0", 1, "n"}}}, twice), HasSubstr("have the sizes 4 and 6"));
  const auto loop = [](const Tensor& x) {
    Tensor y = x[0];
    for (std::int64_t i = 1; i < x.size(0); ++i) y = y + x[i];
    return y;
  };
  EXPECT_THAT(says({.dynamic = {{"x0", 0}}}, loop),
              HasSubstr("FM5746 UnsupportedError: onnx: the function makes different calls for different sizes"));
  const auto root = [](const Tensor& x) { return x * std::sqrt(static_cast<double>(x.size(0))); };
  EXPECT_THAT(says({.dynamic = {{"x0", 0}}}, root), HasSubstr("a constant of node 'Mul_"));
  EXPECT_FALSE(std::filesystem::exists("f.onnx"));
  EXPECT_EQ(says({.dynamic = {{"x0", 0}}}, twice), "nothing");
}

TEST_F(OnnxSave, ListsWhatHasNoForm) {
  const auto fn = [](const Tensor& x) { return sort(x) + cbrt(x); };
  std::string text;
  const unsigned line = __LINE__ + 2;
  try {
    onnx::save("f.onnx", {}, fn, ones({3}));
  } catch (const UnsupportedError& error) { text = error.what(); }
  const auto at = [](unsigned where) { return "onnx/save_test.cpp:" + std::to_string(where); };
  EXPECT_EQ(text, "FM2307 UnsupportedError: onnx: ops without an ONNX equivalent\n  cbrt  at " + at(line - 4) +
                      "\n  sort  at " + at(line - 4) + "\n  at   " + at(line));
  EXPECT_FALSE(std::filesystem::exists("f.onnx"));
}

}  // namespace
}  // namespace fermata::test
