// See strided_copy.h. Axes are ordered by the stride of the target and merged where both sides allow it, so that most
// copies end as runs of memcpy; where the source has its unit stride on another axis, blocks of both axes are copied;
// blocks that the target repeats are copied from the target.
#include "codegen_cpu/irregular/strided_copy.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/elements_apart.h"
#include "codegen_cpu/irregular/near_rows.h"
#include "codegen_cpu/irregular/repeat.h"
#include "codegen_cpu/irregular/transpose.h"
#include "ir/shape.h"
#include "runtime/streaming.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

constexpr std::int64_t kStrip = 64;  // lines of a transposing copy that are made together
constexpr double kNsPerByte = 0.1, kNsPerTurnedByte = 0.12, kNsPerScatteredElement = 0.8;

struct Element16 {
  std::uint64_t words[2];
};

struct Axis {
  std::int64_t size, to, from;
};

/// A copy in canonical form; axes from outer to inner.
struct Copy {
  std::byte* to;
  const std::byte* from;
  std::array<Axis, kMaxRank> axes;
  unsigned rank = 0;
  bool ordered = false;  // elements of the target may be written more than once

  Axis& inner() { return axes[rank - 1]; }
  const Axis& inner() const { return axes[rank - 1]; }
};

/// True if no two index tuples name the same element: each stride steps over all that the smaller ones reach.
bool writes_once(const Copy& c) {
  std::array<Axis, kMaxRank> axes = c.axes;
  std::sort(axes.begin(), axes.begin() + c.rank,
            [](const Axis& a, const Axis& b) { return std::abs(a.to) < std::abs(b.to); });
  std::int64_t reach = 0;
  for (unsigned i = 0; i < c.rank; ++i) {
    if (std::abs(axes[i].to) <= reach) return false;
    reach += (axes[i].size - 1) * std::abs(axes[i].to);
  }
  return true;
}

/// Walks an axis in the opposite direction on both sides.
void reverse(Copy& c, unsigned axis, std::size_t element_bytes) {
  Axis& a = c.axes[axis];
  const std::int64_t last = (a.size - 1) * static_cast<std::int64_t>(element_bytes);
  c.to += last * a.to, c.from += last * a.from;
  a.to = -a.to, a.from = -a.from;
}

/// Walks every axis of the target upwards, puts its axes in order of stride and merges those that follow each other.
void simplify(Copy& c, std::size_t element_bytes) {
  c.ordered = !writes_once(c);
  if (!c.ordered) {
    for (unsigned i = 0; i < c.rank; ++i)
      if (c.axes[i].to < 0) reverse(c, i, element_bytes);
    std::sort(c.axes.begin(), c.axes.begin() + c.rank, [](const Axis& a, const Axis& b) { return a.to > b.to; });
  }
  unsigned kept = 0;
  for (unsigned i = 0; i < c.rank; ++i) {
    const Axis& a = c.axes[i];
    if (kept > 0) {
      Axis& outer = c.axes[kept - 1];
      if (outer.to == a.to * a.size && outer.from == a.from * a.size) {
        outer = {outer.size * a.size, a.to, a.from};
        continue;
      }
    }
    c.axes[kept++] = a;
  }
  c.rank = kept;
}

/// Walks the first `axes` axes in row-major order from the `index`-th combination on. Offsets are in elements.
class Walker {
 public:
  Walker(const Copy& c, unsigned axes, std::int64_t index) : axes_(c.axes), rank_(axes) {
    for (unsigned i = axes; i-- > 0;) {
      at_[i] = index % axes_[i].size;
      index /= axes_[i].size;
      to += at_[i] * axes_[i].to;
      from += at_[i] * axes_[i].from;
    }
  }
  void next() {
    for (unsigned i = rank_; i-- > 0;) {
      const Axis& a = axes_[i];
      to += a.to, from += a.from;
      if (++at_[i] < a.size) return;
      at_[i] = 0;
      to -= a.size * a.to, from -= a.size * a.from;
    }
  }
  std::int64_t to = 0, from = 0;

