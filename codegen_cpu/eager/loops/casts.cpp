// Casts between every two real dtypes and bool.
#include "codegen_cpu/eager/half_vector.h"
#include "codegen_cpu/eager/loop_tables.h"

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

/// Of integers only the widths and, where widening, the sign of the source matter.
template <class T> using Unsigned = UnsignedOf<static_cast<int>(sizeof(T))>;
template <class T> inline constexpr bool kIsInteger = std::is_integral_v<T> && !std::is_same_v<T, bool>;
template <class From, class To> constexpr CastLoop cast_loop() {
  if constexpr (std::is_same_v<From, To>)
    return nullptr;
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
  else
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
