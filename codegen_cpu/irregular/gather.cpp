// gather and the scatters: one element for each position, along an axis.
//
// A lane is what shares its place along all other axes; every lane is worked through in the order of its positions, so
// results do not depend on the number of threads. Where all lanes of a row have the same position (an index that is
// broadcast, or one lane) rows are moved or added whole. Many positions of a short axis, as in a histogram, are
// combined in tables of their own, one for each block of positions.
#include <algorithm>
#include <atomic>
#include <complex>
#include <cstring>
#include <limits>
#include <type_traits>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/rows_by_target.h"
#include "ir/op_traits.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

struct Element16 {
  std::uint64_t words[2];
};

constexpr std::int64_t kPart = PositionReader::kPart;

/// Where the lanes of a tensor that is addressed by position (x of gather, the result of a scatter) lie, as the index
/// has them.
struct LanePlaces {
  LanePlaces(const CallArgs& args, const TensorView& addressed)
      : axis(static_cast<unsigned>(axis_of(args.op, args.attributes))),
        stride(addressed.strides[axis]),
        size(addressed.sizes[axis]),
        count(args.inputs[1].sizes[axis]),
        outer(over_index(args, addressed), 0, axis),
        inner(offsets_of(over_index(args, addressed), axis + 1, addressed.rank)),
        in_rows(is_same_along(args.inputs[1], axis + 1)),
        is_contiguous(is_in_order(args.inputs[1], addressed, axis + 1)) {}

  std::int64_t lanes() const { return outer.size() * inner.size(); }
  std::int64_t rows() const { return outer.size() * count; }
  const unsigned axis;
  const std::int64_t stride, size, count;
  /// From one line to the next, where there is one; and cache lines of it to ask for with 16 of its positions, 0 where
  /// not all of it will be used, or it is too long to stay in the first-level cache.
  std::int64_t to_next_line(std::int64_t o) const { return o + 1 < outer.size() ? outer[o + 1] - outer[o] : 0; }
  std::int64_t lines_ahead(std::size_t element_bytes) const {
    constexpr std::int64_t kLine = 64, kMostLines = 512;
    const std::int64_t lines = (size * static_cast<std::int64_t>(element_bytes) + kLine - 1) / kLine;
    return stride == 1 && lines <= kMostLines && 4 * lines <= count ? (16 * lines + count - 1) / count : 0;
  }
  const Offsets outer;
  const Scratch<std::int64_t> inner;
  const bool in_rows;        // one position for each row, not for each lane
  const bool is_contiguous;  // inner is 0, 1, 2, ...

 private:
  /// Those of the addressed tensor over the extents of the index.
  static TensorView over_index(const CallArgs& args, TensorView addressed) {
    addressed.sizes = args.inputs[1].sizes;
    return addressed;
  }
  static bool is_in_order(const TensorView& index, TensorView addressed, unsigned begin) {
    addressed.sizes = index.sizes;
    return fermata::is_contiguous(addressed, begin, addressed.rank);
  }
  static bool is_same_along(const TensorView& index, unsigned begin) {
    for (unsigned i = begin; i < index.rank; ++i)
      if (index.sizes[i] != 1 && index.strides[i] != 0) return false;
    return true;
  }
};

struct Lanes : LanePlaces {
  Lanes(const CallArgs& args, const TensorView& addressed)
      : LanePlaces(args, addressed), positions(positions_of(args, in_rows ? axis + 1 : kMaxRank)) {}

  /// Calls f(offset of the element addressed, element of the index) for lanes [begin, end), those of one outer place
  /// together so that rows are read and written along the last axis.
  template <class F> void for_lanes(std::int64_t begin, std::int64_t end, F&& f) const {
    while (begin < end) {
      const std::int64_t o = begin / inner.size(), from = begin % inner.size();
      const std::int64_t to = std::min(from + end - begin, inner.size());
      for (std::int64_t i = 0; i < count; ++i) {
        const std::int64_t row = (o * count + i) * inner.size();
        for (std::int64_t j = from; j < to; ++j) f(outer[o] + positions[row + j] * stride + inner[j], row + j);
      }
      begin += to - from;
    }
  }

  const Positions positions;
};

