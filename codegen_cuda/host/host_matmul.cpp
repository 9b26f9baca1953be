// cuBLASLt on the host executor: descriptions as they are set, and a plain loop.
#include <bit>
#include <cmath>
#include <cstring>
#include <mutex>
#include <vector>

#include "codegen_cuda/host/executor.h"
#include "codegen_cuda/host/executor_queue.h"
#include "codegen_cuda/host/memory.h"
#include "ir/float16.h"

namespace fermata::gpu {
namespace {

constexpr Result kInvalidValue = 7;  // CUBLAS_STATUS_INVALID_VALUE

struct Description {
  int compute_type, scale_type;
  int transpose_a = kOperationNone, transpose_b = kOperationNone;
  unsigned epilogue = kEpilogueDefault;
  const void* bias = nullptr;
  int bias_type = -1;
};
struct Layout {
  int type;
  std::uint64_t rows, columns;
  std::int64_t leading, batch_stride = 0;
  int order = kOrderColumns, batches = 1;
};
struct Preference {
  std::uint64_t workspace = 0;
  std::uint32_t alignments[3] = {256, 256, 256};  // of a, b and the result
};

std::size_t bytes_of(int type) {
  switch (type) {
    case kReal64F: return 8;
    case kReal16F:
    case kReal16BF: return 2;
    case kReal8I: return 1;
    default: return 4;
  }
}
double read(const unsigned char* at, int type, std::int64_t i) {
  const auto get = [&](auto x) { return std::memcpy(&x, at + i * static_cast<std::int64_t>(sizeof x), sizeof x), x; };
  switch (type) {
    case kReal64F: return get(0.0);
    case kReal32F: return static_cast<double>(get(0.0f));
    case kReal16F: return static_cast<double>(to_float(get(Float16{})));
    case kReal16BF: return static_cast<double>(to_float(get(BFloat16{})));
    case kReal8I: return get(std::int8_t{});
    default: return get(std::int32_t{});
  }
}
void write(unsigned char* at, int type, std::int64_t i, double value) {
  const auto put = [&](auto x) { std::memcpy(at + i * static_cast<std::int64_t>(sizeof x), &x, sizeof x); };
  switch (type) {
    case kReal64F: return put(value);
    case kReal32F: return put(static_cast<float>(value));
    case kReal16F: return put(to_float16(static_cast<double>(static_cast<float>(value))));
    case kReal16BF: return put(to_bfloat16(static_cast<double>(static_cast<float>(value))));
    default: return put(static_cast<std::int32_t>(static_cast<std::int64_t>(value)));
  }
}

double finished(double x, const Description& d, double bias) {
  if ((d.epilogue & kEpilogueBias) != 0) x += bias;
  if ((d.epilogue & kEpilogueRelu) != 0) x = x > 0 || x != x ? x : 0;
  if ((d.epilogue & kEpilogueGelu) != 0) x = 0.5 * x * (1 + std::tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)));
  return x;
}

/// Rounded to the 10 bits of TF32, ties away from zero.
float to_tf32(float x) {
  const auto bits = std::bit_cast<std::uint32_t>(x);
  return std::isfinite(x) ? std::bit_cast<float>((bits + 0x1000u) & ~0x1fffu) : x;
}

/// The sum over k as the compute type has it: f32 sums are added in f32.
double dot(const unsigned char* a, const unsigned char* b, const Layout& al, const Layout& bl, const Description& d,
           std::int64_t i, std::int64_t j, std::int64_t k) {
  double wide = 0;
  float narrow = 0;
  const bool in_tf32 = d.compute_type == kCompute32FFastTF32, in_f32 = d.compute_type == kCompute32F || in_tf32;
  for (std::int64_t p = 0; p < k; ++p) {
    const double x = read(a, al.type, d.transpose_a == kOperationNone ? i + p * al.leading : p + i * al.leading);
    const double y = read(b, bl.type, d.transpose_b == kOperationNone ? p + j * bl.leading : j + p * bl.leading);
    const auto u = static_cast<float>(x), v = static_cast<float>(y);
    if (in_tf32)
      narrow += to_tf32(u) * to_tf32(v);
    else if (in_f32)
      narrow += u * v;
    else
      wide += x * y;
  }
  return in_f32 ? static_cast<double>(narrow) : wide;
}

