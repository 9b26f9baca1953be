// Casts between every two real dtypes and bool.
#include "codegen_cpu/eager/half_vector.h"
#include "codegen_cpu/eager/loop_tables.h"
#include "ir/small_dtypes.h"

namespace fermata::eager::FERMATA_ISA {
namespace {

/// f64 to f32, rounded to odd: what is lost sets the last bit, so that rounding again to 16 bits is right.
template <int N, int M> Vector<float, N, M> narrow_to_odd(Vector<double, N, M> x) {
  using F = Vector<float, N, M>;
  using U = Vector<std::uint32_t, N, M>;
  const F nearest = convert<float>(x);
  const auto back = convert<double>(nearest);
  const U bits = bitcast<std::uint32_t>(nearest);
  const auto inexact = (back != x) & (x == x) & ((bits & U(1)) == U(0));
  const U other = select(abs(back) > abs(x), bits - U(1), bits + U(1));
  return bitcast<float>(select(inexact, other, bits));
}
/// A 64-bit integer as a double that rounds to 16 bits as the integer would: low bits are gathered in one.
template <class T, int N, int M> Vector<double, N, M> double_for_narrowing(Vector<T, N, M> x) {
  using V = Vector<T, N, M>;
  const V low = x & V(0xfff);
  const V gathered = (x - low) | select(low != V(0), V(0x800), V(0));
  auto exact = x < V(T{1} << 53);
  if constexpr (std::is_signed_v<T>) exact = exact & (x > V(-(T{1} << 53)));
  return convert<double>(select(exact, x, gathered));
}

/// The value in f32 before it is rounded to 16 bits.
template <class T, int N, int M> Vector<float, N, M> before_half(Vector<T, N, M> x) {
  if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
    return narrow_to_odd(double_for_narrowing(x));
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 4)
    return narrow_to_odd(convert<double>(x));
  else if constexpr (std::is_same_v<T, double>)
    return narrow_to_odd(x);
  else
    return convert<float>(x);
}

template <class From, class To> struct Cast {
  using T = ComputeOf<From>;
  using U = ComputeOf<To>;
  static constexpr bool kThroughDouble = kIsHalf<To> && std::is_integral_v<T> && sizeof(T) == 4;
  static constexpr int kWidest = kThroughDouble ? 8 : static_cast<int>(sizeof(T) > sizeof(U) ? sizeof(T) : sizeof(U));
  static constexpr int kLanes = kRegisterBytes / kWidest;
  using V = Vector<T, kLanes, kWidest>;
  [[gnu::flatten]] static void run(void* out, const void* in, std::int64_t n) {
    auto* to = static_cast<char*>(out);
    const auto* from = static_cast<const char*>(in);
    for (std::int64_t i = 0; i < n; i += kLanes) {
      const auto count = static_cast<std::size_t>(n - i < kLanes ? n - i : kLanes);
      const V x = load_stored<From, V>(from + i * static_cast<std::int64_t>(sizeof(From)), count);
      auto* at = to + i * static_cast<std::int64_t>(sizeof(To));
      if constexpr (kIsHalf<To>)
        store_stored<To>(at, before_half(x), count);
      else
        store_stored<To>(at, convert<To>(x), count);
    }
  }
};

// ---- Small dtypes. What is used here is of this namespace or a constant: nothing compiled for one instruction set may
// be shared with files that are not.

template <class From, class To> constexpr CastLoop cast_loop();

/// The constants of a format, of the type that lanes have.
template <class T> struct SmallConstants {
  static constexpr SmallFloatFormat format = SmallFloatOf<T>::format;
  static constexpr unsigned cut = 23 - format.fraction_bits, sign_shift = 31 - format.magnitude_bits;
  static constexpr std::uint32_t sign = format.sign_bit(), largest = format.largest, infinity = format.infinity,
                                 first_nan = format.first_nan, overflow = format.overflow, nan = format.nan;
  static constexpr float widening = power_of_two_f32(127 - format.bias);
  static constexpr float unit = power_of_two_f32(format.least_exponent() - static_cast<int>(format.fraction_bits) + 23);
  static constexpr std::uint32_t unit_bits = std::bit_cast<std::uint32_t>(unit);
  static constexpr std::uint32_t least_normal = static_cast<std::uint32_t>(127 + format.least_exponent()) << 23;
  static constexpr std::uint32_t moved = (1u << (cut - 1)) - 1u - (static_cast<std::uint32_t>(127 - format.bias) << 23);
  static constexpr std::uint32_t beyond = static_cast<std::uint32_t>(127 + 20) << 23;  // 2^20
};

/// As ir/small_dtypes.h does it, without branches.
template <class T, int N> Raw<float, N> widen_small(Raw<std::uint8_t, N> from) {
  using C = SmallConstants<T>;
  using U = Raw<std::uint32_t, N>;
  const U none{}, nan = none + 0x7fc00000u, bits = __builtin_convertvector(from, U), magnitude = bits & (C::sign - 1u);
  if constexpr (C::format.is_scale) {
    const U power = bits == none ? none + kLeastScaleF32 : bits << 23;
    return (Raw<float, N>)(bits == none + C::nan ? nan : power);
  }
  U result = (U)((Raw<float, N>)(magnitude << (23 - C::format.fraction_bits)) * C::widening);
  if constexpr (C::infinity != 0) result = magnitude == none + C::infinity ? none + 0x7f800000u : result;
  if constexpr (C::first_nan < C::sign) result = magnitude >= none + C::first_nan ? nan : result;
  result = result | (bits & C::sign) << C::sign_shift;
  if constexpr (C::format.one_zero) result = bits == none + C::sign ? nan : result;
  return (Raw<float, N>)result;
}
template <class T, int N> Raw<std::uint8_t, N> narrow_small(Raw<float, N> x) {
  using C = SmallConstants<T>;
  using U = Raw<std::uint32_t, N>;
  const U none{}, bits = (U)x, magnitude = bits & 0x7fffffffu;
  if constexpr (C::format.is_scale) {
    const U rounding = bits < none + 0x00800000u ? none + kLeastScaleRounding : none + kScaleRounding;
    const U power = (bits + rounding) >> 23;
    // Zero, negative numbers and NaN; infinity is 0xff without a special case.
    return __builtin_convertvector(bits - 1u >= none + 0x7f800000u ? none + C::nan : power, Raw<std::uint8_t, N>);
  }
  const U normal = (magnitude + (magnitude >> C::cut & 1u) + C::moved) >> C::cut;
  const U subnormal = (U)((Raw<float, N>)magnitude + C::unit) - C::unit_bits;
  U result = magnitude < none + C::least_normal ? subnormal : normal;
  result = result > none + C::largest ? none + C::overflow : result;
  result = magnitude >= none + C::beyond ? none + C::overflow : result;
  result = magnitude > none + 0x7f800000u ? none + C::nan : result;
  U sign = bits >> C::sign_shift & C::sign;
  if constexpr (C::format.one_zero) {
    sign = result == none ? none : sign;
    sign = result == none + C::nan ? none : sign;
  }
  return __builtin_convertvector(result | sign, Raw<std::uint8_t, N>);
}

constexpr int kF32Lanes = kRegisterBytes / 4;
/// Elements that are of a third dtype on the way.
constexpr std::int64_t kPiece = 256;

template <class T> [[gnu::noinline]] void widen_floats(float* to, const std::uint8_t* from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kF32Lanes) {
    Raw<std::uint8_t, kF32Lanes> in{};
    const auto count = static_cast<std::size_t>(n - i < kF32Lanes ? n - i : kF32Lanes);
    __builtin_memcpy(&in, from + i, count);
    const Raw<float, kF32Lanes> out = widen_small<T, kF32Lanes>(in);
    __builtin_memcpy(to + i, &out, count * 4);
  }
}
template <class T> [[gnu::noinline]] void narrow_floats(std::uint8_t* to, const float* from, std::int64_t n) {
  for (std::int64_t i = 0; i < n; i += kF32Lanes) {
    Raw<float, kF32Lanes> in{};
    const auto count = static_cast<std::size_t>(n - i < kF32Lanes ? n - i : kF32Lanes);
    __builtin_memcpy(&in, from + i, count * 4);
    const Raw<std::uint8_t, kF32Lanes> out = narrow_small<T, kF32Lanes>(in);
    __builtin_memcpy(to + i, &out, count);
  }
}
/// To f32, rounded to odd where it does not hold the number, so that rounding again is right.
template <class From> [[gnu::noinline]] void to_rounded_f32(float* to, const void* in, std::int64_t n) {
  constexpr int kLanes = kRegisterBytes / 8;
  using V = Vector<ComputeOf<From>, kLanes, 8>;
  const auto* from = static_cast<const char*>(in);
  for (std::int64_t i = 0; i < n; i += kLanes) {
    const auto count = static_cast<std::size_t>(n - i < kLanes ? n - i : kLanes);
    const V x = load_stored<From, V>(from + i * static_cast<std::int64_t>(sizeof(From)), count);
    store_stored<float>(to + i, before_half(x), count);
  }
}
/// The lowest bits of each byte as an integer: its value, and any integer modulo 2^bits.
template <class Small> [[gnu::noinline]] void cut_integers(void* to, const void* from, std::int64_t n) {
  using Wide = typename SmallIntegerOf<Small>::Wide;
  constexpr int kSpare = 8 - static_cast<int>(SmallIntegerOf<Small>::bits);
  const auto* const in = static_cast<const std::uint8_t*>(from);
  auto* const out = static_cast<Wide*>(to);
  for (std::int64_t i = 0; i < n; ++i)
    out[i] = static_cast<Wide>(static_cast<Wide>(static_cast<std::uint8_t>(in[i] << kSpare)) >> kSpare);
}
template <class Small> [[gnu::noinline]] void clamp_integers(void* to, const void* from, std::int64_t n) {
  using Wide = typename SmallIntegerOf<Small>::Wide;
  constexpr Wide kMost = kLargestOf<Small>, kLeast = kSmallestOf<Small>;
  const auto* const in = static_cast<const Wide*>(from);
  auto* const out = static_cast<Wide*>(to);
  for (std::int64_t i = 0; i < n; ++i) out[i] = in[i] > kMost ? kMost : in[i] < kLeast ? kLeast : in[i];
}

