// Rows added up, or written, at positions of an axis, on several threads: for scatters and index_add.
//
// Every element of the result meets its positions in their order, whatever the number of threads. Threads split outer
// places; where there are few, the columns of rows that are wide enough for cache lines of their own; else the axis
// that is written to, after a stable sort of the positions by where they lead.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "codegen_cpu/irregular/positions.h"
#include "runtime/thread_pool.h"

namespace fermata {

/// Positions along an axis of `size`, for each outer place, or the same for all.
struct TargetRows {
  std::int64_t outer, size, inner;  // of the result: [outer, size, inner]
  std::int64_t count;               // positions of an outer place
  const std::int64_t* positions;
  bool shared;  // all outer places have the same positions
  std::int64_t element_bytes;

  const std::int64_t* of(std::int64_t o) const { return shared ? positions : positions + o * count; }
};

/// Calls body(o, i, ahead, begin, end) for columns [begin, end) of each position i of each outer place o; `ahead` is
/// the position that comes some calls later, for prefetching, or -1.
template <class Body> void for_rows_by_target(const TargetRows& rows, double ns_per_element, Body body) {
  constexpr std::int64_t kLine = 64, kBuckets = 256, kAhead = 8;
  if (rows.count == 0) return;
  const std::int64_t threads = thread_count();
  const double ns_per_outer = static_cast<double>(rows.count) * (1 + static_cast<double>(rows.inner) * ns_per_element);
  const auto all_of = [&](std::int64_t o, std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = 0; i < rows.count; ++i) body(o, i, i + kAhead < rows.count ? i + kAhead : -1, begin, end);
  };
  const bool is_little = ns_per_outer * static_cast<double>(rows.outer) < kSerialNanoseconds;
  // Positions of short rows take as long to put in order as their rows to add: 2.1 instead of 0.9 ms for 300000 rows of
  // 8 on two threads.
  constexpr double kOrderNanoseconds = 10;
  const double ns_per_row = 1 + static_cast<double>(rows.inner) * ns_per_element;
  const bool is_ordered_in_vain = ns_per_row * static_cast<double>(threads - 1) < kOrderNanoseconds;
  if (threads == 1 || is_little || is_ordered_in_vain || rows.outer >= 2 * threads)
    return parallel_for(0, rows.outer, ns_per_outer, [&](std::int64_t b, std::int64_t e) {
      for (std::int64_t o = b; o < e; ++o) all_of(o, 0, rows.inner);
    });
  const std::int64_t granule = std::max<std::int64_t>(1, 2 * kLine / rows.element_bytes);
  if (rows.inner >= 2 * threads * granule)
    return parallel_for(
        0, rows.outer * rows.inner, ns_per_outer / static_cast<double>(rows.inner),
        [&](std::int64_t b, std::int64_t e) {
          while (b < e) {
            const std::int64_t o = b / rows.inner, from = b % rows.inner, to = std::min(from + e - b, rows.inner);
            all_of(o, from, to);
            b += to - from;
          }
        },
        granule);
  int shift = 0;
  while (rows.size >> shift >= kBuckets) ++shift;
  const std::int64_t buckets = ((rows.size - 1) >> shift) + 1;
  const std::int64_t block = std::max<std::int64_t>(4096, (rows.count + 4 * threads - 1) / (4 * threads));
  const std::int64_t blocks = (rows.count + block - 1) / block;
  const Scratch<std::int64_t> starts(blocks * buckets), order(rows.count);
  for (std::int64_t o = 0; o < rows.outer; ++o) {
    const std::int64_t* const positions = rows.of(o);
    if (o == 0 || !rows.shared) {
      const auto for_blocks = [&](auto&& each) {
        parallel_for(0, blocks, static_cast<double>(block), [&](std::int64_t b, std::int64_t e) {
          for (std::int64_t k = b; k < e; ++k)
            for (std::int64_t i = k * block; i < std::min(rows.count, (k + 1) * block); ++i)
              each(starts[k * buckets + (positions[i] >> shift)], i);
        });
      };
      std::fill_n(starts.data(), starts.size(), std::int64_t{0});
      for_blocks([](std::int64_t& count, std::int64_t) { ++count; });
      std::int64_t before = 0;
      for (std::int64_t bucket = 0; bucket < buckets; ++bucket)
        for (std::int64_t k = 0; k < blocks; ++k) before += std::exchange(starts[k * buckets + bucket], before);
      for_blocks([&](std::int64_t& at, std::int64_t i) { order[at++] = i; });
    }
    // The last block has moved its start of each bucket to the end of it.
    const std::int64_t* const ends = starts.data() + (blocks - 1) * buckets;
    parallel_for(0, buckets, ns_per_outer / static_cast<double>(buckets), [&](std::int64_t b, std::int64_t e) {
      for (std::int64_t at = b == 0 ? 0 : ends[b - 1]; at < ends[e - 1]; ++at)
        body(o, order[at], at + kAhead < rows.count ? order[at + kAhead] : -1, 0, rows.inner);
    });
  }
}

}  // namespace fermata
