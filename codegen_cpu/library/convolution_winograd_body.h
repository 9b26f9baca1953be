// The body of convolution_winograd_*.cpp. The includer defines FERMATA_VECTOR_BYTES. Everything here has internal
// linkage and nothing of the standard library is called (matmul_portable_body.h).
#include <cstdint>

#include "codegen_cpu/library/convolution_winograd_kernels.h"

#pragma GCC diagnostic ignored "-Wpsabi"  // vectors wider than a register are passed, but not out of this file

namespace fermata {
namespace {

typedef float Vector __attribute__((vector_size(FERMATA_VECTOR_BYTES)));
constexpr std::int64_t kLanes = FERMATA_VECTOR_BYTES / 4;

inline Vector load(const float* from) {
  Vector v;
  __builtin_memcpy(&v, from, sizeof(v));
  return v;
}
inline void store(float* to, Vector v) { __builtin_memcpy(to, &v, sizeof(v)); }
inline Vector load_some(const float* from, std::int64_t count) {
  Vector v{};
  for (std::int64_t i = 0; i < count; ++i) v[i] = from[i];
  return v;
}
inline void store_some(float* to, Vector v, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i) to[i] = v[i];
}

struct Quad {
  Vector v[4];
};
/// B^T d.
inline Quad transform_quad(Vector a, Vector b, Vector c, Vector d) { return {{a - c, b + c, c - b, b - d}}; }

/// One vector of channels of a tile: B^T d B.
template <class Load, class Store> inline void transform_tile(Load&& from, Store&& to) {
  Quad columns[4];
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) columns[k] = transform_quad(from(0, k), from(1, k), from(2, k), from(3, k));
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    const Quad row = transform_quad(columns[0].v[i], columns[1].v[i], columns[2].v[i], columns[3].v[i]);
#pragma GCC unroll 4
    for (int k = 0; k < 4; ++k) to(i * 4 + k, row.v[k]);
  }
}

void transform(const WinogradTiles& t) {
  const std::int64_t whole = t.channels - t.channels % kLanes;
  for (std::int64_t tile = 0; tile < t.tiles; ++tile) {
    const std::int64_t column = t.column + tile * kWinogradResults;
    const float* rows[kWinogradTile];
    std::int64_t place = t.place;
    const bool inside = column >= 0 && column + kWinogradTile <= t.width && t.rows[0] != nullptr &&
                        t.rows[1] != nullptr && t.rows[2] != nullptr && t.rows[3] != nullptr;
    for (std::int64_t i = 0; i < kWinogradTile; ++i) rows[i] = inside ? t.rows[i] + column * t.place : nullptr;
    if (!inside) {  // with zeros around the image
      float* room = t.room;
      for (std::int64_t i = 0; i < kWinogradTile; ++i) {
        rows[i] = room;
        for (std::int64_t k = 0; k < kWinogradTile; ++k, room += t.channels) {
          const bool is_there = t.rows[i] != nullptr && column + k >= 0 && column + k < t.width;
          const float* const from = is_there ? t.rows[i] + (column + k) * t.place : nullptr;
          for (std::int64_t c = 0; c < whole; c += kLanes) store(room + c, is_there ? load(from + c) : Vector{});
          for (std::int64_t c = whole; c < t.channels; ++c) room[c] = is_there ? from[c] : 0.0f;
        }
      }
      place = t.channels;
    }
    float* const to = t.to + tile * t.to_tile;
    for (std::int64_t c = 0; c < whole; c += kLanes)
      transform_tile([&](int i, int k) { return load(rows[i] + k * place + c); },
                     [&](int position, Vector v) { store(to + position * t.to_position + c, v); });
    if (const std::int64_t rest = t.channels - whole; rest != 0)
      transform_tile([&](int i, int k) { return load_some(rows[i] + k * place + whole, rest); },
                     [&](int position, Vector v) { store_some(to + position * t.to_position + whole, v, rest); });
  }
}

/// A^T m A: four results, at rows and columns 0 and 1.
template <class Load> inline void finish_tile(Load&& from, Vector (&results)[4]) {
  Vector above[4], below[4];
#pragma GCC unroll 4
  for (int k = 0; k < 4; ++k) {
    const Vector b = from(1, k), c = from(2, k);
    above[k] = from(0, k) + b + c, below[k] = b - c - from(3, k);
  }
  results[0] = above[0] + above[1] + above[2], results[1] = above[1] - above[2] - above[3];
  results[2] = below[0] + below[1] + below[2], results[3] = below[1] - below[2] - below[3];
}

void finish(const WinogradSums& s) {
  const std::int64_t whole = s.filters - s.filters % kLanes, rest = s.filters - whole;
  for (std::int64_t tile = 0; tile < s.tiles; ++tile) {
    const float* const from = s.sums + tile * s.sums_tile;
    float* const to = s.to + tile * kWinogradResults * s.place;
    const bool has_right = tile * kWinogradResults + 1 < s.columns, has_below = s.rows > 1;
    Vector not_finite{};  // NaN in a lane that has met a number which is not finite, or a sum that is not
    for (std::int64_t f = 0; f < s.filters; f += kLanes) {
      Vector results[4];
      finish_tile([&](int i, int k) { return load(from + (i * 4 + k) * s.sums_position + f); }, results);
      not_finite += (results[0] + results[1] + (results[2] + results[3])) * 0.0f;
      const auto write = [&](int number, std::int64_t offset) __attribute__((always_inline)) {
        if (f < whole)
          store(to + offset + f, results[number]);
        else
          store_some(to + offset + f, results[number], rest);
      };
      write(0, 0);
      if (has_right) write(1, s.place);
      if (!has_below) continue;
      write(2, s.row);
      if (has_right) write(3, s.row + s.place);
    }
    float sum = 0;
    for (std::int64_t l = 0; l < kLanes; ++l) sum += not_finite[l];
    s.is_finite[tile] = sum == 0;
  }
}

/// G g, of three numbers.
inline Quad transform_three(Vector a, Vector b, Vector c) {
  const Vector ends = (a + c) * 0.5f, middle = b * 0.5f;
  return {{a, ends + middle, ends - middle, c}};
}

void transform_filters(const WinogradFilters& w) {
  constexpr std::int64_t kWidth = 2 * kLanes, kTaps = 9;
  for (std::int64_t c = 0; c < w.channels; ++c)
    for (std::int64_t lane = 0; lane < kWidth; lane += kLanes) {
      const float* const from = w.from + c * kTaps * kWidth + lane;
      float* const to = w.to + c * kWidth + lane;
      Quad columns[3];
      for (int k = 0; k < 3; ++k)
        columns[k] =
            transform_three(load(from + k * kWidth), load(from + (3 + k) * kWidth), load(from + (6 + k) * kWidth));
      for (int i = 0; i < 4; ++i) {
        const Quad row = transform_three(columns[0].v[i], columns[1].v[i], columns[2].v[i]);
        for (int k = 0; k < 4; ++k) store(to + (i * 4 + k) * w.to_position, row.v[k]);
      }
    }
}

constexpr WinogradKernels kKernels{&transform, &finish, &transform_filters, 2 * kLanes};

}  // namespace
}  // namespace fermata
