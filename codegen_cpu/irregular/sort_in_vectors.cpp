// See sort_in_vectors.h. A few lines at a time are copied to a buffer as keys, sorted and copied back. If
// there are fewer lines than threads, threads partition each line into parts, which they then sort.
#include "codegen_cpu/irregular/sort_in_vectors.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/sort_short_lines.h"
#include "codegen_cpu/irregular/sorted_lines.h"
#include "codegen_cpu/irregular/vector_sort.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Longer lines of 1- or 2-byte keys take one or two passes of radix sort.
constexpr std::int64_t kLongestOfFewBytes = 1024;
/// Threads do not share shorter lines; for longer ones of 4-byte keys with positions radix sort is as fast.
constexpr std::int64_t kLeastShared = 1 << 17;

/// Nanoseconds to sort a line of keys of so many bytes.
double line_cost(std::int64_t size, std::size_t bytes) {
  const auto n = static_cast<double>(size);
  return n * (1 + 0.2 * std::log2(n + 1)) * static_cast<double>(bytes) / 4;
}

/// A line on all threads: parts are partitioned until each thread has some.
template <class K>
void sort_long_line(const VectorSortOf<K>& loops, K* keys, K* other, std::int64_t count, const SortedKeys<K>& to) {
  constexpr std::int64_t kLeastPart = 1 << 14;
  struct Part {
    K *keys, *other;
    bool to_other;
    std::int64_t count, below;
    const K* place() const { return to_other ? other : keys; }
  };
  std::vector<Part> parts{{keys, other, false, count, 0}};
  const auto wanted = static_cast<std::size_t>(4 * thread_count());
  const auto for_parts = [&](double ns, auto&& body) {
    const auto n = static_cast<std::int64_t>(parts.size());
    parallel_for(0, n, ns * static_cast<double>(count) / static_cast<double>(n), [&](std::int64_t b, std::int64_t e) {
      for (std::int64_t i = b; i < e; ++i) body(parts[static_cast<std::size_t>(i)]);
    });
  };
  for (std::size_t before = 0; before < parts.size() && parts.size() < wanted;) {
    before = parts.size();
    for_parts(1, [&](Part& part) {
      part.below = -1;
      if (part.count < kLeastPart) return;
      part.below = loops.split(part.keys, part.count, loops.pivot(part.keys, part.count), part.other, part.to_other);
    });
    std::vector<Part> next;
    for (const Part& part : parts) {
      if (part.below < 0) {
        next.push_back(part);
        continue;
      }
      // Each has what it is sorted into, or in, and as much beside it.
      const std::int64_t rest = part.count - part.below;
      K *const stays = part.keys, *const goes = part.other;
      if (part.below > 0)
        next.push_back({part.to_other ? goes : stays, (part.to_other ? stays : goes) + rest, false, part.below, 0});
      next.push_back({part.to_other ? stays : goes, (part.to_other ? goes : stays) + part.below, true, rest, 0});
    }
    parts = std::move(next);
  }
  for_parts(line_cost(count, sizeof(K)) / static_cast<double>(count), [&](const Part& part) {
    SortedKeys<K> here = to;
    if (to.write != nullptr)
      here.elements = static_cast<std::byte*>(to.elements) + (part.place() - keys) * to.element_bytes;
    loops.sort(part.keys, part.other, part.to_other, part.count, part.count, here);
  });
}

/// Sorted positions of 64-bit keys. As many of the highest differing bits as fit are sorted together with
/// the positions; keys that agree in these bits are sorted again.
void positions_of_wide_keys(const VectorSort& vectors, const std::int64_t* keys, std::int64_t count, bool shares,
                            std::int64_t* items, std::int64_t* other, std::int64_t room) {
  const auto [least, most] = std::minmax_element(keys, keys + count);
  const auto base = static_cast<std::uint64_t>(*least);
  const int shift = std::max(0, static_cast<int>(std::bit_width(static_cast<std::uint64_t>(*most) - base)) - 32);
  constexpr std::uint64_t kSign = std::uint64_t{1} << 63;
  for (std::int64_t i = 0; i < count; ++i)
    items[i] = static_cast<std::int64_t>(
        ((static_cast<std::uint64_t>(keys[i]) - base) >> shift << 32 | static_cast<std::uint64_t>(i)) ^ kSign);
  if (shares)
    sort_long_line(vectors.of_8_bytes, items, other, count, {});
  else
    vectors.of_8_bytes.sort(items, other, false, room, count, {});
  if (shift == 0) return;
  for (std::int64_t begin = 0; begin < count;) {
    std::int64_t end = begin + 1;
    while (end < count && items[end] >> 32 == items[begin] >> 32) ++end;
    if (end - begin > 1)
      std::sort(items + begin, items + end, [&](std::int64_t a, std::int64_t b) {
        const std::int64_t x = keys[a & 0xffffffff], y = keys[b & 0xffffffff];
        return x != y ? x < y : a < b;
      });
    begin = end;
  }
}

