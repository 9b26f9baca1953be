// Division of floats with remainder against C's fmod on random bits: every float dtype, both modes, contiguous, strided
// and broadcast operands, lengths that fill no vector.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "fermata/fermata.h"
#include "tests/frontend/gradient_check.h"

namespace fermata {
namespace {

using namespace testing;

class FloatDivision : public InBothModes {
 protected:
  ~FloatDivision() override { set_compile_policy(policy_); }

 private:
  CompilePolicy policy_ = set_compile_policy(CompilePolicy::immediate);
};
INSTANTIATE_TEST_SUITE_P(Modes, FloatDivision, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

/// A tensor of any bits, of numbers around 1 and of what is special.
template <class T> Tensor awkward(std::int64_t count, DType dtype, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  using L = std::numeric_limits<T>;
  const T special[] = {0, L::infinity(), L::quiet_NaN(), L::max(), L::min(), L::denorm_min(), 1, 3, T(0.1), T(1e-30)};
  std::vector<T> values;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::uint64_t bits = random();
    switch (random() % 4) {
      case 0: values.push_back(special[bits % std::size(special)] * (bits >> 40 & 1 ? T(1) : T(-1))); break;
      case 1: values.push_back(std::uniform_real_distribution<T>(-100, 100)(random)); break;
      default: {
        T value;
        std::memcpy(&value, &bits, sizeof value);
        values.push_back(value);
      }
    }
  }
  return astype(tensor(values), dtype).sync();
}

/// T: what the dtype computes in.
template <class T> void check(DType dtype) {
  constexpr std::int64_t kCount = 20011;
  const Tensor a = awkward<T>(kCount, dtype, 1), b = awkward<T>(kCount, dtype, 2);
  const auto expect = [&](const char* what, const Tensor& found, const Tensor& x, const Tensor& y, auto&& of) {
    const std::vector<T> f = found.to_vector<T>(), xs = x.to_vector<T>(), ys = y.to_vector<T>();
    std::vector<T> wanted;
    for (std::size_t i = 0; i < f.size(); ++i) wanted.push_back(of(xs[i], ys[i]));
    const Tensor cast = astype(tensor(wanted), dtype);
    const std::vector<T> rounded = cast.to_vector<T>();
    for (std::size_t i = 0; i < f.size(); ++i) {
      const bool same = std::isnan(rounded[i]) ? std::isnan(f[i])
                                               : f[i] == rounded[i] && std::signbit(f[i]) == std::signbit(rounded[i]);
      ASSERT_TRUE(same) << what << " of " << name(dtype) << ": " << std::hexfloat << xs[i] << ", " << ys[i] << " is "
                        << f[i] << ", not " << rounded[i];
    }
  };
  const auto truncated = [](T x, T y) { return std::fmod(x, y); };
  const auto floored = [](T x, T y) {
    const T exact = std::fmod(x, y), rest = exact != 0 && (exact < 0) != (y < 0) ? exact + y : exact;
    return rest == 0 ? std::copysign(T(0), y) : rest;
  };
  expect("fmod", fmod(a, b), a, b, truncated);
  expect("remainder", remainder(a, b), a, b, floored);
  const Tensor backwards = flip(a), some = slice(b, 0, 0, kNone, 3), short_b = slice(b, 0, 0, 5);
  expect("fmod of reversed", fmod(backwards, b), copy(backwards), b, truncated);
  expect("fmod of strided", fmod(slice(a, 0, 1, kNone, 3), slice(some, 0, 0, slice(a, 0, 1, kNone, 3).size(0))),
         slice(a, 0, 1, kNone, 3), slice(some, 0, 0, slice(a, 0, 1, kNone, 3).size(0)), truncated);
  const Tensor rows = expand_dims(short_b, 1), all_a = broadcast_to(a, {5, kCount}),
               all_b = broadcast_to(rows, {5, kCount});
  expect("remainder by rows", remainder(a, rows), copy(all_a), copy(all_b), floored);
  expect("fmod and more", fmod(a * 1, b * 1) + 0.0f, a, b, [](T x, T y) { return std::fmod(x, y) + T(0); });
  const T end = std::ldexp(T(1), std::numeric_limits<T>::digits);
  expect("floor_divide", floor_divide(a, b), a, b, [&](T x, T y) {
    const T exact = std::fmod(x, y), rounded = std::floor(x / y);
    if (std::isinf(y) && std::isfinite(x) && x != 0) return (x < 0) != (y < 0) ? T(-1) : T(0) * rounded;
    if (!(std::fabs(rounded) <= end)) return rounded;
    // The quotient of what is left when the floored remainder is taken off, which is an integer.
    const bool down = exact != 0 && (exact < 0) != (y < 0);
    const T whole = static_cast<T>(std::nearbyint((static_cast<long double>(x) - exact) / y)) - (down ? T(1) : T(0));
    return whole == 0 ? std::copysign(T(0), rounded) : whole;
  });
}

TEST_P(FloatDivision, IsThatOfCOnRandomBits) {
  check<float>(DType::f16);
  check<float>(DType::bf16);
  check<float>(DType::f32);
  check<double>(DType::f64);
}

TEST_P(FloatDivision, OfNumbersFarApart) {
  const auto f32 = [](float x) { return tensor(x); };
  EXPECT_EQ(floor_divide(f32(1), -1e30f).item<float>(), -1);
  EXPECT_EQ(remainder(f32(-1e-30f), 1.0f).item<float>(), 1);
  EXPECT_EQ(fmod(f32(4.8386262e8f), 3.389295f).item<float>(), std::fmod(4.8386262e8f, 3.389295f));
  EXPECT_EQ(fmod(tensor(1e20, DType::f64), 3.0).item<double>(), 1);
  EXPECT_EQ(fmod(f32(-20.81903f), std::numeric_limits<float>::min()).item<float>(),
            std::fmod(-20.81903f, std::numeric_limits<float>::min()));
}

}  // namespace
}  // namespace fermata
