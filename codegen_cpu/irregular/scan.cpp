// Scans: every element combined with all before it along an axis.
//
// A line is taken in blocks: elements are combined within their block, and with what the blocks before came to. The
// blocks have a fixed size, so the bits depend neither on threads nor on strides. Blocks of a line are chains of their
// own, so several are scanned side by side. Threads share a long line: the totals of its blocks are computed first.
// Neighboring lines run side by side where the axis is not the last one. Where grouping does not change the bits, dense
// lines are scanned in vectors (scan_loops.h).
#include <algorithm>
#include <bit>
#include <complex>
#include <cstring>
#include <span>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/lines.h"
#include "codegen_cpu/irregular/narrow_float.h"
#include "codegen_cpu/irregular/row_major_result.h"
#include "codegen_cpu/irregular/scan_loops.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "ir/ops/ordering.h"
#include "ir/shape.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Elements of a block; and bytes of the sums of neighboring lines, which stay in the first-level cache.
constexpr std::int64_t kBlock = 512, kColumnBytes = 8 << 10;
/// Blocks side by side, where they are not those of a vector: their chains hide each other's latency.
constexpr std::int64_t kSide = 8;
/// Elements from one of them to the next in scratch memory: blocks themselves lie a power of two apart.
constexpr std::int64_t kSideStep = kBlock + 24;

/// Integers wrap: sums and products of signed and unsigned ones have the same bits, so unsigned ones do for both.
struct sum_step {
  static constexpr bool kCompares = false;
  template <class T> static T combine(T a, T b) { return a + b; }
  template <class T> static auto line_of(const ScanLoops<T>& loops) { return loops.sum_line; }
  template <class T> static auto sides_of(const ScanLoops<T>& loops) { return loops.sum_sides; }
};
struct prod_step {
  static constexpr bool kCompares = false;
  template <class T> static T combine(T a, T b) { return a * b; }
  template <class T> static auto line_of(const ScanLoops<T>& loops) { return loops.prod_line; }
  template <class T> static auto sides_of(const ScanLoops<T>& loops) { return loops.prod_sides; }
};
/// Of elements that are flipped, for the smallest.
struct max_step {
  static constexpr bool kCompares = true, kSmallest = false;
  template <class T> static T combine(T a, T b) { return a != a ? a : a > b ? a : b; }  // b where that is NaN
};
struct min_step : max_step {
  static constexpr bool kSmallest = true;
};

/// Vectors of any processor, also where code is small rather than fast (frontend/run/CMakeLists.txt).
template <class T> struct Lanes {
  static constexpr std::int64_t kCount = 16 / static_cast<std::int64_t>(sizeof(T));
  typedef T V __attribute__((vector_size(16)));
  static V load(const T* from) {
    V v;
    std::memcpy(&v, from, sizeof(V));
    return v;
  }
  static void store(T* to, V v) { std::memcpy(to, &v, sizeof(V)); }
};
/// out[i] = combine(a[i], b[i])
template <class Step, class T> void combine_rows(const T* a, const T* b, T* out, std::int64_t count) {
  std::int64_t i = 0;
  if constexpr (std::is_arithmetic_v<T>)
    for (; i + Lanes<T>::kCount <= count; i += Lanes<T>::kCount)
      Lanes<T>::store(out + i, Step::combine(Lanes<T>::load(a + i), Lanes<T>::load(b + i)));
  for (; i < count; ++i) out[i] = Step::combine(a[i], b[i]);
}
/// out[i] = combine(a, b[i]); a - 0 is a, also where that is -0.
template <class Step, class T> void combine_with_row(T a, const T* b, T* out, std::int64_t count) {
  std::int64_t i = 0;
  if constexpr (std::is_arithmetic_v<T>)
    for (; i + Lanes<T>::kCount <= count; i += Lanes<T>::kCount)
      Lanes<T>::store(out + i, Step::combine(a - typename Lanes<T>::V{}, Lanes<T>::load(b + i)));
  for (; i < count; ++i) out[i] = Step::combine(a, b[i]);
}

