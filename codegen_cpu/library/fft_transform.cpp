// See fft_transform.h.
#include "codegen_cpu/library/fft_transform.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/positions.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

const FftLaneKernels& kernels_of(std::int64_t vector_bytes) {
#if defined(__x86_64__)
  if (vector_bytes > 32 && eager::instruction_set() == "avx512") return kFftLanesAvx512;
  if (vector_bytes > 16 && eager::instruction_set() != "baseline") return kFftLanesAvx2;
#else
  static_cast<void>(vector_bytes);
#endif
  return kFftLanesBaseline;
}

bool has_small_factors(std::int64_t n) {
  for (std::int64_t p = 2; p <= kLargestFftFactor; ++p)
    while (n % p == 0) n /= p;
  return n == 1;
}

/// The least length from n on that stages of 2, 3, 4 and 5 transform.
std::int64_t quick_length(std::int64_t n) {
  std::int64_t best = std::int64_t{1} << 62;
  for (std::int64_t fives = 1; fives < 2 * n; fives *= 5)
    for (std::int64_t threes = fives; threes < 2 * n; threes *= 3) {
      std::int64_t size = threes;
      while (size < n) size *= 2;
      best = std::min(best, size);
    }
  return best;
}

/// The divisor of n nearest to its square root, from below.
std::int64_t middle_divisor(std::int64_t n) {
  auto d = static_cast<std::int64_t>(std::sqrt(static_cast<double>(n)));
  while (n % d != 0) --d;
  return d;
}

template <class T> LaneBuffer<T> parts_of(T* x, std::int64_t lanes, bool inverse) {
  return inverse ? LaneBuffer<T>{x + lanes, x} : LaneBuffer<T>{x, x + lanes};
}

/// The product of two pairs; with `inverse` of the first one with the second one conjugated.
template <class T> void multiply_pair(const T* x, const T* by, bool inverse, T* y) {
  const T re = x[0], im = x[1], turn = inverse ? -by[1] : by[1];
  y[0] = re * by[0] - im * turn, y[1] = re * turn + im * by[0];
}

}  // namespace

template <class T> const FftLanes<T>& fft_lanes(std::int64_t lines) {
  const FftLaneKernels& all = kernels_of(lines * static_cast<std::int64_t>(sizeof(T)));
  if constexpr (sizeof(T) == sizeof(float))
    return all.f32;
  else
    return all.f64;
}

/// The angle is at most an eighth of a turn, where cosine and sine are exact to the last place.
template <class T> void append_root(std::vector<T>& table, std::int64_t part, std::int64_t parts) {
  part %= parts;
  const bool is_below = 2 * part > parts;
  if (is_below) part = parts - part;
  const bool is_left = 4 * part > parts;
  if (is_left) part = parts - 2 * part;  // in halves from here on
  const std::int64_t halves = is_left ? part : 2 * part;
  const bool is_steep = 4 * halves > parts;
  const double angle = std::numbers::pi * static_cast<double>(is_steep ? parts - 2 * halves : 2 * halves) /
                       static_cast<double>(2 * parts);
  double cosine = std::cos(angle), sine = std::sin(angle);
  if (is_steep) std::swap(cosine, sine);
  table.push_back(static_cast<T>(is_left ? -cosine : cosine));
  table.push_back(static_cast<T>(is_below ? sine : -sine));
}

template <class T> FftStages<T>::FftStages(std::int64_t n) : n_(n) {
  std::int64_t stride = 1;
  for (std::int64_t radix = 4, left = n; left > 1;) {
    if (left % radix != 0) {
      radix = radix == 4 ? 2 : radix == 2 ? 3 : radix + 2;
      continue;
    }
    Stage& stage = stages_.emplace_back(Stage{radix, left, stride, {}, {}});
    for (std::int64_t k = 0; k < radix; ++k) append_root(stage.circle, k, radix);
    for (std::int64_t p = 0; p < left / radix; ++p)
      for (std::int64_t k = 1; k < radix; ++k) append_root(stage.roots, p * k, left);
    left /= radix, stride *= radix;
  }
}
template <class T> T* FftStages<T>::run(const FftLanes<T>& lanes, T* x, T* y, bool inverse) const {
  for (const Stage& s : stages_) {
    const LaneStage<T> stage{s.radix, s.left, s.stride, s.roots.data(), s.circle.data()};
    lanes.stage(stage, n_, parts_of(x, lanes.lanes, inverse), parts_of(y, lanes.lanes, inverse));
    std::swap(x, y);
  }
  return x;
}