 private:
  const std::array<Axis, kMaxRank>& axes_;
  unsigned rank_;
  std::array<std::int64_t, kMaxRank> at_;
};

std::int64_t count(const Copy& c, unsigned axes) {
  std::int64_t n = 1;
  for (unsigned i = 0; i < axes; ++i) n *= c.axes[i].size;
  return n;
}

/// The longest of the first `axes` axes; of equal ones, and of those that are not much longer, the innermost.
unsigned longest_before(const Copy& c, unsigned axes) {
  constexpr std::int64_t kMuch = 4;
  unsigned longest = axes - 1;
  for (unsigned i = axes - 1; i-- > 0;)
    if (c.axes[i].size > c.axes[longest].size) longest = i;
  return c.axes[longest].size >= kMuch * c.axes[axes - 1].size ? longest : axes - 1;
}

/// Moves an axis inwards to a place; those between move outwards.
void move_to(Copy& c, unsigned axis, unsigned place) {
  std::rotate(c.axes.begin() + axis, c.axes.begin() + axis + 1, c.axes.begin() + place + 1);
}

template <class T>
void copy_run(T* to, const T* from, const Axis& a, std::int64_t begin, std::int64_t end, Reading reversed) {
  if (a.to == 1 && a.from == 1) {
    copy_bytes(to + begin, from + begin, (end - begin) * static_cast<std::int64_t>(sizeof(T)));
  } else if (a.to == 1 && a.from == 0) {
    std::fill(to + begin, to + end, *from);
  } else if (sizeof(T) <= 8 && a.to == 1 && (a.from == -1 || a.from == 2)) {
    constexpr auto kBytes = static_cast<std::int64_t>(sizeof(T));
    gather_elements<std::min<std::size_t>(sizeof(T), 8)>(reinterpret_cast<char*>(to + begin),
                                                         reinterpret_cast<const char*>(from + begin * a.from),
                                                         a.from * kBytes, end - begin, reversed);
  } else {
    const std::int64_t to_step = a.to, from_step = a.from;
    to += begin * to_step, from += begin * from_step;
#pragma GCC unroll 4
    for (std::int64_t i = begin; i < end; ++i, to += to_step, from += from_step) *to = *from;
  }
}

/// Each of `count` elements R times. A loop over R for each element would be all branches.
template <int R, class T> void repeat_elements(T* to, const T* from, std::int64_t stride, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i, to += R) {
    const T x = from[i * stride];
    for (int k = 0; k < R; ++k) to[k] = x;
  }
}
template <class T> using RepeatElements = void (*)(T*, const T*, std::int64_t, std::int64_t);
template <class T> RepeatElements<T> repeat_kernel(std::int64_t times) {
  static constexpr RepeatElements<T> kKernels[] = {nullptr,
                                                   nullptr,
                                                   &repeat_elements<2, T>,
                                                   &repeat_elements<3, T>,
                                                   &repeat_elements<4, T>,
                                                   &repeat_elements<5, T>,
                                                   &repeat_elements<6, T>,
                                                   &repeat_elements<7, T>,
                                                   &repeat_elements<8, T>};
  return times < static_cast<std::int64_t>(std::size(kKernels)) ? kKernels[times] : nullptr;
}

/// By shuffles of vectors (repeat.h), if there are many.
template <class T> bool find_repeat_order(RepeatOrder& order, const Axis& axis, std::int64_t times) {
  constexpr std::int64_t kMany = 512;  // what is left behind groups of vectors takes as long as some hundred
  if (axis.size < kMany) return false;
  if constexpr (sizeof(T) <= 8) repeat_kernels().find_order(order, sizeof(T), axis.from, times, axis.size);
  return order.vector_bytes != 0;
}
template <class T> void repeat_in_vectors(const RepeatOrder& order, const RepeatedElements& elements) {
  if constexpr (sizeof(T) <= 8) repeat_kernels().repeat(&order, sizeof(T), elements);
}