/// Fewer lines than threads, so that threads share each.
bool shares_lines(const SortedLines& lines) {
  return lines.count() < thread_count() && lines.size() >= kLeastShared && !in_parallel_region();
}

/// Calls body(line, lines, shares) for all of them, on several threads; `shares` if one line is on all threads.
template <class Body> void for_lines(const SortedLines& lines, double line_ns, Body&& body) {
  if (shares_lines(lines)) {
    for (std::int64_t line = 0; line < lines.count(); ++line) body(line, 1, true);
    return;
  }
  const std::int64_t together = lines.together();
  parallel_for(
      0, lines.count(), line_ns,
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t line = begin; line < end;) {
          const std::int64_t count = lines.run(line, std::min(end, line + together));
          body(line, count, false);
          line += count;
        }
      },
      std::min<std::int64_t>(together, 16));
}

/// In parts on several threads, or in one call.
template <class Body> void for_elements(std::int64_t count, bool shares, Body&& body) {
  if (shares)
    parallel_for(0, count, 0.5, body, 4096);
  else
    body(0, count);
}

template <class K> void sort_lines(const SortedLines& lines, const VectorSort& vectors, const VectorSortKeys& convert,
                                   bool descending, std::int64_t bytes) {
  const VectorSortOf<K>& loops = vectors.of<K>();
  const std::int64_t size = lines.size();
  for_lines(lines, line_cost(size, sizeof(K)), [&](std::int64_t line, std::int64_t count, bool shares) {
    const Scratch<std::byte> room(lines.room_bytes(count));
    const bool in_place = lines.writes_in_place(line, count);
    std::byte* const out = in_place ? lines.place(line) : room.data();
    // Keys as wide as elements take their place, and then they take theirs.
    const bool has_own = static_cast<std::size_t>(bytes) != sizeof(K) || !in_place;
    const Scratch<K> own(has_own ? count * size : 0), other(loops.room_for(size));
    K* const keys = has_own ? own.data() : reinterpret_cast<K*>(out);
    const std::byte* const in = lines.bring_in(line, count, room.data());
    for_elements(count * size, shares, [&](std::int64_t b, std::int64_t e) {
      convert.read(in + b * bytes, e - b, descending, false, keys + b);
    });
    for (std::int64_t i = 0; i < count; ++i) {
      const SortedKeys<K> to{convert.write, descending, out + i * size * bytes, bytes};
      shares ? sort_long_line(loops, keys, other.data(), size, to)
             : loops.sort(keys + i * size, other.data(), false, other.size(), size, to);
    }
    if (!in_place) lines.bring_out(line, count, room.data());
  });
}

template <class K> void argsort_lines(const SortedLines& lines, const VectorSort& vectors,
                                      const VectorSortKeys& convert, bool descending) {
  const std::int64_t size = lines.size();
  for_lines(lines, line_cost(size, 8), [&](std::int64_t line, std::int64_t count, bool shares) {
    const Scratch<std::byte> room(lines.room_bytes(count));
    const Scratch<K> keys(count * size);
    const Scratch<std::int64_t> items(size), other(vectors.of_8_bytes.room_for(size));
    convert.read(lines.bring_in(line, count, room.data()), count * size, descending, true, keys.data());
    const bool in_place = lines.writes_in_place(line, count);
    auto* const out = reinterpret_cast<std::int64_t*>(in_place ? lines.place(line) : room.data());
    for (std::int64_t i = 0; i < count; ++i) {
      const K* const own = keys.data() + i * size;
      if constexpr (sizeof(K) == 8) {
        positions_of_wide_keys(vectors, own, size, shares, items.data(), other.data(), other.size());
      } else {
        vectors.add_positions(own, size, items.data());
        shares ? sort_long_line(vectors.of_8_bytes, items.data(), other.data(), size, {})
               : vectors.of_8_bytes.sort(items.data(), other.data(), false, other.size(), size, {});
      }
      vectors.positions_of(items.data(), size, out + i * size);
    }
    if (!in_place) lines.bring_out(line, count, room.data());
  });
}

