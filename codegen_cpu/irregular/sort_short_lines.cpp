// See sort_short_lines.h. Element i of each line is in row i of a buffer of keys; a network of comparisons sorts whole
// rows.
#include "codegen_cpu/irregular/sort_short_lines.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/function_ref.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Networks compare more than other ways do where lines are longer. With positions, keys of 8 bytes pay longer.
constexpr std::int64_t kLongest = 40, kLongestOfPositions = 32, kLongestOfWidePositions = 64, kLongestOfFirst = 64,
                       kLongestOfWideFirst = 128;
constexpr std::int64_t kFewestLines = 32;
/// Rows of a group stay in the first-level cache.
constexpr std::int64_t kKeys = 4096;

bool are_short(const SortedLines& lines, std::int64_t longest) {
  return lines.size() <= longest && lines.count() >= kFewestLines;
}

/// Calls body(line, lines) for groups of lines that are evenly spaced.
void for_groups(const SortedLines& lines, FunctionRef<void(std::int64_t line, std::int64_t lines)> body) {
  constexpr double kNs = 1;  // for an element
  const std::int64_t most = static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(kKeys / std::max<std::int64_t>(lines.size(), 1))));
  parallel_for(
      0, lines.count(), kNs * static_cast<double>(lines.size()),
      [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t line = begin; line < end;) {
          const std::int64_t count = lines.run(line, std::min(end, line + most));
          body(line, count);
          line += count;
        }
      },
      kFewestLines);
}
/// Keys between the rows: whole vectors, a power of two of them.
std::int64_t pitch_of(std::int64_t lines) {
  return std::max(kMostSortLanes, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(lines))));
}

/// Keys of a group of lines. Those beyond the lines are anything.
template <class K> void read_keys(const SortedLines& lines, const VectorSortKeys& convert, bool descending,
                                  bool equal_zeros, std::int64_t line, std::int64_t count, std::int64_t pitch,
                                  std::byte* elements, K* keys) {
  const std::int64_t all = lines.size() * pitch;
  if (count < pitch) std::memset(elements, 0, static_cast<std::size_t>(all * lines.in_bytes()));
  lines.bring_in_columns(line, count, elements, pitch);
  convert.read(elements, all, descending, equal_zeros, keys);
}

template <class K>
void sort_groups(const SortedLines& lines, const VectorSort& vectors, const VectorSortKeys& convert, bool descending) {
  const std::int64_t size = lines.size();
  for_groups(lines, [&](std::int64_t line, std::int64_t count) {
    const std::int64_t pitch = pitch_of(count);
    const Scratch<K> keys(size * pitch);
    const Scratch<std::byte> elements(size * pitch * lines.in_bytes());
    read_keys(lines, convert, descending, false, line, count, pitch, elements.data(), keys.data());
    vectors.of<K>().sort_rows(keys.data(), size, pitch);
    convert.write(keys.data(), size * pitch, descending, elements.data());
    lines.bring_out_columns(line, count, size, elements.data(), pitch);
  });
}

}  // namespace

bool sort_short_lines(const SortedLines& lines, const VectorSort& vectors, const VectorSortKeys& convert,
                      bool descending) {
  if (!are_short(lines, kLongest)) return false;
  if (lines.in_bytes() == 8)
    sort_groups<std::int64_t>(lines, vectors, convert, descending);
  else
    sort_groups<std::int32_t>(lines, vectors, convert, descending);
  return true;
}

bool first_of_short_lines(const SortedLines& lines, const VectorSort& vectors, const VectorSortKeys& convert,
                          std::int64_t k, bool descending) {
  const std::int64_t size = lines.size();
  const bool is_wide = lines.in_bytes() == 8;
  const std::int64_t longest = k == size ? (is_wide ? kLongestOfWidePositions : kLongestOfPositions)
                                         : (is_wide ? kLongestOfWideFirst : kLongestOfFirst);
  if (!are_short(lines, longest)) return false;
  for_groups(lines, [&](std::int64_t line, std::int64_t count) {
    const std::int64_t pitch = pitch_of(count), all = size * pitch;
    const Scratch<std::int64_t> keys(all), positions(all);
    const auto elements = reinterpret_cast<std::byte*>(positions.data());
    if (is_wide) {
      read_keys(lines, convert, descending, true, line, count, pitch, elements, keys.data());
      for (std::int64_t row = 0; row < size; ++row) std::fill_n(positions.data() + row * pitch, pitch, row);
      vectors.sort_rows_with_positions(keys.data(), positions.data(), size, pitch);
    } else {
      const Scratch<std::int32_t> narrow(all);
      read_keys(lines, convert, descending, true, line, count, pitch, elements, narrow.data());
      // Numbered by row, so that keys and numbers are compared at once.
      vectors.add_positions(narrow.data(), all, keys.data());
      vectors.of_8_bytes.sort_rows(keys.data(), size, pitch);
      vectors.positions_of(keys.data(), k * pitch, positions.data());
      const int shift = std::countr_zero(static_cast<std::uint64_t>(pitch));
      for (std::int64_t i = 0; i < k * pitch; ++i) positions[i] >>= shift;
    }
    lines.bring_out_columns(line, count, k, elements, pitch);
  });
  return true;
}

}  // namespace fermata