/// A shuffle of vectors of rows that follow each other in the target and lie near each other in the source
/// (near_rows.h): none if there is none.
NearRowsOrder near_rows_order(std::size_t element_bytes, std::int64_t length, std::int64_t inner_step,
                              const Axis& rows) {
  NearRowsOrder order;
  if (element_bytes <= 8 && rows.to == length)
    near_rows_kernels().find_order(order, {.element_bytes = static_cast<std::int64_t>(element_bytes),
                                           .length = length,
                                           .step = rows.from,
                                           .inner_step = inner_step});
  return order;
}

/// Elements that are each repeated a few times, as by repeat(): false where the copy is another one.
template <class T> bool copy_repeated(const Copy& c) {
  if (c.ordered || c.rank < 2 || c.inner().from != 0 || c.inner().to != 1) return false;
  const Axis &axis = c.axes[c.rank - 2], &times = c.inner();
  RepeatOrder order;
  const bool in_vectors = find_repeat_order<T>(order, axis, times.size);
  const NearRowsOrder near = in_vectors ? NearRowsOrder() : near_rows_order(sizeof(T), times.size, 0, axis);
  const RepeatElements<T> kernel = repeat_kernel<T>(times.size);
  if ((kernel == nullptr && !in_vectors && near.vector_bytes == 0) || axis.to != times.size ||
      longest_before(c, c.rank - 1) != c.rank - 2)
    return false;
  constexpr std::int64_t kPart = 4096;
  const std::int64_t rows = count(c, c.rank - 2), parts = (axis.size + kPart - 1) / kPart;
  const double ns = kNsPerByte * static_cast<double>(std::min(axis.size, kPart) * times.size) * sizeof(T);
  parallel_for(0, rows * parts, ns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t task = first; task < last; ++task) {
      const Walker at(c, c.rank - 2, task / parts);
      const std::int64_t begin = task % parts * kPart, elements = std::min(kPart, axis.size - begin);
      T* const to = reinterpret_cast<T*>(c.to) + at.to + begin * times.size;
      const T* const from = reinterpret_cast<const T*>(c.from) + at.from + begin * axis.from;
      if (in_vectors)
        repeat_in_vectors<T>(order,
                             {.to = to, .from = from, .step = axis.from, .count = elements, .times = times.size});
      else if (near.vector_bytes != 0)
        near_rows_kernels().copy(near, to, from, elements);
      else
        kernel(to, from, axis.from, elements);
    }
  });
  return true;
}

/// Rows of N elements that follow each other on both sides: memcpy takes longer to find out how short one is.
template <int N, class T>
void copy_short_rows(T* to, const T* from, std::int64_t to_step, std::int64_t from_step, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i, to += to_step, from += from_step) {
    T row[N];
    for (int k = 0; k < N; ++k) row[k] = from[k];
    for (int k = 0; k < N; ++k) to[k] = row[k];
  }
}
template <class T> using ShortRows = void (*)(T*, const T*, std::int64_t, std::int64_t, std::int64_t);
template <class T, int... N> ShortRows<T> short_rows_kernel(std::int64_t size, std::integer_sequence<int, N...>) {
  static constexpr ShortRows<T> kKernels[] = {&copy_short_rows<N + 1, T>...};
  return kKernels[size - 1];
}

