// bincount: parts of a row are counted apart, each on one thread, and added up in order.
//
// How many parts there are depends on the sizes alone, so sums of floats do not depend on the number of threads.
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <vector>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "ir/error.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// A part is longer than the bins that it needs for itself by this factor, and no shorter than this.
constexpr std::int64_t kElementsPerBin = 4, kLeastElements = 16384, kMostParts = 16;
/// So many bins fit the nearest cache four times.
constexpr std::int64_t kFewBins = 1024;

/// In dense rows: x [rows, size], bins [rows, length]. X: the integers; A: what is added up.
template <class X, class A> class Counting {
 public:
  Counting(const CallArgs& args, const X* x)
      : args_(args),
        x_(x),
        size_(args.inputs[0].sizes[args.inputs[0].rank - 1]),
        length_(args.outputs[0].sizes[args.outputs[0].rank - 1]) {
    for (unsigned i = 0; i + 1 < args.inputs[0].rank; ++i) rows_ *= args.inputs[0].sizes[i];
    parts_ = std::clamp(size_ / std::max(kElementsPerBin * length_, kLeastElements), std::int64_t{1}, kMostParts);
    step_ = (size_ + parts_ - 1) / parts_;
  }

  /// Each element counts 1 where there are no weights.
  void run(const A* weights, A* out) const {
    const Scratch<A> apart(parts_ == 1 ? 0 : rows_ * parts_ * length_);
    A* const to = parts_ == 1 ? out : apart.data();
    std::atomic<bool> is_negative = false;
    const double ns = static_cast<double>(step_) + static_cast<double>(length_) * 0.2;
    parallel_for(0, rows_ * parts_, ns, [&](std::int64_t b, std::int64_t e) {
      for (std::int64_t part = b; part < e; ++part) {
        const std::int64_t begin = std::min(part % parts_ * step_, size_), count = std::min(step_, size_ - begin);
        const std::int64_t from = part / parts_ * size_ + begin;
        A* const bins = to + part * length_;
        std::fill_n(bins, length_, A{});
        const bool bad =
            weights == nullptr ? count_ones(x_ + from, count, bins) : add(x_ + from, weights + from, count, bins);
        if (bad) is_negative.store(true, std::memory_order_relaxed);
      }
    });
    if (is_negative.load(std::memory_order_relaxed)) throw_negative();
    if (parts_ == 1) return;
    parallel_for(0, rows_ * length_, static_cast<double>(parts_) * 0.5, [&](std::int64_t b, std::int64_t e) {
      for (std::int64_t i = b; i < e; ++i) {
        const A* const first = to + i / length_ * parts_ * length_ + i % length_;
        A sum = *first;
        for (std::int64_t part = 1; part < parts_; ++part) sum = static_cast<A>(sum + first[part * length_]);
        out[i] = sum;
      }
    });
  }

 private:
  // Both return whether an integer is negative. As an unsigned number that is beyond all bins.

  bool add(const X* x, const A* weights, std::int64_t count, A* bins) const {
    const auto length = static_cast<std::uint64_t>(length_);
    X all{};
    for (std::int64_t i = 0; i < count; ++i) {
      all = static_cast<X>(all | x[i]);
      if (const auto bin = static_cast<std::uint64_t>(x[i]); bin < length)
        bins[bin] = static_cast<A>(bins[bin] + weights[i]);
    }
    return is_below_zero(all);
  }

  bool count_ones(const X* x, std::int64_t count, A* bins) const {
    const auto length = static_cast<std::uint64_t>(length_);
    X all{};
    if (length_ > kFewBins || count < kElementsPerBin * length_) {
      for (std::int64_t i = 0; i < count; ++i) {
        all = static_cast<X>(all | x[i]);
        if (const auto bin = static_cast<std::uint64_t>(x[i]); bin < length)
          bins[bin] = static_cast<A>(bins[bin] + A{1});
      }
      return is_below_zero(all);
    }
    // Four counters for each bin: equal neighbors need not wait for one another. What is beyond goes to one bin more.
    std::vector<std::uint32_t> counters(4 * (static_cast<std::size_t>(length_) + 1));
    std::uint32_t* const lane[] = {counters.data(), counters.data() + length_ + 1, counters.data() + 2 * (length_ + 1),
                                   counters.data() + 3 * (length_ + 1)};
    for (std::int64_t begin = 0; begin < count; begin += std::int64_t{1} << 31) {
      const std::int64_t end = std::min(count, begin + (std::int64_t{1} << 31));
      std::fill(counters.begin(), counters.end(), 0u);
      const auto put = [&](std::int64_t i, std::uint32_t* to) {
        all = static_cast<X>(all | x[i]);
        ++to[std::min(static_cast<std::uint64_t>(x[i]), length)];
      };
      std::int64_t i = begin;
      for (; i + 4 <= end; i += 4) put(i, lane[0]), put(i + 1, lane[1]), put(i + 2, lane[2]), put(i + 3, lane[3]);
      for (; i < end; ++i) put(i, lane[0]);
      for (std::int64_t bin = 0; bin < length_; ++bin)
        bins[bin] = static_cast<A>(bins[bin] + static_cast<A>(lane[0][bin]) + static_cast<A>(lane[1][bin]) +
                                   static_cast<A>(lane[2][bin]) + static_cast<A>(lane[3][bin]));
    }
    return is_below_zero(all);
  }

  static bool is_below_zero(X x) {
    if constexpr (std::is_signed_v<X>)
      return x < 0;
    else
      return false;
  }

  [[noreturn]] void throw_negative() const {
    std::int64_t at = 0;
    while (!is_below_zero(x_[at])) ++at;
    std::vector<ErrorOperand> operands;
    static constexpr std::string_view kLabels[] = {"x", "weights"};
    for (std::size_t i = 0; i < args_.inputs.size(); ++i) {
      const TensorView& v = args_.inputs[i];
      operands.push_back({kLabels[i], to_string(v.dtype, {v.sizes, v.rank}), ""});
    }
    operands[0].note = fmt::format("element {} is {}", at, x_[at]);
    throw ValueError(
        1343, format_error(1343, "ValueError", "bincount: a negative integer has no bin", operands, args_.where));
  }

  const CallArgs& args_;
  const X* x_;
  std::int64_t rows_ = 1, size_, length_, parts_, step_;
};

