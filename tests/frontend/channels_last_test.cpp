// Networks of convolutions, between which images lie with their channels innermost, give the bits of eager calls,
// whatever the sizes.
#include <fermata/autocast.h>
#include <fermata/fermata.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>

#include "dispatch/backend.h"
#include "dispatch/kernel_cache.h"
#include "fermata/inspect.h"
#include "ir/error.h"
#include "runtime/prepacked_weights.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

Tensor normal_of(std::uint64_t seed, const Shape& sizes, DType dtype = DType::f32) {
  Generator generator(seed);
  return astype(normal(sizes, 0, 1, DType::f32, generator), dtype).sync();
}

std::vector<double> numbers(const Tensor& x) { return x.astype(DType::f64).to_vector<double>(); }

class ChannelsLast : public ::testing::TestWithParam<int> {
 protected:
  ChannelsLast() {
    set_thread_count(GetParam());
    before_ = set_compile_policy(CompilePolicy::immediate);
  }
  ~ChannelsLast() override {
    set_thread_count(threads_);
    set_compile_policy(before_);
  }
  enum class Layout { chosen, row_major, any };
  /// Not without oneDNN, nor where nothing is compiled.
  static bool are_chosen() {
    return capabilities_of(BackendKey::cpu).channels_last && backend(BackendKey::cpu)->can_compile(nullptr);
  }
  static void expect_same_bits(const std::function<Tensor()>& program, Layout layout = Layout::chosen) {
    Tensor eager, compiled;
    {
      const ModeGuard guard(Mode::eager);
      eager = program();
    }
    {
      const ModeGuard guard(Mode::compiled);
      compiled = program();
      const auto shows = HasSubstr("channels innermost");
      if (layout == Layout::chosen && are_chosen()) {
        EXPECT_THAT(explain(compiled), shows);
      } else if (layout == Layout::row_major) {
        EXPECT_THAT(explain(compiled), Not(shows));
      }
    }
    EXPECT_EQ(numbers(eager), numbers(compiled));
  }

 private:
  const int threads_ = thread_count();
  CompilePolicy before_;
};
INSTANTIATE_TEST_SUITE_P(Threads, ChannelsLast, ::testing::Values(1, 2));

/// Weights of one layer after another, the same whenever the network is computed.
class Layers {
 public:
  explicit Layers(DType dtype = DType::f32) : dtype_(dtype) {}
  Tensor weights(const Shape& sizes) { return normal_of(++seed_, sizes, dtype_); }
  Tensor convolution(const Tensor& x, std::int64_t filters, std::int64_t window, std::int64_t stride = 1,
                     std::int64_t groups = 1, std::int64_t dilation = 1) {
    return conv2d(x, weights({filters, x.size(1) / groups, window, window}), {}, stride, dilation * (window / 2),
                  dilation, groups);
  }
  Tensor normalized(const Tensor& x) {
    const Shape channels{x.size(1)};
    const Tensor mean = weights(channels), variance = abs(weights(channels)).sync();
    const Tensor scale = weights(channels);
    return batch_norm(x, mean, variance, scale, weights(channels));
  }

 private:
  const DType dtype_;
  std::uint64_t seed_ = 0;
};

TEST_P(ChannelsLast, WindowsOfAllKinds) {
  struct Case {
    std::int64_t images, channels, rows, columns, window, stride, groups, dilation;
  };
  for (const Case& c : std::vector<Case>{{1, 3, 14, 14, 3, 1, 1, 1},
                                         {1, 16, 33, 31, 3, 1, 1, 1},
                                         {3, 17, 12, 9, 5, 2, 1, 1},
                                         {1, 24, 28, 28, 1, 1, 1, 1},
                                         {2, 24, 15, 15, 1, 2, 1, 1},
                                         {9, 32, 13, 6, 3, 1, 2, 1},
                                         {1, 48, 40, 40, 3, 1, 48, 1},
                                         {1, 48, 7, 5, 3, 2, 48, 1},
                                         {2, 20, 16, 16, 3, 1, 1, 2},
                                         {1, 64, 7, 7, 3, 1, 1, 3},
                                         {10, 16, 60, 64, 3, 1, 1, 1},
                                         {1, 160, 5, 5, 3, 1, 1, 1}}) {
    const Tensor x = normal_of(100, {c.images, c.channels, c.rows, c.columns});
    SCOPED_TRACE(to_string(x.shape()) + " " + std::to_string(c.window));
    expect_same_bits([&] {
      Layers l;
      const std::int64_t wide = 16 * c.groups;
      Tensor y = relu(l.normalized(l.convolution(x, wide, 1)));
      y = relu(l.normalized(l.convolution(y, wide, c.window, c.stride, c.groups, c.dilation)));
      return l.convolution(y, 19, 1);
    });
  }
}

TEST_P(ChannelsLast, EveryDType) {
  for (const DType dtype : {DType::f32, DType::bf16, DType::f16, DType::f64}) {
    SCOPED_TRACE(name(dtype));
    const Tensor x = normal_of(100, {2, 16, 17, 12}, dtype);
    expect_same_bits(
        [&] {
          Layers l(dtype);
          Tensor y = relu(l.normalized(l.convolution(x, 48, 1)));
          y = clip(l.normalized(l.convolution(y, 48, 3, 2, 48)), 0, 6);
          y = relu(l.convolution(y, 32, 3) - 1);
          return l.convolution(y, 16, 1);
        },
        dtype == DType::f32 || dtype == DType::bf16 ? Layout::chosen : Layout::row_major);
  }
}