template <class T> void gather_rows(const Lanes& lanes, const T* x, T* out, std::int64_t begin, std::int64_t end) {
  const std::int64_t width = lanes.inner.size();
  while (begin < end) {
    const std::int64_t o = begin / lanes.count, until = std::min(end, (o + 1) * lanes.count);
    const T* const from = x + lanes.outer[o];
    for (; begin < until; ++begin) {
      const T* const row = from + lanes.positions[begin] * lanes.stride;
      T* const to = out + begin * width;
      if (width == 1)
        *to = *row;
      else if (lanes.is_contiguous)
        copy_bytes(to, row, width * static_cast<std::int64_t>(sizeof(T)));
      else
        for (std::int64_t j = 0; j < width; ++j) to[j] = row[lanes.inner[j]];
    }
  }
}

template <class T> void gather_rows(const Lanes& lanes, const TensorView& x, const TensorView& out) {
  const double per_element = lanes.is_contiguous ? 0.1 * sizeof(T) : 0.8;
  parallel_for(0, lanes.rows(), 1.5 + static_cast<double>(lanes.inner.size()) * per_element,
               [&](std::int64_t b, std::int64_t e) {
                 gather_rows(lanes, static_cast<const T*>(x.data), static_cast<T*>(out.data), b, e);
               });
}

/// Elements of one line at given positions. The next line is asked for meanwhile, `ahead` cache lines for each 16
/// elements: the processor sees no order in positions.
template <class T> void gather_line(const T* from, const std::int64_t* positions, T* to, std::int64_t count,
                                    const T* next, std::int64_t ahead) {
  constexpr std::int64_t kStep = 16, kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  std::int64_t j = 0;
  if (ahead > 0)
    for (; j + kStep <= count; j += kStep, positions += kStep, to += kStep) {
      for (std::int64_t line = 0; line < ahead; ++line, next += kLine) __builtin_prefetch(next);
#pragma GCC unroll 16
      for (std::int64_t k = 0; k < kStep; ++k) to[k] = from[positions[k]];
    }
#pragma GCC unroll 4
  for (; j < count; ++j) *to++ = from[*positions++];
}

/// Where a row is one element and those of an outer place are few: elements [begin, begin + count).
template <class T> void gather_short_lines(const LanePlaces& lanes, const T* x, T* out, const std::int64_t* positions,
                                           std::int64_t begin, std::int64_t count) {
  const std::int64_t run = lanes.count, stride = lanes.stride;
  std::int64_t line = begin / run, first = begin % run;
  for (std::int64_t done = 0; done < count; ++line, first = 0) {
    const std::int64_t n = std::min(run - first, count - done);
    const T* const from = x + lanes.outer[line];
    for (std::int64_t j = 0; j < n; ++j) out[begin + done + j] = from[positions[done + j] * stride];
    done += n;
  }
}

/// Elements [begin, begin + count) of the result, whose positions are given, in parts of rows.
template <class T> void gather_part(const LanePlaces& lanes, const T* x, T* out, const std::int64_t* positions,
                                    std::int64_t begin, std::int64_t count) {
  constexpr std::int64_t kShortLine = 64;
  const std::int64_t width = lanes.inner.size(), stride = lanes.stride;
  if (width == 1 && lanes.count < kShortLine) return gather_short_lines(lanes, x, out, positions, begin, count);
  // Where a row is one element, those of one outer place follow each other.
  const std::int64_t run = width == 1 ? lanes.count : width;
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  const std::int64_t ahead = lanes.lines_ahead(sizeof(T));
  for (std::int64_t done = 0; done < count;) {
    const std::int64_t at = begin + done, first = at % run, n = std::min(run - first, count - done);
    const T* const from = x + lanes.outer[width == 1 ? at / run : at / run / lanes.count];
    const std::int64_t* const p = positions + done;
    T* const to = out + at;
    if (width > 1)
      for (std::int64_t j = 0; j < n; ++j) to[j] = from[p[j] * stride + lanes.inner[first + j]];
    else if (stride == 1)
      gather_line(from, p, to, n, from + lanes.to_next_line(at / run) + first / 16 * ahead * kLine, ahead);
    else
      for (std::int64_t j = 0; j < n; ++j) to[j] = from[p[j] * stride];
    done += n;
  }
}

/// False where a position is out of range.
template <class T>
bool gather_elements(const CallArgs& args, const LanePlaces& lanes, const TensorView& x, const TensorView& out) {
  const PositionReader index(args);
  std::atomic<bool> all_inside{true};
  parallel_for(0, lanes.rows() * lanes.inner.size(), 1, [&](std::int64_t b, std::int64_t e) {
    std::int64_t room[kPart];
    for (std::int64_t at = b; at < e; at += kPart) {
      const std::int64_t count = std::min(kPart, e - at);
      const std::int64_t* const positions = index.find(at, count, room);
      if (positions == nullptr) return all_inside.store(false);
      gather_part(lanes, static_cast<const T*>(x.data), static_cast<T*>(out.data), positions, at, count);
    }
  });
  return all_inside.load();
}

