// Products on CUDA: by cuBLASLt's functions and by the kernel of our own, in every dtype and layout.
#include <gtest/gtest.h>

#include "codegen_cuda/library/matmul.h"
#include "frontend/ops/calls.h"
#include "tests/codegen_cuda/cuda_case.h"
#include "tests/codegen_cuda/nvrtc_check.h"

namespace fermata {
namespace {

using test::close;
using test::compare_with_cpu;
using test::DeviceProgram;
using test::numbers;

class CudaMatmul : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string failure_reason;
    if (!gpu::usable(&failure_reason)) GTEST_SKIP() << failure_reason;
  }

 private:
  const test::CompiledSources sources_;
};

const std::vector<std::pair<Shape, Shape>> kShapes = {
    {{5, 7}, {7, 3}}, {{40, 33}, {33, 70}}, {{7}, {7, 3}},          {{5, 7}, {7}},
    {{7}, {7}},       {{4, 5, 7}, {7, 3}},  {{4, 5, 7}, {4, 7, 3}}, {{2, 1, 5, 7}, {3, 7, 4}},
    {{5, 0}, {0, 3}}, {{0, 4}, {4, 3}},     {{1, 64}, {64, 1}}};

TEST_F(CudaMatmul, EveryDtypeAndBatch) {
  std::vector<DeviceProgram> programs;
  for (const DType t : {DType::f32, DType::f64, DType::f16, DType::bf16, DType::i32, DType::u8, DType::i64})
    for (const auto& [a, b] : kShapes)
      programs.push_back({std::string(name(t)) + to_string(a) + to_string(b),
                          {numbers(t, a, 1), numbers(t, b, 2)},
                          [](const auto& in) { return std::vector<Tensor>{matmul(in[0], in[1])}; }});
  for (const Mode mode : {Mode::compiled, Mode::eager}) compare_with_cpu(programs, mode, &close);
}

TEST_F(CudaMatmul, LayoutsAreReadInPlaceOrCopied) {
  std::vector<DeviceProgram> programs;
  for (const DType t : {DType::f32, DType::bf16, DType::i16}) {
    const Tensor a = numbers(t, {12, 10}, 1), b = numbers(t, {8, 10}, 2), c = numbers(t, {3, 10, 12}, 3);
    programs.push_back({std::string(name(t)), {a, b, c}, [](const auto& in) {
                          return std::vector<Tensor>{matmul(in[0], in[1].mT()),
                                                     matmul(in[0].mT(), in[0]),
                                                     matmul(in[2].mT(), in[1].mT()),
                                                     matmul(in[0].slice(1, 9, 0, -2), in[1].slice(1, 1, 6).mT()),
                                                     matmul(in[0].slice(0, 0, 12, 2), in[1].mT()),
                                                     matmul(broadcast_to(in[0], {2, 12, 10}), in[1].mT())};
                        }});
  }
  for (const Mode mode : {Mode::compiled, Mode::eager}) compare_with_cpu(programs, mode, &close);
}

TEST_F(CudaMatmul, WhatFollowsFuses) {
  const DeviceProgram mlp{
      "mlp",
      {numbers(DType::f32, {6, 20}, 1), numbers(DType::f32, {30, 20}, 2), numbers(DType::f32, {30}, 3)},
      [](const auto& in) { return std::vector<Tensor>{softmax(gelu(linear(in[0], in[1], in[2])), -1)}; }};
  for (const Mode mode : {Mode::compiled, Mode::eager}) compare_with_cpu({mlp}, mode, &close);
}

/// A view of a computed tensor, for calls of kernels one by one.
struct Viewed {
  Shape sizes, strides;
  Tensor tensor;
  explicit Viewed(const Tensor& t) : sizes(t.shape()), strides(dense_strides(t.shape())), tensor(t.sync()) {}
  TensorView view() const {
    return {tensor.node()->storage.load()->data, tensor.dtype(), static_cast<std::uint8_t>(sizes.rank()), sizes.data(),
            strides.data()};
  }
};