template <class T> FftTransform<T>::FftTransform(std::int64_t n) : n_(n) {
  if (!has_small_factors(n))
    prepare_convolution();
  else if (is_long())
    prepare_matrix();
  else
    stages_ = FftStages<T>(n);
}

template <class T> T* FftTransform<T>::run_lanes(const FftLanes<T>& lanes, T* x, T* y, bool inverse) const {
  if (padded_ == 0) return stages_.run(lanes, x, y, inverse);
  const std::int64_t element = 2 * lanes.lanes;
  const auto parts = [&](T* at, bool is_inverse) { return parts_of(at, lanes.lanes, is_inverse); };
  lanes.multiply(parts(x, inverse), chirp_.data(), n_, parts(x, inverse));
  std::fill(x + n_ * element, x + padded_ * element, T{0});
  T* const turned = stages_.run(lanes, x, y, inverse);
  lanes.multiply(parts(turned, inverse), spectrum_.data(), padded_, parts(turned, inverse));
  T* const result = stages_.run(lanes, turned, turned == x ? y : x, !inverse);
  lanes.multiply(parts(result, inverse), chirp_.data(), n_, parts(result, inverse));
  return result;
}

template <class T> void FftTransform<T>::run_line(const T* x, T* y, bool inverse) const {
  if (padded_ == 0)
    run_matrix(x, y, inverse);
  else
    convolve_line(x, y, inverse);
}

template <class T> std::int64_t FftTransform<T>::table_size() const {
  const std::size_t own = turns_.size() + chirp_.size() + spectrum_.size();
  return static_cast<std::int64_t>(own) + 4 * room() + (long_convolution_ ? long_convolution_->table_size() : 0);
}

// ---- Matrices. Element [i, j] is number i * rows + j of the line; result [k, l] is number k + l * columns.

template <class T> void FftTransform<T>::prepare_matrix() {
  const std::int64_t columns = middle_divisor(n_), rows = n_ / columns, lanes = fft_lanes<T>().lanes;
  columns_ = FftStages<T>(columns), rows_ = FftStages<T>(rows);
  const std::int64_t groups = (rows + lanes - 1) / lanes;
  turns_.resize(static_cast<std::size_t>(groups * columns * 2 * lanes));
  std::vector<T> root;
  T* to = turns_.data();
  for (std::int64_t group = 0; group < groups; ++group)
    for (std::int64_t k = 0; k < columns; ++k, to += 2 * lanes)
      for (std::int64_t lane = 0; lane < lanes; ++lane) {
        root.clear();
        append_root(root, k * std::min(group * lanes + lane, rows - 1), n_);
        to[lane] = root[0], to[lanes + lane] = root[1];
      }
}

template <class T> void FftTransform<T>::run_matrix(const T* x, T* y, bool inverse) const {
  const FftLanes<T>& lanes = fft_lanes<T>();
  const std::int64_t width = lanes.lanes, columns = columns_.size(), rows = rows_.size();
  const Scratch<T> between(2 * n_);
  // Lines [begin, end), a vector at a time: starts step apart.
  const auto run_groups = [&](const FftStages<T>& stages, std::int64_t count, auto&& load, auto&& save) {
    const double ns = static_cast<double>(stages.size() * width);
    parallel_for(0, (count + width - 1) / width, ns, [&](std::int64_t begin, std::int64_t end) {
      const Scratch<T> room(4 * stages.size() * width);
      T *const first = room.data(), *const second = first + 2 * stages.size() * width;
      for (std::int64_t group = begin; group < end; ++group) {
        const std::int64_t from = group * width, lines = std::min(width, count - from);
        load(from, lines, first);
        T* const result = stages.run(lanes, first, second, inverse);
        save(group, from, lines, result);
      }
    });
  };
  const auto starts_at = [&](std::int64_t from, std::int64_t lines, std::int64_t step, std::int64_t* to) {
    for (std::int64_t l = 0; l < width; ++l) to[l] = (from + std::min(l, lines - 1)) * step;
  };
  run_groups(
      columns_, rows,
      [&](std::int64_t from, std::int64_t lines, T* to) {
        std::int64_t at[kMostFftLanes];
        starts_at(from, lines, 1, at);
        lanes.load(x, {at, rows, columns, 2, lines}, to, 1);
      },
      [&](std::int64_t group, std::int64_t from, std::int64_t lines, T* result) {
        std::int64_t at[kMostFftLanes];
        starts_at(from, lines, 1, at);
        const LaneBuffer<T> parts = parts_of(result, width, inverse);
        lanes.multiply_lanes(parts, turns_.data() + group * columns * 2 * width, columns, parts);
        lanes.store(result, 1, between.data(), {at, rows, columns, 2, lines});
      });
  run_groups(
      rows_, columns,
      [&](std::int64_t from, std::int64_t lines, T* to) {
        std::int64_t at[kMostFftLanes];
        starts_at(from, lines, rows, at);
        lanes.load(between.data(), {at, 1, rows, 2, lines}, to, 1);
      },
      [&](std::int64_t, std::int64_t from, std::int64_t lines, T* result) {
        std::int64_t at[kMostFftLanes];
        starts_at(from, lines, 1, at);
        lanes.store(result, 1, y, {at, columns, rows, 2, lines});
      });
}

