// Convolutions as matrix products: sizes for which these are chosen, against the CPU.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>

#include "fermata/fermata.h"
#include "tests/codegen_cuda/cuda_case.h"
#include "tests/codegen_cuda/nvrtc_check.h"

namespace fermata {
namespace {

class CudaConvolution : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string failure_reason;
    if (!gpu::usable(&failure_reason)) GTEST_SKIP() << failure_reason;
  }

 private:
  const test::CompiledSources sources_;
};

struct Case {
  std::string name;
  Shape x, weight;
  std::function<Tensor(const Tensor&, const Tensor&)> convolve;
};
std::vector<Case> cases() {
  using T = const Tensor&;
  return {{"plain", {3, 24, 20, 18}, {40, 24, 3, 3}, [](T x, T w) { return conv2d(x, w); }},
          {"padded",
           {2, 17, 19, 23},
           {33, 17, 3, 5},
           [](T x, T w) {
             return conv2d(x, w, {}, 1, {1, 2});
           }},
          {"strides",
           {4, 24, 31, 29},
           {48, 24, 3, 3},
           [](T x, T w) {
             return conv2d(x, w, {}, {2, 3}, 1);
           }},
          {"dilation", {2, 24, 30, 30}, {48, 24, 3, 3}, [](T x, T w) { return conv2d(x, w, {}, 1, 2, 2); }},
          {"groups", {2, 64, 24, 24}, {96, 16, 3, 3}, [](T x, T w) { return conv2d(x, w, {}, 1, 1, 1, 4); }},
          {"filters of one", {4, 96, 21, 21}, {64, 96, 1, 1}, [](T x, T w) { return conv2d(x, w); }},
          {"every other", {8, 96, 22, 22}, {64, 96, 1, 1}, [](T x, T w) { return conv2d(x, w, {}, 2); }},
          {"lines", {4, 48, 301}, {64, 48, 5}, [](T x, T w) { return conv1d(x, w, {}, 2, 2); }},
          {"volumes", {2, 12, 12, 11, 10}, {24, 12, 3, 3, 3}, [](T x, T w) { return conv3d(x, w, {}, 1, 1); }},
          // Patches of these images take more than a megabyte: some at a time.
          {"images in parts", {5, 32, 24, 24}, {16, 32, 3, 3}, [](T x, T w) { return conv2d(x, w, {}, 1, 1); }}};
}

TEST_F(CudaConvolution, ProductsGiveWhatTheCpuGives) {
  for (const DType t : {DType::f32, DType::f64, DType::f16}) {
    std::vector<test::DeviceProgram> programs;
    for (const Case& s : cases()) {
      if (t != DType::f32 && s.name != "strides" && s.name != "groups" && s.name != "images in parts") continue;
      const Tensor x = test::numbers(t, s.x, 1), weight = (test::numbers(t, s.weight, 2) * 0.125).sync();
      programs.push_back({fmt::format("{} {}", name(t), s.name), {x, weight}, [s](const auto& in) {
                            const auto value = [&](const Tensor& a, const Tensor& b) {
                              return sum(square(s.convolve(a, b) * 0.0625));
                            };
                            const auto [dx, dw] = grad<0, 1>(value)(in[0], in[1]);
                            return std::vector<Tensor>{s.convolve(in[0], in[1]), dx, dw};
                          }});
    }
    test::compare_with_cpu(programs, Mode::compiled, &test::close);
  }
}

TEST_F(CudaConvolution, ViewsAreReadWhereTheyLie) {
  const Tensor x = test::numbers(DType::f32, {2, 20, 22, 24}, 1), weight = test::numbers(DType::f32, {3, 3, 24, 40}, 2);
  test::compare_with_cpu({{"views",
                           {x, weight},
                           [](const auto& in) {
                             const Tensor filters = permute(in[1], {3, 2, 0, 1});
                             return std::vector<Tensor>{conv2d(permute(in[0], {0, 3, 1, 2}), filters, {}, 1, 1),
                                                        conv2d(flip(permute(in[0], {0, 3, 1, 2}), {2}), filters)};
                           }}},
                         Mode::compiled, &test::close);
}

TEST_F(CudaConvolution, ExplainShowsTheChoice) {
  const Tensor x = zeros({8, 64, 28, 28}, DType::f32, cuda()), few = zeros({1, 2, 8, 8}, DType::f32, cuda());
  EXPECT_NE(explain(conv2d(x, zeros({64, 64, 3, 3}, DType::f32, cuda()))).find("products"), std::string::npos);
  EXPECT_NE(explain(conv2d(few, zeros({3, 2, 3, 3}, DType::f32, cuda()))).find("nvrtc"), std::string::npos);
}

}  // namespace
}  // namespace fermata
