// Cosine transforms as `call` kernels: Fourier transforms of the same lines, with a step before and one after.
//
// Type 2 is a transform of n real numbers, those of even place and then those of odd place backwards; type 3 is the
// same the other way round, and type 4 of even length one of n / 2 pairs (J. Makhoul, IEEE Transactions on Acoustics,
// Speech and Signal Processing 28, 1980). Type 1 is one of a mirrored line, type 4 of odd length one of 2 n pairs. The
// steps go over the rows of the transform's buffers, which are in the cache.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "codegen_cpu/irregular/lines.h"
#include "codegen_cpu/library/fft_transform.h"
#include "dispatch/kernel_files.h"
#include "ir/op_traits.h"
#include "ir/ops/linalg.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// The type, 3 as 2, and how many numbers.
using CosineKey = std::pair<int, std::int64_t>;

template <class T> struct CosineTables {
  explicit CosineTables(const CosineKey& key) : fft(kept_transform<T>(size_of(key.first, key.second))) {
    const auto [type, n] = key;
    if (type == 2)
      for (std::int64_t k = 0; k <= n / 2; ++k) append_root(turns, k, 4 * n);
    if (type != 4) return;
    if (n % 2 != 0)
      for (std::int64_t j = 0; j < n; ++j) append_root(turns, j, 4 * n), append_root(turns_after, 2 * j + 1, 8 * n);
    else
      for (std::int64_t j = 0; j < n / 2; ++j) append_root(turns, 8 * j + 1, 16 * n);
  }
  /// Of the Fourier transform, in pairs.
  static std::int64_t size_of(int type, std::int64_t n) {
    if (type == 1) return n - 1;
    if (type == 4) return n % 2 == 0 ? n / 2 : 2 * n;
    return n % 2 == 0 ? n / 2 : n;
  }
  std::int64_t table_size() const { return static_cast<std::int64_t>(turns.size() + turns_after.size()); }

  std::shared_ptr<const KeptTransform<T>> fft;
  std::vector<T> turns, turns_after;  // after: where those are others
};
template <class T> std::shared_ptr<const CosineTables<T>> kept_tables(int type, std::int64_t n) {
  static auto& kept = *new KeptTables<CosineKey, CosineTables<T>>;
  return kept.get({type == 3 ? 2 : type, n});
}

template <class T> class CosineCall {
 public:
  CosineCall(const CallArgs& args, unsigned axis, int type, std::int64_t n)
      : tables_(kept_tables<T>(type, n)),
        transform_(tables_->fft->transform),
        line_{type,
              n,
              CosineTables<T>::size_of(type, n),
              tables_->fft->roots.data(),
              tables_->turns.data(),
              tables_->turns_after.empty() ? tables_->turns.data() : tables_->turns_after.data()},
        x_(static_cast<const T*>(args.inputs[0].data)),
        y_(static_cast<T*>(args.outputs[0].data)),
        from_(args.inputs[0], axis),
        to_(args.outputs[0], axis) {}

  void run() const {
    if (!transform_.is_long())
      run_lanes();
    else
      share_long_lines(to_.count(), line_ns(), [this](std::int64_t line) { run_line(line); });
  }

 private:
  double line_ns() const {
    return static_cast<double>(line_.size) * (2 + 0.2 * std::log2(static_cast<double>(line_.size)));
  }
  bool is_inverse() const { return line_.type == 3; }

  /// Short lines, as many at a time as a vector has lanes.
  void run_lanes() const {
    const FftLanes<T>& lanes = fft_lanes<T>(to_.count());
    const std::int64_t groups = (to_.count() + lanes.lanes - 1) / lanes.lanes;
    parallel_for(0, groups, line_ns() * static_cast<double>(lanes.lanes), [&](std::int64_t begin, std::int64_t end) {
      const std::int64_t room = 2 * lanes.lanes * std::max(transform_.room(), line_.size + 1);
      const Scratch<T> scratch(2 * room + line_.n * lanes.lanes);
      for (std::int64_t group = begin; group < end; ++group)
        run_group(lanes, group * lanes.lanes, scratch.data(), scratch.data() + room, scratch.data() + 2 * room);
    });
  }
  void run_group(const FftLanes<T>& lanes, std::int64_t first_line, T* first, T* second, T* numbers) const {
    const std::int64_t lines = std::min(lanes.lanes, to_.count() - first_line);
    std::int64_t starts[kMostFftLanes], ends[kMostFftLanes];
    for (std::int64_t l = 0; l < lanes.lanes; ++l) {
      const std::int64_t line = first_line + std::min(l, lines - 1);
      starts[l] = from_[line], ends[l] = to_[line];
    }
    lanes.load(x_, {starts, from_.stride(), line_.n, 1, lines}, numbers, 1);
    lanes.cosines.before(line_, numbers, second, first);
    T* const result = transform_.run_lanes(lanes, first, second, is_inverse());
    lanes.cosines.after(line_, result, result == first ? second : first, numbers);
    lanes.store(numbers, 1, y_, {ends, to_.stride(), line_.n, 1, lines});
  }

  void run_line(std::int64_t number) const {
    const T* const x = x_ + from_[number];
    T* const y = y_ + to_[number];
    const std::int64_t room = 2 * line_.size + 2;
    const Scratch<T> scratch(2 * room + (from_.stride() == 1 && to_.stride() == 1 ? 0 : line_.n));
    T *const first = scratch.data(), *const second = first + room, *const numbers = second + room;
    const auto& steps = fft_lanes<T>().line_cosines;
    if (from_.stride() != 1)
      for (std::int64_t i = 0; i < line_.n; ++i) numbers[i] = x[i * from_.stride()];
    steps.before(line_, from_.stride() == 1 ? x : numbers, second, first);
    transform_.run_line(first, second, is_inverse());
    T* const result = to_.stride() == 1 ? y : numbers;
    steps.after(line_, second, first, result);
    if (to_.stride() != 1)
      for (std::int64_t i = 0; i < line_.n; ++i) y[i * to_.stride()] = numbers[i];
  }

  const std::shared_ptr<const CosineTables<T>> tables_;
  const FftTransform<T>& transform_;
  const CosineLine<T> line_;
  const T* const x_;
  T* const y_;
  const LineStarts from_, to_;
};

void dct_call(const CallArgs& args) {
  if (args.outputs[0].element_count() == 0) return;
  const auto op = attributes_of<ops::Dct>(args);
  const auto axis = static_cast<unsigned>(op.axis.value);
  const auto type = static_cast<int>(op.type.value);
  const std::int64_t n = args.outputs[0].sizes[axis];
  if (args.inputs[0].dtype == DType::f64)
    CosineCall<double>(args, axis, type, n).run();
  else
    CosineCall<float>(args, axis, type, n).run();
}

}  // namespace

FERMATA_KERNELS(cpu) {
  add_variant(Op::dct, BackendKey::cpu,
              {.name = "stages",
               .form = KernelForm::library,
               .dtypes = DTypeSet(DType::f32) | DType::f64,
               .call = &dct_call,
               .ships = Ships::with_math});
}

}  // namespace fermata