/// The first `k` of some keys with their positions, in any order. A few more candidates are kept; a key not below
/// the last certain one is dropped when it is read.
class FirstKeys {
 public:
  FirstKeys(const VectorSort& vectors, const VectorSortKeys& convert, std::int64_t k, bool descending)
      : vectors_(vectors),
        convert_(convert),
        k_(k),
        room_(std::max(4 * k, kLeastRoom)),
        descending_(descending),
        kept_(room_) {}

  void read(const std::byte* from, std::int64_t bytes, std::int64_t first, std::int64_t count) {
    constexpr std::int64_t kPart = 1024;
    std::int32_t keys[kPart], where[kPart + kMostSortLanes];
    for (std::int64_t at = 0; at < count; at += kPart) {
      const std::int64_t n = std::min(kPart, count - at);
      convert_.read(from + at * bytes, n, descending_, true, keys);
      std::int64_t i = 0;
      for (; i < n && !is_bounded_; ++i) take(keys[i], first + at + i);
      const std::int64_t found = vectors_.below(keys + i, n - i, bound_, where);
      for (std::int64_t j = 0; j < found; ++j)
        if (const std::int32_t key = keys[i + where[j]]; key < bound_) take(key, first + at + i + where[j]);
    }
  }
  /// The number of remaining keys, at data().
  std::int64_t reduce() {
    if (count_ > k_) std::nth_element(kept_.data(), kept_.data() + k_, kept_.data() + count_);
    return count_ = std::min(count_, k_);
  }
  const std::int64_t* data() const { return kept_.data(); }

 private:
  void take(std::int32_t key, std::int64_t position) {
    kept_[count_++] = static_cast<std::int64_t>(static_cast<std::uint64_t>(std::int64_t{key}) << 32 |
                                                static_cast<std::uint64_t>(position));
    if (count_ < room_) return;
    std::nth_element(kept_.data(), kept_.data() + k_ - 1, kept_.data() + count_);
    count_ = k_, bound_ = static_cast<std::int32_t>(kept_[k_ - 1] >> 32), is_bounded_ = true;
  }

  /// The first ones are all taken: few, since lines may be short.
  static constexpr std::int64_t kLeastRoom = 32;
  const VectorSort& vectors_;
  const VectorSortKeys& convert_;
  std::int64_t k_, room_;
  bool descending_;
  Scratch<std::int64_t> kept_;
  std::int64_t count_ = 0;
  std::int32_t bound_ = 0;
  bool is_bounded_ = false;  // later positions with the same key are dropped
};

/// Whether sorting all of a line takes less than finding its first `k`: 515 keys, of which 33 are wanted, 0.76 us
/// instead of 2.1. Measured on Zen 5 with lines of 65 to 2060.
bool sorts_for_top_k(std::int64_t size, std::int64_t k) {
  constexpr std::int64_t kEach = 64, kFew = 5, kLongest = 1 << 14;
  return size <= kLongest && size < kEach * std::max(k, kFew);
}

/// The first k of each line, all of which is sorted.
void top_k_by_sorting(const SortedLines& lines, const VectorSort& vectors, const VectorSortKeys& convert,
                      std::int64_t k, bool largest) {
  const std::int64_t size = lines.size();
  for_lines(lines, line_cost(size, 8), [&](std::int64_t line, std::int64_t count, bool) {
    const Scratch<std::byte> room(lines.room_bytes(count));
    const Scratch<std::int32_t> keys(count * size);
    const Scratch<std::int64_t> items(size), other(vectors.of_8_bytes.room_for(size));
    convert.read(lines.bring_in(line, count, room.data()), count * size, largest, true, keys.data());
    for (std::int64_t i = 0; i < count; ++i) {
      vectors.add_positions(keys.data() + i * size, size, items.data());
      vectors.of_8_bytes.sort(items.data(), other.data(), false, other.size(), size, {});
      auto* const out = reinterpret_cast<std::int64_t*>(lines.place(line + i));
      for (std::int64_t j = 0; j < k; ++j) out[j * lines.step()] = items[j] & 0xffffffff;
    }
  });
}

