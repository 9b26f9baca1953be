// Two products and the rows between them as one kernel: attention, in all the ways that it is written.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "codegen_cuda/library/product_chain.h"
#include "tests/codegen_cuda/cuda_case.h"
#include "tests/codegen_cuda/nvrtc_check.h"

namespace fermata {
namespace {

using gpu::ChainRule;
using test::compare_with_cpu;
using test::DeviceProgram;
using ::testing::HasSubstr;
using ::testing::Not;
using Tensors = std::vector<Tensor>;

class CudaProductChains : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string failure_reason;
    if (!gpu::usable(&failure_reason)) GTEST_SKIP() << failure_reason;
    before_ = gpu::set_chain_rule(ChainRule::always);
  }
  void TearDown() override { gpu::set_chain_rule(before_); }

 private:
  const test::CompiledSources sources_;
  ChainRule before_ = ChainRule::by_cost;
  const ModeGuard guard_{Mode::compiled};
};

Tensor numbers(DType t, const Shape& shape, int seed) {
  manual_seed(static_cast<std::uint64_t>(seed));
  return astype(randn(shape), t).sync();
}

/// Queries, keys and values of heads.
Tensors heads(DType t, const Shape& batch, std::int64_t queries, std::int64_t keys, std::int64_t depth,
              std::int64_t width) {
  const auto with = [&](std::int64_t rows, std::int64_t columns) {
    Shape s = batch;
    s.push_back(rows), s.push_back(columns);
    return s;
  };
  return {numbers(t, with(queries, depth), 1), numbers(t, with(keys, depth), 2), numbers(t, with(keys, width), 3)};
}
Tensors with(Tensors inputs, const Tensor& more) { return inputs.push_back(more), inputs; }

std::string close(const Tensor& got, const Tensor& wanted) {
  if (got.dtype() != wanted.dtype() || got.shape() != wanted.shape()) return "another type";
  const std::vector<double> a = got.to_vector<double>(), b = wanted.to_vector<double>();
  const double allowed = wanted.dtype() == DType::f32 ? 2e-6 : wanted.dtype() == DType::f16 ? 2e-3 : 1.5e-2;
  double largest = 1e-30;
  for (const double x : b)
    if (std::isfinite(x)) largest = std::max(largest, std::abs(x));
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (std::isfinite(b[i]) ? std::abs(a[i] - b[i]) <= allowed * largest
                            : a[i] == b[i] || (std::isnan(a[i]) && std::isnan(b[i])))
      continue;
    return fmt::format("element {}: {} and {}", i, a[i], b[i]);
  }
  return {};
}

using Attention = std::function<Tensor(const Tensors&)>;
Tensor scores(const Tensors& in) { return matmul(in[0], in[1].mT()) * 0.3; }
Tensor named(const Tensors& in) { return matmul(softmax(scores(in), -1), in[2]); }
Tensor written_out(const Tensors& in) {
  const Tensor s = scores(in), e = exp(s - max(s, {-1}, true));
  return matmul(e / sum(e, {-1}, true), in[2]);
}
Tensor without_maximum(const Tensors& in) {
  const Tensor e = exp(scores(in));
  return matmul(e / sum(e, {-1}, true), in[2]);
}
Tensor linear_weights(const Tensors& in) {
  const Tensor e = relu(scores(in)) + 0.1;
  return matmul(0.5 * (e / sum(e, {-1}, true)), in[2]);
}
Tensor causal(const Tensors& in) { return scaled_dot_product_attention(in[0], in[1], in[2], {.is_causal = true}); }
Tensor masked(const Tensors& in) { return scaled_dot_product_attention(in[0], in[1], in[2], {.mask = in[3]}); }
Tensor biased(const Tensors& in) { return matmul(softmax(scores(in) + in[3], -1), in[2]); }

