// sort, argsort and top_k_indices. Lines are copied to keys (sort_keys.h), sorted there, and copied back.
//
// Vectorized if the processor supports it (sort_in_vectors.h); long lines of 1- or 2-byte keys are counted
// (sort_by_counting.h); else by radix sort from the lowest byte, skipping bytes in which all keys agree: stable, and
// linear in the length. Short lines are then sorted by comparison.
#include <algorithm>
#include <array>
#include <numeric>

#include <fmt/format.h>

#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/lines.h"
#include "codegen_cpu/irregular/sort_by_counting.h"
#include "codegen_cpu/irregular/sort_in_vectors.h"
#include "codegen_cpu/irregular/sort_keys.h"
#include "ir/error.h"
#include "ir/ops/ordering.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

constexpr std::int64_t kShort = 96;

/// libfermata_run always has vectors (sort_in_vectors.h): what they never leave to the loops here is not compiled.
#ifdef FERMATA_INFERENCE_ONLY
constexpr bool kAlwaysHasVectors = true;
#else
constexpr bool kAlwaysHasVectors = false;
#endif
/// Calls run(key) for the dtype of operand 0; `left`: whether vectors leave keys of so many bytes to it.
template <class Left, class Run> void without_vectors(const CallArgs& args, Left left, Run&& run) {
  visit_sort_key(args.inputs[0].dtype, [&]<class Key>(Key key) {
    if constexpr (!kAlwaysHasVectors || left(sizeof(typename Key::Bits)))
      run(key);
    else
      throw_internal(fmt::format("{}: keys that are always sorted in vectors", name(args.op)), args.where);
  });
}

template <class K> struct KeyAndPosition {
  K key;
  std::uint32_t position;  // callers reject lines longer than 2^32 elements
};
template <class K> K key_of(K key) { return key; }
template <class K> K key_of(const KeyAndPosition<K>& item) { return item.key; }

/// Sorts `items` by their keys, stably; `other` has the same length. Returns the one that holds the result.
template <class Item> Item* radix_sort(Item* items, Item* other, std::int64_t count) {
  using K = decltype(key_of(*items));
  constexpr std::size_t kBytes = sizeof(K);
  if (!kAlwaysHasVectors && count <= kShort) {  // which vectors do not leave to it
    std::stable_sort(items, items + count, [](const Item& a, const Item& b) { return key_of(a) < key_of(b); });
    return items;
  }
  std::array<std::array<std::int64_t, 256>, kBytes> histogram{};
  for (std::int64_t i = 0; i < count; ++i)
#pragma GCC unroll 8
    for (std::size_t byte = 0; byte < kBytes; ++byte) ++histogram[byte][key_of(items[i]) >> (8 * byte) & 0xff];
  for (std::size_t byte = 0; byte < kBytes; ++byte) {
    auto& starts = histogram[byte];
    if (starts[key_of(items[0]) >> (8 * byte) & 0xff] == count) continue;
    std::exclusive_scan(starts.begin(), starts.end(), starts.begin(), std::int64_t{0});
    for (std::int64_t i = 0; i < count; ++i) other[starts[key_of(items[i]) >> (8 * byte) & 0xff]++] = items[i];
    std::swap(items, other);
  }
  return items;
}

/// Nanoseconds to sort one line.
double line_cost(std::int64_t size, std::size_t bytes) {
  return static_cast<double>(size) * (size <= kShort ? 12 : 2.0 + 1.5 * static_cast<double>(bytes));
}