/// Elements in memory and what they compute as.
template <class T> struct Plain {
  using Bits = T;
  T load(T bits) const { return bits; }
  T store(T value) const { return value; }
};
/// Numbers whose larger one is the larger or the smaller element. Signed integers stand for unsigned ones, too.
template <class T> struct Flipped {
  using Bits = T;
  using Mask = std::conditional_t<sizeof(T) == 1, std::uint8_t,
                                  std::conditional_t<sizeof(T) == 2, std::uint16_t,
                                                     std::conditional_t<sizeof(T) == 4, std::uint32_t, std::uint64_t>>>;
  Mask flip;
  T load(T bits) const { return std::bit_cast<T>(static_cast<Mask>(std::bit_cast<Mask>(bits) ^ flip)); }
  T store(T value) const { return load(value); }
};
/// f16 and bf16, flipped or as they are.
struct Half {
  using Bits = std::uint16_t;
  Bits flip = 0;
  float load(Bits bits) const { return widen_float16(static_cast<Bits>(bits ^ flip)); }
  Bits store(float value) const { return static_cast<Bits>(narrow_float16(value) ^ flip); }
};
struct Brain {
  using Bits = std::uint16_t;
  Bits flip = 0;
  float load(Bits bits) const { return widen_bfloat16(static_cast<Bits>(bits ^ flip)); }
  Bits store(float value) const { return static_cast<Bits>(narrow_bfloat16(value) ^ flip); }
};

