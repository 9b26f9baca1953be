// A compiled kernel, whoever compiled it.
//
// What dispatch/backend.h hands out and a Plan holds: launch it with sizes, strides and pointers; ranges of rows and
// columns may run on several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ir/kernel.h"

namespace fermata {

class Executable {
 public:
  virtual ~Executable() = default;
  /// Runs the rows and columns of the launch on the calling thread. Thread-safe.
  virtual void launch(const KernelLaunch& launch) const = 0;
  /// What to start for a launch of this size, before it is cut into ranges: this, or a variant of it that writes past
  /// the caches. Gives the same bits. Lives as long as this does.
  virtual const Executable& suited_to(const KernelLaunch&) const { return *this; }
  /// Row kernels of a single stage whose reductions feed row values only can run as blocks: partial(l) reduces blocks
  /// [column_begin, column_end) (numbered by kReductionBlock) of one row (row_begin) into l.partials, one state of
  /// state_bytes() per block; finish(l) merges all blocks of that row and does the row's values and stores. Together
  /// they give the bits that launch() gives. Only where can_split().
  virtual bool can_split() const { return false; }
  virtual std::size_t state_bytes() const { return 0; }
  virtual void partial(const KernelLaunch&) const {}
  virtual void finish(const KernelLaunch&) const {}
  virtual std::size_t code_bytes() const = 0;
};

}  // namespace fermata
