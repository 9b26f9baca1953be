// See sort_by_counting.h.
#include "codegen_cpu/irregular/sort_by_counting.h"

#include <algorithm>
#include <type_traits>

#include "codegen_cpu/irregular/lines.h"
#include "codegen_cpu/irregular/sort_keys.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

template <class U> constexpr std::int64_t kValues = std::int64_t{1} << (8 * sizeof(U));
/// Equal neighbors do not wait for each other's counter where there are several.
template <class U> constexpr std::int64_t kTables = sizeof(U) == 1 ? 4 : 1;
template <class U> constexpr std::int64_t kLeast = sizeof(U) == 1 ? 96 : 16384;
constexpr double kNsPerElement = 3.5;

template <class U, class Stride>
void count_in_tables(const U* from, Stride stride, std::int64_t size, std::int64_t* counts) {
  std::int64_t i = 0;
  if constexpr (kTables<U> == 4) {
    std::int64_t *const second = counts + kValues<U>, *const third = second + kValues<U>,
                        *const fourth = third + kValues<U>;
    for (; i + 4 <= size; i += 4, from += 4 * stride)
      ++counts[from[0]], ++second[from[stride]], ++third[from[2 * stride]], ++fourth[from[3 * stride]];
  }
  for (; i < size; ++i, from += stride) ++counts[*from];
}

/// How often each value occurs in a line, in the first table of `counts`.
template <class U> void count(const U* from, std::int64_t stride, std::int64_t size, std::int64_t* counts) {
  std::fill_n(counts, kValues<U> * kTables<U>, std::int64_t{0});
  if (stride == 1)
    count_in_tables(from, std::integral_constant<std::int64_t, 1>(), size, counts);
  else
    count_in_tables(from, stride, size, counts);
  for (std::int64_t table = 1; table < kTables<U>; ++table)
    for (std::int64_t value = 0; value < kValues<U>; ++value) counts[value] += counts[table * kValues<U> + value];
}

/// Writes each value as often as it occurs, in the order of keys.
template <class Key>
void write(Key key, bool descending, std::int64_t* counts, typename Key::Bits* to, std::int64_t stride) {
  using U = typename Key::Bits;
  constexpr bool kHasNans = std::is_same_v<Key, FloatSortKey<U>>;
  for (std::int64_t value = 0; kHasNans && value < kValues<U>; ++value) {  // one of them remains
    const auto from = static_cast<U>(value), into = key.bits(key.key(from));
    if (into != from) counts[into] += counts[from];
  }
  for (std::int64_t i = 0; i < kValues<U>; ++i) {
    const auto k = static_cast<U>(descending ? kValues<U> - 1 - i : i), value = key.bits(k);
    if (kHasNans && key.key(value) != k) continue;  // of none
    std::int64_t left = counts[value];
    if (stride == 1)
      to = std::fill_n(to, left, value);
    else
      for (; left > 0; --left, to += stride) *to = value;
  }
}

template <class Key> void sort_lines(const CallArgs& args, Key key, unsigned axis, bool descending) {
  using U = typename Key::Bits;
  const LineStarts from(args.inputs[0], axis), to(args.outputs[0], axis);
  const std::int64_t size = args.outputs[0].sizes[axis];
  const auto* const x = static_cast<const U*>(args.inputs[0].data);
  auto* const out = static_cast<U*>(args.outputs[0].data);
  parallel_for(0, to.count(), static_cast<double>(size) * kNsPerElement, [&](std::int64_t begin, std::int64_t end) {
    const Scratch<std::int64_t> counts(kValues<U> * kTables<U>);
    for (std::int64_t line = begin; line < end; ++line) {
      count(x + from[line], from.stride(), size, counts.data());
      write(key, descending, counts.data(), out + to[line], to.stride());
    }
  });
}

}  // namespace

bool is_sorted_by_counting(DType dtype, std::int64_t size) {
  switch (byte_size(dtype)) {
    case 1: return size > kLeast<std::uint8_t>;
    case 2: return size > kLeast<std::uint16_t>;
    default: return false;
  }
}

void sort_by_counting(const CallArgs& args, unsigned axis, bool descending) {
  visit_sort_key(args.inputs[0].dtype, [&]<class Key>(Key key) {
    if constexpr (sizeof(typename Key::Bits) <= 2) sort_lines(args, key, axis, descending);
  });
}

}  // namespace fermata