const ScanLoopTable& scan_loops() {
  static const ScanLoopTable& best = FERMATA_TABLE(kScanLoops);
  return best;
}
template <class Step, class E> class Scan {
 public:
  using Bits = typename E::Bits;
  using T = decltype(E{}.load(Bits{}));
  using Line = typename ScanLoops<T>::Line;

  /// `line`, of elements as they are in memory, may be null.
  Scan(const CallArgs& args, E elements, Line line)
      : elements_(elements),
        axis_(static_cast<unsigned>(attributes_of<ops::Scan>(args).axis.value)),
        size_(args.outputs[0].sizes[axis_]),
        from_(args.inputs[0], axis_),
        to_(args.outputs[0], axis_),
        x_(static_cast<const Bits*>(args.inputs[0].data)),
        out_(static_cast<Bits*>(args.outputs[0].data)) {
    if (from_.stride() == 1 && to_.stride() == 1) line_ = line;
    if constexpr (kSides)
      if (from_.stride() == 1) {
        const ScanLoops<T>& loops = scan_loops();
        sides_ = Step::template sides_of<T>(loops), side_count_ = loops.sides;
      }
  }

  void run() {
    const std::int64_t threads = thread_count(), lines = to_.count();
    if (size_ == 0 || lines == 0) return;
    if (to_.inner() == 1) {
      const bool is_shared = lines < threads && size_ >= 2 * threads * kSide * kBlock;
      if (is_shared) {
        for (std::int64_t line = 0; line < lines; ++line) share_line(line);
        return;
      }
      if constexpr (kSides)
        if (has_lines_for_vectors()) return scan_side_by_side();
      parallel_for(0, lines, kNsPerElement * static_cast<double>(size_), [&](std::int64_t b, std::int64_t e) {
        const Scratch<T> room(line_ != nullptr ? 0 : side_count_ * kSideStep);
        for (std::int64_t line = b; line < e; ++line) scan_blocks(line, 0, blocks(), nullptr, room.data());
      });
      return;
    }
    // As many neighbors as leave something for each thread; then their rows are read and written in long stretches.
    const std::int64_t outer = lines / to_.inner(), wanted = outer >= threads ? 1 : 2 * threads / outer;
    const std::int64_t share = ((to_.inner() + wanted - 1) / wanted + kGranule - 1) / kGranule * kGranule;
    const std::int64_t width = std::min({share, kColumns, to_.inner()});
    const std::int64_t groups = (to_.inner() + width - 1) / width;
    parallel_for(0, outer * groups, kNsPerElement * static_cast<double>(size_ * width),
                 [&](std::int64_t b, std::int64_t e) {
                   for (std::int64_t i = b; i < e; ++i) {
                     const std::int64_t first = i % groups * width;
                     scan_lines(i / groups * to_.inner() + first, std::min(width, to_.inner() - first));
                   }
                 });
  }

 private:
  static constexpr bool kIsPlain = std::is_same_v<Bits, T>, kIsUnchanged = std::is_same_v<E, Plain<T>>;
  static constexpr bool kSides = kIsPlain && kHasScanLoops<T> && !Step::kCompares && kSumsBySides<T>;
  static constexpr double kNsPerElement = 0.6;
  static constexpr std::int64_t kColumns = kColumnBytes / static_cast<std::int64_t>(sizeof(T)), kGranule = 64;
  static constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(Bits)), kAhead = 2;

  std::int64_t blocks() const { return (size_ + kBlock - 1) / kBlock; }

  /// Whether the lines of a vector are scanned side by side, and not the blocks of a line.
  bool has_lines_for_vectors() const {
    return sides_ != nullptr && 2 * to_.count() >= side_count_ && blocks() < 4 * side_count_;
  }
  void scan_side_by_side() const {
    const std::int64_t lines = to_.count(), groups = (lines + side_count_ - 1) / side_count_;
    parallel_for(0, groups, kNsPerElement * static_cast<double>(size_ * side_count_),
                 [&](std::int64_t b, std::int64_t e) {
                   const Scratch<T> inside(side_count_ * kSideStep);
                   for (std::int64_t group = b; group < e; ++group)
                     scan_side_by_side(group * side_count_, lines, inside.data());
                 });
  }
  /// Lines from `first` on. The last one is scanned again, to the same bits, where there are too few.
  void scan_side_by_side(std::int64_t first, std::int64_t lines, T* inside) const {
    const T* x[kMostScanSides];
    T *to[kMostScanSides], before[kMostScanSides];
    Bits* out[kMostScanSides];
    for (std::int64_t side = 0; side < side_count_; ++side) {
      const std::int64_t line = std::min(first + side, lines - 1);
      x[side] = x_ + from_[line], out[side] = out_ + to_[line];
    }
    for (std::int64_t block = 0; block < blocks(); ++block) {
      const std::int64_t length = std::min(kBlock, size_ - block * kBlock);
      const bool in_place = block == 0 && to_.stride() == 1;
      for (std::int64_t side = 0; side < side_count_; ++side)
        to[side] = in_place ? out[side] : inside + side * kSideStep;
      sides_(x, to, length);
      for (std::int64_t side = 0; side < side_count_; ++side) {
        const T sum = to[side][length - 1];
        if (!in_place) store(to[side], length, block == 0, before[side], out[side]);
        before[side] = block == 0 ? sum : Step::combine(before[side], sum);
        x[side] += length, out[side] += length * to_.stride();
      }
    }
  }

  /// Blocks [begin, end) of a line; `before` is the total of the blocks before them, if any. `inside` has room for as
  /// many blocks as are scanned side by side.
  void scan_blocks(std::int64_t line, std::int64_t begin, std::int64_t end, const T* before, T* inside) const {
    const Bits* const x = x_ + from_[line];
    Bits* const out = out_ + to_[line];
    if constexpr (kIsPlain)
      if (line_ != nullptr) {
        const T given = before != nullptr ? elements_.store(*before) : T{};
        line_(x + begin * kBlock, out + begin * kBlock, std::min(end * kBlock, size_) - begin * kBlock,
              before != nullptr ? &given : nullptr);
        return;
      }
    T total = before != nullptr ? *before : T{};
    for (std::int64_t block = begin; block < end;) {
      std::int64_t count = 1;
      if (end - block >= side_count_ && (block + side_count_) * kBlock <= size_) {
        count = side_count_;
        scan_inside(x + block * kBlock * from_.stride(), inside);
      } else {
        scan_inside(x + block * kBlock * from_.stride(), std::min(kBlock, size_ - block * kBlock), inside);
      }
      for (std::int64_t side = 0; side < count; ++side, ++block) {
        const std::int64_t length = std::min(kBlock, size_ - block * kBlock);
        const T* const sums = inside + side * kSideStep;
        store(sums, length, block == 0, total, out + block * kBlock * to_.stride());
        total = block == 0 ? sums[length - 1] : Step::combine(total, sums[length - 1]);
      }
    }
  }
  void scan_inside(const Bits* x, std::int64_t length, T* inside) const {
    inside[0] = elements_.load(x[0]);
    for (std::int64_t i = 1; i < length; ++i)
      inside[i] = Step::combine(inside[i - 1], elements_.load(x[i * from_.stride()]));
  }
  /// Whole blocks side by side.
  void scan_inside(const Bits* x, T* inside) const {
    if constexpr (kSides)
      if (sides_ != nullptr) {
        const T* from[kMostScanSides];
        T* to[kMostScanSides];
        for (std::int64_t side = 0; side < side_count_; ++side)
          from[side] = x + side * kBlock, to[side] = inside + side * kSideStep;
        return sides_(from, to, kBlock);
      }
    T sums[kSide];
    for (std::int64_t side = 0; side < kSide; ++side)
      inside[side * kSideStep] = sums[side] = elements_.load(x[side * kBlock * from_.stride()]);
    for (std::int64_t i = 1; i < kBlock; ++i)
      for (std::int64_t side = 0; side < kSide; ++side)
        inside[side * kSideStep + i] = sums[side] =
            Step::combine(sums[side], elements_.load(x[(side * kBlock + i) * from_.stride()]));
  }
  void store(const T* inside, std::int64_t length, bool is_first, T before, Bits* out) const {
    if (is_first)
      for (std::int64_t i = 0; i < length; ++i) out[i * to_.stride()] = elements_.store(inside[i]);
    else if (to_.stride() == 1 && combines_plainly(before, inside, out, length))
      return;
    else
      for (std::int64_t i = 0; i < length; ++i)
        out[i * to_.stride()] = elements_.store(Step::combine(before, inside[i]));
  }

  static bool combines_plainly(T before, const T* inside, Bits* out, std::int64_t length) {
    if constexpr (kIsUnchanged) combine_with_row<Step>(before, inside, out, length);
    return kIsUnchanged;
  }
  /// The elements of a row where they are, or in `room`.
  const T* row_at(const Bits* x, std::int64_t count, T* room) const {
    if constexpr (kIsUnchanged) {
      return x;
    } else {
      for (std::int64_t j = 0; j < count; ++j) room[j] = elements_.load(x[j]);
      return room;
    }
  }
  void combine_to_row(const T* a, const T* b, std::int64_t count, T* room, Bits* to) const {
    if constexpr (kIsUnchanged)
      combine_rows<Step>(a, b, to, count);
    else
      combine_rows<Step>(a, b, room, count), store_row(room, count, to);
  }
  void store_row(const T* numbers, std::int64_t count, Bits* to) const {
    if constexpr (kIsUnchanged)
      copy_bytes(to, numbers, count * static_cast<std::int64_t>(sizeof(T)));
    else
      for (std::int64_t j = 0; j < count; ++j) to[j] = elements_.store(numbers[j]);
  }

  /// One line on all threads: each takes some groups of blocks.
  void share_line(std::int64_t line) const {
    const std::int64_t groups = (blocks() + side_count_ - 1) / side_count_;
    const Scratch<T> totals((groups - 1) * side_count_), before(groups);
    const double ns = kNsPerElement * static_cast<double>(side_count_ * kBlock);
    parallel_for(0, groups - 1, ns, [&](std::int64_t b, std::int64_t e) {  // the last one is not needed
      const Scratch<T> room(side_count_ * kSideStep);
      for (std::int64_t group = b; group < e; ++group) {
        scan_inside(x_ + from_[line] + group * side_count_ * kBlock * from_.stride(), room.data());
        for (std::int64_t side = 0; side < side_count_; ++side)
          totals[group * side_count_ + side] = room[side * kSideStep + kBlock - 1];
      }
    });
    T sum = totals[0];
    for (std::int64_t block = 1; block < totals.size(); ++block) {
      if (block % side_count_ == 0) before[block / side_count_] = sum;
      sum = Step::combine(sum, totals[block]);
    }
    before[groups - 1] = sum;
    parallel_for(0, groups, ns, [&](std::int64_t b, std::int64_t e) {
      const Scratch<T> room(side_count_ * kSideStep);
      scan_blocks(line, b * side_count_, std::min(e * side_count_, blocks()), b == 0 ? nullptr : &before[b],
                  room.data());
    });
  }

  /// `count` neighboring lines at once; their results lie side by side.
  void scan_lines(std::int64_t line, std::int64_t count) const {
    bool adjacent = true;
    for (std::int64_t j = 1; j < count; ++j) adjacent &= from_[line + j] == from_[line] + j;
    const Scratch<const Bits*> starts(adjacent ? 0 : count);
    for (std::int64_t j = 0; j < starts.size(); ++j) starts[j] = x_ + from_[line + j];
    const Bits* x = x_ + from_[line];
    Bits* row = out_ + to_[line];
    alignas(64) T before[kColumns], inside[kColumns], read[kColumns];
    for (std::int64_t i = 0; i < size_; ++i, x += from_.stride(), row += to_.stride()) {
      if (adjacent && count < to_.inner() &&
          i + kAhead < size_)  // rows lie too far apart for the processor to see what comes next
        for (std::int64_t j = 0; j < count; j += kLine) {
          __builtin_prefetch(x + kAhead * from_.stride() + j);
          __builtin_prefetch(row + kAhead * to_.stride() + j, 1);
        }
      const T* numbers = read;
      if (adjacent)
        numbers = row_at(x, count, read);
      else
        for (std::int64_t j = 0; j < count; ++j) read[j] = elements_.load(starts[j][i * from_.stride()]);
      if (i % kBlock == 0) {
        for (std::int64_t j = 0; i == kBlock && j < count; ++j) before[j] = inside[j];
        if (i > kBlock) combine_rows<Step>(before, inside, before, count);
        for (std::int64_t j = 0; j < count; ++j) inside[j] = numbers[j];
      } else {
        combine_rows<Step>(inside, numbers, inside, count);
      }
      if (i < kBlock)
        store_row(inside, count, row);
      else
        combine_to_row(before, inside, count, read, row);
    }
  }

  const E elements_;
  unsigned axis_;
  std::int64_t size_;
  LineStarts from_, to_;
  const Bits* x_;
  Bits* out_;
  Line line_ = nullptr;                           // where it gives the bits of the blocks
  typename ScanLoops<T>::Sides sides_ = nullptr;  // of dense lines
  std::int64_t side_count_ = kSide;
};

