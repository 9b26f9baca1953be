// The body of grid_sample_*.cpp. Everything here has internal linkage and nothing of the standard library is called
// (csr_rows_body.h).
//
// Places go through in blocks. For each axis of the image the taps around all places of a block are found, then the
// products of taps, and each channel is read at these. Loops over a block have a fixed length, so that compilers make
// vectors of them; what a block lacks reads the first element with a weight of zero.
#include "codegen_cpu/irregular/grid_sample.h"

namespace fermata {
namespace {

constexpr int kBlock = 64, kMostTaps = 4;
/// Products of taps that are kept at once.
constexpr int kMostProducts = 16;
constexpr int kNearest = 0, kLinear = 1, kZeros = 0, kBorder = 1, kReflection = 2;

inline float floor_of(float x) { return __builtin_floorf(x); }
inline double floor_of(double x) { return __builtin_floor(x); }
inline float round_of(float x) { return __builtin_rintf(x); }
inline double round_of(double x) { return __builtin_rint(x); }
inline float size_of(float x) { return __builtin_fabsf(x); }
inline double size_of(double x) { return __builtin_fabs(x); }
/// NaN stays.
template <class T> inline T between(T x, T low, T high) {
  const T above = x < low ? low : x;
  return above > high ? high : above;
}

template <class T, class Index> struct AxisTaps {
  Index index[kMostTaps][kBlock];
  T weight[kMostTaps][kBlock];
};

/// One axis of an image: its taps around places.
template <class T> struct Axis {
  T last;  // position of the last element
  int mode, padding;
  bool align_corners;

  T place_of(T coordinate) const {
    const T length = last + 1;
    return align_corners ? (coordinate + 1) * (last / 2) : ((coordinate + 1) * length - 1) / 2;
  }
  /// Mirrored at both ends until it is inside.
  T reflected(T place) const {
    const T low = align_corners ? T(0) : T(-0.5), span = align_corners ? last : last + 1;
    if (span <= 0) return place * 0;
    const T distance = size_of(place - low), turn = distance - floor_of(distance / (2 * span)) * (2 * span);
    return between(span - size_of(turn - span) + low, T(0), last);
  }
  /// Where taps are counted from. Far outside nothing changes.
  T prepared(T place) const {
    if (mode == kNearest || mode == kLinear) {
      if (padding == kBorder) return between(place, T(0), last);
      if (padding == kReflection) return reflected(place);
    }
    if (padding != kReflection) return between(place, T(-3), last + 3);
    // A period, of which the taps are mirrored.
    const T period = 2 * (align_corners ? last : last + 1);
    return period <= 0 ? place * 0 : between(place - floor_of(place / period) * period, T(0), period);
  }
  template <class Index> void put(AxisTaps<T, Index>& taps, int tap, int at, T whole, T weight) const {
    if (padding == kZeros) weight = whole >= 0 && whole <= last ? weight : 0 * whole;
    if (padding == kReflection) whole = reflected(whole);
    // NaN is the first one.
    taps.index[tap][at] = whole > 0 ? static_cast<Index>(whole < last ? whole : last) : Index{0};
    taps.weight[tap][at] = weight;
  }
};

/// Keys' kernel with a = -3/4, near the place and beyond the next element.
template <class T> inline T near(T d) { return ((T(1.25) * d - T(2.25)) * d) * d + 1; }
template <class T> inline T far(T d) { return ((T(-0.75) * d + T(3.75)) * d - 6) * d + 3; }

/// `kMode` and `kPadding` are those of the axis: constants leave the loops without branches.
template <int kMode, int kPadding, class T, class Index>
void find_taps(const Axis<T>& given, const T* places, AxisTaps<T, Index>& taps) {
  const Axis<T> axis{given.last, kMode, kPadding, given.align_corners};
  for (int i = 0; i < kBlock; ++i) {
    const T place = axis.prepared(axis.place_of(places[i]));
    if (kMode == kNearest) {
      axis.put(taps, 0, i, round_of(place), T(1));
      continue;
    }
    const T first = floor_of(place), t = place - first;
    if (kMode == kLinear) {
      axis.put(taps, 0, i, first, 1 - t), axis.put(taps, 1, i, first + 1, t);
    } else {
      axis.put(taps, 0, i, first - 1, far(t + 1)), axis.put(taps, 1, i, first, near(t));
      axis.put(taps, 2, i, first + 1, near(1 - t)), axis.put(taps, 3, i, first + 2, far(2 - t));
    }
  }
}
template <int kMode, class T, class Index>
void find_taps_of_mode(const Axis<T>& axis, const T* places, AxisTaps<T, Index>& taps) {
  if (axis.padding == kZeros) return find_taps<kMode, kZeros>(axis, places, taps);
  if (axis.padding == kBorder) return find_taps<kMode, kBorder>(axis, places, taps);
  return find_taps<kMode, kReflection>(axis, places, taps);
}
template <class T, class Index> void find_any_taps(const Axis<T>& axis, const T* places, AxisTaps<T, Index>& taps) {
  if (axis.mode == kNearest) return find_taps_of_mode<0>(axis, places, taps);
  if (axis.mode == kLinear) return find_taps_of_mode<1>(axis, places, taps);
  return find_taps_of_mode<2>(axis, places, taps);
}

/// Elements of a channel and their weights.
template <class T, class Index> struct Products {
  Index offset[kMostProducts][kBlock];
  T weight[kMostProducts][kBlock];
  int count = 0;

  /// The next product: tap `at[k]` of axis k.
  void add(const AxisTaps<T, Index>* taps, const int* at, unsigned axes, const std::int64_t* sizes) {
    Index* const to = offset[count];
    T* const w = weight[count];
    for (int i = 0; i < kBlock; ++i) to[i] = taps[0].index[at[0]][i], w[i] = taps[0].weight[at[0]][i];
    for (unsigned k = 1; k < axes; ++k) {
      const auto size = static_cast<Index>(sizes[k]);
      const Index* const index = taps[k].index[at[k]];
      const T* const own = taps[k].weight[at[k]];
      for (int i = 0; i < kBlock; ++i) to[i] = to[i] * size + index[i], w[i] *= own[i];
    }
    ++count;
  }
};

template <int kCount, class T, class Index> inline void add_products(const Products<T, Index>& p, const T* x, T* sums) {
  const int count = kCount == 0 ? p.count : kCount;
  for (int i = 0; i < kBlock; ++i) {
    T sum = sums[i];
    for (int k = 0; k < count; ++k) sum += x[p.offset[k][i]] * p.weight[k][i];
    sums[i] = sum;
  }
}
template <class T, class Index> void add_channel(const Products<T, Index>& p, const T* x, T* sums) {
  switch (p.count) {
    case 1: return add_products<1>(p, x, sums);
    case 4: return add_products<4>(p, x, sums);
    case 8: return add_products<8>(p, x, sums);
    case 16: return add_products<16>(p, x, sums);
    default: return add_products<0>(p, x, sums);
  }
}

template <class T, class Index> void sample_block(const SampledImage& image, std::int64_t begin, int count) {
  const unsigned axes = image.axes;
  AxisTaps<T, Index> taps[kMaxRank];
  std::int64_t elements = 1;
  for (unsigned k = 0; k < axes; ++k) {
    // The last axis comes first in a place.
    const T* const grid = static_cast<const T*>(image.grid) + begin * axes + (axes - 1 - k);
    T places[kBlock] = {};
    for (int i = 0; i < count; ++i) places[i] = grid[static_cast<unsigned>(i) * axes];
    find_any_taps(Axis<T>{static_cast<T>(image.sizes[k] - 1), image.mode, image.padding, image.align_corners}, places,
                  taps[k]);
    elements *= image.sizes[k];
  }
  const int in_axis = image.mode == kNearest ? 1 : image.mode == kLinear ? 2 : 4;
  int at[kMaxRank] = {};
  bool is_first = true;
  for (bool is_done = false; !is_done;) {
    Products<T, Index> products;
    while (!is_done && products.count < kMostProducts) {
      products.add(taps, at, axes, image.sizes);
      unsigned k = axes;
      while (k > 0 && ++at[k - 1] == in_axis) at[--k] = 0;
      is_done = k == 0;
    }
    for (std::int64_t c = 0; c < image.channels; ++c) {
      T* const out = static_cast<T*>(image.out) + c * image.places + begin;
      T sums[kBlock] = {};
      if (!is_first)
        for (int i = 0; i < count; ++i) sums[i] = out[i];
      add_channel(products, static_cast<const T*>(image.x) + c * elements, sums);
      for (int i = 0; i < count; ++i) out[i] = sums[i];
    }
    is_first = false;
  }
}

template <class T> void sample(const SampledImage& image, std::int64_t begin, std::int64_t end) {
  std::int64_t elements = 1;
  for (unsigned k = 0; k < image.axes; ++k) elements *= image.sizes[k];
  const bool is_short = elements <= INT32_MAX;
  for (std::int64_t i = begin; i < end; i += kBlock) {
    const int count = static_cast<int>(end - i < kBlock ? end - i : kBlock);
    is_short ? sample_block<T, std::int32_t>(image, i, count) : sample_block<T, std::int64_t>(image, i, count);
  }
}

constexpr GridSampleKernels kKernels{&sample<float>, &sample<double>};

}  // namespace
}  // namespace fermata
