// Launches of maps whose rows fill no vector.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "ir/kernel.h"
#include "runtime/function_ref.h"

namespace fermata {

/// Rows that fill no vector, such as pixels of three bytes, are joined to long ones where all operands allow it: those
/// that lie in order, single numbers, and those that are the same in every row, such as a number for each color, of
/// which a long row is made here.
class JoinedRows {
 public:
  /// `stores` are the accesses that are written; the launch is one of all rows of two axes.
  JoinedRows(std::span<const std::size_t> element_bytes, std::span<const std::uint16_t> stores,
             const KernelLaunch& launch)
      : element_bytes_(element_bytes),
        launch_(launch),
        columns_(launch.sizes[1]),
        joined_(kJoinedColumns / columns_),
        pointers_(launch.pointers, launch.pointers + element_bytes.size()) {
    for (std::size_t a = 0; a < pointers_.size() && can_join_; ++a) {
      const std::int64_t row = launch.strides[2 * a], column = launch.strides[2 * a + 1];
      const bool is_stored = std::ranges::find(stores, a) != stores.end();
      const bool in_order = row == columns_ && column == 1, is_one = row == 0 && column == 0;
      const bool repeats = row == 0 && column == 1;
      can_join_ = pointers_[a] != nullptr && (in_order || (!is_stored && (is_one || repeats)));
      if (repeats) repeated_.push_back(a);
      strides_.insert(strides_.end(), {in_order ? columns_ * joined_ : 0, is_one ? 0 : 1});
    }
    can_join_ = can_join_ && !repeated_.empty();
  }
  /// Rows are short in the dtype with the fewest bytes.
  static bool are_short(std::span<const std::size_t> element_bytes, std::span<const std::int64_t> sizes) {
    constexpr std::int64_t kVectorBytes = 64;
    return sizes.size() == 2 && sizes[1] >= 2 && sizes[0] * sizes[1] >= 8 * kJoinedColumns &&
           sizes[1] * static_cast<std::int64_t>(std::ranges::min(element_bytes)) < kVectorBytes;
  }
  bool can_join() const { return can_join_; }

  /// Calls `run` for the joined rows, and for those that are left.
  void run(FunctionRef<void(const KernelLaunch&)> run) {
    const std::int64_t rows = launch_.row_end, whole = rows / joined_, sizes[] = {whole, columns_ * joined_};
    std::vector<std::vector<std::byte>> filled(repeated_.size());
    for (std::size_t i = 0; i < repeated_.size(); ++i) {
      const std::size_t bytes = element_bytes_[repeated_[i]] * static_cast<std::size_t>(columns_);
      const auto* const row = static_cast<const std::byte*>(pointers_[repeated_[i]]);
      for (std::int64_t k = 0; k < joined_; ++k) filled[i].insert(filled[i].end(), row, row + bytes);
      pointers_[repeated_[i]] = filled[i].data();
    }
    KernelLaunch joined = launch_;
    joined.pointers = pointers_.data(), joined.sizes = sizes, joined.strides = strides_.data();
    joined.row_end = whole, joined.column_end = sizes[1];
    run(joined);
    KernelLaunch rest = launch_;
    rest.row_begin = whole * joined_;
    if (rest.row_begin < rest.row_end) run(rest);
  }

 private:
  static constexpr std::int64_t kJoinedColumns = 2048;
  const std::span<const std::size_t> element_bytes_;
  const KernelLaunch& launch_;
  const std::int64_t columns_, joined_;  // of a row; rows that become one
  std::vector<void*> pointers_;
  std::vector<std::int64_t> strides_;
  std::vector<std::size_t> repeated_;  // accesses
  bool can_join_ = true;
};

}  // namespace fermata