TEST_P(ChannelsLast, ResidualsPoolsAndJoinedChannels) {
  for (const std::int64_t size : {8, 19, 56}) {
    const Tensor x = normal_of(100, {1, 3, size, size});
    SCOPED_TRACE(size);
    expect_same_bits([&] {
      Layers l;
      Tensor y = relu(l.normalized(l.convolution(x, 32, 3)));
      y = max_pool2d(y, 3, 2, 1);
      Tensor side = l.normalized(l.convolution(y, 32, 1));
      y = relu(l.normalized(l.convolution(relu(l.convolution(y, 16, 1)), 32, 3)) + side);
      y = relu(y + l.normalized(l.convolution(y, 32, 3)));
      y = concat({y, relu(l.convolution(y, 16, 3))}, 1);
      y = max_pool2d(relu(l.convolution(y, 48, 1)), 2);
      return mean(relu(l.convolution(y, 48, 1) + y), {2, 3});
    });
  }
}

/// The largest elements of a window that no padding stands before; a mean of what a convolution reads, too.
TEST_P(ChannelsLast, PoolsOfWholeImages) {
  const Tensor x = normal_of(100, {2, 16, 12, 12});
  expect_same_bits([&] {
    Layers l;
    const Tensor y = max_pool2d(relu(l.convolution(x, 32, 3)), {3, 2}, {1, 2});
    return l.convolution(y, 16, 1);
  });
  expect_same_bits([&] {
    Layers l;
    const Tensor y = relu(l.convolution(x, 32, 3)), z = relu(l.convolution(y, 32, 3) + y);
    return mean(z, {2, 3}).reshape({2, 32, 1, 1}) * l.convolution(z, 32, 1);
  });
}

TEST_P(ChannelsLast, ValuesThatOthersReadAreRowMajor) {
  const Tensor x = normal_of(100, {1, 16, 9, 9});
  expect_same_bits(
      [&] {
        Layers l;
        const Tensor y = relu(l.convolution(x, 32, 3));
        return l.convolution(flip(y, 3), 16, 1) + cumulative_sum(y, 2).slice(1, 0, 16);
      },
      Layout::row_major);
  Tensor kept;
  expect_same_bits(
      [&] {
        Layers l;
        kept = relu(l.convolution(x, 32, 3));
        return l.convolution(kept, 16, 1) + sum(kept);
      },
      Layout::row_major);
}

TEST_P(ChannelsLast, OtherSizesThroughOnePlan) {
  struct Sizes {
    std::int64_t images, channels, rows, columns;
  };
  for (const Sizes& s : std::vector<Sizes>{
           {1, 32, 12, 12}, {3, 3, 5, 7}, {2, 16, 1, 1}, {4, 1, 6, 6}, {5, 2, 1, 9}, {9, 64, 30, 21}, {2, 5, 2, 2}}) {
    const Tensor x = normal_of(100, {s.images, 4, s.rows, s.columns});
    SCOPED_TRACE(to_string(x.shape()) + " " + std::to_string(s.channels));
    expect_same_bits(
        [&] {
          Layers l;
          Tensor y = relu(l.normalized(l.convolution(x, s.channels, 3)));
          y = relu(l.normalized(l.convolution(y, s.channels, 3, 1, s.channels)));
          y = max_pool2d(y + l.convolution(y, s.channels, 1), 3, 2, 1);
          return l.convolution(y, 3, 1);
        },
        Layout::any);
  }
}

TEST_P(ChannelsLast, GradientsAreThoseOfEagerCalls) {
  const Tensor x = normal_of(100, {2, 16, 10, 10});
  expect_same_bits(
      [&] {
        Layers l;
        const Tensor w = l.weights({32, 16, 3, 3}).requires_grad(true);
        const Tensor y = relu(l.normalized(conv2d(x, w, {}, 1, 1)));
        sum(l.convolution(max_pool2d(y, 2), 16, 3) * 0.5).backward();
        return w.grad();
      },
      Layout::any);
}

TEST_P(ChannelsLast, AKernelThatIsNotCompiledLeavesValuesRowMajor) {
  before_compile = [](const Kernel&) { throw InternalError(9999, "planted failure"); };
  const Tensor x = normal_of(100, {1, 16, 11, 23});
  expect_same_bits(
      [&] {
        Layers l;
        const Tensor y = sigmoid(l.convolution(x, 48, 3)) * 3 - 0.25;
        return l.convolution(y, 16, 1);
      },
      Layout::any);
  before_compile = nullptr;
}

TEST_P(ChannelsLast, WeightsInAnotherDTypeAreKeptAndReplaced) {
  Tensor w = normal_of(1, {64, 16, 3, 3}), m = normal_of(2, {64, 1000});
  const Tensor x = normal_of(100, {1, 16, 9, 9});
  const auto program = [&] {
    const AutocastGuard region;
    return astype(matmul(mean(relu(conv2d(x, w, {}, 1, 1)), {2, 3}), m), DType::f32);
  };
  const std::size_t before = PrepackedWeights::bytes();
  for (int i = 0; i < 4; ++i) expect_same_bits(program, Layout::any);
  if (are_chosen()) {
    EXPECT_GE(PrepackedWeights::bytes(), before + 2 * static_cast<std::size_t>(element_count(w.shape())));
  }
  w = normal_of(3, {64, 16, 3, 3}), m = normal_of(4, {64, 1000});
  for (int i = 0; i < 3; ++i) expect_same_bits(program, Layout::any);
  w.assign(w * 2), m.assign(m - 1);
  for (int i = 0; i < 3; ++i) expect_same_bits(program, Layout::any);
}

}  // namespace
}  // namespace fermata