std::vector<DeviceProgram> programs_of(DType t) {
  std::vector<DeviceProgram> all;
  const auto add = [&](const std::string& what, const Attention& f, Tensors inputs) {
    all.push_back(
        {fmt::format("{} {}", what, name(t)), std::move(inputs), [f](const Tensors& in) { return Tensors{f(in)}; }});
  };
  const Tensors plain = heads(t, {2, 3}, 70, 81, 16, 24);
  add("named", named, plain);
  add("wide heads", causal, heads(t, {2}, 20, 66, 200, 256));
  // A row where everything is masked: no probabilities, or NaN, as the program has it.
  Tensor mask = astype(iota({70, 81}, 1) % 3, DType::boolean);
  mask = where(greater(iota({70, 81}, 0), 66), full({70, 81}, false), mask).sync();
  add("mask", masked, with(plain, mask));
  if (t != DType::f32) return all;
  add("written out", written_out, plain);
  add("without a maximum", without_maximum, plain);
  add("linear weights", linear_weights, plain);
  add("causal", causal, plain);
  add("one query", named, heads(t, {5}, 1, 130, 33, 64));
  add("two keys", named, heads(t, {}, 3, 2, 1, 1));
  add("whole tiles", named, heads(t, {2}, 64, 128, 32, 64));
  add("bias", biased, with(plain, numbers(t, {3, 1, 81}, 4)));
  add("rows of -inf", biased, with(plain, astype(where(mask, 0.0f, -INFINITY), t).sync()));
  // The first keys are masked for all, so the first part of a row has nothing.
  add("a late start", biased,
      with(heads(t, {2}, 5, 150, 8, 8), astype(where(less(iota({150}, 0), 100), -INFINITY, -300.0f), t).sync()));
  Tensors odd = heads(t, {}, 6, 70, 4, 8);
  odd[1] = where(equal(iota({70, 4}, 0), 9), astype(tensor(INFINITY), t), odd[1]).sync();
  odd[0] = where(equal(iota({6, 4}, 0), 5), astype(tensor(NAN), t), odd[0]).sync();
  add("infinities and NaN", named, odd);
  // Heads that are views of one tensor, and keys that several groups of queries share.
  add("views",
      [](const Tensors& in) {
        const Tensor x = permute_dims(reshape(in[0], {2, 40, 3, 4, 8}), {2, 0, 3, 1, 4});
        return causal({x[0], x[1], x[2]});
      },
      {numbers(t, {2, 40, 96}, 5)});
  add("groups",
      [](const Tensors& in) { return scaled_dot_product_attention(in[0], in[1], in[2], {.enable_gqa = true}); },
      {numbers(t, {2, 4, 10, 8}, 1), numbers(t, {2, 2, 70, 8}, 2), numbers(t, {2, 2, 70, 8}, 3)});
  return all;
}

std::size_t chain_kernels() {
  const auto sources = gpu::kept_sources();
  return static_cast<std::size_t>(
      std::ranges::count_if(sources, [](const gpu::KernelSource& s) { return s.name.starts_with("fm_chain"); }));
}

TEST_F(CudaProductChains, GiveWhatTheStepsGive) {
  std::vector<DeviceProgram> programs;
  for (const DType t : {DType::f32, DType::f16, DType::bf16})
    std::ranges::move(programs_of(t), std::back_inserter(programs));
  for (const DeviceProgram& p : programs) {
    const Tensors results = p.on(cuda());
    EXPECT_THAT(explain(results[0]), HasSubstr(" as one kernel: about ")) << p.name;
  }
  compare_with_cpu(programs, Mode::compiled, &close);
}