void top_k_of_lines(const SortedLines& lines, const VectorSort& vectors, const VectorSortKeys& convert, std::int64_t k,
                    bool largest, std::int64_t bytes) {
  const std::int64_t size = lines.size();
  if (sorts_for_top_k(size, k)) return top_k_by_sorting(lines, vectors, convert, k, largest);
  for_lines(lines, static_cast<double>(size) * 0.5, [&](std::int64_t line, std::int64_t count, bool shares) {
    const Scratch<std::byte> room(lines.room_bytes(count));
    const std::byte* const in = lines.bring_in(line, count, room.data());
    const std::int64_t parts = shares ? thread_count() : 1, part = (size + parts - 1) / parts;
    const Scratch<std::int64_t> found(std::max(k, std::min(parts * k, size))), other(k);
    for (std::int64_t i = 0; i < count; ++i) {
      std::vector<FirstKeys> of_parts;
      for (std::int64_t p = 0; p < parts; ++p) of_parts.emplace_back(vectors, convert, k, largest);
      parallel_for(0, parts, shares ? static_cast<double>(part) : 0, [&](std::int64_t b, std::int64_t e) {
        for (std::int64_t p = b; p < e; ++p)
          of_parts[static_cast<std::size_t>(p)].read(in + (i * size + p * part) * bytes, bytes, p * part,
                                                     std::min(part, size - p * part));
      });
      std::int64_t all = 0;
      for (FirstKeys& keys : of_parts) {
        const std::int64_t n = keys.reduce();
        std::copy_n(keys.data(), n, found.data() + all);
        all += n;
      }
      if (all > k) std::nth_element(found.data(), found.data() + k, found.data() + all);
      vectors.of_8_bytes.sort(found.data(), other.data(), false, k, k, {});
      auto* const out = reinterpret_cast<std::int64_t*>(lines.place(line + i));
      for (std::int64_t j = 0; j < k; ++j) out[j * lines.step()] = found[j] & 0xffffffff;
    }
  });
}

const VectorSortKeys* keys_of(const CallArgs& args, unsigned axis) {
  const VectorSort* const vectors = vector_sort();
  if (vectors == nullptr) return nullptr;
  const DType dtype = args.inputs[0].dtype;
  const VectorSortKeys& keys = vectors->keys[static_cast<std::size_t>(dtype)];
  if (keys.read == nullptr || (byte_size(dtype) < 4 && args.inputs[0].sizes[axis] > kLongestOfFewBytes)) return nullptr;
  return &keys;
}

}  // namespace

const VectorSort* vector_sort() {
#if defined(__x86_64__)
  static const VectorSort* const best = eager::instruction_set() == "avx512" ? &kVectorSortAvx512
                                        : eager::instruction_set() == "avx2" ? &kVectorSortAvx2
                                                                             : nullptr;
  return best;
#else
  return nullptr;
#endif
}

bool sort_in_vectors(const CallArgs& args, unsigned axis, bool descending) {
  const VectorSortKeys* const keys = keys_of(args, axis);
  if (keys == nullptr) return false;
  const SortedLines lines(args, axis);
  const std::size_t bytes = byte_size(args.inputs[0].dtype);
  if (sort_short_lines(lines, *vector_sort(), *keys, descending)) return true;
  if (bytes == 8)
    sort_lines<std::int64_t>(lines, *vector_sort(), *keys, descending, 8);
  else
    sort_lines<std::int32_t>(lines, *vector_sort(), *keys, descending, static_cast<std::int64_t>(bytes));
  return true;
}

bool argsort_in_vectors(const CallArgs& args, unsigned axis, bool descending) {
  const VectorSortKeys* const keys = keys_of(args, axis);
  if (keys == nullptr) return false;
  const SortedLines lines(args, axis);
  const bool is_wide = byte_size(args.inputs[0].dtype) == 8;
  if (first_of_short_lines(lines, *vector_sort(), *keys, lines.size(), descending)) return true;
  if (!is_wide && lines.size() >= kLeastShared && !shares_lines(lines)) return false;
  if (is_wide)
    argsort_lines<std::int64_t>(lines, *vector_sort(), *keys, descending);
  else
    argsort_lines<std::int32_t>(lines, *vector_sort(), *keys, descending);
  return true;
}

bool top_k_in_vectors(const CallArgs& args, unsigned axis, std::int64_t k, bool largest) {
  const VectorSort* const vectors = vector_sort();
  const auto bytes = static_cast<std::int64_t>(byte_size(args.inputs[0].dtype));
  if (vectors == nullptr) return false;
  const VectorSortKeys& keys = vectors->keys[static_cast<std::size_t>(args.inputs[0].dtype)];
  if (keys.read == nullptr) return false;
  const SortedLines lines(args, axis);
  if (first_of_short_lines(lines, *vectors, keys, k, largest)) return true;
  if (bytes > 4) return false;
  top_k_of_lines(lines, *vectors, keys, k, largest, bytes);
  return true;
}

}  // namespace fermata
