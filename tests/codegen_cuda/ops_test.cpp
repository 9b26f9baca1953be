// Every op of the table on CUDA, in every dtype it takes, against the CPU, bit for bit; every kernel by NVRTC as well.
//
// Compiled, all ops of one dtype are wanted at once, so that they share kernels; eagerly each has its own, so that
// fewer dtypes are tried.
#include <gtest/gtest.h>

#include "ir/op.h"
#include "tests/codegen_cuda/cuda_case.h"
#include "tests/codegen_cuda/nvrtc_check.h"

namespace fermata {
namespace {

using test::awkward_input;
using test::compare_with_cpu;
using test::DeviceProgram;

const std::vector<DType> kAll = {DType::boolean, DType::u8,  DType::u16, DType::u32,  DType::u64, DType::i8, DType::i16,
                                 DType::i32,     DType::i64, DType::f16, DType::bf16, DType::f32, DType::f64};
const std::vector<DType> kSome = {DType::f32, DType::bf16, DType::i32};

struct NamedCall {
  std::string name;
  std::function<Tensor(const std::vector<Tensor>&)> call;
};
using Calls = std::vector<NamedCall>;

const Calls& unary_calls() {
  static const Calls calls = {
#define FERMATA_UNARY(name, rule, formula, vjp, doc) {#name, [](const std::vector<Tensor>& x) { return name(x[0]); }},
#include "ir/ops.def"
  };
  return calls;
}
const Calls& binary_calls() {
  static const Calls calls = {
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) \
  {#name, [](const std::vector<Tensor>& x) { return name(x[0], x[1]); }},
#include "ir/ops.def"
  };
  return calls;
}
Calls reduce_calls(const Shape& axes, bool keeps) {
  return {
#define FERMATA_REDUCE(name, rule, vjp, doc) \
  {#name, [axes, keeps](const std::vector<Tensor>& x) { return name(x[0], axes, keeps); }},
#include "ir/ops.def"
  };
}

/// Those of the calls that take the dtype. What makes floats of integers computes as it does on floats, so it is tried
/// on one type of integers only.
Calls accepted(const Calls& calls, const std::vector<Tensor>& inputs) {
  const DType given = inputs[0].dtype();
  Calls kept;
  for (const NamedCall& c : calls) {
    try {
      const bool makes_floats = is_floating(c.call(inputs).dtype()) && !is_floating(given);
      if (!makes_floats || given == DType::i32) kept.push_back(c);
    } catch (const UserError&) {}
  }
  return kept;
}

DeviceProgram together(const std::string& name, const Calls& calls, const std::vector<Tensor>& inputs) {
  return {name, inputs, [calls](const std::vector<Tensor>& x) {
            std::vector<Tensor> all;
            for (const NamedCall& c : calls) all.push_back(c.call(x));
            return all;
          }};
}

class CudaOps : public testing::Test {
 protected:
  void SetUp() override {
    std::string failure_reason;
    if (!gpu::usable(&failure_reason)) GTEST_SKIP() << failure_reason;
  }
  static void compiled(const Calls& calls, const std::vector<std::vector<Tensor>>& inputs, std::size_t at_once = 8) {
    std::vector<DeviceProgram> programs;
    for (const std::vector<Tensor>& x : inputs) {
      const Calls good = accepted(calls, x);
      for (std::size_t at = 0; at < good.size(); at += at_once) {
        const Calls some(good.begin() + static_cast<std::ptrdiff_t>(at),
                         good.begin() + static_cast<std::ptrdiff_t>(std::min(at + at_once, good.size())));
        std::string names(name(x[0].dtype()));
        for (const NamedCall& c : some) names += " " + c.name;
        programs.push_back(together(names, some, x));
      }
    }
    compare_with_cpu(programs, Mode::compiled);
  }
  static void eager(const Calls& calls, const std::vector<std::vector<Tensor>>& inputs) {
    std::vector<DeviceProgram> programs;
    for (const std::vector<Tensor>& x : inputs)
      for (const NamedCall& c : accepted(calls, x))
        programs.push_back(together(std::string(name(x[0].dtype())) + " " + c.name, {c}, x));
    compare_with_cpu(programs, Mode::eager);
  }

 private:
  const test::CompiledSources sources_;
};

std::vector<std::vector<Tensor>> inputs(const std::vector<DType>& dtypes, const std::vector<Shape>& shapes) {
  std::vector<std::vector<Tensor>> all;
  for (const DType t : dtypes) {
    std::vector<Tensor>& x = all.emplace_back();
    for (const Shape& s : shapes) x.push_back(awkward_input(t, s, 11 + x.size()));
  }
  return all;
}

TEST_F(CudaOps, UnaryCompiled) { compiled(unary_calls(), inputs(kAll, {{5, 67}})); }
TEST_F(CudaOps, UnaryEager) { eager(unary_calls(), inputs({DType::f32, DType::bf16}, {{5, 67}})); }
TEST_F(CudaOps, BinaryCompiled) { compiled(binary_calls(), inputs(kAll, {{5, 67}, {5, 67}}), 12); }
TEST_F(CudaOps, BinaryBroadcasts) { compiled(binary_calls(), inputs(kSome, {{5, 1, 9}, {7, 1}}), 12); }
TEST_F(CudaOps, BinaryEager) { eager(binary_calls(), inputs({DType::f32, DType::i32}, {{5, 67}, {67}})); }

TEST_F(CudaOps, ReductionsOfRowsColumnsAndAll) {
  const std::vector<std::vector<Tensor>> x = inputs(kAll, {{6, 130}});
  compiled(reduce_calls({1}, false), x);
  compiled(reduce_calls({0}, true), x);
  compiled(reduce_calls({0, 1}, false), x);
}
TEST_F(CudaOps, ReductionsEager) { eager(reduce_calls({1}, false), inputs(kSome, {{6, 130}})); }

TEST_F(CudaOps, LongReductions) {
  // Several blocks of a row; few rows, whose blocks run apart; many rows; tall columns.
  for (const auto& [shape, axis] :
       std::vector<std::pair<Shape, std::int64_t>>{{{2, 20000}, 1}, {{40, 9000}, 1}, {{3000, 3}, 0}, {{2, 300, 40}, 1}})
    compiled(reduce_calls({axis}, false),
             {{awkward_input(DType::f32, shape, 3)}, {awkward_input(DType::i64, shape, 4)}});
}

TEST_F(CudaOps, Casts) {
  std::vector<DType> dtypes = kAll;
  for (std::size_t t = 0; t < kDTypeCount; ++t)
    if (is_small(static_cast<DType>(t))) dtypes.push_back(static_cast<DType>(t));
  Calls calls;
  for (const DType to : dtypes)
    calls.push_back({std::string(name(to)), [to](const std::vector<Tensor>& x) { return astype(x[0], to); }});
  compiled(calls, inputs(dtypes, {{3, 129}}), 13);
}

TEST_F(CudaOps, WhereFullIotaAndRandom) {
  std::vector<DeviceProgram> programs;
  for (const DType t : kAll) {
    const Tensor c = awkward_input(DType::boolean, {4, 33}, 1), x = awkward_input(t, {4, 33}, 2),
                 y = awkward_input(t, {33}, 3);
    programs.push_back({"where", {c, x, y}, [](const std::vector<Tensor>& in) {
                          return std::vector<Tensor>{where(in[0], in[1], in[2])};
                        }});
  }
  for (const Mode mode : {Mode::compiled, Mode::eager}) compare_with_cpu(programs, mode);
  EXPECT_EQ(test::difference(full({3, 5}, 2.5, DType::f16, cuda()), full({3, 5}, 2.5, DType::f16)), "");
  EXPECT_EQ(test::difference(iota({7, 9}, 0, cuda()), iota({7, 9}, 0)), "");
  for (const DType t : {DType::f32, DType::f64, DType::bf16}) {
    // The same numbers for the same state of the generator, wherever they are drawn.
    const auto draw = [&](Device device) {
      manual_seed(5);
      return std::vector<Tensor>{rand({3, 70}, t, device), randn({90}, t, device),
                                 astype(bernoulli(full({40}, 0.3, t, device)), DType::i32)};
    };
    const std::vector<Tensor> got = draw(cuda()), wanted = draw(BackendKey::cpu);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_EQ(test::difference(got[i], wanted[i]), "") << name(t) << " " << i;
  }
}

TEST_F(CudaOps, ViewsAndTransposes) {
  std::vector<DeviceProgram> programs;
  for (const DType t : {DType::f32, DType::u8, DType::f64, DType::bf16}) {
    const Tensor x = awkward_input(t, {40, 50}, 1), y = awkward_input(t, {3, 20, 33}, 2);
    programs.push_back({"transposed", {x}, [](const auto& in) {
                          return std::vector<Tensor>{copy(in[0].mT()), in[0].mT() == in[0].mT()};
                        }});
    programs.push_back({"permuted", {y}, [](const auto& in) {
                          return std::vector<Tensor>{copy(permute(in[0], {2, 0, 1})), copy(permute(in[0], {1, 2, 0}))};
                        }});
    programs.push_back({"sliced", {y}, [](const auto& in) {
                          return std::vector<Tensor>{copy(in[0].slice(2, 30, 3, -2)), copy(in[0].slice(1, 3, 17)),
                                                     in[0].slice(0, 1, 3).reshape({40, 33}) != 0};
                        }});
  }
  for (const Mode mode : {Mode::compiled, Mode::eager}) compare_with_cpu(programs, mode);
}

TEST_F(CudaOps, GathersAndConcatenations) {
  std::vector<DeviceProgram> programs;
  for (const DType t : {DType::f32, DType::i8, DType::bf16, DType::f64, DType::boolean, DType::f16, DType::i64}) {
    const Tensor x = awkward_input(t, {6, 5, 4}, 1), y = awkward_input(t, {6, 3, 4}, 2);
    const Tensor at = astype(tensor({4, -1, 0, 0, 2}), t == DType::f32 ? DType::i64 : DType::i16).sync();
    programs.push_back({"take " + std::string(name(t)), {x, at}, [](const auto& in) {
                          return std::vector<Tensor>{take(in[0], in[1], 1), take(in[0].mT(), in[1].slice(0, 1, 3), 1),
                                                     take(in[0], in[1], 0)};
                        }});
    programs.push_back({"concat " + std::string(name(t)), {x, y}, [](const auto& in) {
                          return std::vector<Tensor>{concat({in[0], in[1], in[0]}, 1)};
                        }});
    programs.push_back({"update " + std::string(name(t)), {x, y}, [](const auto& in) {
                          Tensor copied = copy(in[0]);
                          copied.slice(1, 1, 4).assign(in[1]);
                          return std::vector<Tensor>{copied};
                        }});
    if (t == DType::boolean) continue;
    const Tensor added = awkward_input(t, {6, 5, 4}, 9);
    programs.push_back({"index_add " + std::string(name(t)), {x, at, added}, [](const auto& in) {
                          return std::vector<Tensor>{index_add(in[0], in[1], in[2], 1)};
                        }});
  }
  for (const Mode mode : {Mode::compiled, Mode::eager}) compare_with_cpu(programs, mode);
}

TEST_F(CudaOps, LongScans) {
  std::vector<DeviceProgram> programs;
  for (const DType t : {DType::f32, DType::f16, DType::i16})
    for (const auto& [shape, axis] :
         std::vector<std::pair<Shape, std::int64_t>>{{{1300}, 0}, {{2, 1025}, 1}, {{1600, 3}, 0}, {{512}, 0}}) {
      const Tensor x = test::awkward_input(t, shape, 7);
      const Tensor small = astype(astype(x, DType::f32) * 0.001 + 1, t).sync();
      programs.push_back(
          {fmt::format("scan {} {}", name(t), to_string(shape)), {x, small}, [axis = axis](const auto& in) {
             return std::vector<Tensor>{cumulative_sum(in[0], axis), cumulative_sum(flip(in[1], {axis}), axis),
                                        cumulative_prod(in[1], axis), cumulative_max(in[1], axis),
                                        cumulative_min(in[0], axis)};
           }});
    }
  // Several tiles of blocks, and more totals than pass through shared memory at once.
  const Tensor many = test::awkward_input(DType::f32, {3, 140000}, 8), most = (randn({1, 530000}) * 0.001).sync();
  for (const Tensor& x : {many, most})
    programs.push_back({"scan " + to_string(x.shape()), {x}, [](const auto& in) {
                          return std::vector<Tensor>{cumulative_sum(in[0], 1), cumulative_max(in[0], 1)};
                        }});
  compare_with_cpu(programs, Mode::compiled);
}

TEST_F(CudaOps, LongSorts) {
  std::vector<DeviceProgram> programs;
  // Shorter than a tile in shared memory, a whole number of them, and not.
  for (const auto& [shape, axis] : std::vector<std::pair<Shape, std::int64_t>>{
           {{130}, 0}, {{3, 1024}, 1}, {{2, 2048}, 1}, {{5000}, 0}, {{1500, 3}, 0}}) {
    const Tensor x = test::awkward_input(DType::f32, shape, 9), few = randint(0, 50, shape).sync();
    programs.push_back({"sort " + to_string(shape), {x, few}, [axis = axis](const auto& in) {
                          return std::vector<Tensor>{sort(in[0], axis), sort(in[0], axis, true), argsort(in[0], axis),
                                                     argsort(in[1], axis), argsort(in[1], axis, true)};
                        }});
  }
  compare_with_cpu(programs, Mode::compiled);
}

TEST_F(CudaOps, ScattersOfLongLanes) {
  std::vector<DeviceProgram> programs;
  manual_seed(3);
  for (const DType t : {DType::f32, DType::bf16, DType::i16})
    for (const auto& [shape, axis] :
         std::vector<std::pair<Shape, std::int64_t>>{{{700}, 0}, {{2, 90}, 1}, {{90, 3}, 0}}) {
      const Tensor index = randint(-7, 7, shape).sync(), source = test::awkward_input(t, shape, 7);
      Shape target = shape;
      target[static_cast<unsigned>(axis)] = 7;
      const Tensor x = test::awkward_input(t, target, 8);
      programs.push_back(
          {fmt::format("scatter {} {}", name(t), to_string(shape)), {x, index, source}, [axis = axis](const auto& in) {
             std::vector<Tensor> results{scatter(in[0], in[1], in[2], axis), scatter_add(in[0], in[1], in[2], axis)};
             for (const auto reduction : {ScatterReduction::prod, ScatterReduction::amax, ScatterReduction::amin})
               results.push_back(scatter_reduce(in[0], in[1], in[2], axis, reduction));
             return results;
           }});
    }
  compare_with_cpu(programs, Mode::compiled);
}

TEST_F(CudaOps, RowKernelsReadTheirRowOnce) {
  std::vector<DeviceProgram> programs;
  for (const DType t : {DType::f32, DType::f16}) {
    const Tensor x = astype(randn({9, 300}), t).sync(), w = astype(randn({300}), t).sync(),
                 tall = astype(randn({300, 9}), t).sync();
    programs.push_back({"softmax", {x, w, tall}, [](const auto& in) {
                          return std::vector<Tensor>{
                              softmax(in[0], -1),     log_softmax(in[0] * 2, -1), layer_norm(in[0], in[1], in[1]),
                              rms_norm(in[0], in[1]), softmax(in[2], 0),          var(in[0], {0, 1})};
                        }});
  }
  for (const Mode mode : {Mode::compiled, Mode::eager}) compare_with_cpu(programs, mode);
}

}  // namespace
}  // namespace fermata
