// See fft_powers.h. A real transform is one of half the length, of its even and odd elements as real and imaginary
// parts (Sorensen et al., IEEE TASSP 35, 1987). An inverse one is the transform with both parts exchanged.
#include "codegen_cpu/library/fft_powers.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
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
  static const FftKernels& best = FERMATA_TABLE(kFft);
  return best;
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

/// Lines that are neighbors are read and written together: what lies side by side across them is a cache line or two.
constexpr std::int64_t kLinesBeside = 16, kElementsBeside = 8;
/// Floats of the lines of a group: of long lines there are fewer, so that they stay in a cache.
constexpr std::int64_t kMostGrouped = std::int64_t{1} << 18;
/// Between the lines of a group, whose elements would meet in the same places of a cache.
constexpr std::int64_t kBetweenLines = 16;

/// Lines with a stride of their own, of elements of `kWidth` floats; dense, they are `apart` floats from each other.
struct LineGroup {
  const std::int64_t* starts;  // in elements
  std::int64_t lines, stride, count, apart;
};
/// Calls `move` with the places of an element there and where it is dense, in tiles.
template <std::int64_t kWidth, class F> void for_elements(const LineGroup& group, F&& move) {
  for (std::int64_t first = 0; first < group.count; first += kElementsBeside) {
    const std::int64_t last = std::min(group.count, first + kElementsBeside);
    for (std::int64_t l = 0; l < group.lines; ++l)
      for (std::int64_t i = first; i < last; ++i)
        move((group.starts[l] + i * group.stride) * kWidth, l * group.apart + i * kWidth);
  }
}
template <std::int64_t kWidth> void gather_lines(const float* from, const LineGroup& group, float* to) {
  for_elements<kWidth>(group, [&](std::int64_t there, std::int64_t here) {
    std::memcpy(to + here, from + there, kWidth * sizeof(float));
  });
}
template <std::int64_t kWidth> void scatter_lines(const float* from, const LineGroup& group, float* to) {
  for_elements<kWidth>(group, [&](std::int64_t there, std::int64_t here) {
    std::memcpy(to + there, from + here, kWidth * sizeof(float));
  });
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
    const std::int64_t beside = from.stride() == 1 && to.stride() == 1 ? 1 : lines_beside(to.count());
    parallel_for(0, (to.count() + beside - 1) / beside, ns * static_cast<double>(beside),
                 [&](std::int64_t begin, std::int64_t end) {
                   const std::int64_t most = 2 * pairs_ + kBetweenLines;  // floats of a line
                   const Scratch<float> room(4 * pairs_ + 2 * beside * most);
                   for (std::int64_t group = begin; group < end; ++group)
                     run_group(*transform, from, to, group * beside, std::min(beside, to.count() - group * beside),
                               room.data());
                 });
  }

 private:
  /// Every thread gets lines.
  std::int64_t lines_beside(std::int64_t lines) const {
    const std::int64_t in_cache = kMostGrouped / (2 * pairs_);
    return std::clamp<std::int64_t>(std::min(lines / thread_count(), in_cache), 1, kLinesBeside);
  }
  void run_group(const Transform& transform, const LineStarts& from, const LineStarts& to, std::int64_t first,
                 std::int64_t lines, float* room) const {
    const std::int64_t apart = 2 * pairs_ + kBetweenLines;
    float *const read = room + 4 * pairs_, *const written = read + lines * apart;
    std::int64_t starts[kLinesBeside], ends[kLinesBeside];
    for (std::int64_t l = 0; l < lines; ++l) starts[l] = from[first + l], ends[l] = to[first + l];
    const LineGroup given{starts, lines, from.stride(), in_size_, apart},
        wanted{ends, lines, to.stride(), out_size_, apart};
    if (from.stride() != 1) in_width_ == 2 ? gather_lines<2>(in_, given, read) : gather_lines<1>(in_, given, read);
    for (std::int64_t l = 0; l < lines; ++l)
      run_line(transform, from.stride() == 1 ? in_ + starts[l] * in_width_ : read + l * apart,
               to.stride() == 1 ? out_ + ends[l] * out_width_ : written + l * apart, room);
    if (to.stride() != 1)
      out_width_ == 2 ? scatter_lines<2>(written, wanted, out_) : scatter_lines<1>(written, wanted, out_);
  }
  void run_line(const Transform& transform, const float* x, float* y, float* room) const {
    const std::int64_t n = pairs_;
    const ComplexLine first{room, room + n}, second{room + 2 * n, room + 3 * n};
    if (op_ == Op::irfft)
      kernels().from_real(x, n, transform.real_roots(), first);
    else
      kernels().split_pairs(x, n, first);
    const ComplexLine z =
        inverse_ ? exchanged(transform.run(exchanged(first), exchanged(second))) : transform.run(first, second);
    if (op_ == Op::rfft)
      kernels().to_real(z, n, transform.real_roots(), y);
    else
      kernels().join_pairs(z, n, y);
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