template <class Step, class E>
[[gnu::noinline]] void scan(const CallArgs& args, E elements, typename Scan<Step, E>::Line line = nullptr) {
  Scan<Step, E>(args, elements, line).run();
}

template <class Step> void accumulate_rows(const CallArgs& args) {
  const DType dtype = args.inputs[0].dtype;
  if (dtype == DType::f16) return scan<Step>(args, Half());
  if (dtype == DType::bf16) return scan<Step>(args, Brain());
  visit_number(dtype, [&]<class T>() {
    if constexpr (!std::is_integral_v<T>)
      scan<Step>(args, Plain<T>());
    else if constexpr (sizeof(T) == 8)  // the rule `accumulate` knows no others
      scan<Step>(args, Plain<std::uint64_t>(), Step::template line_of<std::uint64_t>(scan_loops()));
  });
}

template <class T, bool kSmallest> typename ScanLoops<T>::Line comparing_line() {
  if constexpr (kHasScanLoops<T> && kComparesByLine<T>) {
    const ScanLoops<T>& loops = scan_loops();
    return kSmallest ? loops.min_line : loops.max_line;
  } else {
    return nullptr;
  }
}
template <class T> struct ComparedAs
    : std::conditional_t<std::is_integral_v<T>, std::make_signed<T>, std::type_identity<T>> {};