template <class T> void gather(const CallArgs& args) {
  const TensorView &x = args.inputs[0], &out = args.outputs[0];
  const LanePlaces places(args, x);
  const bool by_element = !places.in_rows || places.inner.size() == 1;
  if (!by_element || !gather_elements<T>(args, places, x, out)) gather_rows<T>(Lanes(args, x), x, out);
}

/// Applies put(element of the result, element of the source) in order.
template <class T, class Put> void scatter(const Lanes& lanes, const T* source, T* out, Put put) {
  const std::int64_t width = lanes.inner.size();
  // Too many for the second-level cache are asked for early, see for_rows_by_target().
  constexpr std::int64_t kCachedBytes = 1 << 20;
  const bool is_one_line = lanes.in_rows && width == 1 && lanes.outer.size() == 1;
  if (is_one_line && lanes.size * static_cast<std::int64_t>(sizeof(T)) <= kCachedBytes) {
    T* const to = out + lanes.outer[0];
    for (std::int64_t i = 0; i < lanes.count; ++i) put(to[lanes.positions[i] * lanes.stride], source[i]);
    return;
  }
  if (lanes.in_rows) {
    const auto row = [&](std::int64_t o, std::int64_t i, std::int64_t ahead, std::int64_t begin, std::int64_t end) {
      const std::int64_t* const positions = lanes.positions.data() + o * lanes.count;
      if (ahead >= 0) __builtin_prefetch(out + lanes.outer[o] + positions[ahead] * lanes.stride + begin, 1);
      T* const to = out + lanes.outer[o] + positions[i] * lanes.stride;
      const T* const from = source + (o * lanes.count + i) * width;
      if (lanes.is_contiguous)
        for (std::int64_t j = begin; j < end; ++j) put(to[j], from[j]);
      else
        for (std::int64_t j = begin; j < end; ++j) put(to[lanes.inner[j]], from[j]);
    };
    return for_rows_by_target({.outer = lanes.outer.size(),
                               .size = lanes.size,
                               .inner = width,
                               .count = lanes.count,
                               .positions = lanes.positions.data(),
                               .shared = false,
                               .element_bytes = sizeof(T)},
                              0.5, row);
  }
  const auto each = [=](std::int64_t element, std::int64_t i) { put(out[element], source[i]); };
  const std::int64_t granule = std::max<std::int64_t>(1, 128 / static_cast<std::int64_t>(sizeof(T)));
  if (lanes.lanes() < 2 * granule) return lanes.for_lanes(0, lanes.lanes(), each);
  parallel_for(
      0, lanes.lanes(), static_cast<double>(lanes.count) * 1.5,
      [&](std::int64_t b, std::int64_t e) { lanes.for_lanes(b, e, each); }, granule);
}

/// Positions of a block that has tables of its own, and the least that an axis has fewer elements than a block: making
/// and merging tables is to cost little.
constexpr std::int64_t kTableBlock = std::int64_t{1} << 16, kPositionsOfElement = 8;

/// Tables of a block, which take its positions in turn: a sum that is stored and read again at once takes several
/// times as long. The first-level cache holds all of them.
constexpr std::int64_t tables_of_block(std::int64_t size, std::size_t bytes) {
  constexpr std::int64_t kBytes = 16 << 10;
  const std::int64_t one = size * static_cast<std::int64_t>(bytes);
  return 4 * one <= kBytes ? 4 : 2 * one <= kBytes ? 2 : 1;
}

/// `count` positions, the first of which is for table 0; false where one is out of range.
template <std::int64_t kTables, class T, class Put> bool into_tables(const std::int64_t* positions, const T* source,
                                                                     std::int64_t count, T* tables, std::int64_t size,
                                                                     Put put) {
  const auto one = [&](std::int64_t i, std::int64_t table) __attribute__((always_inline)) {
    const std::int64_t slot = positions[i] + (size & (positions[i] >> 63));
    if (static_cast<std::uint64_t>(slot) >= static_cast<std::uint64_t>(size)) [[unlikely]]
      return false;
    put(tables[table * size + slot], source[i]);
    return true;
  };
  // Of a single table several are done in a turn, so that it does not matter where the code of so short a loop lies.
  constexpr std::int64_t kTogether = kTables == 1 ? 8 : kTables, kAhead = 256;
  std::int64_t i = 0;
  for (; i + kTogether <= count; i += kTogether) {
    if constexpr (kTables == 1) __builtin_prefetch(positions + i + kAhead), __builtin_prefetch(source + i + kAhead);
#pragma GCC unroll 4
    for (std::int64_t k = 0; k < kTogether; ++k)
      if (!one(i + k, k % kTables)) return false;
  }
  for (std::int64_t table = 0; i < count; ++i, table = (table + 1) % kTables)
    if (!one(i, table)) return false;
  return true;
}