/// Many rows of a few elements each: false where the copy is another one.
template <class T> bool copy_many_short_rows(Copy& c) {
  constexpr int kLongest = sizeof(T) <= 8 ? 16 : 4;  // each is a function
  if (c.ordered || c.rank < 2 || c.inner().to != 1 || std::abs(c.inner().from) != 1) return false;
  if (c.inner().size > kLongest) return false;
  const unsigned along = longest_before(c, c.rank - 1);
  const NearRowsOrder near = near_rows_order(sizeof(T), c.inner().size, c.inner().from, c.axes[along]);
  if (c.inner().from < 0 && near.vector_bytes == 0) return false;
  const ShortRows<T> kernel = short_rows_kernel<T>(c.inner().size, std::make_integer_sequence<int, kLongest>());
  move_to(c, along, c.rank - 2);
  const Axis& axis = c.axes[c.rank - 2];
  constexpr std::int64_t kPart = 1024;
  const std::int64_t outer = count(c, c.rank - 2), parts = (axis.size + kPart - 1) / kPart;
  const double ns = static_cast<double>(std::min(axis.size, kPart)) *
                    (1 + kNsPerByte * static_cast<double>(c.inner().size) * sizeof(T));
  parallel_for(0, outer * parts, ns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t task = first; task < last; ++task) {
      // Rows beside each other, one part after the other: they share cache lines.
      const Walker at(c, c.rank - 2, task % outer);
      const std::int64_t begin = task / outer * kPart, rows = std::min(kPart, axis.size - begin);
      T* const to = reinterpret_cast<T*>(c.to) + at.to + begin * axis.to;
      const T* const from = reinterpret_cast<const T*>(c.from) + at.from + begin * axis.from;
      if (near.vector_bytes != 0)
        near_rows_kernels().copy(near, to, from, rows);
      else
        kernel(to, from, axis.to, axis.from, rows);
    }
  });
  return true;
}

template <class T> void copy_runs(const Copy& c) {
  auto* const to = reinterpret_cast<T*>(c.to);
  const auto* const from = reinterpret_cast<const T*>(c.from);
  const Axis& inner = c.inner();
  const Reading reversed = c.rank > 1 && c.axes[c.rank - 2].from < 0 ? Reading::down : Reading::up;
  const std::int64_t rows = count(c, c.rank - 1);
  const double ns =
      inner.to == 1 && inner.from <= 1 && inner.from >= 0 ? kNsPerByte * sizeof(T) : kNsPerScatteredElement;
  NearRowsOrder near;  // every third element, and so on
  if (constexpr std::int64_t kApart = 3; std::abs(inner.from) >= kApart || inner.from == -2)
    near = near_rows_order(sizeof(T), 1, 1, inner);
  const auto copy_part = [&](const Walker& at, std::int64_t begin, std::int64_t end) {
    if (near.vector_bytes != 0)
      near_rows_kernels().copy(near, to + at.to + begin, from + at.from + begin * inner.from, end - begin);
    else
      copy_run(to + at.to, from + at.from, inner, begin, end, reversed);
  };
  const auto copy_rows = [&](std::int64_t first, std::int64_t last) {
    Walker at(c, c.rank - 1, first);
    for (std::int64_t row = first; row < last; ++row, at.next()) copy_part(at, 0, inner.size);
  };
  if (c.ordered) return copy_rows(0, rows);
  if (rows >= inner.size || rows >= 64) return parallel_for(0, rows, static_cast<double>(inner.size) * ns, copy_rows);
  Walker at(c, c.rank - 1, 0);
  for (std::int64_t row = 0; row < rows; ++row, at.next())
    parallel_for(
        0, inner.size, ns, [&](std::int64_t b, std::int64_t e) { copy_part(at, b, e); }, 4096);
}

/// Where the innermost axes are short and lie in no order, runs go along the longest axis, a part of it after the
/// other: false where the innermost one is long enough. Elements beside each other in the target are written one
/// shortly after the other.
template <class T> bool copy_along_longest(Copy& c) {
  constexpr std::int64_t kShort = 32, kShortRow = 8, kPart = 256;  // a row is read or filled as a whole
  const bool is_row = c.inner().to == 1 && std::abs(c.inner().from) <= 1;
  if (c.ordered || c.rank < 2 || c.inner().size > (is_row ? kShortRow : kShort)) return false;
  const unsigned longest = longest_before(c, c.rank);
  if (longest == c.rank - 1) return false;
  move_to(c, longest, c.rank - 1);
  const Axis& axis = c.inner();
  const std::int64_t rows = count(c, c.rank - 1), parts = (axis.size + kPart - 1) / kPart;
  const double ns = static_cast<double>(std::min(axis.size, kPart)) * kNsPerScatteredElement;
  parallel_for(0, parts * rows, ns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t task = first; task < last;) {
      const std::int64_t begin = task / rows * kPart, end = std::min(begin + kPart, axis.size);
      const std::int64_t until = std::min(last, (task / rows + 1) * rows);
      for (Walker at(c, c.rank - 1, task % rows); task < until; ++task, at.next())
        copy_run(reinterpret_cast<T*>(c.to) + at.to, reinterpret_cast<const T*>(c.from) + at.from, axis, begin, end,
                 Reading::up);
    }
  });
  return true;
}

