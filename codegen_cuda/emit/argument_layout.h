// The arguments of a generated kernel: one array of 8-byte slots, passed by value. The emitter and the launch share
// this layout of sizes, strides and scalars.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/kernel.h"

namespace fermata::gpu {

/// Slot numbers. A stride has a slot only if the access varies along the axis and the stride is not known to be 1.
struct ArgumentLayout {
  static constexpr int kNone = -1;
  std::vector<int> pointers, offsets, scalars, sizes;  // per access, per access, per scalar, per axis
  std::vector<std::vector<int>> strides;               // per access, per axis
  int row_begin, row_end, column_begin, column_end;
  int blocks, blocks_per_pass;  // of a reduction
  int option;                   // map: packs may be used; rows: elements of a row kept in shared memory, 0 for none
  int partials;                 // split kernels: the reduction states
  int count;

  explicit ArgumentLayout(const Kernel& kernel);
};

/// The arguments of a launch. Also determines whether 32-bit indexing is safe.
class ArgumentValues {
 public:
  ArgumentValues(const ArgumentLayout& layout, const Kernel& kernel, const KernelLaunch& launch);
  std::uint64_t* data() { return values_.data(); }
  std::size_t bytes() const { return values_.size() * sizeof(std::uint64_t); }
  void set(int slot, std::int64_t value) {
    values_[static_cast<std::size_t>(slot)] = static_cast<std::uint64_t>(value);
  }
  /// Whether every size, offset and product of sizes fits in 31 bits, with a margin for grid strides beyond the end.
  bool fits_32_bits() const { return fits_; }

 private:
  std::vector<std::uint64_t> values_;
  bool fits_ = true;
};

}  // namespace fermata::gpu