TEST_F(CudaMatmul, BiasReluAndGeluAreTheLibrarys) {
  const Tensor a = numbers(DType::f32, {6, 20}, 1), b = numbers(DType::f32, {20, 9}, 2),
               bias = numbers(DType::f32, {9}, 3);
  const Tensor product = matmul(a, b), biased = product + bias;
  const auto tanh_gelu = [](const Tensor& x) {
    return 0.5 * x * (1 + tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  };
  const std::vector<std::pair<gpu::MatmulEpilogue, Tensor>> ends = {
      {gpu::MatmulEpilogue::none, product},
      {gpu::MatmulEpilogue::bias, biased},
      {gpu::MatmulEpilogue::relu, relu(product)},
      {gpu::MatmulEpilogue::bias_relu, relu(biased)},
      {gpu::MatmulEpilogue::gelu, tanh_gelu(product)},
      {gpu::MatmulEpilogue::bias_gelu, tanh_gelu(biased)}};
  const Viewed x(a.to(cuda())), y(b.to(cuda())), z(bias.to(cuda()));
  for (const auto& [end, wanted] : ends) {
    const Viewed out(zeros({6, 9}, DType::f32, cuda()));
    const TensorView inputs[] = {x.view(), y.view()}, outputs[] = {out.view()};
    if (!gpu::matmul_with({Op::matmul, inputs, outputs, {}, {}}, end, z.view().data)) {
      EXPECT_FALSE(gpu::on_host_executor());
      std::printf("the library has no epilogue %d for this product\n", static_cast<int>(end));
      continue;
    }
    EXPECT_LT(test::relative_difference(out.tensor, wanted), 1e-5) << static_cast<int>(end);
  }
}

/// How often kernels of our own are started for a program, once it has been planned.
std::uint64_t launches_of(const DeviceProgram& p) {
  static_cast<void>(p.on(cuda()));
  std::vector<Tensor> results = p.on(cuda());
  const auto before = gpu::host_counts().launches;
  sync(results);
  return gpu::host_counts().launches - before;
}

TEST_F(CudaMatmul, TakesTheKernelsThatItCanEndWith) {
  if (!gpu::on_host_executor()) GTEST_SKIP() << "counts are those of the host executor";
  const ModeGuard guard(Mode::compiled);
  using Tensors = std::vector<Tensor>;
  struct Case {
    std::string name;
    std::function<Tensor(const Tensors&)> run;  // of x, w, bias
    std::uint64_t launches;
  };
  const auto linear_of = [](const Tensors& in) { return linear(in[0], in[1], in[2]); };
  const std::vector<Case> cases = {
      {"bias", linear_of, 0},
      {"bias in front", [](const Tensors& in) { return in[2] + matmul(in[0], in[1].mT()); }, 0},
      {"relu", [](const Tensors& in) { return relu(matmul(in[0], in[1].mT())); }, 0},
      {"bias and relu", [=](const Tensors& in) { return relu(linear_of(in)); }, 0},
      {"relu, written out",
       [=](const Tensors& in) {
         const Tensor y = linear_of(in);
         return where(y > zeros_like(y), y, where(y == y, zeros_like(y), y));
       },
       1},
      {"gelu", [](const Tensors& in) { return gelu(matmul(in[0], in[1].mT()), "tanh"); }, 0},
      {"bias and gelu", [=](const Tensors& in) { return gelu(linear_of(in), "tanh"); }, 0},
      // What the library has no epilogue for, or what something else reads, is a kernel.
      {"exact gelu", [=](const Tensors& in) { return gelu(linear_of(in)); }, 1},
      {"sigmoid", [=](const Tensors& in) { return sigmoid(linear_of(in)); }, 1},
      {"twice",
       [](const Tensors& in) {
         const Tensor y = matmul(in[0], in[1].mT());
         return y + y;
       },
       1},
      {"a residual",
       [](const Tensors& in) {
         const Tensor y = matmul(in[0], in[1].mT());
         return y + abs(matmul(in[0] * 2, in[1].mT()));
       },
       2},
      {"scaled", [=](const Tensors& in) { return relu(linear_of(in)) * 2; }, 1}};
  std::vector<DeviceProgram> programs;
  for (const DType t : {DType::f32, DType::f16, DType::bf16})
    for (const Case& c : cases)
      programs.push_back({fmt::format("{} {}", c.name, name(t)),
                          {numbers(t, {6, 20}, 1), numbers(t, {9, 20}, 2), numbers(t, {9}, 3)},
                          [c](const auto& in) { return Tensors{c.run(in)}; }});
  compare_with_cpu(programs, Mode::compiled, &close);
  for (std::size_t i = 0; i < programs.size(); ++i)
    EXPECT_EQ(launches_of(programs[i]), cases[i % cases.size()].launches) << programs[i].name;
  const Tensor x = numbers(DType::f32, {6, 20}, 1).to(cuda()), w = numbers(DType::f32, {20, 9}, 2).to(cuda());
  const Tensor product = matmul(x, w), ended = relu(product);
  sync({product, ended});  // both are wanted
  EXPECT_LT(test::relative_difference(ended, relu(product)), 1e-6);
}

TEST_F(CudaMatmul, RoundsToTf32WhereThatIsChosen) {
  const Tensor a = numbers(DType::f32, {32, 64}, 1), b = numbers(DType::f32, {64, 16}, 2), wanted = matmul(a, b);
  const auto differs = [&] { return test::relative_difference(matmul(a.to(cuda()), b.to(cuda())), wanted); };
  EXPECT_LT(differs(), 2e-6);
  const bool before = set_cuda_tf32(true);
  EXPECT_FALSE(before);
  EXPECT_GT(differs(), 1e-5);
  EXPECT_LT(differs(), 2e-3);
  EXPECT_TRUE(set_cuda_tf32(before));
  EXPECT_LT(differs(), 2e-6);
}

TEST_F(CudaMatmul, BytesAddUpInI32) {
  for (const auto& [m, k, n] : std::vector<std::array<std::int64_t, 3>>{{8, 16, 12}, {5, 7, 3}, {3, 64, 64}}) {
    const Tensor a = numbers(DType::i8, {m, k}, 1), b = numbers(DType::i8, {n, k}, 2),
                 u = astype(numbers(DType::i32, {m, k}, 3), DType::u8).sync();
    const auto run = [&](Device device, const Tensor& left) {
      const Tensor operands[] = {left.to(device), b.to(device).mT()};
      return general_call(Op::matmul_i32, operands, {}, Location::current());
    };
    EXPECT_EQ(test::difference(run(cuda(), a), run(BackendKey::cpu, a)), "");
    EXPECT_EQ(test::difference(run(cuda(), u), run(BackendKey::cpu, u)), "");
  }
}

}  // namespace
}  // namespace fermata
