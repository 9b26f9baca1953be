// A compiled kernel of any backend.
//
// Returned by dispatch/backend.h and held by a Plan. Launched with sizes, strides and pointers; ranges of rows and
// columns may run on several threads at once.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "ir/kernel.h"
#include "runtime/function_ref.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// A chain of two products with a kernel between them: matrices [rows, columns], products with inner dimension `depth`,
/// pass through the kernel row by row and are multiplied by matrices of `width` columns. `made` is the access of the
/// kernel that reads the first product.
struct ProductChainSizes {
  std::int64_t batches, rows, columns, depth, width;
  DType factors, weights;  // of the first product and of the second one
  std::uint16_t made;
};
/// The cost of the chain as one launch (0 if these sizes are not supported) and as separate steps, and the memory that
/// the intermediate results of separate steps take.
struct ProductChainEstimate {
  bool pays;
  double ns, apart_ns;
  std::int64_t bytes;
};

/// What a kernel that is launched once for each of several steps carries to the next: `from` reads where `to` was
/// written.
struct Carried {
  std::uint16_t from, to;
  bool operator==(const Carried&) const = default;
};

class Executable {
 public:
  virtual ~Executable() = default;
  /// Runs the rows and columns of the launch on the calling thread. Thread-safe.
  virtual void launch(const KernelLaunch& launch) const = 0;
  /// Selects the executable for a launch of this size, before it is split into ranges: this one, or a variant that is
  /// faster for hot kernels, or that uses non-temporal stores if it `may_stream`. Computes the same bits. Lives as long
  /// as this one.
  virtual const Executable& variant_for(const KernelLaunch&, bool /*may_stream*/ = true) const { return *this; }
  /// Calls `run` with a launch that gives the same results, before it is split into ranges: this one, or one whose
  /// operands were copied to where they are read faster.
  virtual void arranged(const KernelLaunch& launch, FunctionRef<void(const KernelLaunch&)> run) const { run(launch); }
  /// Kernels of a single stage whose reductions feed row values only can run as blocks: partial(l) reduces blocks
  /// [column_begin, column_end) (numbered by kReductionBlock, or by kColumnBlock in all columns) of one row (row_begin)
  /// into l.partials, block_bytes() for each block; finish(l) merges all blocks of that row, in all columns, and does
  /// the row's values and stores. Together they give the bits that launch() gives. Only where can_split().
  virtual bool can_split() const { return false; }
  virtual std::size_t block_bytes(const KernelLaunch&) const { return 0; }
  virtual void partial(const KernelLaunch&) const {}
  virtual void finish(const KernelLaunch&) const {}
  /// Calls `run` with launches of several kernels that together give the bits of launch(), in order, where threads
  /// share those better. False, and nothing is called, if there are none for this launch.
  virtual bool in_parts(const KernelLaunch&, FunctionRef<void(const Executable&, const KernelLaunch&)> /*run*/) const {
    return false;
  }
  /// Code for many steps of a kernel in one launch, with an axis of steps in front of those of the kernel, which rows
  /// follow in order. What is carried has one place: `to` lies still along that axis, and `from` is not used. Null if
  /// there is none, or not yet: `steps` more are to be run.
  virtual const Executable* repeated(std::span<const Carried> /*carried*/, std::int64_t /*steps*/) const {
    return nullptr;
  }
  /// The estimate of a kernel that can also compute the products before and after it, in one launch; nullopt if it
  /// cannot.
  virtual std::optional<ProductChainEstimate> estimate_chain(const ProductChainSizes&) const { return {}; }
  /// Runs such a chain. The result of the first product and the first operand of the second one have no buffers.
  virtual void launch_chain(std::uint16_t /*made*/, const CallArgs& /*first*/, const KernelLaunch&,
                            const CallArgs& /*second*/) const {}
  virtual std::size_t code_bytes() const = 0;
};

}  // namespace fermata
