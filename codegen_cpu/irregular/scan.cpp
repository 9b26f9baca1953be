// Scans: every element combined with all before it along an axis.
//
// A line is taken in blocks: elements are combined within their block, and with what the blocks before came to. The
// blocks have a fixed size, so the bits depend neither on threads nor on strides. Neighboring lines run side by side
// where the axis is not the last one.
#include <algorithm>
#include <array>
#include <complex>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/lines.h"
#include "codegen_cpu/irregular/narrow_float.h"
#include "ir/ops/ordering.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

constexpr std::int64_t kBlock = 512, kColumns = 64;

template <class T> using WrappingOf = std::conditional_t<std::is_integral_v<T> && !std::is_same_v<T, bool>,
                                                         std::make_unsigned<T>, std::type_identity<T>>::type;
struct sum_step {
  template <class T> static T combine(T a, T b) {
    return static_cast<T>(static_cast<WrappingOf<T>>(a) + static_cast<WrappingOf<T>>(b));
  }
};
struct prod_step {
  template <class T> static T combine(T a, T b) {
    return static_cast<T>(static_cast<WrappingOf<T>>(a) * static_cast<WrappingOf<T>>(b));
  }
};
struct max_step {
  template <class T>
  requires std::is_arithmetic_v<T>
  static T combine(T a, T b) { return a != a ? a : a > b ? a : b; }  // b where that is NaN
};
struct min_step {
  template <class T>
  requires std::is_arithmetic_v<T>
  static T combine(T a, T b) { return a != a ? a : a < b ? a : b; }
};

/// Elements in memory and what they compute as.
template <class T> struct Plain {
  using Bits = T;
  static T load(T bits) { return bits; }
  static T store(T value) { return value; }
};
struct Half {
  using Bits = std::uint16_t;
  static float load(Bits bits) { return widen_float16(bits); }
  static Bits store(float value) { return narrow_float16(value); }
};
struct Brain {
  using Bits = std::uint16_t;
  static float load(Bits bits) { return widen_bfloat16(bits); }
  static Bits store(float value) { return narrow_bfloat16(value); }
};

template <class Step, class E> class Scan {
 public:
  using Bits = typename E::Bits;
  using T = decltype(E::load(Bits{}));

  Scan(const CallArgs& args)
      : axis_(static_cast<unsigned>(attributes_of<ops::Scan>(args).axis.value)),
        size_(args.outputs[0].sizes[axis_]),
        from_(args.inputs[0], axis_),
        to_(args.outputs[0], axis_),
        x_(static_cast<const Bits*>(args.inputs[0].data)),
        out_(static_cast<Bits*>(args.outputs[0].data)) {}

  void run() {
    if (size_ == 0) return;
    if (to_.inner() == 1) {
      parallel_for(0, to_.count(), 1.5 * static_cast<double>(size_), [&](std::int64_t b, std::int64_t e) {
        for (std::int64_t line = b; line < e; ++line) scan_line(line);
      });
      return;
    }
    const std::int64_t groups = (to_.inner() + kColumns - 1) / kColumns, outer = to_.count() / to_.inner();
    parallel_for(0, outer * groups, 0.6 * static_cast<double>(size_ * std::min(kColumns, to_.inner())),
                 [&](std::int64_t b, std::int64_t e) {
                   for (std::int64_t i = b; i < e; ++i) {
                     const std::int64_t first = i % groups * kColumns;
                     scan_lines(i / groups * to_.inner() + first, std::min(kColumns, to_.inner() - first));
                   }
                 });
  }

 private:
  void scan_line(std::int64_t line) {
    const Bits* const x = x_ + from_[line];
    Bits* const out = out_ + to_[line];
    T before{};
    for (std::int64_t block = 0; block < size_; block += kBlock) {
      const std::int64_t end = std::min(block + kBlock, size_);
      T inside{};
      for (std::int64_t i = block; i < end; ++i) {
        const T next = E::load(x[i * from_.stride()]);
        inside = i == block ? next : Step::combine(inside, next);
        out[i * to_.stride()] = E::store(block == 0 ? inside : Step::combine(before, inside));
      }
      before = block == 0 ? inside : Step::combine(before, inside);
    }
  }

  /// `count` neighboring lines at once; their results lie side by side.
  void scan_lines(std::int64_t line, std::int64_t count) {
    std::array<const Bits*, kColumns> x;
    bool adjacent = true;
    for (std::int64_t j = 0; j < count; ++j) {
      x[static_cast<std::size_t>(j)] = x_ + from_[line + j];
      adjacent &= x[static_cast<std::size_t>(j)] == x[0] + j;
    }
    Bits* const out = out_ + to_[line];
    std::array<T, kColumns> before{}, inside{}, next{};
    for (std::int64_t i = 0; i < size_; ++i) {
      const bool first_block = i < kBlock, starts = i % kBlock == 0;
      if (adjacent)
        for (std::size_t j = 0; j < static_cast<std::size_t>(count); ++j)
          next[j] = E::load(x[0][i * from_.stride() + static_cast<std::int64_t>(j)]);
      else
        for (std::size_t j = 0; j < static_cast<std::size_t>(count); ++j) next[j] = E::load(x[j][i * from_.stride()]);
      Bits* const row = out + i * to_.stride();
      for (std::size_t j = 0; j < static_cast<std::size_t>(count); ++j) {
        if (starts && i > 0) before[j] = first_block || i == kBlock ? inside[j] : Step::combine(before[j], inside[j]);
        inside[j] = starts ? next[j] : Step::combine(inside[j], next[j]);
        row[j] = E::store(first_block ? inside[j] : Step::combine(before[j], inside[j]));
      }
    }
  }

  unsigned axis_;
  std::int64_t size_;
  LineStarts from_, to_;
  const Bits* x_;
  Bits* out_;
};

/// Attributes [axis].
template <class Step> void scan_with(const CallArgs& args) {
  const DType dtype = args.inputs[0].dtype;
  if (dtype == DType::f16) return Scan<Step, Half>(args).run();
  if (dtype == DType::bf16) return Scan<Step, Brain>(args).run();
  visit_number(dtype, [&]<class T>() {
    if constexpr (requires(T x) { Step::combine(x, x); }) Scan<Step, Plain<T>>(args).run();
  });
}

}  // namespace

FERMATA_KERNELS(cpu) {
#define FERMATA_SCAN(name, monoid, ...) add_native_kernel(Op::name, &scan_with<monoid##_step>);
#include "ir/ops.def"
}

}  // namespace fermata