template <class Key> void sort_lines(const CallArgs& args, Key key) {
  using K = typename Key::Bits;
  const auto sort = attributes_of<ops::Sort>(args);
  const auto axis = static_cast<unsigned>(sort.axis.value);
  const K flip = sort.descending.value ? static_cast<K>(~K{0}) : K{0};
  const LineStarts from(args.inputs[0], axis), to(args.outputs[0], axis);
  const std::int64_t size = args.outputs[0].sizes[axis];
  const auto* const x = static_cast<const K*>(args.inputs[0].data);
  auto* const out = static_cast<K*>(args.outputs[0].data);
  parallel_for(0, to.count(), line_cost(size, sizeof(K)), [&](std::int64_t begin, std::int64_t end) {
    const Scratch<K> keys(size), other(size);
    for (std::int64_t line = begin; line < end; ++line) {
      const K* const source = x + from[line];
      for (std::int64_t i = 0; i < size; ++i) keys[i] = static_cast<K>(key.key(source[i * from.stride()]) ^ flip);
      const K* const sorted = radix_sort(keys.data(), other.data(), size);
      K* const target = out + to[line];
      for (std::int64_t i = 0; i < size; ++i) target[i * to.stride()] = key.bits(static_cast<K>(sorted[i] ^ flip));
    }
  });
}

void require_positions(const CallArgs& args, std::int64_t size) {
  if (size > std::int64_t{UINT32_MAX})
    throw_internal(fmt::format("{}: a line of {} elements", name(args.op), size), args.where);
}

/// Calls `use(line, items)` with the keys of each line and their positions; largest first if `descending`.
template <class Key, class Use>
void for_keyed_lines(const CallArgs& args, Key key, std::int64_t along, bool descending, Use&& use) {
  using K = typename Key::Bits;
  using Item = KeyAndPosition<K>;
  const auto axis = static_cast<unsigned>(along);
  const LineStarts from(args.inputs[0], axis);
  const std::int64_t size = args.inputs[0].sizes[axis];
  require_positions(args, size);
  const K flip = descending ? static_cast<K>(~K{0}) : K{0};
  const auto* const x = static_cast<const K*>(args.inputs[0].data);
  parallel_for(0, from.count(), line_cost(size, sizeof(Item)), [&](std::int64_t begin, std::int64_t end) {
    const Scratch<Item> items(size), other(size);
    for (std::int64_t line = begin; line < end; ++line) {
      const K* const source = x + from[line];
      for (std::int64_t i = 0; i < size; ++i)
        items[i] = {static_cast<K>(key.key(Key::equal_zeros(source[i * from.stride()])) ^ flip),
                    static_cast<std::uint32_t>(i)};
      use(line, items.data(), other.data(), size);
    }
  });
}

template <class Key> void argsort_lines(const CallArgs& args, Key key) {
  const auto sort = attributes_of<ops::Argsort>(args);
  const LineStarts to(args.outputs[0], static_cast<unsigned>(sort.axis.value));
  auto* const out = static_cast<std::int64_t*>(args.outputs[0].data);
  for_keyed_lines(args, key, sort.axis.value, sort.descending.value,
                  [&](std::int64_t line, auto* items, auto* other, std::int64_t size) {
                    const auto* const sorted = radix_sort(items, other, size);
                    std::int64_t* const target = out + to[line];
                    for (std::int64_t i = 0; i < size; ++i) target[i * to.stride()] = sorted[i].position;
                  });
}

/// The first `k` items of a line, in order. A bounded number of candidates is kept; an item that is not below the
/// last certain one is dropped when it is read.
template <class Key> void top_k_of_line(Key key, const typename Key::Bits* x, std::int64_t stride, std::int64_t size,
                                        typename Key::Bits flip, std::int64_t k,
                                        KeyAndPosition<typename Key::Bits>* kept, std::int64_t room) {
  using K = typename Key::Bits;
  const auto before = [](const auto& a, const auto& b) {
    return a.key != b.key ? a.key < b.key : a.position < b.position;
  };
  std::int64_t count = 0;
  K bound = 0;
  bool is_bounded = false;
  const auto take = [&](K taken, std::int64_t i) {
    kept[count++] = {taken, static_cast<std::uint32_t>(i)};
    if (count < room) return;
    std::nth_element(kept, kept + k - 1, kept + count, before);
    count = k, bound = kept[k - 1].key, is_bounded = true;
  };
  const auto key_at = [&](std::int64_t i) { return static_cast<K>(key.key(Key::equal_zeros(x[i * stride])) ^ flip); };
  std::int64_t i = 0;
  for (; i < size && !is_bounded; ++i) take(key_at(i), i);
  constexpr std::int64_t kTogether = 32;  // usually all of them are dropped
  for (; i + kTogether <= size; i += kTogether) {
    K keys[kTogether];
    for (std::int64_t j = 0; j < kTogether; ++j) keys[j] = key_at(i + j);
    K any = 0;
    for (std::int64_t j = 0; j < kTogether; ++j) any = static_cast<K>(any | static_cast<K>(keys[j] < bound));
    for (std::int64_t j = 0; any != 0 && j < kTogether; ++j)
      if (keys[j] < bound) take(keys[j], i + j);  // of equal keys the first are kept
  }
  for (; i < size; ++i)
    if (const K here = key_at(i); here < bound) take(here, i);
  if (k < count) std::nth_element(kept, kept + k - 1, kept + count, before);
  std::sort(kept, kept + k, before);
}

