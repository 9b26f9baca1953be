// What is computed for a concat alone is stored where the concat puts it.
#include <fermata/fermata.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "tests/dispatch/every_way.h"

namespace fermata {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class Parts : public ::testing::Test {
 protected:
  Tensor numbers(const Shape& shape, DType dtype = DType::f32) {
    const ModeGuard eager(Mode::eager);
    std::int64_t count = 1;
    for (const std::int64_t s : shape) count *= s;
    const std::vector<std::int64_t> sizes(shape.begin(), shape.end());
    return astype(remainder(arange(count) * 7, 101) - 50, dtype).reshape(sizes);
  }
  static void expect_same_in_every_way(const TestProgram& program) {
    const auto results = in_every_way(program);
    for (const auto& [way, got] : results) EXPECT_EQ(got, results[0].second) << way;
  }
  /// Nothing but the result is kept.
  static std::string explained(const std::function<Tensor()>& program) {
    const Tensor t = program();
    return explain(t);
  }
};

TEST_F(Parts, AreStoredByKernels) {
  const Tensor x = numbers({30, 100}).sync(), y = numbers({20, 100}).sync();
  const std::string steps = explained([&] { return concat({x * 2, tanh(y), x - 1}, 0); });
  EXPECT_THAT(steps, Not(HasSubstr("call concat"))) << steps;
  EXPECT_THAT(explained([&] { return concat({x * 2, y}, 0); }), HasSubstr("call concat"));
}

TEST_F(Parts, OfAnyAxisAndDtypeAreEqual) {
  for (const DType dtype : {DType::f32, DType::f64, DType::u8, DType::bf16, DType::i64, DType::f16})
    for (const int axis : {0, 1, 2}) {
      const Tensor x = numbers({5, 40, 300}, dtype), y = numbers({5, 40, 300}, dtype);
      expect_same_in_every_way([&] { return std::vector{concat({x + y, y, x * y, maximum(x, y)}, axis)}; });
    }
}

TEST_F(Parts, AreNoPartsWhereOthersReadThem) {
  const Tensor x = numbers({30, 100});
  expect_same_in_every_way([&] {
    const Tensor a = x * 2, b = tanh(x), c = x - 3;
    return std::vector{concat({a, b, b, c}, 1), a, concat({c * 2, transpose(c * 3, 0, 1).reshape({30, 100})}, 0)};
  });
}

TEST_F(Parts, OfReductionsAndScansAreEqual) {
  const Tensor x = numbers({6, 50, 80});
  expect_same_in_every_way([&] {
    const Tensor sums = sum(x, {1}, true), peaks = max(x * 2, {1}, true), means = mean(x, {0});
    return std::vector{concat({sums, peaks, x - 1}, 1), concat({means, means * 2}, 0),
                       concat({cumulative_sum(x, 1), x * 3, softmax(x, 2)}, 2)};
  });
}

TEST_F(Parts, OfStacksAreEqual) {
  const Tensor x = numbers({20, 9, 70}).sync();
  EXPECT_THAT(explained([&] { return stack({x * 2, tanh(x)}, 0); }), Not(HasSubstr("call concat")));
  for (const int axis : {0, 1, 2, 3})
    expect_same_in_every_way([&] { return std::vector{stack({x * 2, x, tanh(x), x + 1}, axis)}; });
  expect_same_in_every_way([&] { return std::vector{stack({sum(x, {1}), max(x * 2, {1})}, 0)}; });
}

/// Rows of a part that are shorter than a vector, or a cache line: of 1, 2, ... elements, the other axes changing, too.
TEST_F(Parts, WithShortRowsAreEqual) {
  const Tensor small = numbers({50, 3}).sync();
  EXPECT_THAT(explained([&] { return stack({small * 2, tanh(small), small + 1}, 2); }), Not(HasSubstr("call concat")));
  EXPECT_THAT(explained([&] { return concat({small * 2, tanh(small)}, 1); }), Not(HasSubstr("call concat")));
  for (const DType dtype : {DType::f32, DType::u8, DType::f64, DType::c64})
    for (const Shape& shape : {Shape{700, 1}, Shape{1, 700}, Shape{300, 2}, Shape{90, 3, 1}, Shape{40, 1, 5},
                               Shape{1, 1, 9}, Shape{30, 7, 2}, Shape{20, 17}, Shape{900}}) {
      const Tensor x = numbers(shape, dtype), y = numbers(shape, dtype) * 2;
      const int rank = static_cast<int>(shape.size());
      for (int axis = 0; axis <= rank; ++axis) {
        SCOPED_TRACE(to_string(dtype, shape) + ", axis " + std::to_string(axis));
        expect_same_in_every_way([&] {
          std::vector<Tensor> results{stack({x + y, x * y}, axis), stack({x + y, y, x * y, x - y, -x}, axis)};
          if (axis < rank)
            results.push_back(concat({x + y, x * y, x - y}, axis)), results.push_back(concat({-x, y}, axis));
          if (is_complex(dtype))
            for (Tensor& t : results) t = concat({real(t), imag(t)});
          return results;
        });
      }
    }
}

TEST_F(Parts, WithShortRowsFollowTheSizesOfAPlan) {
  const PolicyGuard policy(CompilePolicy::immediate);
  for (const int axis : {0, 1, 2})
    for (const std::int64_t n : {1, 2, 3, 700, 8, 5, 64, 1, 31}) {
      const Tensor x = numbers({axis == 0 ? 40 : n, axis == 0 ? n : 3});
      const auto program = [&] {
        const Tensor a = x * 2, b = x + 1, c = x * x;
        return concat({reshape(stack({a, b, c}, axis), {-1}), reshape(concat({x - 1, x * 3}, 1), {-1})});
      };
      std::vector<float> eager;
      {
        const ModeGuard guard(Mode::eager);
        eager = program().to_vector<float>();
      }
      EXPECT_EQ(program().to_vector<float>(), eager) << n;
    }
}

TEST_F(Parts, AreReadByWhatFollows) {
  const Tensor x = numbers({40, 70}), w = numbers({70, 70});
  expect_same_in_every_way([&] {
    const Tensor whole = concat({x * 2, relu(matmul(x, w)), concat({x + 1, x + 2}, 0)}, 0);
    return std::vector{whole.slice(0, 5, 100) * 2, sum(whole, {0}), transpose(whole, 0, 1),
                       concat({whole + 1, whole}, 1)};
  });
}

TEST_F(Parts, FollowTheSizesOfAPlan) {
  const PolicyGuard policy(CompilePolicy::immediate);
  for (const std::int64_t n : {100, 300, 64, 1, 0, 2000}) {
    const Tensor x = numbers({n, 65}), y = numbers({n + 3, 65});
    const auto program = [&] { return concat({x * 2, y, tanh(y), x - y.slice(0, 0, n)}, 0); };
    std::vector<float> eager;
    {
      const ModeGuard guard(Mode::eager);
      eager = program().to_vector<float>();
    }
    EXPECT_EQ(program().to_vector<float>(), eager) << n;
  }
}

TEST_F(Parts, OfManyElementsAreEqualOnAllThreads) {
  const Tensor x = numbers({600, 900}), y = numbers({900});
  expect_same_in_every_way([&] {
    return std::vector{concat({x * y, x + y, exp(x * 0.01f)}, 1), concat({x * y, x}, 0)};
  });
}

}  // namespace
}  // namespace fermata