TEST_F(CudaProductChains, WhatIsNoSuchRowRunsInSteps) {
  struct Case {
    std::string what;
    DType dtype;
    std::int64_t width;
    Attention run;
  };
  const std::vector<Case> cases = {
      {"weights that are dropped", DType::f32, 8,
       [](const Tensors& in) { return matmul(softmax(scores(in), -1) * abs(in[3]), in[2]); }},
      {"logarithms", DType::f32, 8, [](const Tensors& in) { return matmul(log_softmax(scores(in), -1), in[2]); }},
      {"a row's mean", DType::f32, 8,
       [](const Tensors& in) {
         const Tensor s = scores(in);
         return matmul(s - mean(s, {-1}, true), in[2]);
       }},
      {"doubles", DType::f64, 8, named},
      {"wide values", DType::f32, 257, named}};
  for (const Case& c : cases) {
    const Tensors inputs = with(heads(c.dtype, {2}, 9, 11, 4, c.width), numbers(c.dtype, {2, 9, 11}, 4));
    const std::size_t before = chain_kernels();
    const DeviceProgram p{c.what, inputs, [&](const Tensors& in) { return Tensors{c.run(in)}; }};
    EXPECT_THAT(explain(p.on(cuda())[0]), Not(HasSubstr(" as one kernel"))) << c.what;
    compare_with_cpu({p}, Mode::compiled, [](const Tensor& a, const Tensor& b) {
      return test::relative_difference(a, b) < 1e-5 ? "" : "too far";
    });
    EXPECT_EQ(chain_kernels(), before) << c.what;
  }
  // Of nothing, in the plan that was made for something.
  std::vector<DeviceProgram> programs;
  for (const Tensors& inputs :
       {heads(DType::f32, {2}, 9, 11, 4, 8), heads(DType::f32, {2}, 0, 11, 4, 8), heads(DType::f32, {0}, 9, 11, 4, 8)})
    programs.push_back({"nothing", inputs, [](const Tensors& in) { return Tensors{named(in)}; }});
  for (const Tensors& inputs : {heads(DType::f32, {2}, 9, 0, 4, 8), heads(DType::f32, {2}, 9, 11, 0, 8)})
    programs.push_back(
        {"no keys, or no depth", inputs, [](const Tensors& in) { return Tensors{without_maximum(in)}; }});
  compare_with_cpu(programs, Mode::compiled, &close);
}

TEST_F(CudaProductChains, WhatIsBetweenTakesNoMemory) {
  const Tensors inputs = heads(DType::f32, {}, 256, 256, 8, 8);
  const DeviceProgram p{"attention", inputs, [](const Tensors& in) { return Tensors{named(in)}; }};
  const std::size_t scores_bytes = 256 * 256 * 4;
  const auto runs_within = [&](ChainRule rule, std::size_t bytes) {
    gpu::set_chain_rule(rule);
    clear_compile_caches();
    Tensors moved;
    for (const Tensor& t : p.inputs) moved.push_back(t.to(cuda()));
    trim_cuda_cache();
    gpu::Allocator& allocator = gpu::current_device().allocator();
    const std::size_t limit = allocator.counts().limit;
    allocator.set_limit(allocator.counts().live + bytes);
    bool ran = true;
    try {
      p.run(moved)[0].sync();
    } catch (const OutOfMemoryError&) { ran = false; }
    allocator.set_limit(limit);
    return ran;
  };
  EXPECT_TRUE(runs_within(ChainRule::always, scores_bytes));
  EXPECT_FALSE(runs_within(ChainRule::never, scores_bytes));
}

TEST_F(CudaProductChains, ExplainSaysWhatWasChosen) {
  gpu::set_chain_rule(ChainRule::by_cost);
  const auto text = [](const Tensors& in) {
    return explain(named({in[0].to(cuda()), in[1].to(cuda()), in[2].to(cuda())}));
  };
  EXPECT_THAT(text(heads(DType::f32, {3}, 64, 64, 16, 16)),
              HasSubstr("call matmul with steps 0 and 1 as one kernel: about "));
  EXPECT_THAT(text(heads(DType::f32, {3}, 2048, 2048, 256, 200)),
              HasSubstr("call matmul (with steps 0 and 1 as one kernel it would take about "));
  gpu::set_chain_rule(ChainRule::never);
  EXPECT_THAT(text(heads(DType::f32, {3}, 64, 64, 16, 16)),
              HasSubstr("call matmul (with steps 0 and 1 as one kernel it would take about "));
}

}  // namespace
}  // namespace fermata