/// What a number of a dtype is while it is converted.
template <class T> struct ArithmeticOf { using type = T; };
template <class T>
requires kIsSmallFloat<T>
struct ArithmeticOf<T> {
  using type = float;
};
template <class T>
requires kIsSmallInteger<T>
struct ArithmeticOf<T> {
  using type = typename SmallIntegerOf<T>::Wide;
};

/// Of two dtypes at least one of which is small.
template <class From, class To> struct SmallCast {
  using Given = typename ArithmeticOf<From>::type;
  using Wanted = typename ArithmeticOf<To>::type;

  static void run(void* out, const void* in, std::int64_t n) {
    struct {  // not touched unless needed
      alignas(64) char given[kPiece * sizeof(Given)], wanted[kPiece * sizeof(Wanted)];
    } buffers;
    const auto* from = static_cast<const char*>(in);
    auto* to = static_cast<char*>(out);
    for (std::int64_t i = 0; i < n; i += kPiece) {
      const std::int64_t count = n - i < kPiece ? n - i : kPiece;
      const void* x = from + i * static_cast<std::int64_t>(sizeof(From));
      void* const y = to + i * static_cast<std::int64_t>(sizeof(To));
      void* const target = std::is_same_v<Given, To> ? y : buffers.given;
      if constexpr (kIsSmallFloat<From>)
        widen_floats<From>(static_cast<float*>(target), static_cast<const std::uint8_t*>(x), count), x = target;
      if constexpr (kIsSmallInteger<From>) cut_integers<From>(target, x, count), x = target;
      if constexpr (!std::is_same_v<Given, To>) narrow(y, x, count, buffers.wanted);
    }
  }

 private:
  static void narrow(void* y, const void* x, std::int64_t count, void* buffer) {
    if constexpr (kIsSmallFloat<To>) {
      if constexpr (!std::is_same_v<Given, float>)
        to_rounded_f32<Given>(static_cast<float*>(buffer), x, count), x = buffer;
      narrow_floats<To>(static_cast<std::uint8_t*>(y), static_cast<const float*>(x), count);
    } else if constexpr (kIsSmallInteger<To>) {
      if constexpr (!std::is_same_v<Given, Wanted>) cast_loop<Given, Wanted>()(buffer, x, count), x = buffer;
      if constexpr (std::is_floating_point_v<ComputeOf<Given>>)
        clamp_integers<To>(y, x, count);
      else
        cut_integers<To>(y, x, count);
    } else {
      cast_loop<Given, To>()(y, x, count);
    }
  }
};

