// See fft_powers.h. A real transform is one of half the length, of its even and odd elements as real and imaginary
// parts (Sorensen et al., IEEE TASSP 35, 1987). An inverse one is the transform with both parts exchanged.
#include "codegen_cpu/library/fft_powers.h"

#include <array>
#include <bit>
#include <cmath>
#include <map>
#include <memory>
#include <mutex>
#include <numbers>
#include <utility>
#include <vector>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/lines.h"
#include "codegen_cpu/library/fft_kernels.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

const FftKernels& kernels() {
#if defined(__x86_64__)
  static const FftKernels& best = eager::instruction_set() == "avx512" ? kFftAvx512
                                  : eager::instruction_set() == "avx2" ? kFftAvx2
                                                                       : kFftBaseline;
  return best;
#else
  return kFftBaseline;
#endif
}

/// Part `part` of `parts` of a turn, backwards.
std::pair<float, float> root(std::int64_t part, std::int64_t parts) {
  const double angle = 2 * std::numbers::pi * static_cast<double>(part % parts) / static_cast<double>(parts);
  return {static_cast<float>(std::cos(angle)), static_cast<float>(-std::sin(angle))};
}

ComplexLine exchanged(ComplexLine z) { return {z.imaginary, z.real}; }

/// The stages of one length, and what a real transform of twice the length needs.
class Transform {
 public:
  explicit Transform(std::int64_t n) : n_(n), real_roots_(static_cast<std::size_t>(2 * n)) {
    for (std::int64_t left = n, stride = 1; left > 1; left /= 4, stride *= 4) {
      stages_.push_back({left, stride, nullptr});
      if (left > 2) add_roots(left, stride);
      if (left == 2) break;
    }
    for (std::size_t i = 0; i < tables_.size(); ++i) stages_[i].roots = tables_[i].data();
    for (std::int64_t k = 0; k < n; ++k) {
      const auto at = static_cast<std::size_t>(k);
      std::tie(real_roots_[at], real_roots_[at + static_cast<std::size_t>(n)]) = root(k, 2 * n);
    }
  }
  /// The result is in one of the two.
  ComplexLine run(ComplexLine x, ComplexLine y) const {
    for (const FftStage& stage : stages_) {
      kernels().stage(stage, n_, x, y);
      std::swap(x, y);
    }
    return x;
  }
  ComplexLine real_roots() const {
    auto* const roots = const_cast<float*>(real_roots_.data());  // only read
    return {roots, roots + n_};
  }

 private:
  void add_roots(std::int64_t left, std::int64_t stride) {
    std::vector<float>& table = tables_.emplace_back(static_cast<std::size_t>(6 * (n_ / 4)));
    const bool is_narrow = stride < kWideFftStride;
    if (!is_narrow) table.resize(static_cast<std::size_t>(6 * (left / 4)));
    for (std::int64_t p = 0; p < left / 4; ++p)
      for (std::int64_t power = 1; power <= 3; ++power) {
        const auto [re, im] = root(p * power, left);
        const std::int64_t number = 2 * (power - 1);
        if (!is_narrow) {
          table[static_cast<std::size_t>(6 * p + number)] = re,
                                                 table[static_cast<std::size_t>(6 * p + number + 1)] = im;
          continue;
        }
        for (std::int64_t i = stride * p; i < stride * (p + 1); ++i) {
          table[static_cast<std::size_t>(number * (n_ / 4) + i)] = re;
          table[static_cast<std::size_t>((number + 1) * (n_ / 4) + i)] = im;
        }
      }
  }

  std::int64_t n_;
  std::vector<FftStage> stages_;
  std::vector<std::vector<float>> tables_;
  std::vector<float> real_roots_;
};

/// The transforms used last: their tables cost as much as several lines.
std::shared_ptr<const Transform> transform_of(std::int64_t n) {
  constexpr std::size_t kKept = 16;
  static std::mutex mutex;
  static auto& kept = *new std::map<std::int64_t, std::shared_ptr<const Transform>>;
  const std::lock_guard lock(mutex);
  if (const auto found = kept.find(n); found != kept.end()) return found->second;
  if (kept.size() >= kKept) kept.clear();
  return kept[n] = std::make_shared<const Transform>(n);
}

