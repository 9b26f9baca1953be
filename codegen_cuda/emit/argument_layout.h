// What a generated kernel is given: one array of 8-byte slots by value, so that sizes, strides and scalars are
// arguments and the emitter and the launch agree on where each one is.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/kernel.h"

namespace fermata::gpu {

/// Slot numbers. A stride has a slot only where the access varies along the axis and the stride is not known to be 1.
struct ArgumentLayout {
  static constexpr int kNone = -1;
  std::vector<int> pointers, offsets, scalars, sizes;  // per access, per access, per scalar, per axis
  std::vector<std::vector<int>> strides;               // per access, per axis
  int row_begin, row_end, column_begin, column_end;
  int blocks, blocks_per_pass;  // of a reduction
  int option;                   // map: packs may be used; rows: elements of a row kept in shared memory, 0 for none
  int partials;                 // split kernels: where states are
  int count;

  explicit ArgumentLayout(const Kernel& kernel);
};

/// The arguments of a launch. What the range checks of 32-bit indexing need is gathered on the way.
class ArgumentValues {
 public:
  ArgumentValues(const ArgumentLayout& layout, const Kernel& kernel, const KernelLaunch& launch);
  std::uint64_t* data() { return values_.data(); }
  std::size_t bytes() const { return values_.size() * sizeof(std::uint64_t); }
  void set(int slot, std::int64_t value) {
    values_[static_cast<std::size_t>(slot)] = static_cast<std::uint64_t>(value);
  }
  /// Whether every size, offset and product of sizes fits 31 bits, with room for a grid to step beyond.
  bool fits_32_bits() const { return fits_; }

 private:
  std::vector<std::uint64_t> values_;
  bool fits_ = true;
};

}  // namespace fermata::gpu
