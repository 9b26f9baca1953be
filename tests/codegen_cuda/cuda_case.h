// What the tests of CUDA through the public interface share: inputs of any dtype, and results compared bit for bit.
#pragma once

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "fermata/fermata.h"
#include "tests/codegen_cuda/device_case.h"

namespace fermata::test {

/// Numbers that are worth a look, in any dtype: whole ones, fractions, zeros of both signs, infinities, NaN.
inline Tensor awkward_input(DType dtype, const Shape& shape, std::uint64_t seed) {
  Random random(seed);
  std::vector<double> values;
  static const std::vector<double> awkward = {0.0, -0.0, 1,     -1,  INFINITY, -INFINITY,
                                              NAN, 1e-7, 65504, 3.5, 1e30,     -88.9};
  for (std::int64_t i = 0; i < element_count(shape); ++i) {
    double v = static_cast<double>(random.below(513) - 256) / (random.chance(50) ? 64.0 : 16.0);
    if (!is_floating(arithmetic_dtype(dtype))) v = static_cast<double>(random.below(200) - 100);
    if (is_floating(arithmetic_dtype(dtype)) && random.chance(15)) v = random.pick(awkward);
    values.push_back(v);
  }
  const Tensor x = tensor(values, shape);
  return astype(astype(x, is_floating(arithmetic_dtype(dtype)) ? DType::f64 : DType::i64), dtype).sync();
}

/// Where two results differ, or "". NaNs are equal.
inline std::string difference(const Tensor& got, const Tensor& wanted) {
  if (got.dtype() != wanted.dtype())
    return "dtypes " + std::string(name(got.dtype())) + " and " + std::string(name(wanted.dtype()));
  if (got.shape() != wanted.shape()) return "shapes " + to_string(got.shape()) + " and " + to_string(wanted.shape());
  const auto compare = [&](const auto& a, const auto& b) -> std::string {
    for (std::size_t i = 0; i < a.size(); ++i)
      if (!(a[i] == b[i]) && (a[i] == a[i] || b[i] == b[i])) return fmt::format("element {}: {} and {}", i, a[i], b[i]);
    return {};
  };
  if (is_floating(arithmetic_dtype(got.dtype()))) return compare(got.to_vector<double>(), wanted.to_vector<double>());
  return compare(got.to_vector<std::int64_t>(), wanted.to_vector<std::int64_t>());
}

/// The largest difference, relative to the largest number wanted.
inline double relative_difference(const Tensor& got, const Tensor& wanted) {
  const std::vector<double> a = got.to_vector<double>(), b = wanted.to_vector<double>();
  if (a.size() != b.size()) return INFINITY;
  double worst = 0, largest = 1e-30;
  for (std::size_t i = 0; i < a.size(); ++i)
    worst = std::max(worst, std::abs(a[i] - b[i])), largest = std::max(largest, std::abs(b[i]));
  return worst / largest;
}

/// What differs by more than other orders of sums explain, or "".
inline std::string close(const Tensor& got, const Tensor& wanted) {
  if (!is_floating(wanted.dtype())) return difference(got, wanted);
  if (got.dtype() != wanted.dtype() || got.shape() != wanted.shape()) return "another type";
  const double allowed = wanted.dtype() == DType::f64   ? 1e-12
                         : wanted.dtype() == DType::f32 ? 1e-5
                         : wanted.dtype() == DType::f16 ? 2e-3
                                                        : 2e-2;
  const double differs = relative_difference(got, wanted);
  return differs <= allowed ? std::string() : fmt::format("relative difference {}", differs);
}

inline Tensor numbers(DType t, const Shape& shape, int seed) {
  manual_seed(static_cast<std::uint64_t>(seed));
  return astype(is_floating(t) ? randn(shape) : astype(randint(-50, 50, shape), DType::i64), t).sync();
}

/// A call to be made on two devices.
struct DeviceProgram {
  std::string name;
  std::vector<Tensor> inputs;  // on the CPU
  std::function<std::vector<Tensor>(const std::vector<Tensor>&)> run;

  std::vector<Tensor> on(Device device) const {
    std::vector<Tensor> moved;
    for (const Tensor& t : inputs) moved.push_back(t.to(device));
    return run(moved);
  }
};

/// Starts all programs in a mode, so that their kernels are compiled together, and compares with the CPU.
inline void compare_with_cpu(const std::vector<DeviceProgram>& programs, Mode mode,
                             const std::function<std::string(const Tensor&, const Tensor&)>& differs = &difference) {
  const ModeGuard guard(mode);
  std::vector<std::vector<Tensor>> results;
  for (const DeviceProgram& p : programs) flush(results.emplace_back(p.on(cuda())));
  for (std::size_t n = 0; n < programs.size(); ++n) {
    SCOPED_TRACE(programs[n].name);
    std::vector<Tensor>&got = results[n], wanted = programs[n].on(BackendKey::cpu);
    sync(got), sync(wanted);
    ASSERT_EQ(got.size(), wanted.size());
    for (std::size_t i = 0; i < got.size(); ++i) {
      EXPECT_EQ(device(got[i]), cuda());
      EXPECT_EQ(differs(got[i], wanted[i]), "") << "result " << i;
    }
  }
}

}  // namespace fermata::test
