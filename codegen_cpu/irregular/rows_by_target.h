// Rows added up, or written, at positions of an axis, on several threads: for scatters and index_add.
//
// Every element of the result meets its positions in their order, whatever the number of threads. Threads split outer
// places; where there are few, the columns of rows that are wide enough for cache lines of their own; else the axis
// that is written to, after a stable sort of the positions by where they lead.
#pragma once

#include <cstdint>

#include "runtime/function_ref.h"

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

/// What one thread takes at a time: columns [begin, end) of some rows of an outer place.
struct TargetRange {
  std::int64_t outer;
  const std::int64_t*
      order;  // which positions: order[first], order[first + 1], ... or, where null, first, first + 1, ...
  std::int64_t first, last, count;
  std::int64_t begin, end;
};

void for_ranges_by_target(const TargetRows& rows, double ns_per_element, FunctionRef<void(const TargetRange&)> body);

/// How many positions ahead a row of the result is asked for, unless all rows of an outer place are near: in the
/// second-level cache.
inline constexpr std::int64_t kRowsAhead = 8, kNearBytes = 1 << 18;

/// Calls row(o, i, ahead, begin, end) for columns [begin, end) of each position i of each outer place o; `ahead` is
/// the position that comes some calls later, for prefetching, or -1.
template <class Row> void for_rows_by_target(const TargetRows& rows, double ns_per_element, Row row) {
  const bool is_near = rows.size * rows.inner * rows.element_bytes <= kNearBytes;
  for_ranges_by_target(rows, ns_per_element, [&](const TargetRange& r) {
    const std::int64_t known = is_near ? 0 : r.count - kRowsAhead;
    if (r.order == nullptr)
      for (std::int64_t at = r.first; at < r.last; ++at)
        row(r.outer, at, at < known ? at + kRowsAhead : -1, r.begin, r.end);
    else
      for (std::int64_t at = r.first; at < r.last; ++at)
        row(r.outer, r.order[at], at < known ? r.order[at + kRowsAhead] : -1, r.begin, r.end);
  });
}

}  // namespace fermata
