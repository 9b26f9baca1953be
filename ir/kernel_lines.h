// Line numbers in the text of a kernel description.
#pragma once

#include <vector>

#include "ir/kernel.h"

namespace fermata {

/// Maps values, reductions and stores to lines of to_string(kernel), starting at 1. Listings (KernelListing) refer to
/// them.
class KernelLines {
 public:
  explicit KernelLines(const Kernel& kernel);
  unsigned value(ValueId id) const { return first_value_ + id; }
  unsigned reduction(std::size_t i) const { return reductions_[i]; }
  unsigned store(std::size_t i) const { return first_store_ + static_cast<unsigned>(i); }

 private:
  unsigned first_value_, first_store_;
  std::vector<unsigned> reductions_;
};

}  // namespace fermata
