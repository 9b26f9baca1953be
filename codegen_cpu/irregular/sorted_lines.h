// The lines of a sorting call along its axis, and their copies beside each other.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "codegen_cpu/irregular/lines.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// Lines of two views along an axis, some at a time.
class SortedLines {
 public:
  SortedLines(const CallArgs& args, unsigned axis)
      : from_(args.inputs[0], axis),
        to_(args.outputs[0], axis),
        size_(args.inputs[0].sizes[axis]),
        in_bytes_(static_cast<std::int64_t>(byte_size(args.inputs[0].dtype))),
        out_bytes_(static_cast<std::int64_t>(byte_size(args.outputs[0].dtype))),
        in_(static_cast<std::byte*>(args.inputs[0].data)),
        out_(static_cast<std::byte*>(args.outputs[0].data)) {}

  std::int64_t count() const { return to_.count(); }
  std::int64_t size() const { return size_; }
  std::int64_t in_bytes() const { return in_bytes_; }
  /// The number of lines in a group: a few if lines are interleaved, else as many as fit in the L1 cache.
  std::int64_t together() const {
    constexpr std::int64_t kElements = 4096, kLines = 16, kMostElements = 1 << 19;
    return std::max<std::int64_t>({1, kElements / size_, std::min(kLines, kMostElements / size_)});
  }
  /// Lines from `line` on, below `end`, that are evenly spaced in both views.
  std::int64_t run(std::int64_t line, std::int64_t end) const {
    std::int64_t next = std::min({end, line + from_.even_run(line), line + to_.even_run(line)});
    while (next < end && from_[next] - from_[next - 1] == from_step(line, end) &&
           to_[next] - to_[next - 1] == to_step(line, end))
      ++next;
    return next - line;
  }
  /// `count` contiguous lines: in place, or copied to `room`.
  const std::byte* bring_in(std::int64_t line, std::int64_t count, std::byte* room) const {
    std::byte* const at = in_ + from_[line] * in_bytes_;
    const std::int64_t step = count > 1 ? from_step(line, line + 2) : size_;
    if (from_.stride() == 1 && step == size_) return at;
    copy({room, side_by_side()}, {at, Strides{step, from_.stride()}}, count, size_, in_bytes_);
    return room;
  }
  /// Element i of line j to element i * pitch + j of `room`.
  void bring_in_columns(std::int64_t line, std::int64_t count, std::byte* room, std::int64_t pitch) const {
    const std::int64_t step = count > 1 ? from_step(line, line + 2) : size_;
    copy({room, {1, pitch}}, {in_ + from_[line] * in_bytes_, {step, from_.stride()}}, count, size_, in_bytes_);
  }
  /// The first `elements` of each line.
  void bring_out_columns(std::int64_t line, std::int64_t count, std::int64_t elements, std::byte* room,
                         std::int64_t pitch) const {
    const std::int64_t step = count > 1 ? to_step(line, line + 2) : size_;
    copy({place(line), {step, to_.stride()}}, {room, {1, pitch}}, count, elements, out_bytes_);
  }
  bool writes_in_place(std::int64_t line, std::int64_t count) const {
    return to_.stride() == 1 && (count == 1 || to_step(line, line + 2) == size_);
  }
  std::int64_t step() const { return to_.stride(); }
  std::byte* place(std::int64_t line) const { return out_ + to_[line] * out_bytes_; }
  void bring_out(std::int64_t line, std::int64_t count, std::byte* room) const {
    const std::int64_t step = count > 1 ? to_step(line, line + 2) : size_;
    copy({place(line), Strides{step, to_.stride()}}, {room, side_by_side()}, count, size_, out_bytes_);
  }
  std::int64_t room_bytes(std::int64_t lines) const { return lines * size_ * std::max(in_bytes_, out_bytes_); }

 private:
  using Strides = std::array<std::int64_t, 2>;
  struct Side {
    std::byte* data;
    Strides strides;
  };
  Strides side_by_side() const { return {size_, 1}; }
  std::int64_t from_step(std::int64_t line, std::int64_t end) const {
    return line + 1 < end ? from_[line + 1] - from_[line] : 0;
  }
  std::int64_t to_step(std::int64_t line, std::int64_t end) const {
    return line + 1 < end ? to_[line + 1] - to_[line] : 0;
  }
  static void copy(Side to, Side from, std::int64_t lines, std::int64_t elements, std::int64_t bytes) {
    const std::int64_t sizes[] = {lines, elements};
    strided_copy({to.data, to.strides}, {from.data, from.strides}, sizes, static_cast<std::size_t>(bytes));
  }

  LineStarts from_, to_;
  std::int64_t size_, in_bytes_, out_bytes_;
  std::byte *in_, *out_;
};

}  // namespace fermata