/// Whether cache lines of a target meet in few places of the caches: what is written there would soon be pushed out to
/// make room for other lines, which are read first for that. Wide elements fill lines faster.
template <class T> bool lines_meet(std::int64_t to_line) {
  return sizeof(T) >= 4 && to_line * static_cast<std::int64_t>(sizeof(T)) % 1024 == 0;
}
constexpr std::int64_t kLeastStreamed = 1 << 19;  // bytes that meet

/// The innermost axis of the target, `outer` moved just before it, is strided in the source, and `outer` the other way.
template <class T> void copy_blocks(const Copy& c) {
  auto* const to = reinterpret_cast<T*>(c.to);
  const auto* const from = reinterpret_cast<const T*>(c.from);
  const Axis &a = c.axes[c.rank - 2], &b = c.inner();
  const std::int64_t strips = (a.size + kStrip - 1) / kStrip, planes = count(c, c.rank - 2);
  // Few strips are long lines, of which threads share the parts.
  constexpr std::int64_t kPart = 4096;
  const std::int64_t parts = planes * strips < 4 * thread_count() ? (b.size + kPart - 1) / kPart : 1;
  const std::int64_t part = parts > 1 ? kPart : b.size;
  const bool turns = sizeof(T) <= 8 && a.from == 1 && b.to == 1;
  const std::int64_t bytes = planes * a.size * b.size * static_cast<std::int64_t>(sizeof(T));
  const bool streams = bytes >= stream_threshold() || (bytes >= kLeastStreamed && lines_meet<T>(a.to));
  const double ns = static_cast<double>(std::min(a.size, kStrip) * part) *
                    (turns ? kNsPerTurnedByte * sizeof(T) : kNsPerScatteredElement);
  parallel_for(0, planes * strips * parts, ns, [&](std::int64_t first, std::int64_t last) {
    for (std::int64_t task = first; task < last; ++task) {
      const Walker at(c, c.rank - 2, task / parts / strips);
      const std::int64_t i0 = task / parts % strips * kStrip, i1 = std::min(i0 + kStrip, a.size);
      const std::int64_t begin = task % parts * part, end = std::min(begin + part, b.size);
      if (turns) {
        transpose_kernels().of_bytes[sizeof(T)]({.to = to + at.to + i0 * a.to + begin,
                                                 .from = from + at.from + i0 + begin * b.from,
                                                 .to_line = a.to,
                                                 .from_line = b.from,
                                                 .lines = i1 - i0,
                                                 .columns = end - begin,
                                                 .streams = streams});
        continue;
      }
      for (std::int64_t j0 = begin; j0 < end; j0 += kStrip)
        for (std::int64_t i = i0; i < i1; ++i)
          for (std::int64_t j = j0; j < std::min(j0 + kStrip, end); ++j)
            to[at.to + i * a.to + j * b.to] = from[at.from + i * a.from + j * b.from];
    }
  });
}

/// How many elements of the target the innermost axes but `without` fill without a gap.
std::int64_t dense_run(const Copy& c, unsigned without) {
  std::int64_t run = 1;
  for (unsigned i = c.rank; i-- > 0;) {
    if (i == without) continue;
    if (c.axes[i].to != run) break;
    run *= c.axes[i].size;
  }
  return run;
}

