// Checks of generated code, for tests: every load and store of a kernel is checked against the range of its launch, and
// the range of a launch against the buffers of its operands. The first violation aborts the process.
//
// FERMATA_CHECK_BOUNDS=1 enables them. Kernels are then compiled with a check before every access, which is slow.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace fermata {

namespace detail {
/// 0 before the environment is read, then 1 for off and 2 for on.
extern constinit std::atomic<signed char> bounds_checks;
bool read_bounds_checks();
}  // namespace detail

inline bool checks_bounds() {
  const signed char state = detail::bounds_checks.load(std::memory_order_relaxed);
  return state == 0 ? detail::read_bounds_checks() : state == 2;
}
/// Applies to kernels compiled and plans run from now on. Returns the previous setting.
bool set_bounds_checks(bool on);

/// The points of a launch; the fields are described at KernelLaunch.
struct LaunchPoints {
  std::span<const std::int64_t> sizes;
  std::uint16_t reduced;
  std::int64_t row_begin, row_end, column_begin, column_end;
};

/// A range of bytes relative to the element at the origin, the end exclusive; empty if both are 0.
struct Reach {
  std::int64_t begin = 0, end = 0;
  bool holds(std::int64_t from, std::int64_t to) const { return begin <= from && to <= end; }
  /// By that many bytes behind each element, or before it.
  void extend(std::int64_t bytes) { (bytes < 0 ? begin : end) += bytes; }
};
/// The range that an access with these strides may touch. Strides are in elements, 0 along axes where it does not vary.
/// Points outside the sizes do not count.
Reach reach_of(const LaunchPoints& points, std::span<const std::int64_t> strides, std::size_t element_bytes);

/// Aborts the process with a message if an operand of a step reaches outside a buffer.
void check_in_buffer(std::string_view step, std::size_t operand, const void* origin, const Reach& reach,
                     const void* buffer, std::size_t buffer_bytes);

}  // namespace fermata
