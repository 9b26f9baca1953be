// What programs are given in tests, and what is expected of their results.
#pragma once

#include <fermata/program.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <thread>
#include <vector>

#include "fermata/fermata.h"

namespace fermata {

/// Views of tensors for a program.
inline std::vector<run::Tensor> views(const std::vector<Tensor>& tensors) {
  std::vector<run::Tensor> list;
  for (const Tensor& t : tensors) {
    const Shape shape = t.shape();
    list.push_back({t.node()->storage.load()->data, static_cast<fermata_dtype>(t.dtype()),
                    std::vector<std::int64_t>(shape.begin(), shape.end())});
  }
  return list;
}

/// The sizes of a result and its elements as f64 agree with those of a tensor.
inline void expect_result(const run::Results& results, std::size_t i, const Tensor& wanted, double tolerance = 1e-5) {
  const run::Tensor got = results[i];
  const Shape shape = wanted.shape();
  ASSERT_EQ(got.sizes, std::vector<std::int64_t>(shape.begin(), shape.end()));
  ASSERT_EQ(static_cast<int>(got.dtype), static_cast<int>(wanted.dtype()));
  const std::vector<double> values = wanted.to_vector<double>();
  for (std::size_t k = 0; k < values.size(); ++k) {
    double value = 0;
    switch (got.dtype) {
      case FERMATA_F32: value = static_cast<const float*>(got.data)[k]; break;
      case FERMATA_F64: value = static_cast<const double*>(got.data)[k]; break;
      case FERMATA_I64: value = static_cast<double>(static_cast<const std::int64_t*>(got.data)[k]); break;
      case FERMATA_BOOL: value = static_cast<const bool*>(got.data)[k] ? 1 : 0; break;
      default: FAIL() << "a dtype that this test does not read";
    }
    ASSERT_NEAR(value, values[k], tolerance * std::max(1.0, std::abs(values[k]))) << "element " << k;
  }
}

/// Threads run one program of an input f32[n, 16] `runs` times each, at sizes that differ, and get what `f` gives.
template <class F> void expect_threads_share(const run::Program& program, F&& f, int runs) {
  constexpr std::size_t kThreads = 4;
  std::vector<Tensor> inputs, wanted;
  for (std::size_t i = 1; i <= kThreads; ++i) {
    inputs.push_back(randn({static_cast<std::int64_t>(i), 16})), wanted.push_back(f(inputs.back()));
    sync({inputs.back(), wanted.back()});
  }
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (std::size_t t = 0; t < kThreads; ++t)
    threads.emplace_back([&, t] {
      for (std::size_t k = 0; k < static_cast<std::size_t>(runs); ++k) {
        const std::size_t i = (t + k) % kThreads;
        const run::Results r = program.run(views({inputs[i]}));
        const std::vector<float> want = wanted[i].to_vector<float>();
        for (std::size_t e = 0; e < want.size(); ++e) wrong += std::abs(r.data<float>(0)[e] - want[e]) >= 1e-4f;
      }
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace fermata
