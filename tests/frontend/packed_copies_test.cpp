// Weights that are kept packed (docs/adr/019), as a program sees them: nothing but time and memory tells.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "fermata/fermata.h"
#include "runtime/allocator.h"
#include "runtime/prepacked_weights.h"

namespace fermata {
namespace {

using Floats = std::vector<float>;

class PackedConstantsOf : public ::testing::TestWithParam<Mode> {
 protected:
  ~PackedConstantsOf() override { set_compile_policy(policy_), set_packed_limit(limit_); }
  static Tensor random(const IntegerList& sizes, std::uint64_t of) {
    Generator generator(of);
    return normal(sizes, 0, 1, DType::f32, generator).sync();
  }
  /// What a program gives when nothing is kept, and when it is.
  static void expect_same(const std::function<Floats()>& program) {
    set_packed_limit(0);
    const Floats want = program();
    set_packed_limit(std::size_t{1} << 30);
    EXPECT_EQ(program(), want);
  }
  static Floats floats(const Tensor& x) { return x.to_vector<float>(); }

  ModeGuard mode_{GetParam()};
  const CompilePolicy policy_ = set_compile_policy(CompilePolicy::immediate);
  const std::size_t limit_ = set_packed_limit(std::size_t{1} << 30);
};
INSTANTIATE_TEST_SUITE_P(Modes, PackedConstantsOf, ::testing::Values(Mode::eager, Mode::compiled),
                         [](const auto& info) { return info.param == Mode::eager ? "eager" : "compiled"; });

TEST_P(PackedConstantsOf, AProductThatComesAgain) {
  trim_cache();
  const std::uint64_t before = stats().packed_bytes;
  // f64 is multiplied by a kernel of ours on every machine; [out, in], as layers have it, is not read in place.
  const Tensor x = astype(random({64, 512}, 1), DType::f64).sync();
  Tensor w = astype(random({768, 512}, 2), DType::f64).sync();
  const auto product = [&] { return matmul(x, w.permute({1, 0})).to_vector<double>(); };
  const std::vector<double> first = product();
  EXPECT_EQ(stats().packed_bytes, before);
  EXPECT_EQ(product(), first);
  const std::uint64_t kept = stats().packed_bytes - before;
  EXPECT_GE(kept, 768u * 512 * 8);
  EXPECT_EQ(product(), first);
  EXPECT_EQ(stats().packed_bytes - before, kept);
  EXPECT_NE(to_string(stats()).find("prepacked weights"), std::string::npos);
  w = Tensor();
  EXPECT_EQ(stats().packed_bytes, before);
}

TEST_P(PackedConstantsOf, WeightsThatAreWrittenInPlace) {
  expect_same([] {
    const Tensor x = random({64, 512}, 1);
    Tensor w = random({512, 640}, 2);
    Floats all;
    for (int step = 0; step < 4; ++step) {
      for (int use = 0; use < 3; ++use) {
        const Floats y = floats(matmul(x, w));
        all.insert(all.end(), y.begin(), y.begin() + 100);
      }
      w *= 0.5, w.sync();                                       // over its own elements
      w.slice(0, step, step + 1).assign(full({1, 640}, step));  // through a view
      w.sync();
    }
    return all;
  });
}

TEST_P(PackedConstantsOf, WeightsWhoseAddressIsKnown) {
  expect_same([] {
    const Tensor x = random({64, 512}, 1);
    const Tensor w = random({512, 640}, 2);
    Floats all;
    for (int use = 0; use < 6; ++use) {
      if (use >= 2) w.data<float>()[use] = static_cast<float>(100 * use);
      const Floats y = floats(matmul(x, w));
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  });
}

TEST_P(PackedConstantsOf, OtherWeightsOfTheSameSizes) {
  auto layer = compile([](const Tensor& x, const Tensor& w) { return relu(matmul(x, w)); });
  expect_same([&] {
    const Tensor x = random({64, 512}, 1), weights[] = {random({512, 640}, 2), random({512, 640}, 3)};
    Floats all;
    for (int use = 0; use < 6; ++use) {
      const Floats y = floats(layer(x, weights[use % 2]));
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  });
}

TEST_P(PackedConstantsOf, PartsOfOneBuffer) {
  expect_same([] {
    const Tensor x = random({64, 256}, 1), all_weights = random({3, 256, 384}, 2);
    Floats all;
    for (int use = 0; use < 9; ++use) {
      const Floats y = floats(matmul(x, all_weights[use % 3]));
      all.insert(all.end(), y.begin(), y.end());
    }
    return all;
  });
}

TEST_P(PackedConstantsOf, ConvolutionsAndTheirGradients) {
  expect_same([] {
    const Tensor x = random({1, 32, 14, 14}, 1);
    Tensor w = random({48, 32, 3, 3}, 2);
    w.requires_grad(true);
    Floats all;
    for (int use = 0; use < 4; ++use)
      for (const std::int64_t stride : {1, 2}) {
        const Tensor y = conv2d(x, w, {}, {stride, stride}, {1, 1});
        const Tensor gradient = gradients(sum(y * y), {w})[0];
        for (const Tensor& t : {y, gradient}) {
          const Floats part = floats(t);
          all.insert(all.end(), part.begin(), part.end());
        }
      }
    return all;
  });
}

TEST_P(PackedConstantsOf, WeightsInsideALoop) {
  expect_same([] {
    const Tensor w = random({256, 256}, 2) * 0.05, first = random({64, 256}, 3);
    const auto [n, last] =
        while_loop([](const Tensor& i, const Tensor&) { return i < 5; },
                   [&](const Tensor& i, const Tensor& x) { return std::tuple(i + 1, tanh(matmul(x, w))); },
                   std::tuple(full({}, 0, DType::i32), first));
    return floats(last);
  });
}

TEST_P(PackedConstantsOf, SeveralThreadsWithTheSameWeights) {
  const Tensor x = random({64, 512}, 1), w = random({640, 512}, 2);
  const Floats want = floats(matmul(x, w.permute({1, 0})));
  std::vector<std::jthread> threads;
  std::atomic<int> wrong = 0;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&, t, mode = GetParam()] {
      const ModeGuard guard(mode);
      for (int i = 0; i < 20; ++i) {
        if (floats(matmul(x, w.permute({1, 0}))) != want) ++wrong;
        if (i % 7 == t) trim_cache();
      }
    });
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace fermata