/// Combines the positions of one outer place by blocks, from `identity` on, and the tables in order. They do not depend
/// on threads. False, and the result untouched, where a position is out of range.
template <class T, class Put> bool scatter_by_tables(const PositionReader& index, std::int64_t count, const T* source,
                                                     T* out, std::int64_t stride, std::int64_t size, T identity,
                                                     Put put) {
  const std::int64_t blocks = (count + kTableBlock - 1) / kTableBlock, each = tables_of_block(size, sizeof(T));
  const Scratch<T> tables(blocks * each * size);
  const std::int64_t* const given = index.given();
  std::fill_n(tables.data(), tables.size(), identity);
  std::atomic<bool> all_inside{true};
  const auto into = each == 4 ? &into_tables<4, T, Put> : each == 2 ? &into_tables<2, T, Put> : &into_tables<1, T, Put>;
  parallel_for(0, blocks, static_cast<double>(kTableBlock) * 1.2, [&](std::int64_t b, std::int64_t e) {
    std::int64_t positions[kPart];
    for (std::int64_t at = b * kTableBlock; at < std::min(count, e * kTableBlock); at += kPart) {
      const std::int64_t part = std::min(kPart, count - at);
      if (given == nullptr && !index.read(at, part, positions)) return all_inside.store(false);
      if (!into(given == nullptr ? positions : given + at, source + at, part,
                tables.data() + at / kTableBlock * each * size, size, put))
        return all_inside.store(false);
    }
  });
  if (!all_inside.load()) return false;
  for (std::int64_t table = 0; table < blocks * each; ++table)
    for (std::int64_t i = 0; i < size; ++i) put(out[i * stride], tables[table * size + i]);
  return true;
}

/// Unsigned integers stand for signed ones, too: sums and products have the same bits.
template <class T> T sum_of(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
  else
    return a + b;
}
template <class T> T product_of(T a, T b) {
  if constexpr (std::is_integral_v<T>)
    return static_cast<T>(static_cast<std::uint64_t>(a) * static_cast<std::uint64_t>(b));
  else
    return a * b;
}
/// -0 where T has one: adding it to -0 gives -0.
template <class T> T no_sum() {
  if constexpr (std::is_integral_v<T>)
    return T{};
  else
    return -T{};
}
/// What the ops do with two numbers; NaN wins.
struct Add {
  template <class T> void operator()(T& a, T b) const { a = sum_of(a, b); }
};
struct Multiply {
  template <class T> void operator()(T& a, T b) const { a = product_of(a, b); }
};
struct TakeLargest {
  template <class T> [[gnu::always_inline]] void operator()(T& a, T b) const { a = a != a || a > b ? a : b; }
};
struct TakeSmallest {
  template <class T> [[gnu::always_inline]] void operator()(T& a, T b) const { a = a != a || a < b ? a : b; }
};
/// Of integers, the larger one once both are flipped: the sign bit of signed ones, and all bits for the smallest.
template <class U> struct TakeLargestFlipped {
  U flip;
  [[gnu::always_inline]] void operator()(U& a, U b) const {
    a = static_cast<U>(a ^ flip) > static_cast<U>(b ^ flip) ? a : b;
  }
};

template <class T> void replace(const CallArgs& args, const Lanes& lanes) {
  const DenseElements source(args.inputs[2]);
  scatter(lanes, static_cast<const T*>(source.data()), static_cast<T*>(args.outputs[0].data),
          [](T& a, const T& b) { a = b; });
}

/// The result begins as what it is added to, which may lie in its place already.
void copy_target(const CallArgs& args) {
  if (args.outputs[0].data != args.inputs[0].data) copy_elements(args.outputs[0], args.inputs[0]);
}

void replace_elements(const CallArgs& args) {
  const Lanes lanes(args, args.outputs[0]);
  copy_target(args);
  switch (byte_size(args.outputs[0].dtype)) {
    case 1: return replace<std::uint8_t>(args, lanes);
    case 2: return replace<std::uint16_t>(args, lanes);
    case 4: return replace<std::uint32_t>(args, lanes);
    case 8: return replace<std::uint64_t>(args, lanes);
    default: return replace<Element16>(args, lanes);
  }
}

