// Which line of the text of a kernel description is whose.
#pragma once

#include <vector>

#include "ir/kernel.h"

namespace fermata {

/// Which line of to_string(kernel) is whose; the first is line 1. Code that was made of a line names it
/// (KernelListing).
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