template <> struct ComparedAs<bool> : std::type_identity<std::int8_t> {};

template <bool kSmallest> void compare_rows(const CallArgs& args) {
  const DType dtype = args.inputs[0].dtype;
  constexpr std::uint16_t kHalf = kSmallest ? 0x8000 : 0;
  if (dtype == DType::f16) return scan<max_step>(args, Half{kHalf});
  if (dtype == DType::bf16) return scan<max_step>(args, Brain{kHalf});
  visit_number(dtype, [&]<class T>() {
    if constexpr (std::is_arithmetic_v<T>) {  // complex numbers have no order
      using Number = typename ComparedAs<T>::type;
      using Mask = typename Flipped<Number>::Mask;
      constexpr auto kAll = static_cast<Mask>(~Mask{0}), kSign = static_cast<Mask>(kAll ^ (kAll >> 1));
      constexpr Mask kOrder = std::is_unsigned_v<T> ? kSign : Mask{0};
      constexpr Mask kTurn = !kSmallest ? Mask{0} : std::is_integral_v<T> ? kAll : kSign;
      scan<max_step>(args, Flipped<Number>{static_cast<Mask>(kOrder ^ kTurn)},
                     std::is_same_v<T, Number> ? comparing_line<Number, kSmallest>() : nullptr);
    }
  });
}

