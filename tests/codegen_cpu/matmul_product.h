// Matrix products for tests: operands of any dtype and layout, filled at random, and what a kernel gives compared with
// exact or double-precision sums.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "ir/float16.h"
#include "ir/shape.h"
#include "runtime/tensor_view.h"
#include "tests/codegen_cpu/seed.h"

namespace fermata {

/// How the last two axes lie: in order, exchanged, with gaps, backwards, or every row the same.
enum class Layout { rows, columns, gaps, reversed, repeated };
constexpr Layout kLayouts[] = {Layout::rows, Layout::columns, Layout::gaps, Layout::reversed, Layout::repeated};

struct Array {
  DType dtype;
  Shape sizes, strides;
  std::vector<std::byte> bytes;
  std::int64_t start = 0;

  Array(DType t, Shape s, Layout layout = Layout::rows) : dtype(t), sizes(s), strides(dense_strides(s)) {
    const std::size_t rank = s.rank();
    std::int64_t extent = element_count(s);
    if (layout == Layout::columns && rank >= 2) {
      strides[rank - 2] = 1;
      strides[rank - 1] = s[rank - 2];
    } else if (layout == Layout::gaps) {
      for (std::int64_t& x : strides) x *= 3;
      extent *= 3;
    } else if (layout == Layout::reversed && extent > 0) {
      for (std::int64_t& x : strides) x = -x;
      start = extent - 1;
    } else if (layout == Layout::repeated && rank >= 2) {
      strides[rank - 2] = 0;
    }
    bytes.resize(static_cast<std::size_t>(extent) * byte_size(t) + 64);
  }
  TensorView view() {
    return {bytes.data() + start * static_cast<std::int64_t>(byte_size(dtype)), dtype,
            static_cast<std::uint8_t>(sizes.rank()), sizes.data(), strides.data()};
  }
  const std::byte* at(std::int64_t offset) const {
    return bytes.data() + (start + offset) * static_cast<std::int64_t>(byte_size(dtype));
  }
  /// Element at an offset in elements, as a double or, for integers, as 64 bits.
  double real(std::int64_t offset) const {
    switch (dtype) {
      case DType::f64: return read<double>(offset);
      case DType::f32: return static_cast<double>(read<float>(offset));
      case DType::f16: return static_cast<double>(to_float(read<Float16>(offset)));
      default: return static_cast<double>(to_float(read<BFloat16>(offset)));
    }
  }
  std::uint64_t bits(std::int64_t offset) const {
    std::uint64_t value = 0;
    visit_compute(dtype, [&]<class T>() { value = static_cast<std::uint64_t>(read<T>(offset)); });
    return value;
  }
  template <class T> T read(std::int64_t offset) const {
    T value;
    std::memcpy(&value, at(offset), sizeof(T));
    return value;
  }
  /// Numbers between -2 and 2 with all their digits in use; integers any bits.
  void fill(std::mt19937_64& random) {
    const std::size_t size = byte_size(dtype), count = bytes.size() / size;
    for (std::size_t i = 0; i < count; ++i) {
      const std::uint64_t any = random();
      const double x = static_cast<double>(static_cast<std::int64_t>(any)) * 0x1p-62;
      const float f = static_cast<float>(x);
      const Float16 h = to_float16(x);
      const BFloat16 b = to_bfloat16(x);
      const void* const from = dtype == DType::f64    ? static_cast<const void*>(&x)
                               : dtype == DType::f32  ? static_cast<const void*>(&f)
                               : dtype == DType::f16  ? static_cast<const void*>(&h)
                               : dtype == DType::bf16 ? static_cast<const void*>(&b)
                                                      : static_cast<const void*>(&any);
      std::memcpy(bytes.data() + i * size, from, size);
    }
  }
};

struct Product {
  Array lhs, rhs, out;
  std::vector<TensorView> inputs;
  TensorView output{};