const unsigned char* bytes_at(const void* address, const Layout& l) {
  const std::int64_t last = (l.batches - 1) * l.batch_stride + (static_cast<std::int64_t>(l.columns) - 1) * l.leading +
                            static_cast<std::int64_t>(l.rows);
  return HostMemory::instance().at(reinterpret_cast<Address>(address),
                                   static_cast<std::size_t>(last) * bytes_of(l.type));
}

struct Product {
  Description d;
  Layout al, bl, dl;
  double scale;
  const void *a, *b;
  void* out;
};

Result multiply(const Product& p) {
  const auto& [d, al, bl, dl, scale, a, b, out] = p;
  const auto k = static_cast<std::int64_t>(d.transpose_a == kOperationNone ? al.columns : al.rows);
  const unsigned char *const x = bytes_at(a, al), *const y = bytes_at(b, bl);
  auto* const to = const_cast<unsigned char*>(bytes_at(out, dl));
  const Layout bias_layout{d.bias_type < 0 ? dl.type : d.bias_type, dl.rows, 1, static_cast<std::int64_t>(dl.rows)};
  const unsigned char* const bias = d.bias != nullptr ? bytes_at(d.bias, bias_layout) : nullptr;
  const bool wants_bias = (d.epilogue & kEpilogueBias) != 0;
  if (x == nullptr || y == nullptr || to == nullptr || (wants_bias && bias == nullptr)) return kInvalidValue;
  for (std::int64_t batch = 0; batch < dl.batches; ++batch) {
    const auto shift = [&](const unsigned char* at, const Layout& l) {
      return at + batch * l.batch_stride * static_cast<std::int64_t>(bytes_of(l.type));
    };
    for (std::int64_t j = 0; j < static_cast<std::int64_t>(dl.columns); ++j)
      for (std::int64_t i = 0; i < static_cast<std::int64_t>(dl.rows); ++i) {
        const double sum = scale * dot(shift(x, al), shift(y, bl), al, bl, d, i, j, k);
        write(const_cast<unsigned char*>(shift(to, dl)), dl.type, i + j * dl.leading,
              finished(sum, d, wants_bias ? read(bias, bias_layout.type, i) : 0));
      }
  }
  const std::int64_t last = (dl.batches - 1) * dl.batch_stride +
                            (static_cast<std::int64_t>(dl.columns) - 1) * dl.leading +
                            static_cast<std::int64_t>(dl.rows);
  HostMemory::instance().mark_written(reinterpret_cast<Address>(out),
                                      static_cast<std::size_t>(last) * bytes_of(dl.type));
  return kSuccess;
}

Result host_create(Handle* library) { return *library = new int(0), kSuccess; }
Result host_matmul_run(Handle, Handle description, const void* alpha, const void* a, Handle a_layout, const void* b,
                       Handle b_layout, const void*, const void*, Handle, void* out, Handle d_layout,
                       const MatmulAlgorithm* algorithm, void*, std::size_t, Handle stream) {
  const void* const operands[] = {a, b, out};
  for (int i = 0; i < 3; ++i)
    if (reinterpret_cast<std::uintptr_t>(operands[i]) % algorithm->data[i] != 0) return kInvalidValue;
  const auto& d = *static_cast<Description*>(description);
  const double scale = d.scale_type == kReal64F   ? *static_cast<const double*>(alpha)
                       : d.scale_type == kReal32I ? *static_cast<const std::int32_t*>(alpha)
                                                  : static_cast<double>(*static_cast<const float*>(alpha));
  const Product p{d,
                  *static_cast<Layout*>(a_layout),
                  *static_cast<Layout*>(b_layout),
                  *static_cast<Layout*>(d_layout),
                  scale,
                  a,
                  b,
                  out};
  return host_enqueue(stream, [p] { return multiply(p); });
}