/// `width` floats for each element, from or to a line with a stride of its own.
void gather_line(const float* from, std::int64_t stride, std::int64_t count, std::int64_t width, float* to) {
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t c = 0; c < width; ++c) to[i * width + c] = from[i * stride * width + c];
}
void scatter_line(const float* from, std::int64_t stride, std::int64_t count, std::int64_t width, float* to) {
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t c = 0; c < width; ++c) to[i * stride * width + c] = from[i * width + c];
}

class Call {
 public:
  explicit Call(const CallArgs& args)
      : op_(args.op),
        axis_(static_cast<unsigned>(args.attributes[0])),
        inverse_(args.op == Op::irfft || (args.op == Op::fft && args.attributes[1] != 0)),
        in_size_(args.inputs[0].sizes[axis_]),
        out_size_(args.outputs[0].sizes[axis_]),
        pairs_(op_ == Op::fft ? in_size_ : std::max(in_size_, out_size_) / 2),
        in_(static_cast<const float*>(args.inputs[0].data)),
        out_(static_cast<float*>(args.outputs[0].data)),
        in_width_(is_complex(args.inputs[0].dtype) ? 2 : 1),
        out_width_(is_complex(args.outputs[0].dtype) ? 2 : 1) {}

  bool is_possible() const {
    if (pairs_ < kLeastFft || !std::has_single_bit(static_cast<std::uint64_t>(pairs_))) return false;
    return op_ == Op::fft || (op_ == Op::rfft ? in_size_ == 2 * pairs_ && out_size_ == pairs_ + 1
                                              : out_size_ == 2 * pairs_ && in_size_ == pairs_ + 1);
  }
  void run(const CallArgs& args) const {
    const LineStarts from(args.inputs[0], axis_), to(args.outputs[0], axis_);
    const std::shared_ptr<const Transform> transform = transform_of(pairs_);
    const double ns = static_cast<double>(pairs_) * (1 + 0.2 * std::log2(static_cast<double>(pairs_)));
    parallel_for(0, to.count(), ns, [&](std::int64_t begin, std::int64_t end) {
      const Scratch<float> room(8 * pairs_ + 32);
      for (std::int64_t line = begin; line < end; ++line)
        run_line(*transform, in_ + from[line] * in_width_, from.stride(), out_ + to[line] * out_width_, to.stride(),
                 room.data());
    });
  }

 private:
  void run_line(const Transform& transform, const float* x, std::int64_t x_stride, float* y, std::int64_t y_stride,
                float* room) const {
    const std::int64_t n = pairs_;
    const ComplexLine first{room, room + n}, second{room + 2 * n, room + 3 * n};
    float *const read = room + 4 * n, *const written = y_stride == 1 ? y : room + 6 * n + 16;
    if (x_stride != 1) gather_line(x, x_stride, in_size_, in_width_, read);
    const float* const line = x_stride == 1 ? x : read;
    if (op_ == Op::irfft)
      kernels().from_real(line, n, transform.real_roots(), first);
    else
      kernels().split_pairs(line, n, first);
    const ComplexLine z =
        inverse_ ? exchanged(transform.run(exchanged(first), exchanged(second))) : transform.run(first, second);
    if (op_ == Op::rfft)
      kernels().to_real(z, n, transform.real_roots(), written);
    else
      kernels().join_pairs(z, n, written);
    if (y_stride != 1) scatter_line(written, y_stride, out_size_, out_width_, y);
  }

  const Op op_;
  const unsigned axis_;
  const bool inverse_;
  const std::int64_t in_size_, out_size_, pairs_;  // numbers of the transform that is computed
  const float* const in_;
  float* const out_;
  const std::int64_t in_width_, out_width_;
};

}  // namespace

bool transform_powers_of_two(const CallArgs& args) {
  const Call call(args);
  if (!call.is_possible()) return false;
  call.run(args);
  return true;
}

}  // namespace fermata