  Product(DType t, Shape a, Shape b, Layout la, Layout lb, std::mt19937_64& random)
      : lhs(t, a, la), rhs(t, b, lb), out(t, result_shape(a, b)) {
    lhs.fill(random), rhs.fill(random);
    inputs = {lhs.view(), rhs.view()};
    output = out.view();
  }
  static Shape result_shape(const Shape& a, const Shape& b) {
    const std::size_t x = a.rank() < 2 ? 0 : a.rank() - 2u, y = b.rank() < 2 ? 0 : b.rank() - 2u;
    Shape shape = *broadcast_shapes(std::span(a).first(x), std::span(b).first(y));
    if (a.rank() > 1) shape.push_back(a[a.rank() - 2u]);
    if (b.rank() > 1) shape.push_back(b.back());
    return shape;
  }
  CallArgs args() { return {Op::matmul, inputs, {&output, 1}, {}, {}}; }

  struct Element {
    std::int64_t lhs = 0, rhs = 0;
  };  // offsets of the first factors
  Element element(std::int64_t number) const {
    Element e;
    std::int64_t rest = number;
    if (rhs.sizes.rank() > 1) {
      e.rhs += rest % rhs.sizes.back() * rhs.strides.back();
      rest /= rhs.sizes.back();
    }
    if (lhs.sizes.rank() > 1) {
      const std::size_t axis = lhs.sizes.rank() - 2u;
      e.lhs += rest % lhs.sizes[axis] * lhs.strides[axis];
      rest /= lhs.sizes[axis];
    }
    const std::size_t added = (rhs.sizes.rank() > 1) + (lhs.sizes.rank() > 1), batch = out.sizes.rank() - added;
    for (std::size_t i = 0; i < batch; ++i) {  // from the last batch axis
      const std::int64_t at = rest % out.sizes[batch - 1 - i];
      rest /= out.sizes[batch - 1 - i];
      for (const auto& [side, offset] : {std::pair{&lhs, &e.lhs}, std::pair{&rhs, &e.rhs}}) {
        if (side->sizes.rank() < 3 + i) continue;
        const std::size_t axis = side->sizes.rank() - 3 - i;
        if (side->sizes[axis] != 1) *offset += at * side->strides[axis];
      }
    }
    return e;
  }
  std::int64_t depth() const { return lhs.sizes.back(); }
  std::int64_t lhs_step() const { return lhs.strides.back(); }
  std::int64_t rhs_step() const { return rhs.strides[rhs.sizes.rank() < 2 ? 0 : rhs.sizes.rank() - 2u]; }
};

/// The distance between a value and its neighbors in a format, at most.
inline double spacing(DType t, double x) {
  const int digits = t == DType::f64 ? 53 : t == DType::f32 ? 24 : t == DType::f16 ? 11 : 8;
  const double smallest = t == DType::f16 ? 0x1p-24 : 0x1p-133;
  return std::max(std::ldexp(std::fabs(x), 1 - digits), smallest);
}

/// Every element, or one of `every` where all are too slow.
inline void expect_product(const Product& p, const std::string& what, std::int64_t every = 1) {
  const DType t = p.out.dtype;
  const double unit = t == DType::f64 ? 0x1p-53 : 0x1p-24;
  for (std::int64_t i = 0; i < element_count(p.out.sizes); i += every) {
    const auto e = p.element(i);
    long double sum = 0;
    double size = 0;
    std::uint64_t integer = 0;
    for (std::int64_t k = 0; k < p.depth(); ++k) {
      const std::int64_t l = e.lhs + k * p.lhs_step(), r = e.rhs + k * p.rhs_step();
      if (is_integer(t)) {
        integer += p.lhs.bits(l) * p.rhs.bits(r);
      } else {
        const double product = p.lhs.real(l) * p.rhs.real(r);
        sum += product;
        size += std::fabs(product);
      }
    }
    if (is_integer(t)) {
      std::uint64_t mask = byte_size(t) == 8 ? ~0ull : (1ull << byte_size(t) * 8) - 1;
      ASSERT_EQ(p.out.bits(i) & mask, integer & mask) << what << " element " << i << ", seed " << seed();
    } else {
      // The bound for sums in any order (Higham, Accuracy and Stability, 3.1), and one rounding to the format.
      const double bound = 1.01 * static_cast<double>(p.depth() + 1) * unit * size +
                           (t == DType::f64 ? 0 : 0.5 * spacing(t, static_cast<double>(sum)) * 1.01);
      ASSERT_NEAR(p.out.real(i), static_cast<double>(sum), bound) << what << " element " << i << ", seed " << seed();
    }
  }
}

}  // namespace fermata