template <class X> void count(const CallArgs& args, const X* x) {
  const TensorView& out = args.outputs[0];
  if (args.inputs.size() == 1)  // as unsigned numbers: no count is negative
    return Counting<X, std::uint64_t>(args, x).run(nullptr, static_cast<std::uint64_t*>(out.data));
  const TensorView& weights = args.inputs[1];
  const auto add_as = [&]<class A>(std::type_identity<A>) {
    const DenseElements dense(weights);
    Counting<X, A>(args, x).run(static_cast<const A*>(dense.data()), static_cast<A*>(out.data));
  };
  switch (out.dtype) {
    case DType::f64: return add_as(std::type_identity<double>{});
    case DType::f32: return add_as(std::type_identity<float>{});
    case DType::i64:
    case DType::u64: return add_as(std::type_identity<std::uint64_t>{});  // wraps
    default: break;
  }
  const Scratch<float> wide = widened_elements(weights), sums(out.element_count());
  Counting<X, float>(args, x).run(wide.data(), sums.data());
  narrow(out.dtype, sums.data(), out.data, sums.size());
}

void bincount_call(const CallArgs& args) {
  const DenseElements x(args.inputs[0]);
  visit_compute(args.inputs[0].dtype, [&]<class X>() {
    if constexpr (std::is_integral_v<X> && !std::is_same_v<X, bool>) count(args, static_cast<const X*>(x.data()));
  });
}

}  // namespace

FERMATA_KERNELS(cpu) { add_native_kernel(Op::bincount, &bincount_call, Ships::with_math); }

}  // namespace fermata
