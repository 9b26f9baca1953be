// f16 and bf16 in fused kernels: what is rounded once instead of twice has the bits of single calls.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "fermata/fermata.h"
#include "tests/dispatch/every_way.h"

namespace fermata {
namespace {

/// Ordinary numbers, ties, those around the smallest of each dtype, infinities and NaN.
Tensor samples() {
  std::vector<float> x{0.0f, -0.0f, 1.00390625f, 3.01171875f, INFINITY, -INFINITY, NAN};
  for (const int exponent : {-149, -136, -135, -134, -133, -127, -126, -27, -26, -25, -24, -14, 0, 2, 15, 100})
    for (const float factor : {1.0f, 1.25f, 1.5f, 1.998f, -1.0f, -1.25f, -1.5f, -1.998f})
      x.push_back(std::ldexp(factor, exponent));
  return tensor(x).sync();
}

/// The sign of a zero is a number here.
std::vector<Tensor> with_signs(const Tensor& y) {
  const Tensor wide = y.astype(DType::f32);
  return {nan_to_num(wide, -7), nan_to_num(1 / wide, -7)};
}

TEST(NarrowValues, TheLargerOrSmallerOfTwoIsRoundedOnce) {
  const Tensor x = samples();
  for (const DType dtype : {DType::f16, DType::bf16})
    for (const double limit : {0.0, -0.0, 6.0, 1e-42, -1e-42, 3e-8, -3e-8, 0.1}) {
      const auto results = in_every_way([&] {
        const Tensor y = (x * 1.0009765625).astype(dtype), z = (x * -0.7).astype(dtype);
        std::vector<Tensor> all;
        for (const Tensor& each : {maximum(y, limit), minimum(y, limit), clip(y, limit, 6), maximum(y, z),
                                   minimum(z, y), relu(y), maximum(y, limit) + 1, abs(minimum(-y, z))})
          for (const Tensor& t : with_signs(each)) all.push_back(t);
        return all;
      });
      for (const auto& [way, got] : results)
        EXPECT_EQ(got, results[0].second) << way << " " << name(dtype) << " " << limit;
    }
}

}  // namespace
}  // namespace fermata
