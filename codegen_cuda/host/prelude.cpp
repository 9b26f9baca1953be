// See prelude.h.
#include "codegen_cuda/host/prelude.h"

namespace fermata::gpu {

std::string_view host_prelude() {
  return R"cuda(
#pragma once
typedef unsigned long long fm_word;
struct alignas(16) fm_word16 { unsigned x, y, z, w; };
struct fm_context {
  unsigned thread[3], block[3], block_size[3], grid[3];
  unsigned char* backing; unsigned char* shadow; unsigned long base, size;
  unsigned char* shared; unsigned char* shared_shadow; unsigned long shared_size;
  int logging;
  void (*log)(unsigned long offset, unsigned bytes);
  void (*bad)(unsigned long address, unsigned bytes, int kind);
  void (*barrier)();
  const unsigned long* (*exchange)(unsigned long value);
};
extern "C" { fm_context* fm_host_context; }
struct fm_xyz { unsigned x, y, z; };
#define threadIdx (fm_xyz{fm_host_context->thread[0], fm_host_context->thread[1], fm_host_context->thread[2]})
#define blockIdx (fm_xyz{fm_host_context->block[0], fm_host_context->block[1], fm_host_context->block[2]})
#define blockDim (fm_xyz{fm_host_context->block_size[0], fm_host_context->block_size[1], fm_host_context->block_size[2]})
#define gridDim (fm_xyz{fm_host_context->grid[0], fm_host_context->grid[1], fm_host_context->grid[2]})
#define FM_DEVICE inline
template <int N> struct fm_args { fm_word v[N]; };
#define FM_KERNEL(name, count, bounds)                                                                          \
  static void name(const fm_args<count>& a);                                                                      \
  extern "C" void fm_entry_##name(void** p) { name(*(const fm_args<count>*)p[0]); }                               \
  static void name(const fm_args<count>& a)
#define FM_SHARED(name) unsigned char* const name = fm_host_context->shared
static inline bool fm_all(const unsigned char* s, unsigned n, unsigned char wanted) {
  for (unsigned i = 0; i < n; ++i) if (s[i] < wanted) return false;
  return true;
}
template <class T> static inline T fm_load(const T* p) {
  fm_context* const c = fm_host_context;
  const unsigned long at = (unsigned long)p - c->base;
  if (__builtin_expect((unsigned long)p % alignof(T) != 0, 0)) c->bad((unsigned long)p, sizeof(T), 3);
  if (__builtin_expect(at >= c->size || !fm_all(c->shadow + at, sizeof(T), 3), 0)) {
    const bool outside = at >= c->size || !fm_all(c->shadow + at, sizeof(T), 1);
    c->bad((unsigned long)p, sizeof(T), outside ? 0 : 1);
    if (outside) { T none; __builtin_memset((void*)&none, 0, sizeof(T)); return none; }
  }
  T value; __builtin_memcpy((void*)&value, c->backing + at, sizeof(T)); return value;
}
template <class T> static inline void fm_store(T* p, T v) {
  fm_context* const c = fm_host_context;
  const unsigned long at = (unsigned long)p - c->base;
  if (__builtin_expect((unsigned long)p % alignof(T) != 0, 0)) c->bad((unsigned long)p, sizeof(T), 3);
  if (__builtin_expect(at >= c->size || !fm_all(c->shadow + at, sizeof(T), 1), 0)) { c->bad((unsigned long)p, sizeof(T), 2); return; }
  if (c->logging) c->log(at, sizeof(T));
  __builtin_memcpy(c->backing + at, (const void*)&v, sizeof(T));
  __builtin_memset(c->shadow + at, 3, sizeof(T));
}
template <class T> static inline T fm_shared_load(const T* p) {
  fm_context* const c = fm_host_context;
  const unsigned long at = (unsigned long)((const unsigned char*)p - c->shared);
  if (at + sizeof(T) > c->shared_size) { c->bad(at, sizeof(T), 4); T none; __builtin_memset((void*)&none, 0, sizeof(T)); return none; }
  if (!fm_all(c->shared_shadow + at, sizeof(T), 3)) c->bad(at, sizeof(T), 5);
  T value; __builtin_memcpy((void*)&value, p, sizeof(T)); return value;
}
template <class T> static inline void fm_shared_store(T* p, T v) {
  fm_context* const c = fm_host_context;
  const unsigned long at = (unsigned long)((unsigned char*)p - c->shared);
  if (at + sizeof(T) > c->shared_size) { c->bad(at, sizeof(T), 4); return; }
  __builtin_memcpy((void*)p, (const void*)&v, sizeof(T));
  __builtin_memset(c->shared_shadow + at, 3, sizeof(T));
}
static inline void fm_barrier() { fm_host_context->barrier(); }
static inline void fm_warp_barrier() { fm_host_context->exchange(0); }
static inline fm_word fm_mulhi(fm_word a, fm_word b) { return (fm_word)(((unsigned __int128)a * b) >> 64); }
static inline void fm_lowest(fm_word* p, fm_word v) { if (v < fm_load(p)) fm_store(p, v); }
static inline float fm_fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
static inline double fm_fma(double a, double b, double c) { return __builtin_fma(a, b, c); }
static inline float fm_fmod(float a, float b) { return __builtin_fmodf(a, b); }
static inline double fm_fmod(double a, double b) { return __builtin_fmod(a, b); }
static inline float fm_sqrt(float a) { return __builtin_sqrtf(a); }
static inline double fm_sqrt(double a) { return __builtin_sqrt(a); }
static inline float fm_floor(float a) { return __builtin_floorf(a); }
static inline double fm_floor(double a) { return __builtin_floor(a); }
static inline float fm_ceil(float a) { return __builtin_ceilf(a); }
static inline double fm_ceil(double a) { return __builtin_ceil(a); }
static inline float fm_trunc(float a) { return __builtin_truncf(a); }
static inline double fm_trunc(double a) { return __builtin_trunc(a); }
static inline float fm_rint(float a) { return __builtin_rintf(a); }
static inline double fm_rint(double a) { return __builtin_rint(a); }
static inline float fm_abs(float a) { return __builtin_fabsf(a); }
static inline double fm_abs(double a) { return __builtin_fabs(a); }
static inline float fm_from_f16(unsigned short x) {
  const unsigned sign = (unsigned)(x & 0x8000) << 16, exponent = x >> 10 & 0x1f, fraction = x & 0x3ff;
  union { unsigned u; float f; } r;
  if (exponent == 0x1f) r.u = sign | 0x7f800000u | (fraction == 0 ? 0 : 0x400000u) | fraction << 13;
  else if (exponent == 0) { r.f = (float)fraction * 0x1p-24f; r.u |= sign; }
  else r.u = sign | (exponent + 112) << 23 | fraction << 13;
  return r.f;
}
static inline unsigned short fm_to_f16(float x) {
  union { float f; unsigned u; } b; b.f = x;
  const unsigned sign = b.u >> 16 & 0x8000u, magnitude = b.u & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return (unsigned short)(sign | 0x7e00u | (magnitude >> 13 & 0x3ff));
  if (magnitude >= 0x477ff000u) return (unsigned short)(sign | 0x7c00u);
  if (magnitude < 0x38800000u) {  // subnormal: adding 0.5 leaves the rounded fraction in the lowest bits
    union { float f; unsigned u; } s; s.u = magnitude; s.f += 0.5f;
    return (unsigned short)(sign | (s.u - 0x3f000000u));
  }
  const unsigned rounded = magnitude + 0xfffu + (magnitude >> 13 & 1u) - 0x38000000u;
  return (unsigned short)(sign | rounded >> 13);
}
template <class T> static inline T fm_lane_value(T v, int lane) { return (T)fm_host_context->exchange((unsigned long)v)[lane & 31]; }
static inline int fm_own_lane() { return (int)(fm_host_context->thread[0] & 31); }
template <class T> static inline T fm_shuffle_down_any(T v, int d) {
  const int lane = fm_own_lane();
  return fm_lane_value(v, lane + d > 31 ? lane : lane + d);
}
static inline unsigned fm_shuffle_down_bits(unsigned v, int d) { return fm_shuffle_down_any(v, d); }
static inline fm_word fm_shuffle_down_bits(fm_word v, int d) { return fm_shuffle_down_any(v, d); }
static inline unsigned fm_shuffle_bits(unsigned v, int lane) { return fm_lane_value(v, lane); }
static inline fm_word fm_shuffle_bits(fm_word v, int lane) { return fm_lane_value(v, lane); }
)cuda";
}

}  // namespace fermata::gpu
