// See codegen_cpu/complex/complex_loops.h.
#include "codegen_cpu/complex/complex_loops.h"

#include <cstring>
#include <limits>
#include <type_traits>
#include <utility>

#include "codegen_cpu/eager/vector.h"
#include "ir/scalar_math.h"

#if defined(__x86_64__)
#include <emmintrin.h>
#endif

namespace fermata::complex_loops::FERMATA_ISA {
namespace {

using namespace eager::FERMATA_ISA;

/// As many elements as there are lanes of f64 or of f32.
constexpr int kWide = kLanesOf<double>, kNarrow = kLanesOf<float>;
template <class T, int N> using Lanes = Vector<T, N, static_cast<int>(sizeof(T))>;

/// Real and imaginary parts.
template <class T, int N> struct Parts { Lanes<T, N> re, im; };

template <int N, int kPart, int... i>
Raw<float, N> part_of(Raw<float, N> a, Raw<float, N> b, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(a, b, (2 * i + kPart)...);
}
template <int N, int kFrom, int... i>
Raw<float, N> joined(Raw<float, N> re, Raw<float, N> im, std::integer_sequence<int, i...>) {
  return __builtin_shufflevector(re, im, (kFrom + i / 2 + i % 2 * N)...);
}
template <int N> constexpr std::make_integer_sequence<int, N> kNumbers{};

template <int N> Parts<float, N> load_parts(const float* x) {
  Raw<float, N> a, b;
  std::memcpy(&a, x, sizeof a), std::memcpy(&b, x + N, sizeof b);
  return {Lanes<float, N>::of(part_of<N, 0>(a, b, kNumbers<N>)), Lanes<float, N>::of(part_of<N, 1>(a, b, kNumbers<N>))};
}
template <int N> Parts<float, N> splat_parts(const float* x) { return {Lanes<float, N>(x[0]), Lanes<float, N>(x[1])}; }
template <int N> void store_parts(float* to, const Parts<float, N>& z) {
  const Raw<float, N> a = joined<N, 0>(z.re.raw, z.im.raw, kNumbers<N>),
                      b = joined<N, N / 2>(z.re.raw, z.im.raw, kNumbers<N>);
  std::memcpy(to, &a, sizeof a), std::memcpy(to + N, &b, sizeof b);
}
template <int N> Lanes<double, N> widened(const Lanes<float, N>& x) {
  return Lanes<double, N>::of(__builtin_convertvector(x.raw, Raw<double, N>));
}
template <int N> Lanes<float, N> narrowed(const Lanes<double, N>& x) {
  return Lanes<float, N>::of(__builtin_convertvector(x.raw, Raw<float, N>));
}
template <int N> Parts<double, N> widened(const Parts<float, N>& z) { return {widened(z.re), widened(z.im)}; }

template <class Mask> bool any(const Mask& mask) {
#if defined(__x86_64__)
  __m128i words[(sizeof mask.raw + 15) / 16] = {};
  std::memcpy(words, &mask.raw, sizeof mask.raw);
  __m128i all = words[0];
  for (std::size_t i = 1; i < sizeof words / sizeof words[0]; ++i) all = _mm_or_si128(all, words[i]);
  return _mm_movemask_epi8(all) != 0;
#else
  unsigned char bytes[sizeof mask.raw], all = 0;
  std::memcpy(bytes, &mask.raw, sizeof mask.raw);
  for (const unsigned char b : bytes) all |= b;
  return all != 0;
#endif
}

template <int N> Lanes<float, N> magnitude(const Lanes<float, N>& x) { return abs(x); }
template <int N> auto is_finite(const Lanes<float, N>& x) {
  return magnitude(x) <= Lanes<float, N>(std::numeric_limits<float>::max());
}

// ---- Functions of N elements at a time; `odd` marks those that `exact` must compute

struct Multiply {
  static constexpr int N = kNarrow;
  static Parts<float, N> of(const Parts<float, N>& a, const Parts<float, N>& b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
  }
};

/// In f64, where squares of f32 neither overflow nor underflow.
struct Divide {
  static constexpr int N = kWide;
  static constexpr ExactComplex kExact = &exact_divide;
  static Parts<float, N> of(const Parts<float, N>& x, const Parts<float, N>& y) {
    const Parts<double, N> a = widened(x), b = widened(y);
    const Lanes<double, N> scale = Lanes<double, N>(1.0) / (b.re * b.re + b.im * b.im);
    return {narrowed((a.re * b.re + a.im * b.im) * scale), narrowed((a.im * b.re - a.re * b.im) * scale)};
  }
  static auto odd(const Parts<float, N>&, const Parts<float, N>& y) { return (y.re != y.re) & (y.im != y.im); }
};

struct Exp {
  static constexpr int N = kNarrow;
  static constexpr ExactComplex kExact = &exact_exp;
  static Parts<float, N> of(const Parts<float, N>& z) {
    const Lanes<float, N> size = math::exp(z.re);
    return {size * math::cos(z.im), size * math::sin(z.im)};
  }
  static auto odd(const Parts<float, N>& z, const Parts<float, N>&) {
    constexpr float kLargest = 80;  // no part of the result overflows or underflows
    return !((magnitude(z.re) <= Lanes<float, N>(kLargest)) & is_finite(z.im));
  }
};

/// The logarithm of the magnitude from its square in f64. Near 1 the rounding error of the square is added: with a the
/// larger part, a^2 and a^2 - 1 are exact.
struct Log {
  static constexpr int N = kWide;
  static constexpr ExactComplex kExact = &exact_log;
  static Parts<float, N> of(const Parts<float, N>& z) {
    using D = Lanes<double, N>;
    const Lanes<float, N> x = abs(z.re), y = abs(z.im);
    const D large = widened(max(x, y)), small = widened(min(x, y));
    const D square = large * large + small * small, one(1.0);
    const D less_1 = (large * large - one) + small * small;
    const auto near = (square >= D(0.5)) & (square <= D(2.0));
    const D error = select(near, (less_1 - (square - one)) / square, D(0.0));
    return {narrowed((math::log(square) + error) * D(0.5)), math::atan2(z.im, z.re)};
  }
  static auto odd(const Parts<float, N>& z, const Parts<float, N>&) { return !(is_finite(z.re) & is_finite(z.im)); }
};

template <class F> inline constexpr bool kIsBinary =
    std::is_invocable_v<decltype(&F::of), Parts<float, F::N>, Parts<float, F::N>>;

template <class F> [[gnu::noinline]] void mend(const float* a, const float* b, float* y) {
  // Recomputes the odd elements one by one; the others keep their results.
  constexpr int N = F::N;
  const Parts<float, N> x = load_parts<N>(a), given = load_parts<N>(y);
  const auto odd = F::odd(x, given);
  for (int i = 0; i < N; ++i)
    if (odd.raw[i] != 0) F::kExact(a + 2 * i, b == nullptr ? nullptr : b + 2 * i, y + 2 * i);
}

template <class F>
[[gnu::always_inline]] inline void run_vector(const Parts<float, F::N>& a, const Parts<float, F::N>& b, float* to) {
  constexpr int N = F::N;
  Parts<float, N> y = [&] {
    if constexpr (kIsBinary<F>)
      return F::of(a, b);
    else
      return F::of(a);
  }();
  if constexpr (requires { F::kExact; }) {
    if (any(F::odd(a, y))) [[unlikely]] {
      float x[2 * N], other[2 * N], result[2 * N];
      store_parts(x, a), store_parts(other, b), store_parts(result, y);
      mend<F>(x, other, result);
      y = load_parts<N>(result);
    }
  }
  store_parts(to, y);
}

template <class F> [[gnu::flatten]] void run(void* out, const void* const* in, const bool* splat, std::int64_t n) {
  constexpr int N = F::N;
  constexpr bool kBinary = kIsBinary<F>;
  const auto* const a = static_cast<const float*>(in[0]);
  const auto* const b = static_cast<const float*>(in[kBinary ? 1 : 0]);
  const bool same_a = splat[0], same_b = splat[kBinary ? 1 : 0];
  const Parts<float, N> all_a = splat_parts<N>(a), all_b = splat_parts<N>(b);
  auto* const to = static_cast<float*>(out);
  std::int64_t i = 0;
  for (; i + N <= n; i += N)
    run_vector<F>(same_a ? all_a : load_parts<N>(a + 2 * i), same_b ? all_b : load_parts<N>(b + 2 * i), to + 2 * i);
  if (i == n) return;
  float x[2 * N] = {}, y[2 * N] = {}, result[2 * N];
  const auto bytes = static_cast<std::size_t>(n - i) * 2 * sizeof(float);
  if (!same_a) std::memcpy(x, a + 2 * i, bytes);
  if (!same_b) std::memcpy(y, b + 2 * i, bytes);
  run_vector<F>(same_a ? all_a : load_parts<N>(x), same_b ? all_b : load_parts<N>(y), result);
  std::memcpy(to + 2 * i, result, bytes);
}

struct Angle {
  static constexpr int N = kNarrow;
  static Lanes<float, N> of(const Parts<float, N>& z) { return math::atan2(z.im, z.re); }
};

/// In f64, where squares of f32 neither overflow nor underflow, the sum is rounded once; infinite if a part is.
struct Abs {
  static constexpr int N = kWide;
  static Lanes<float, N> of(const Parts<float, N>& z) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    const Parts<double, N> wide = widened(z);
    const Lanes<float, N> size = narrowed(sqrt(wide.re * wide.re + wide.im * wide.im)), infinity(kInfinity);
    return select((abs(z.re) == infinity) | (abs(z.im) == infinity), infinity, size);
  }
};

/// A real result.
template <class F> [[gnu::flatten]] void run_real(void* out, const void* const* in, const bool* splat, std::int64_t n) {
  constexpr int N = F::N;
  const auto* const z = static_cast<const float*>(in[0]);
  auto* const to = static_cast<float*>(out);
  const Parts<float, N> all = splat_parts<N>(z);
  std::int64_t i = 0;
  for (; i + N <= n; i += N) {
    const Lanes<float, N> y = F::of(splat[0] ? all : load_parts<N>(z + 2 * i));
    std::memcpy(to + i, &y.raw, sizeof y.raw);
  }
  if (i == n) return;
  float x[2 * N] = {};
  const auto left = static_cast<std::size_t>(n - i);
  if (!splat[0]) std::memcpy(x, z + 2 * i, left * 2 * sizeof(float));
  const Lanes<float, N> y = F::of(splat[0] ? all : load_parts<N>(x));
  std::memcpy(to + i, &y.raw, left * sizeof(float));
}

void sum(const float* x, std::int64_t count, double* sums) {
  constexpr int N = kLanesOf<double>, kVectors = 128 / N;
  Raw<double, N> lanes[kVectors] = {};
  const auto load = [](const float* from) {
    Raw<float, N> r;
    std::memcpy(&r, from, sizeof r);
    return __builtin_convertvector(r, Raw<double, N>);
  };
  std::int64_t i = 0;
  for (; i + 128 <= 2 * count; i += 128)
    for (int v = 0; v < kVectors; ++v) lanes[v] += load(x + i + v * N);
  if (i < 2 * count) {
    float rest[128] = {};
    std::memcpy(rest, x + i, static_cast<std::size_t>(2 * count - i) * sizeof(float));
    for (int v = 0; v < kVectors; ++v) lanes[v] += load(rest + v * N);
  }
  double all[128];
  for (int v = 0; v < kVectors; ++v) std::memcpy(all + v * N, &lanes[v], sizeof lanes[v]);
  for (int half = 64; half >= 2; half /= 2)
    for (int k = 0; k < half; ++k) all[k] += all[k + half];
  sums[0] = all[0], sums[1] = all[1];
}

}  // namespace

const ComplexLoops& loops_of_isa() {
  static constexpr ComplexLoops kLoops{.multiply = &run<Multiply>,
                                       .divide = &run<Divide>,
                                       .exp = &run<Exp>,
                                       .log = &run<Log>,
                                       .angle = &run_real<Angle>,
                                       .abs = &run_real<Abs>,
                                       .sum = &sum};
  return kLoops;
}

}  // namespace fermata::complex_loops::FERMATA_ISA
