// See prelude.h.
#include "codegen_cuda/emit/prelude.h"

namespace fermata::gpu {

std::string_view device_prelude() {
  return R"cuda(
#define FM_DEVICE __device__ __forceinline__
#define FM_KERNEL(name, count, bounds) extern "C" __global__ void __launch_bounds__(bounds) name(const fm_args<count> a)
#define FM_SHARED(name) extern __shared__ __align__(16) unsigned char name[]
template <int N> struct fm_args { unsigned long long v[N]; };
typedef uint4 fm_word16;
template <class T> FM_DEVICE T fm_load(const T* p) { return *p; }
template <class T> FM_DEVICE void fm_store(T* p, T v) { *p = v; }
template <class T> FM_DEVICE T fm_shared_load(const T* p) { return *p; }
template <class T> FM_DEVICE void fm_shared_store(T* p, T v) { *p = v; }
FM_DEVICE void fm_barrier() { __syncthreads(); }
FM_DEVICE void fm_warp_barrier() { __syncwarp(); }
FM_DEVICE unsigned long long fm_mulhi(unsigned long long a, unsigned long long b) { return __umul64hi(a, b); }
FM_DEVICE void fm_lowest(unsigned long long* p, unsigned long long v) { atomicMin(p, v); }
FM_DEVICE float fm_fma(float a, float b, float c) { return fmaf(a, b, c); }
FM_DEVICE double fm_fma(double a, double b, double c) { return fma(a, b, c); }
FM_DEVICE float fm_fmod(float a, float b) { return fmodf(a, b); }
FM_DEVICE double fm_fmod(double a, double b) { return fmod(a, b); }
FM_DEVICE float fm_sqrt(float a) { return __fsqrt_rn(a); }
FM_DEVICE double fm_sqrt(double a) { return __dsqrt_rn(a); }
FM_DEVICE float fm_floor(float a) { return floorf(a); }
FM_DEVICE double fm_floor(double a) { return floor(a); }
FM_DEVICE float fm_ceil(float a) { return ceilf(a); }
FM_DEVICE double fm_ceil(double a) { return ceil(a); }
FM_DEVICE float fm_trunc(float a) { return truncf(a); }
FM_DEVICE double fm_trunc(double a) { return trunc(a); }
FM_DEVICE float fm_rint(float a) { return rintf(a); }
FM_DEVICE double fm_rint(double a) { return rint(a); }
FM_DEVICE float fm_abs(float a) { return fabsf(a); }
FM_DEVICE double fm_abs(double a) { return fabs(a); }
FM_DEVICE float fm_from_f16(unsigned short x) { float r; asm("cvt.f32.f16 %0, %1;" : "=f"(r) : "h"(x)); return r; }
FM_DEVICE unsigned short fm_to_f16(float x) { unsigned short r; asm("cvt.rn.f16.f32 %0, %1;" : "=h"(r) : "f"(x)); return r; }
FM_DEVICE unsigned fm_shuffle_down_bits(unsigned v, int d) { return __shfl_down_sync(0xffffffffu, v, d); }
FM_DEVICE unsigned long long fm_shuffle_down_bits(unsigned long long v, int d) { return __shfl_down_sync(0xffffffffu, v, d); }
FM_DEVICE unsigned fm_shuffle_bits(unsigned v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
FM_DEVICE unsigned long long fm_shuffle_bits(unsigned long long v, int lane) { return __shfl_sync(0xffffffffu, v, lane); }
)cuda";
}

std::string_view shared_prelude() {
  return R"cuda(
typedef signed char i8; typedef short i16; typedef int i32; typedef long long i64;
typedef unsigned char u8; typedef unsigned short u16; typedef unsigned u32; typedef unsigned long long u64;
typedef float f32; typedef double f64;
template <class To, class From> FM_DEVICE To fm_bits(From x) { union { From from; To to; } u; u.from = x; return u.to; }
template <bool Wide> struct fm_slot_type { typedef u32 type; };
template <> struct fm_slot_type<true> { typedef u64 type; };
// The bits of a value in an integer of 4 or 8 bytes, and back.
template <class T> FM_DEVICE typename fm_slot_type<(sizeof(T) > 4)>::type fm_pack_bits(T x) {
  union { T value; typename fm_slot_type<(sizeof(T) > 4)>::type bits; } u;
  u.bits = 0; u.value = x; return u.bits;
}
template <class T> FM_DEVICE T fm_unpack_bits(typename fm_slot_type<(sizeof(T) > 4)>::type x) {
  union { T value; typename fm_slot_type<(sizeof(T) > 4)>::type bits; } u;
  u.bits = x; return u.value;
}
template <class T> FM_DEVICE T fm_shuffle_down(T x, int d) { return fm_unpack_bits<T>(fm_shuffle_down_bits(fm_pack_bits(x), d)); }
template <class T> FM_DEVICE T fm_shuffle(T x, int lane) { return fm_unpack_bits<T>(fm_shuffle_bits(fm_pack_bits(x), lane)); }
template <class T> FM_DEVICE T fm_get(u64 slot) { union { T value; u64 bits; } u; u.bits = slot; return u.value; }
template <class T> FM_DEVICE u64 fm_put(T x) { union { T value; u64 bits; } u; u.bits = 0; u.value = x; return u.bits; }
template <> FM_DEVICE bool fm_get<bool>(u64 slot) { return (slot & 0xff) != 0; }
template <> FM_DEVICE u64 fm_put<bool>(bool x) { return x ? 1 : 0; }
// Several elements as one access: by words, as structs are read member by member where the compiler is to be quick.
template <int Bytes> struct fm_word_type { typedef fm_word16 type; };
template <> struct fm_word_type<8> { typedef u64 type; };
template <> struct fm_word_type<4> { typedef u32 type; };
template <> struct fm_word_type<2> { typedef u16 type; };
template <> struct fm_word_type<1> { typedef u8 type; };
template <class T, int N> union fm_pack {
  typedef typename fm_word_type<(sizeof(T) * N > 16 ? 16 : sizeof(T) * N)>::type word;
  enum { words = sizeof(T) * N / sizeof(word) };
  T v[N];
  word w[words];
};
template <class T, int N> FM_DEVICE void fm_load_pack(const T* p, T (&to)[N]) {
  fm_pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < fm_pack<T, N>::words; ++i) pack.w[i] = fm_load((const typename fm_pack<T, N>::word*)p + i);
#pragma unroll
  for (int i = 0; i < N; ++i) to[i] = pack.v[i];
}
template <class T, int N> FM_DEVICE void fm_store_pack(T* p, const T (&from)[N]) {
  fm_pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < N; ++i) pack.v[i] = from[i];
#pragma unroll
  for (int i = 0; i < fm_pack<T, N>::words; ++i) fm_store((typename fm_pack<T, N>::word*)p + i, pack.w[i]);
}
// The same in shared memory.
template <class T, int N> FM_DEVICE fm_pack<T, N> fm_shared_pack(const T* p) {
  fm_pack<T, N> pack;
#pragma unroll
  for (int i = 0; i < fm_pack<T, N>::words; ++i) pack.w[i] = fm_shared_load((const typename fm_pack<T, N>::word*)p + i);
  return pack;
}
template <class T, int N> FM_DEVICE void fm_shared_store_pack(T* p, const fm_pack<T, N>& pack) {
#pragma unroll
  for (int i = 0; i < fm_pack<T, N>::words; ++i) fm_shared_store((typename fm_pack<T, N>::word*)p + i, pack.w[i]);
}
// Integers: x / 0 is 0, MIN / -1 is MIN; x rem 0 is x; shifts out of range give 0, or the sign.
template <class T> FM_DEVICE bool fm_is_signed() { return (T)-1 < (T)0; }
template <class T> FM_DEVICE T fm_div(T a, T b) {
  if (b == 0) return 0;
  if (fm_is_signed<T>() && b == (T)-1) return (T)(0 - (u64)a);
  return (T)(a / b);
}
template <class T> FM_DEVICE T fm_rem(T a, T b) {
  if (b == 0) return a;
  if (fm_is_signed<T>() && b == (T)-1) return 0;
  return (T)(a % b);
}
template <class T> FM_DEVICE bool fm_shifts(T b) { return !(b < (T)0) && (u64)b < 8 * sizeof(T); }
template <class T> FM_DEVICE T fm_shl(T a, T b) { return fm_shifts(b) ? (T)((u64)a << (u64)b) : (T)0; }
template <class T> FM_DEVICE T fm_shr(T a, T b) {
  return fm_shifts(b) ? (T)(a >> b) : fm_is_signed<T>() && a < (T)0 ? (T)-1 : (T)0;
}
// Floats to integers: towards zero, saturating, NaN gives 0. `end` is the power of two above the largest integer.
template <class To, class From> FM_DEVICE To fm_saturate(From x, From end, To lowest, To highest) {
  if (x != x) return 0;
  if (x >= end) return highest;
  if (x <= (lowest == 0 ? (From)0 : -end)) return lowest;
  return (To)x;
}
FM_DEVICE f32 fm_from_bf16(u16 x) { return fm_bits<f32>((u32)x << 16); }
FM_DEVICE u16 fm_to_bf16(f32 x) {
  const u32 bits = fm_bits<u32>(x);
  return x != x ? (u16)(bits >> 16 | 0x40) : (u16)((bits + (bits >> 16 & 1) + 0x7fff) >> 16);
}
// Small floats (ir/small_dtypes.h): the magnitude moves as one integer; a product and a sum make subnormal numbers right.
template <int Bits, int Fraction, int Bias, int Largest, int Infinity, int FirstNan, int Overflow, int Nan, int OneZero>
FM_DEVICE f32 fm_from_small(u8 x) {
  const u32 sign_bit = 1u << Bits, magnitude = x & (sign_bit - 1u), sign = (x & sign_bit) << (31 - Bits);
  if ((OneZero && x == sign_bit) || magnitude >= (u32)FirstNan) return fm_bits<f32>(OneZero ? 0x7fc00000u : sign | 0x7fc00000u);
  if (Infinity != 0 && magnitude == (u32)Infinity) return fm_bits<f32>(sign | 0x7f800000u);
  return fm_bits<f32>(sign | fm_bits<u32>(fm_bits<f32>(magnitude << (23 - Fraction)) * fm_bits<f32>((u32)(254 - Bias) << 23)));
}
template <int Bits, int Fraction, int Bias, int Largest, int Infinity, int FirstNan, int Overflow, int Nan, int OneZero>
FM_DEVICE u8 fm_to_small(f32 x) {
  const u32 bits = fm_bits<u32>(x), magnitude = bits & 0x7fffffffu, cut = 23 - Fraction;
  const f32 unit = fm_bits<f32>((u32)(127 + 1 - Bias - Fraction + 23) << 23);
  u32 result;
  if (magnitude > 0x7f800000u) result = Nan;
  else if (magnitude >= (u32)(127 + 20) << 23) result = Overflow;
  else if (magnitude < (u32)(127 + 1 - Bias) << 23) result = fm_bits<u32>(fm_bits<f32>(magnitude) + unit) - fm_bits<u32>(unit);
  else result = (magnitude + (magnitude >> cut & 1u) + (1u << (cut - 1)) - 1u - ((u32)(127 - Bias) << 23)) >> cut;
  if (magnitude <= 0x7f800000u && result > (u32)Largest) result = Overflow;
  if (OneZero && (result == 0 || result == (u32)Nan)) return (u8)result;
  return (u8)(result | (bits >> (31 - Bits) & (1u << Bits)));
}
// Exponents alone, the scales of blocks: 0 is 2^-127, 255 is NaN.
FM_DEVICE f32 fm_from_scale(u8 x) { return fm_bits<f32>(x == 255 ? 0x7fc00000u : x == 0 ? 0x00400000u : (u32)x << 23); }
FM_DEVICE u8 fm_to_scale(f32 x) {
  const u32 bits = fm_bits<u32>(x);
  if (bits - 1u >= 0x7f800000u) return 255;
  return (u8)((bits + (bits < 0x00800000u ? 0x003fffffu : 0x00400000u)) >> 23);
}
template <class T, int Bits> FM_DEVICE T fm_small_integer(T x) { return (T)((T)((u32)(u8)x << (8 - Bits)) >> (8 - Bits)); }
template <class T, int Bits> FM_DEVICE T fm_small_clamp(T x) {
  const T most = (T)((1 << (fm_is_signed<T>() ? Bits - 1 : Bits)) - 1), least = fm_is_signed<T>() ? (T)(-most - 1) : (T)0;
  return x > most ? most : x < least ? least : x;
}
// f64 to f32 rounded to odd, after which rounding to 16 bits is right (Boldo and Melquiond, 2008).
FM_DEVICE f32 fm_odd(f64 x) {
  const f32 nearest = (f32)x;
  const f64 back = (f64)nearest;
  const u32 bits = fm_bits<u32>(nearest);
  if (back == x || back != back || (bits & 1) != 0) return nearest;
  return fm_bits<f32>(fm_abs(back) > fm_abs(x) ? bits - 1 : bits + 1);
}
// A 64-bit integer as an f64 that rounds like it: what is cut off is kept as one odd bit.
FM_DEVICE f64 fm_sticky(u64 x) {
  return x <= (1ull << 53) ? (f64)x : (f64)((x & ~0x7ffull) | ((x & 0x7ff) != 0 ? 0x800 : 0));
}
FM_DEVICE f64 fm_sticky(i64 x) { return x < 0 ? -fm_sticky(0 - (u64)x) : fm_sticky((u64)x); }
)cuda";
}

}  // namespace fermata::gpu