/// Whether there is one lane for each outer place, of many more positions than elements.
bool has_tables(const CallArgs& args) {
  const TensorView &out = args.outputs[0], &index = args.inputs[1];
  const auto axis = static_cast<unsigned>(axis_of(args.op, args.attributes));
  for (unsigned i = 0; i < index.rank; ++i)
    if (i != axis && index.sizes[i] != 1) return false;
  return index.sizes[axis] >= kTableBlock / 2 && out.sizes[axis] * kPositionsOfElement <= kTableBlock;
}

template <class T, class Put> void combine_with(const CallArgs& args, const T* source, T* out, T identity, Put put) {
  const TensorView& view = args.outputs[0];
  if (has_tables(args)) {
    const auto axis = static_cast<unsigned>(axis_of(args.op, args.attributes));
    if (scatter_by_tables(PositionReader(args), args.inputs[1].sizes[axis], source, out, view.strides[axis],
                          view.sizes[axis], identity, put))
      return;
  }
  scatter(Lanes(args, view), source, out, put);
}

/// Sums and products; false for the other ops. `out` has the elements of input 0.
template <class T> bool add_or_multiply(const CallArgs& args, const T* source, T* out) {
  if (args.op == Op::scatter_add) return combine_with<T>(args, source, out, no_sum<T>(), Add()), true;
  if (args.op == Op::scatter_multiply) return combine_with<T>(args, source, out, T(1), Multiply()), true;
  return false;
}
template <class U> void combine_integers(const CallArgs& args, bool is_signed, const U* source, U* out) {
  if (add_or_multiply(args, source, out)) return;
  constexpr auto kAll = static_cast<U>(~U{0}), kSign = static_cast<U>(kAll ^ (kAll >> 1));
  const auto flip = static_cast<U>((is_signed ? kSign : U{0}) ^ (args.op == Op::scatter_minimum ? kAll : U{0}));
  combine_with<U>(args, source, out, flip, TakeLargestFlipped<U>{flip});  // the least one is 0 once it is flipped
}
template <class T> void combine(const CallArgs& args, const T* source, T* out) {
  if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    combine_integers(args, std::is_signed_v<T>, reinterpret_cast<const U*>(source), reinterpret_cast<U*>(out));
  } else if (!add_or_multiply(args, source, out)) {
    if constexpr (std::is_floating_point_v<T>) {  // complex numbers have no order
      constexpr T kInfinity = std::numeric_limits<T>::infinity();
      if (args.op == Op::scatter_maximum) return combine_with<T>(args, source, out, -kInfinity, TakeLargest());
      combine_with<T>(args, source, out, kInfinity, TakeSmallest());
    }
  }
}

void combine_elements(const CallArgs& args) {
  const TensorView &x = args.inputs[0], &out = args.outputs[0], &source = args.inputs[2];
  if (is_floating(out.dtype) && byte_size(out.dtype) == 2) {  // in f32, rounded once
    const Scratch<float> sums = widened_elements(x), wide = widened_elements(source);
    combine<float>(args, wide.data(), sums.data());
    return narrow(out.dtype, sums.data(), out.data, sums.size());
  }
  const DenseElements dense(source);
  visit_number(out.dtype, [&]<class T>() {
    if constexpr (!std::is_same_v<T, bool>) {
      copy_target(args);
      combine<T>(args, static_cast<const T*>(dense.data()), static_cast<T*>(out.data));
    }
  });
}

/// Attributes [axis]. The index has the axes of input 0, none longer but the one that is indexed.
void gather_call(const CallArgs& args) {
  if (args.outputs[0].element_count() == 0) return;
  switch (byte_size(args.inputs[0].dtype)) {
    case 1: return gather<std::uint8_t>(args);
    case 2: return gather<std::uint16_t>(args);
    case 4: return gather<std::uint32_t>(args);
    case 8: return gather<std::uint64_t>(args);
    default: return gather<Element16>(args);
  }
}

/// Attributes and index as in gather; elements that meet are taken in order.
void scatter_call(const CallArgs& args) {
  if (args.inputs[1].element_count() == 0) return copy_target(args);
  args.op == Op::scatter ? replace_elements(args) : combine_elements(args);
}

}  // namespace

FERMATA_KERNELS(cpu) {
  add_native_kernel(Op::gather, &gather_call);
  for (const Op op : {Op::scatter, Op::scatter_add, Op::scatter_multiply, Op::scatter_maximum, Op::scatter_minimum})
    add_native_kernel(op, &scatter_call);
}

}  // namespace fermata