/// Where the innermost axis is short and lies apart in the source, and others before it go on in the target: cache
/// lines of the source, one for each element of such a run, are brought together and turned. False where that is not
/// so.
template <class T> bool copy_through_tiles(Copy& c) {
  constexpr std::int64_t kWidth = 64 / static_cast<std::int64_t>(sizeof(T)), kMostColumns = 128, kFewColumns = 64,
                         kLongestInner = 32;
  if (c.ordered || c.rank < 3 || c.inner().to != 1 || std::abs(c.inner().from) <= 1) return false;
  unsigned along = 0;
  while (along + 1 < c.rank && (c.axes[along].from != 1 || c.axes[along].size < kWidth)) ++along;
  if (along + 1 == c.rank || c.inner().size > kLongestInner) return false;
  const std::int64_t run = dense_run(c, along);
  if (run < kFewColumns || run == c.inner().size) return false;
  move_to(c, along, c.rank - 1);
  const Axis lines = c.inner();
  const std::int64_t runs = count(c, c.rank - 1) / run, parts = (run + kMostColumns - 1) / kMostColumns;
  const double ns = kNsPerTurnedByte * sizeof(T) * static_cast<double>(lines.size * std::min(run, kMostColumns));
  parallel_for(0, runs * parts, 2 * ns, [&](std::int64_t first, std::int64_t last) {
    alignas(64) T tile[kMostColumns * kWidth];
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t begin = task % parts * kMostColumns, columns = std::min(kMostColumns, run - begin);
      const Walker start(c, c.rank - 1, task / parts * run + begin);
      for (std::int64_t i = 0; i < lines.size; i += kWidth) {
        const std::int64_t width = std::min(kWidth, lines.size - i);
        Walker at = start;
        for (std::int64_t column = 0; column < columns; ++column, at.next()) {
          const T* const line = reinterpret_cast<const T*>(c.from) + at.from + i;
          __builtin_prefetch(line + kWidth);  // the processor does not follow so many lines
          std::memcpy(tile + column * kWidth, line, static_cast<std::size_t>(width) * sizeof(T));
        }
        transpose_kernels().of_bytes[sizeof(T)]({.to = reinterpret_cast<T*>(c.to) + start.to + i * lines.to,
                                                 .from = tile,
                                                 .to_line = lines.to,
                                                 .from_line = kWidth,
                                                 .lines = width,
                                                 .columns = columns,
                                                 .streams = false});
      }
    }
  });
  return true;
}

/// Finds an axis along which the source is contiguous while it is not along the innermost of the target; moves it next
/// to the innermost, and walks it upwards in the source.
template <class T> bool transposes(Copy& c) {
  if (c.ordered || c.rank < 2 || std::abs(c.inner().from) <= 1) return false;
  for (unsigned i = 0; i + 1 < c.rank; ++i) {
    if (std::abs(c.axes[i].from) != 1 || c.axes[i].size < 2) continue;
    // Small planes take longer to begin than to turn, and lines of a few columns with gaps between them are written
    // element by element.
    constexpr std::int64_t kFewElements = 64, kFewColumns = 8;
    const Axis &lines = c.axes[i], &columns = c.inner();
    if (lines.size * columns.size < kFewElements && longest_before(c, c.rank) != c.rank - 1) return false;
    if (columns.size <= kFewColumns && lines.to != columns.size) return false;
    move_to(c, i, c.rank - 2);
    if (c.axes[c.rank - 2].from < 0) reverse(c, c.rank - 2, sizeof(T));
    return true;
  }
  return false;
}

template <class T> void run(Copy& c);

/// The outermost axis along which the target repeats a block that lies in order; the rank where there is none. Short
/// blocks take longer to begin than to copy.
template <class T> unsigned repeated_axis(const Copy& c) {
  constexpr std::int64_t kShortBytes = 1024;
  std::int64_t block = count(c, c.rank);
  for (unsigned i = 0; !c.ordered && i + 1 < c.rank; ++i) {
    block /= c.axes[i].size;
    if (block * static_cast<std::int64_t>(sizeof(T)) < kShortBytes) break;
    if (c.axes[i].from == 0 && c.axes[i].to == block) return i;
  }
  return c.rank;
}

