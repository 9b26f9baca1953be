// Fourier transforms of one length: its stages, their tables, and how they are put together.
//
// Up to some thousand elements all lines of a vector go through the stages together. Longer lines are cut into a
// matrix, whose columns are transformed and then its rows (Bailey, Journal of Supercomputing 4, 1990): each group of
// columns or rows stays in the cache, and one line fills all lanes. Lengths with a large prime factor are convolutions
// with a chirp (Bluestein, IEEE Transactions on Audio 18, 1970). Which of the three it is depends on the length alone,
// so that a line has the same bits in any batch.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "codegen_cpu/library/fft_lanes.h"
#include "ir/fork.h"
#include "runtime/function_ref.h"

namespace fermata {

/// The loops for the processor; with few lines those of shorter vectors.
template <class T> const FftLanes<T>& fft_lanes(std::int64_t lines = kMostFftLanes);

/// Part `part` of `parts` of a turn, backwards, as a pair.
template <class T> void append_root(std::vector<T>& table, std::int64_t part, std::int64_t parts);

/// The stages of a length without large prime factors.
template <class T> class FftStages {
 public:
  FftStages() = default;
  explicit FftStages(std::int64_t n);
  std::int64_t size() const { return n_; }
  /// Of x and y, which each hold a transform, the one with the result.
  T* run(const FftLanes<T>& lanes, T* x, T* y, bool inverse) const;

 private:
  struct Stage {
    std::int64_t radix, left, stride;
    std::vector<T> roots, circle;
  };
  std::int64_t n_ = 1;
  std::vector<Stage> stages_;
};

template <class T> class FftTransform {
 public:
  /// Transforms from this length on are of one line at a time.
  static constexpr std::int64_t kLong = 4096;

  explicit FftTransform(std::int64_t n);
  bool is_long() const { return n_ >= kLong; }
  /// Elements of each of the two buffers of run_lanes().
  std::int64_t room() const { return padded_ == 0 ? n_ : padded_; }
  /// The first n elements of x; x and y may be written. The result is in one of them.
  T* run_lanes(const FftLanes<T>& lanes, T* x, T* y, bool inverse) const;
  /// Pairs side by side, from x to y; of a long one.
  void run_line(const T* x, T* y, bool inverse) const;
  /// How many numbers the tables hold.
  std::int64_t table_size() const;

 private:
  void prepare_matrix();
  void prepare_convolution();
  void run_matrix(const T* x, T* y, bool inverse) const;
  void convolve_line(const T* x, T* y, bool inverse) const;

  std::int64_t n_, padded_ = 0;  // padded: the length of the convolution, if it is one
  FftStages<T> stages_;          // of a short one, or of its convolution
  FftStages<T> columns_, rows_;  // of a matrix
  std::vector<T> turns_;         // what is between columns and rows, for each group of lanes
  std::unique_ptr<FftTransform> long_convolution_;
  std::vector<T> chirp_, spectrum_;  // pairs
};

/// The transform of `size` complex numbers, and what real lines of twice as many need.
template <class T> struct KeptTransform {
  explicit KeptTransform(std::int64_t size);
  std::int64_t table_size() const { return transform.table_size() + static_cast<std::int64_t>(roots.size()); }
  FftTransform<T> transform;
  std::vector<T> roots;
};
template <class T> std::shared_ptr<const KeptTransform<T>> kept_transform(std::int64_t size);

/// Calls run(line) for each of the long lines of a call; threads share lines, or each line where there are few.
void share_long_lines(std::int64_t count, double line_ns, FunctionRef<void(std::int64_t line)> run);

/// What was used last: tables cost as much as several lines.
template <class Key, class Value> class KeptTables {
 public:
  std::shared_ptr<const Value> get(const Key& key) {
    constexpr std::int64_t kMostNumbers = 1 << 24;
    const std::lock_guard lock(mutex_);
    if (const auto found = kept_.find(key); found != kept_.end()) return found->second;
    const auto made = std::make_shared<const Value>(key);
    numbers_ += made->table_size();
    if (numbers_ > kMostNumbers) kept_.clear(), numbers_ = made->table_size();
    return kept_[key] = made;
  }

 private:
  ForkSafeMutex mutex_;
  std::map<Key, std::shared_ptr<const Value>> kept_;
  std::int64_t numbers_ = 0;
};

}  // namespace fermata