template <class Step> void scan_rows(const CallArgs& args) {
  if constexpr (Step::kCompares)
    compare_rows<Step::kSmallest>(args);
  else
    accumulate_rows<Step>(args);
}

/// A view whose axis comes last, and those behind it before it.
struct AxisLast {
  AxisLast(const TensorView& of, std::int64_t axis)
      : sizes(std::span(of.sizes, of.rank)), strides(std::span(of.strides, of.rank)), view(of) {
    std::rotate(sizes.begin() + axis, sizes.begin() + axis + 1, sizes.end());
    std::rotate(strides.begin() + axis, strides.begin() + axis + 1, strides.end());
    view.sizes = sizes.data(), view.strides = strides.data();
  }
  Shape sizes, strides;
  TensorView view;
};

/// Rows of results are neighbors in memory. Those of the operand are made so first, by blocks, where they are not.
template <class Step> void scan_dense_rows(const CallArgs& args) {
  const TensorView& x = args.inputs[0];
  if (x.strides[x.rank - 1] == 1 || x.sizes[x.rank - 1] == 1) return scan_rows<Step>(args);
  const DenseElements dense(x);
  const Shape strides = dense_strides({x.sizes, x.rank});
  TensorView rows = x;
  rows.data = const_cast<void*>(dense.data()), rows.strides = strides.data(), rows.buffer = nullptr;
  CallArgs of_rows = args;
  of_rows.inputs = {&rows, 1};
  scan_rows<Step>(of_rows);
}

/// Attributes [axis]. Where too few lines lie side by side, by way of copies in which the axis is the last one.
template <class Step> void scan_with(const CallArgs& args) {
  constexpr std::int64_t kNarrow = 48, kShortLine = 16;  // bytes; elements
  const TensorView& x = args.inputs[0];
  const TensorView& out = args.outputs[0];
  const std::int64_t axis = attributes_of<ops::Scan>(args).axis.value, last = x.rank - 1;
  if (x.sizes[axis] == 1 && x.dtype == out.dtype)  // the first element of a line is that of the operand
    return strided_copy({out.data, {out.strides, out.rank}}, {x.data, {x.strides, x.rank}}, {x.sizes, x.rank},
                        byte_size(x.dtype));
  std::int64_t beside = static_cast<std::int64_t>(byte_size(x.dtype));
  for (std::int64_t i = axis + 1; i <= last; ++i) beside *= x.sizes[i];
  if (axis == last || beside >= kNarrow || x.sizes[axis] < kShortLine) return scan_dense_rows<Step>(args);
  const AxisLast from(x, axis), to(out, axis);
  CallArgs turned = args;
  turned.inputs = {&from.view, 1}, turned.outputs = {&to.view, 1}, turned.attributes = {&last, 1};
  run_row_major(turned, &scan_dense_rows<Step>);
}

}  // namespace

FERMATA_KERNELS(cpu) {
#define FERMATA_SCAN(name, monoid, ...) add_native_kernel(Op::name, &scan_with<monoid##_step>);
#include "ir/ops.def"
}

}  // namespace fermata