Result host_description_create(Handle* made, int compute_type, int scale_type) {
  return *made = new Description{compute_type, scale_type}, kSuccess;
}
Result host_description_destroy(Handle d) { return delete static_cast<Description*>(d), kSuccess; }
Result host_description_set(Handle description, int attribute, const void* value, std::size_t bytes) {
  auto& d = *static_cast<Description*>(description);
  switch (attribute) {
    case kTransA: std::memcpy(&d.transpose_a, value, bytes); return kSuccess;
    case kTransB: std::memcpy(&d.transpose_b, value, bytes); return kSuccess;
    case kEpilogue: std::memcpy(&d.epilogue, value, bytes); return kSuccess;
    case kBiasPointer: std::memcpy(&d.bias, value, bytes); return kSuccess;
    case kBiasDataType: std::memcpy(&d.bias_type, value, bytes); return kSuccess;
    default: return kInvalidValue;
  }
}
Result host_layout_create(Handle* layout, int type, std::uint64_t rows, std::uint64_t columns, std::int64_t leading) {
  if (leading < static_cast<std::int64_t>(rows)) return kInvalidValue;
  return *layout = new Layout{type, rows, columns, leading}, kSuccess;
}
Result host_layout_destroy(Handle l) { return delete static_cast<Layout*>(l), kSuccess; }
Result host_layout_set(Handle layout, int attribute, const void* value, std::size_t bytes) {
  auto& l = *static_cast<Layout*>(layout);
  switch (attribute) {
    case kLayoutOrder: std::memcpy(&l.order, value, bytes); return l.order == kOrderColumns ? kSuccess : kInvalidValue;
    case kLayoutBatchCount: std::memcpy(&l.batches, value, bytes); return kSuccess;
    case kLayoutBatchStride: std::memcpy(&l.batch_stride, value, bytes); return kSuccess;
    default: return kInvalidValue;
  }
}
Result host_preference_create(Handle* made) { return *made = new Preference, kSuccess; }
Result host_preference_destroy(Handle p) { return delete static_cast<Preference*>(p), kSuccess; }
Result host_preference_set(Handle p, int attribute, const void* value, std::size_t bytes) {
  auto& preference = *static_cast<Preference*>(p);
  switch (attribute) {
    case kPreferenceMaxWorkspace: std::memcpy(&preference.workspace, value, bytes); return kSuccess;
    case kPreferenceAlignmentA: std::memcpy(&preference.alignments[0], value, bytes); return kSuccess;
    case kPreferenceAlignmentB: std::memcpy(&preference.alignments[1], value, bytes); return kSuccess;
    case kPreferenceAlignmentC:
    case kPreferenceAlignmentD: std::memcpy(&preference.alignments[2], value, bytes); return kSuccess;
    default: return kInvalidValue;
  }
}
/// What the library itself accepts: int8 needs transposed a and sizes in fours.
Result host_heuristic(Handle, Handle description, Handle a, Handle b, Handle, Handle out, Handle preference, int wanted,
                      MatmulHeuristic* found, int* count) {
  const auto& d = *static_cast<Description*>(description);
  const auto &al = *static_cast<Layout*>(a), &bl = *static_cast<Layout*>(b), &dl = *static_cast<Layout*>(out);
  *count = 0;
  if (wanted < 1) return kInvalidValue;
  if (al.type == kReal8I && (d.transpose_a != kOperationTranspose || d.transpose_b != kOperationNone ||
                             al.leading % 4 != 0 || bl.leading % 4 != 0 || dl.leading % 4 != 0))
    return 15;  // CUBLAS_STATUS_NOT_SUPPORTED
  *found = MatmulHeuristic{}, *count = 1;
  for (int i = 0; i < 3; ++i) found->algorithm.data[i] = static_cast<Preference*>(preference)->alignments[i];
  return kSuccess;
}

}  // namespace

const MatmulFunctions& host_matmul() {
  static const MatmulFunctions functions = [] {
    MatmulFunctions f;
    f.create = &host_create, f.matmul = &host_matmul_run;
    f.description_create = &host_description_create, f.description_destroy = &host_description_destroy;
    f.description_set = &host_description_set, f.layout_create = &host_layout_create;
    f.layout_destroy = &host_layout_destroy, f.layout_set = &host_layout_set;
    f.preference_create = &host_preference_create, f.preference_destroy = &host_preference_destroy;
    f.preference_set = &host_preference_set, f.heuristic = &host_heuristic;
    return f;
  }();
  return functions;
}

}  // namespace fermata::gpu
