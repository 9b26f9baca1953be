// Tensors of tests of kernels: laid out in any way, compared bit for bit.
#pragma once

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

#include "dispatch/kernel_table.h"
#include "ir/shape.h"
#include "runtime/tensor_view.h"
#include "runtime/thread_pool.h"
#include "tests/codegen_cpu/seed.h"

namespace fermata {

/// A tensor that owns its bytes. Laid out row-major unless given an order of axes; then the axes lie in that order in
/// memory, every second element used and the first axis reversed.
struct TestTensor {
  DType dtype;
  Shape sizes, strides;
  std::vector<std::byte> bytes;
  std::int64_t start = 0;

  TestTensor(DType t, Shape s) : dtype(t), sizes(s), strides(dense_strides(s)) { allocate(element_count(s)); }
  TestTensor(DType t, Shape s, const std::vector<unsigned>& order) : dtype(t), sizes(s), strides(s) {
    std::int64_t stride = 2;
    for (std::size_t i = order.size(); i-- > 0;) {
      strides[order[i]] = stride;
      stride *= s[order[i]];
    }
    allocate(stride);
    if (s.rank() > 0 && s[0] > 0) {
      start = (s[0] - 1) * strides[0];
      strides[0] = -strides[0];
    }
  }
  void allocate(std::int64_t elements) { bytes.resize(static_cast<std::size_t>(elements) * byte_size(dtype) + 16); }
  void fill(std::mt19937_64& random) {
    for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  }
  TensorView view() {
    return {bytes.data() + start * static_cast<std::int64_t>(byte_size(dtype)), dtype,
            static_cast<std::uint8_t>(sizes.rank()), sizes.data(), strides.data()};
  }
  /// The element at a row-major number.
  std::byte* at(std::int64_t number) {
    std::int64_t offset = start;
    for (std::size_t i = sizes.rank(); i-- > 0;) {
      offset += number % sizes[i] * strides[i];
      number /= sizes[i];
    }
    return bytes.data() + offset * static_cast<std::int64_t>(byte_size(dtype));
  }
  template <class T> T get(std::int64_t number) {
    T value;
    std::memcpy(&value, at(number), sizeof(T));
    return value;
  }
  template <class T> void set(std::int64_t number, T value) { std::memcpy(at(number), &value, sizeof(T)); }
};

/// Runs the kernel of an op.
inline void call(Op op, std::vector<TestTensor*> inputs, TestTensor& out, std::vector<std::int64_t> attributes) {
  std::vector<TensorView> views;
  for (TestTensor* in : inputs) views.push_back(in->view());
  const TensorView result = out.view();
  backend_cell(op, BackendKey::cpu)->variants.at(0).call({op, views, {&result, 1}, attributes, {}});
}

/// The same element of both, bit for bit.
inline ::testing::AssertionResult same(TestTensor& a, std::int64_t i, TestTensor& b, std::int64_t j) {
  if (std::memcmp(a.at(i), b.at(j), byte_size(a.dtype)) == 0) return ::testing::AssertionSuccess();
  return ::testing::AssertionFailure() << "elements " << i << " and " << j << " differ, seed " << seed();
}

struct ThreadCount {
  explicit ThreadCount(int n) : saved(thread_count()) { set_thread_count(n); }
  ~ThreadCount() { set_thread_count(saved); }
  const int saved;
};

}  // namespace fermata
