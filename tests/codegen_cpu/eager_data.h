// Data of every dtype and layout for tests of kernels. FERMATA_TEST_SEED changes it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "ir/scalar_interpreter.h"
#include "runtime/tensor_view.h"

namespace fermata::eager {

inline std::uint64_t seed() {
  static const std::uint64_t value = [] {
    const char* text = std::getenv("FERMATA_TEST_SEED");
    return text == nullptr ? std::uint64_t{20240917} : std::strtoull(text, nullptr, 10);
  }();
  return value;
}

class Generator {  // SplitMix64
 public:
  explicit Generator(std::uint64_t stream) : state_(seed() + stream * 0x632be59bd9b4e019ull) {}
  std::uint64_t next() {
    std::uint64_t z = state_ += 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
  }
  std::uint64_t below(std::uint64_t n) { return next() % n; }
  double uniform() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  /// A slot of a dtype: mostly of ordinary size, some special values, some arbitrary bits.
  std::uint64_t slot(DType t) {
    if (t == DType::boolean) return next() & 1;
    if (is_integer(t)) {
      const std::uint64_t bits = below(4) == 0 ? next() : below(41) - 20;
      return convert_slot(DType::u64, t, bits);
    }
    const double specials[] = {0.0, -0.0, 1, -1, INFINITY, -INFINITY, NAN, 0.5, 1e-40, 1e30, -3, 2, 100};
    const std::uint64_t kind = below(10);
    double value = (uniform() - 0.5) * (kind < 5 ? 4 : 40);
    if (kind == 9) value = specials[below(std::size(specials))];
    std::uint64_t bits;
    std::memcpy(&bits, &value, 8);
    if (kind == 8)
      return convert_slot(DType::u64, DType::u64, t == DType::f64 ? next() : next() >> (64 - 8 * byte_size(t)));
    return convert_slot(DType::f64, t, bits);
  }

 private:
  std::uint64_t state_;
};

inline std::uint64_t as_f64(DType t, std::uint64_t slot) { return convert_slot(t, DType::f64, slot); }
inline bool is_nan(DType t, std::uint64_t slot) {
  if (!is_floating(t)) return false;
  double value;
  const std::uint64_t bits = as_f64(t, slot);
  std::memcpy(&value, &bits, 8);
  return value != value;
}
inline bool same(DType t, std::uint64_t a, std::uint64_t b) { return a == b || (is_nan(t, a) && is_nan(t, b)); }

/// A tensor with room around its elements, so that strides may be anything.
struct Data {
  DType dtype;
  std::vector<std::int64_t> sizes, strides;
  std::vector<std::uint64_t> memory;
  std::int64_t origin = 0;

  char* at(std::int64_t element) {
    return reinterpret_cast<char*>(memory.data()) + (origin + element) * static_cast<std::int64_t>(byte_size(dtype));
  }
  TensorView view() { return {at(0), dtype, static_cast<std::uint8_t>(sizes.size()), sizes.data(), strides.data()}; }
  std::int64_t count() const { return element_count(sizes); }
  /// The slot at a row-major position.
  std::uint64_t get(std::int64_t position) {
    std::int64_t offset = 0;
    for (std::size_t i = sizes.size(); i-- > 0;) {
      offset += position % sizes[i] * strides[i];
      position /= sizes[i];
    }
    return load_slot(dtype, at(offset));
  }
};

enum class Layout {
  dense,
  padded,
  reversed,
  permuted,
  broadcast_first,
  broadcast_last,
  scalar,
  windows,         // overlapping ones: a step of each axis is 1, 2 or 3 elements
  turned_windows,  // the same with the axes in the opposite order
  images,          // the second half of the axes steps as the first half does, and what lies along those overlaps
};
constexpr Layout kLayouts[] = {Layout::dense,    Layout::padded,          Layout::reversed,
                               Layout::permuted, Layout::broadcast_first, Layout::broadcast_last,
                               Layout::scalar,   Layout::windows,         Layout::turned_windows};

inline Data make_data(DType t, std::vector<std::int64_t> sizes, Layout layout, Generator& random) {
  Data d{t, sizes, {}, {}, 0};
  const Shape dense = dense_strides(sizes);
  d.strides.assign(dense.begin(), dense.end());
  std::int64_t room = std::max<std::int64_t>(element_count(sizes), 1);
  const auto rescale = [&](std::int64_t factor) {
    for (auto& s : d.strides) s *= factor;
    room *= factor;
  };
  if (layout == Layout::padded) rescale(3);
  if (layout == Layout::reversed && !sizes.empty()) {
    for (std::size_t i = 0; i < sizes.size(); ++i)
      if (sizes[i] > 0) d.origin += (sizes[i] - 1) * d.strides[i];
    for (auto& s : d.strides) s = -s;
  }
  if (layout == Layout::permuted) {
    std::int64_t stride = 1;
    for (std::size_t i = 0; i < sizes.size(); ++i) d.strides[i] = stride, stride *= std::max<std::int64_t>(sizes[i], 1);
  }
  if (layout == Layout::windows || layout == Layout::turned_windows) {
    room = 1;
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      const std::size_t place = layout == Layout::windows ? sizes.size() - 1 - i : i;
      d.strides[i] = 1 + static_cast<std::int64_t>(place % 3);
      room += d.strides[i] * std::max<std::int64_t>(sizes[i] - 1, 0);
    }
  }
  if (layout == Layout::images) {
    room = 1;
    for (std::size_t half = sizes.size() / 2, i = half; i-- > 0; room *= sizes[i] + sizes[i + half] - 1)
      d.strides[i] = d.strides[i + half] = room;
  }
  if (layout == Layout::broadcast_first && !sizes.empty()) d.strides[0] = 0;
  if (layout == Layout::broadcast_last && !sizes.empty()) d.strides.back() = 0;
  if (layout == Layout::scalar) std::fill(d.strides.begin(), d.strides.end(), 0);
  d.memory.resize(static_cast<std::size_t>(room));
  for (std::int64_t i = 0; i < room; ++i) {
    const std::uint64_t slot = random.slot(t);
    store_slot(t, reinterpret_cast<char*>(d.memory.data()) + i * static_cast<std::int64_t>(byte_size(t)), slot);
  }
  return d;
}
inline Data make_output(DType t, std::vector<std::int64_t> sizes) {
  Generator random(999);
  return make_data(t, std::move(sizes), Layout::dense, random);
}

}  // namespace fermata::eager
