// The body of scan_loops_*.cpp. The includer defines FERMATA_VECTOR_BYTES.
//
// Where grouping does not change the bits, a vector is scanned by combining it with itself, moved by one lane, by two,
// by four and so on; only the last lane is handed on. Where it does, several lines are scanned side by side: squares of
// their elements are turned in registers, so that each vector holds one element of every line.
// Everything here has internal linkage and nothing of the standard library is called (matmul_portable_body.h).
#include <cstdint>
#include <type_traits>
#include <utility>

#include "codegen_cpu/irregular/scan_loops.h"
#include "codegen_cpu/irregular/transpose_in_registers.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than a register are passed, but not out of this file

namespace fermata {
namespace {

template <class T> constexpr int kLanes = FERMATA_VECTOR_BYTES / static_cast<int>(sizeof(T));
template <class T> struct VectorOf { typedef T Type __attribute__((vector_size(FERMATA_VECTOR_BYTES))); };
template <class T> using Vector = typename VectorOf<T>::Type;
static_assert(kLanes<float> <= kMostScanSides);

template <class T> constexpr bool kIsFloat = std::is_floating_point_v<T>;
template <class T> constexpr T greatest() {
  if constexpr (kIsFloat<T>)
    return static_cast<T>(__builtin_inf());
  else if constexpr (std::is_signed_v<T>)
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(-1) >> 1);
  else
    return static_cast<T>(-1);
}
template <class T> constexpr T least() {
  if constexpr (kIsFloat<T>)
    return -greatest<T>();
  else
    return static_cast<T>(~greatest<T>());
}

/// combine(before, after), of numbers and of vectors; `none` changes nothing before a number.
struct Sum {
  template <class T> static constexpr T none() { return T(0); }
  template <class V> [[gnu::always_inline]] static V combine(V a, V b) { return a + b; }
};
struct Product {
  template <class T> static constexpr T none() { return T(1); }
  template <class V> [[gnu::always_inline]] static V combine(V a, V b) { return a * b; }
};
/// The first NaN stays.
struct Maximum {
  template <class T> static constexpr T none() { return least<T>(); }
  template <class V> [[gnu::always_inline]] static V combine(V a, V b) {
    const V most = a > b ? a : b;
    return a != a ? a : most;
  }
};
struct Minimum {
  template <class T> static constexpr T none() { return greatest<T>(); }
  template <class V> [[gnu::always_inline]] static V combine(V a, V b) {
    const V least = a < b ? a : b;
    return a != a ? a : least;
  }
};

template <int kBy, class V, int... kLane>
[[gnu::always_inline]] inline V moved(V before, V x, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(before, x,
                                 (kLane < kBy ? kLane : static_cast<int>(sizeof...(kLane)) + kLane - kBy)...);
}
template <class V, int... kLane> [[gnu::always_inline]] inline V last(V x, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(x, x, (static_cast<int>(sizeof...(kLane)) - 1 + 0 * kLane)...);
}
/// Each lane with those before it.
template <class Step, class T, int kBy = 1> [[gnu::always_inline]] inline Vector<T> scanned(Vector<T> x) {
  if constexpr (kBy < kLanes<T>) {
    const Vector<T> none = Vector<T>{} + Step::template none<T>();
    const auto lanes = std::make_integer_sequence<int, kLanes<T>>();
    return scanned<Step, T, 2 * kBy>(Step::combine(moved<kBy>(none, x, lanes), x));
  } else {
    return x;
  }
}

template <class Step, class T> T scan_line(const T* x, T* out, std::int64_t count, const T* before) {
  using V = Vector<T>;
  constexpr int kSize = kLanes<T>, kAhead = 2048 / static_cast<int>(sizeof(T));
  const auto lanes = std::make_integer_sequence<int, kSize>();
  V carried = V{} + (before != nullptr ? *before : Step::template none<T>());
  std::int64_t i = 0;
  for (; i + kSize <= count; i += kSize) {
    __builtin_prefetch(x + i + kAhead);
    V here;
    __builtin_memcpy(&here, x + i, sizeof(V));
    here = scanned<Step, T>(here);
    const V result = Step::combine(carried, here);
    __builtin_memcpy(out + i, &result, sizeof(V));
    carried = Step::combine(carried, last(here, lanes));
  }
  T sum = carried[0];
  for (; i < count; ++i) out[i] = sum = Step::combine(sum, x[i]);
  return sum;
}

template <class T> using SquareOf = Vector<T>[kLanes<T>];
template <class T> [[gnu::always_inline]] inline void load_turned(const T* const* x, std::int64_t at, SquareOf<T>& to) {
#pragma GCC unroll 16
  for (int side = 0; side < kLanes<T>; ++side) __builtin_memcpy(&to[side], x[side] + at, sizeof(Vector<T>));
  transpose_in_registers(to);
}
template <class T> [[gnu::always_inline]] inline void store_turned(SquareOf<T>& from, T* const* out, std::int64_t at) {
  transpose_in_registers(from);
#pragma GCC unroll 16
  for (int side = 0; side < kLanes<T>; ++side) __builtin_memcpy(out[side] + at, &from[side], sizeof(Vector<T>));
}

template <class Step, class T> void scan_sides(const T* const* x, T* const* out, std::int64_t count) {
  using V = Vector<T>;
  constexpr int kSize = kLanes<T>;
  SquareOf<T> square;
  V carried{}, both[2 * kSize];  // the last whole square and what follows it
  std::int64_t i = 0;
  for (; i + kSize <= count; i += kSize) {
    load_turned(x, i, square);
    if (i > 0) square[0] = Step::combine(carried, square[0]);
#pragma GCC unroll 16
    for (int k = 1; k < kSize; ++k) square[k] = Step::combine(square[k - 1], square[k]);
    carried = square[kSize - 1];
    if (const std::int64_t left = count - i; left > kSize && left < 2 * kSize)
      for (int k = 0; k < kSize; ++k) both[k] = square[k];
    store_turned(square, out, i);
  }
  if (i == count) return;
  if (i == 0) {
    for (int side = 0; side < kSize; ++side) {
      T sum = out[side][0] = x[side][0];
      for (std::int64_t k = 1; k < count; ++k) out[side][k] = sum = Step::combine(sum, x[side][k]);
    }
    return;
  }
  // A square that ends with the lines begins among elements that are scanned already.
  const std::int64_t left = count - i;
  load_turned(x, count - kSize, square);
  for (int k = 0; k < kSize; ++k) both[kSize + k] = square[k];
  for (std::int64_t k = 0; k < left; ++k)
    both[kSize + k] = carried = Step::combine(carried, both[2 * kSize - left + k]);
  for (int k = 0; k < kSize; ++k) square[k] = both[left + k];
  store_turned(square, out, count - kSize);
}

template <class T> constexpr ScanLoops<T> loops_of() {
  ScanLoops<T> loops{};
  loops.sides = kLanes<T>;
  if constexpr (kSumsByLine<T>) {
    loops.sum_line = &scan_line<Sum, T>;
    loops.prod_line = &scan_line<Product, T>;
  }
  if constexpr (kComparesByLine<T>) {
    loops.max_line = &scan_line<Maximum, T>;
    loops.min_line = &scan_line<Minimum, T>;
  }
  if constexpr (kSumsBySides<T>) {
    loops.sum_sides = &scan_sides<Sum, T>;
    loops.prod_sides = &scan_sides<Product, T>;
  }
  return loops;
}

template <class... T> constexpr ScanLoopTable table_of(ScanLoops<T>... loops) { return {loops...}; }
constexpr ScanLoopTable kLoops = table_of(loops_of<std::uint64_t>(), loops_of<std::int32_t>(), loops_of<std::int64_t>(),
                                          loops_of<float>(), loops_of<double>());

}  // namespace
}  // namespace fermata