// ---- Convolutions: with jk = (j^2 + k^2 - (k - j)^2) / 2 a transform is one with a chirp.

template <class T> void FftTransform<T>::prepare_convolution() {
  padded_ = quick_length(2 * n_ - 1);
  for (std::int64_t k = 0; k < n_; ++k) append_root(chirp_, k * k % (2 * n_), 2 * n_);
  std::vector<T> filter(static_cast<std::size_t>(2 * padded_));
  const T scale = 1 / static_cast<T>(padded_);
  for (std::int64_t k = 0; k < n_; ++k)
    for (const std::int64_t at : {k, (padded_ - k) % padded_}) {
      filter[static_cast<std::size_t>(2 * at)] = chirp_[static_cast<std::size_t>(2 * k)] * scale;
      filter[static_cast<std::size_t>(2 * at + 1)] = -chirp_[static_cast<std::size_t>(2 * k + 1)] * scale;
    }
  spectrum_.resize(filter.size());
  if (is_long()) {
    long_convolution_ = std::make_unique<FftTransform>(padded_);
    long_convolution_->run_line(filter.data(), spectrum_.data(), false);
    return;
  }
  stages_ = FftStages<T>(padded_);
  const FftLanes<T>& lanes = fft_lanes<T>(1);
  const Scratch<T> room(4 * padded_ * lanes.lanes);
  T *const first = room.data(), *const second = first + 2 * padded_ * lanes.lanes;
  const std::vector<std::int64_t> starts(static_cast<std::size_t>(lanes.lanes));
  const LaneLines one{starts.data(), 1, padded_, 2, 1};
  lanes.load(filter.data(), one, first, 1);
  lanes.store(stages_.run(lanes, first, second, false), 1, spectrum_.data(), one);
}

template <class T> void FftTransform<T>::convolve_line(const T* x, T* y, bool inverse) const {
  const Scratch<T> room(4 * padded_);
  T *const padded = room.data(), *const turned = padded + 2 * padded_;
  for (std::int64_t k = 0; k < n_; ++k) multiply_pair(x + 2 * k, chirp_.data() + 2 * k, inverse, padded + 2 * k);
  std::fill(padded + 2 * n_, padded + 2 * padded_, T{0});
  long_convolution_->run_line(padded, turned, inverse);
  for (std::int64_t k = 0; k < padded_; ++k)
    multiply_pair(turned + 2 * k, spectrum_.data() + 2 * k, inverse, turned + 2 * k);
  long_convolution_->run_line(turned, padded, !inverse);
  for (std::int64_t k = 0; k < n_; ++k) multiply_pair(padded + 2 * k, chirp_.data() + 2 * k, inverse, y + 2 * k);
}

// ---- What is kept

template <class T> KeptTransform<T>::KeptTransform(std::int64_t size) : transform(size) {
  for (std::int64_t k = 0; k < size; ++k) append_root(roots, k, 2 * size);
}
template <class T> std::shared_ptr<const KeptTransform<T>> kept_transform(std::int64_t size) {
  static auto& kept = *new KeptTables<std::int64_t, KeptTransform<T>>;
  return kept.get(size);
}

void share_long_lines(std::int64_t count, double line_ns, FunctionRef<void(std::int64_t line)> run) {
  const auto run_some = [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t line = begin; line < end; ++line) run(line);
  };
  if (count < thread_count())
    run_some(0, count);
  else
    parallel_for(0, count, line_ns, run_some);
}

template const FftLanes<float>& fft_lanes<float>(std::int64_t);
template const FftLanes<double>& fft_lanes<double>(std::int64_t);
template void append_root<float>(std::vector<float>&, std::int64_t, std::int64_t);
template void append_root<double>(std::vector<double>&, std::int64_t, std::int64_t);
template class FftStages<float>;
template class FftStages<double>;
template class FftTransform<float>;
template class FftTransform<double>;
template std::shared_ptr<const KeptTransform<float>> kept_transform<float>(std::int64_t);
template std::shared_ptr<const KeptTransform<double>> kept_transform<double>(std::int64_t);

}  // namespace fermata
