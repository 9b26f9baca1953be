// Checks of generated code, for tests: every load and store of a kernel against what its launch reaches, and what a
// launch reaches against the buffers of its operands. The process ends at the first that leaves them.
//
// FERMATA_CHECK_BOUNDS=1 turns them on. Kernels are then compiled with a check before every access, which is slow.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace fermata {

namespace detail {
/// 0 before the environment was read, then 1 for off and 2 for on.
extern constinit std::atomic<signed char> bounds_checks;
bool read_bounds_checks();
}  // namespace detail

inline bool checks_bounds() {
  const signed char state = detail::bounds_checks.load(std::memory_order_relaxed);
  return state == 0 ? detail::read_bounds_checks() : state == 2;
}
/// For kernels that are compiled and plans that are run from now on. Returns what was before.
bool set_bounds_checks(bool on);

/// The points of a launch: KernelLaunch has what each of these is.
struct LaunchPoints {
  std::span<const std::int64_t> sizes;
  std::uint16_t reduced;
  std::int64_t row_begin, row_end, column_begin, column_end;
};

/// Bytes from the element at the origin on, one past the last; nothing where both are 0.
struct Reach {
  std::int64_t begin = 0, end = 0;
  bool holds(std::int64_t from, std::int64_t to) const { return begin <= from && to <= end; }
};
/// What an access of these strides, in elements and 0 where it does not vary, may touch. Points that the sizes do not
/// have do not count.
Reach reach_of(const LaunchPoints& points, std::span<const std::int64_t> strides, std::size_t element_bytes);

/// Ends the process, with a text, where an operand of a step reaches out of a buffer.
void check_in_buffer(std::string_view step, std::size_t operand, const void* origin, const Reach& reach,
                     const void* buffer, std::size_t buffer_bytes);

}  // namespace fermata
