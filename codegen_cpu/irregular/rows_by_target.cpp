// See rows_by_target.h.
#include "codegen_cpu/irregular/rows_by_target.h"

#include <algorithm>
#include <utility>

#include "codegen_cpu/irregular/positions.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Positions of one outer place in the order of where they lead; those that lead to the same row in their own.
class OrderedPositions {
 public:
  explicit OrderedPositions(const TargetRows& rows)
      : rows_(rows),
        shift_(shift_of(rows.size)),
        buckets_(((rows.size - 1) >> shift_) + 1),
        block_(std::max<std::int64_t>(4096, (rows.count + 4 * thread_count() - 1) / (4 * thread_count()))),
        blocks_((rows.count + block_ - 1) / block_),
        starts_(blocks_ * buckets_),
        order_(rows.count) {}

  void sort(const std::int64_t* positions) {
    std::fill_n(starts_.data(), starts_.size(), std::int64_t{0});
    for_blocks(positions, [](std::int64_t& count, std::int64_t) { ++count; });
    std::int64_t before = 0;
    for (std::int64_t bucket = 0; bucket < buckets_; ++bucket)
      for (std::int64_t k = 0; k < blocks_; ++k) before += std::exchange(starts_[k * buckets_ + bucket], before);
    for_blocks(positions, [&](std::int64_t& at, std::int64_t i) { order_[at++] = i; });
  }
  const std::int64_t* order() const { return order_.data(); }
  std::int64_t buckets() const { return buckets_; }
  /// Rows of a bucket are next to each other. The last block has moved its start of each bucket to the end of it.
  std::int64_t begin_of(std::int64_t bucket) const { return bucket == 0 ? 0 : end_of(bucket - 1); }
  std::int64_t end_of(std::int64_t bucket) const { return starts_[(blocks_ - 1) * buckets_ + bucket]; }

 private:
  static int shift_of(std::int64_t size) {
    constexpr std::int64_t kBuckets = 256;
    int shift = 0;
    while (size >> shift >= kBuckets) ++shift;
    return shift;
  }
  template <class Each> void for_blocks(const std::int64_t* positions, const Each& each) {
    parallel_for(0, blocks_, static_cast<double>(block_), [&](std::int64_t b, std::int64_t e) {
      for (std::int64_t k = b; k < e; ++k)
        for (std::int64_t i = k * block_; i < std::min(rows_.count, (k + 1) * block_); ++i)
          each(starts_[k * buckets_ + (positions[i] >> shift_)], i);
    });
  }

  const TargetRows& rows_;
  const int shift_;
  const std::int64_t buckets_, block_, blocks_;
  const Scratch<std::int64_t> starts_, order_;
};

}  // namespace

void for_ranges_by_target(const TargetRows& rows, double ns_per_element, FunctionRef<void(const TargetRange&)> body) {
  if (rows.count == 0) return;
  const std::int64_t threads = thread_count();
  const double ns_per_row = 1 + static_cast<double>(rows.inner) * ns_per_element;
  const double ns_per_outer = static_cast<double>(rows.count) * ns_per_row;
  const auto all_of = [&](std::int64_t o, std::int64_t begin, std::int64_t end) {
    body({o, nullptr, 0, rows.count, rows.count, begin, end});
  };
  const bool is_little = ns_per_outer * static_cast<double>(rows.outer) < kSerialNanoseconds;
  // Positions of short rows take as long to put in order as their rows to add: 2.1 instead of 0.9 ms for 300000 rows of
  // 8 on two threads.
  constexpr double kOrderNanoseconds = 10;
  const bool is_ordered_in_vain = ns_per_row * static_cast<double>(threads - 1) < kOrderNanoseconds;
  if (threads == 1 || is_little || is_ordered_in_vain || rows.outer >= 2 * threads)
    return parallel_for(0, rows.outer, ns_per_outer, [&](std::int64_t b, std::int64_t e) {
      for (std::int64_t o = b; o < e; ++o) all_of(o, 0, rows.inner);
    });
  constexpr std::int64_t kLine = 64;
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
  OrderedPositions ordered(rows);
  for (std::int64_t o = 0; o < rows.outer; ++o) {
    if (o == 0 || !rows.shared) ordered.sort(rows.of(o));
    parallel_for(0, ordered.buckets(), ns_per_outer / static_cast<double>(ordered.buckets()),
                 [&](std::int64_t b, std::int64_t e) {
                   body({o, ordered.order(), ordered.begin_of(b), ordered.end_of(e - 1), rows.count, 0, rows.inner});
                 });
  }
}

}  // namespace fermata