/// Of integers only the widths and, where widening, the sign of the source matter.
template <class T> using Unsigned = UnsignedOf<static_cast<int>(sizeof(T))>;
template <class T> inline constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;
template <class From, class To> constexpr CastLoop cast_loop() {
  if constexpr (std::is_same_v<From, To>)
    return nullptr;
  else if constexpr (kIsSmallFloat<From> || kIsSmallInteger<From> || kIsSmallFloat<To> || kIsSmallInteger<To>)
    return &SmallCast<From, To>::run;
  else if constexpr (kIsInteger<From> && std::is_same_v<To, bool>)
    return &Cast<Unsigned<From>, bool>::run;
  else if constexpr (std::is_same_v<From, bool> && kIsInteger<To>)
    return &Cast<bool, Unsigned<To>>::run;
  else if constexpr (!kIsInteger<From> || !kIsInteger<To>)
    return &Cast<From, To>::run;
  else if constexpr (sizeof(To) > sizeof(From))
    return &Cast<From, Unsigned<To>>::run;
  else
    return &Cast<Unsigned<From>, Unsigned<To>>::run;
}

template <class F> void visit_stored(DType t, F&& f) {
  if (t == DType::f16)
    f.template operator()<Float16>();
  else if (t == DType::bf16)
    f.template operator()<BFloat16>();
  else if (!visit_small(t, f))
    visit_compute(t, f);
}

}  // namespace

void add_casts(LoopTables& tables) {
  for (std::size_t from = 0; from < kDTypeCount; ++from)
    for (std::size_t to = 0; to < kDTypeCount; ++to)
      visit_stored(static_cast<DType>(from), [&]<class From>() {
        visit_stored(static_cast<DType>(to), [&]<class To>() { tables.cast[from][to] = cast_loop<From, To>(); });
      });
}

}  // namespace fermata::eager::FERMATA_ISA