/// Each block once from the source, and from there on from the target.
template <class T> void copy_and_repeat(const Copy& c, unsigned axis) {
  const Axis& times = c.axes[axis];
  const std::int64_t blocks = count(c, axis);
  const auto bytes = static_cast<std::size_t>(times.to) * sizeof(T);
  Copy once{.to = c.to, .from = c.from, .axes = {}, .rank = c.rank - axis - 1};
  std::copy(c.axes.begin() + axis + 1, c.axes.begin() + c.rank, once.axes.begin());
  if (blocks == 1) {
    run<T>(once);
    return parallel_for(
        0, (times.size - 1) * times.to, kNsPerByte * sizeof(T),
        [&](std::int64_t b, std::int64_t e) {
          while (b < e) {
            const std::int64_t at = b % times.to, n = std::min(times.to - at, e - b);
            copy_bytes(c.to + static_cast<std::size_t>(times.to + b) * sizeof(T),
                       c.to + static_cast<std::size_t>(at) * sizeof(T), n * static_cast<std::int64_t>(sizeof(T)));
            b += n;
          }
        },
        4096);
  }
  parallel_for(0, blocks, kNsPerByte * static_cast<double>(bytes) * static_cast<double>(times.size),
               [&](std::int64_t first, std::int64_t last) {
                 Walker at(c, axis, first);
                 for (std::int64_t block = first; block < last; ++block, at.next()) {
                   Copy part = once;
                   part.to += at.to * static_cast<std::int64_t>(sizeof(T));
                   part.from += at.from * static_cast<std::int64_t>(sizeof(T));
                   std::byte* const whole = part.to;
                   run<T>(part);
                   for (std::int64_t i = 1; i < times.size; ++i)
                     copy_bytes(whole + static_cast<std::size_t>(i) * bytes, whole, static_cast<std::int64_t>(bytes));
                 }
               });
}

template <class T> void run(Copy& c) {
  if (const unsigned axis = repeated_axis<T>(c); axis != c.rank) return copy_and_repeat<T>(c, axis);
  if constexpr (sizeof(T) <= 8)
    if (copy_through_tiles<T>(c)) return;
  if (transposes<T>(c))
    copy_blocks<T>(c);
  else if (!copy_repeated<T>(c) && !copy_many_short_rows<T>(c) && !copy_along_longest<T>(c))
    copy_runs<T>(c);
}

}  // namespace

const TransposeKernels& transpose_kernels() {
  static const TransposeKernels& best = FERMATA_TABLE(kTranspose);
  return best;
}

const RepeatKernels& repeat_kernels() {
  static const RepeatKernels& best = FERMATA_TABLE(kRepeat);
  return best;
}

const NearRowsKernels& near_rows_kernels() {
  static const NearRowsKernels& best = FERMATA_TABLE(kNearRows);
  return best;
}

void strided_copy(StridedSide to, StridedSide from, std::span<const std::int64_t> sizes, std::size_t element_bytes) {
  Copy c{.to = static_cast<std::byte*>(to.data), .from = static_cast<const std::byte*>(from.data), .axes = {}};
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return;
    if (sizes[i] != 1) c.axes[c.rank++] = {sizes[i], to.strides[i], from.strides[i]};
  }
  simplify(c, element_bytes);
  if (c.rank == 0) c.axes[c.rank++] = {1, 1, 1};
  switch (element_bytes) {
    case 1: return run<std::uint8_t>(c);
    case 2: return run<std::uint16_t>(c);
    case 4: return run<std::uint32_t>(c);
    case 8: return run<std::uint64_t>(c);
    default: return run<Element16>(c);
  }
}

}  // namespace fermata