template <class Key> void top_k_lines(const CallArgs& args, Key key) {
  using K = typename Key::Bits;
  const auto top = attributes_of<ops::TopKIndices>(args);
  const auto axis = static_cast<unsigned>(top.axis.value);
  const LineStarts from(args.inputs[0], axis), to(args.outputs[0], axis);
  const std::int64_t k = top.k.value, size = args.inputs[0].sizes[axis];
  require_positions(args, size);
  const std::int64_t room = std::min(size + 1, std::max<std::int64_t>(4 * k, 256));
  const K flip = top.largest.value ? static_cast<K>(~K{0}) : K{0};
  const auto* const x = static_cast<const K*>(args.inputs[0].data);
  auto* const out = static_cast<std::int64_t*>(args.outputs[0].data);
  parallel_for(0, from.count(), static_cast<double>(size), [&](std::int64_t begin, std::int64_t end) {
    const Scratch<KeyAndPosition<K>> kept(room);
    for (std::int64_t line = begin; line < end; ++line) {
      top_k_of_line(key, x + from[line], from.stride(), size, flip, k, kept.data(), room);
      std::int64_t* const target = out + to[line];
      for (std::int64_t i = 0; i < k; ++i) target[i * to.stride()] = kept[i].position;
    }
  });
}

/// Attributes [axis, descending]. argsort is stable, 0 and -0 being equal.
void sort_call(const CallArgs& args) {
  if (args.outputs[0].element_count() == 0) return;
  const auto sort = attributes_of<ops::Sort>(args);
  const auto axis = static_cast<unsigned>(sort.axis.value);
  if (sort_in_vectors(args, axis, sort.descending.value)) return;
  if (is_sorted_by_counting(args.inputs[0].dtype, args.outputs[0].sizes[axis]))
    return sort_by_counting(args, axis, sort.descending.value);
  without_vectors(
      args, [](std::size_t bytes) { return bytes < 4; }, [&](auto key) { sort_lines(args, key); });
}

void argsort_call(const CallArgs& args) {
  if (args.outputs[0].element_count() == 0) return;
  const auto sort = attributes_of<ops::Argsort>(args);
  const auto axis = static_cast<unsigned>(sort.axis.value);
  require_positions(args, args.inputs[0].sizes[axis]);
  if (argsort_in_vectors(args, axis, sort.descending.value)) return;
  without_vectors(
      args, [](std::size_t bytes) { return bytes < 8; }, [&](auto key) { argsort_lines(args, key); });
}

/// Attributes [axis, k, largest].
void top_k_indices_call(const CallArgs& args) {
  if (args.outputs[0].element_count() == 0) return;
  const auto top = attributes_of<ops::TopKIndices>(args);
  const auto axis = static_cast<unsigned>(top.axis.value);
  require_positions(args, args.inputs[0].sizes[axis]);
  if (top_k_in_vectors(args, axis, top.k.value, top.largest.value)) return;
  without_vectors(
      args, [](std::size_t bytes) { return bytes == 8; }, [&](auto key) { top_k_lines(args, key); });
}

}  // namespace

FERMATA_KERNELS(cpu) {
  add_native_kernel(Op::sort, &sort_call);
  add_native_kernel(Op::argsort, &argsort_call);
  add_native_kernel(Op::top_k_indices, &top_k_indices_call);
}

}  // namespace fermata
