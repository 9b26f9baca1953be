// A kernel step: one launch of compiled code.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ir/kernel.h"
#include "runtime/executable.h"
#include "runtime/function_ref.h"
#include "runtime/node.h"
#include "runtime/steps/source.h"
#include "runtime/steps/step_work.h"

namespace fermata {

struct Binding;
class BoundSteps;
struct Plan;
struct Repetition;
struct Run;

/// If each column is a reduction, columns are divided among threads in multiples of this: the number that is processed
/// together per row.
inline constexpr int kReducedColumnGranule = 128;

/// A run of adjacent axes of the domain that is one axis of the kernel.
struct AxisRun {
  std::uint8_t first, last;
};

/// Of a kernel that reads at positions: compiled code only says that one is out of range (LaunchFailure), and this
/// says the rest. By passes/position_checks.h.
class PositionChecks {
 public:
  struct Operand {
    std::uint32_t record;
    DType dtype;
  };
  /// A call that reads at positions.
  struct Node {
    std::uint32_t record;
    Operand x, index;
    Op op;
    std::int64_t axis;
  };
  /// What is known of such a call when it runs.
  struct BoundNode {
    Shape x, index;
    std::source_location where;
  };

  explicit PositionChecks(std::vector<Node> nodes) : nodes_(std::move(nodes)) {}
  virtual ~PositionChecks() = default;
  const std::vector<Node>& nodes() const { return nodes_; }
  /// Checks the positions of a launch without points.
  virtual void check_empty(const KernelLaunch& launch) const = 0;
  /// The error about the first one that is out of range in a launch that failed.
  [[noreturn]] virtual void throw_error(const KernelLaunch& launch, std::span<const BoundNode> nodes) const = 0;
  /// How far behind its element an access reads, in elements: 0 if it does not read at positions, nullopt if there are
  /// none on its axis.
  virtual std::optional<std::int64_t> reach(std::uint16_t access, const KernelLaunch& launch) const = 0;

 private:
  std::vector<Node> nodes_;
};

struct KernelStep : StepPart {
  std::shared_ptr<const Executable> executable;
  std::vector<AxisRun> axes;
  std::vector<std::uint16_t> stores;  // the sources that the kernel writes
  std::uint16_t reduced = 0;          // mask of the kernel's axes
  double ns_per_point = 0.3;
  double operations_per_point = 1;
  std::uint32_t number = 0;                      // of its description, for the passes
  std::shared_ptr<const PositionChecks> checks;  // if it may fail
  bool is_of_weights = false;  // weights in another dtype: the result is kept with a leaf that comes again

  bool may_fail() const { return checks != nullptr; }
  void bind(const Binding& binding, BoundSteps& bound) const;
  template <class F> void for_each_part(F&& f) const { f(*this); }
};

/// The access of a kernel that refers to a slot; kNoAccess if there is none or more than one.
inline constexpr std::uint16_t kNoAccess = 0xffff;
std::uint16_t access_of(const KernelStep& kernel, std::uint32_t slot);

/// Whether the loops of a kernel over a domain of `rank` axes end with the second one, not with the last.
bool goes_along_channels(const KernelStep& kernel, std::size_t rank);

/// A kernel step bound to sizes.
class BoundKernel {
 public:
  void bind(const KernelStep& step, const Binding& binding);
  /// Reduces in the order of memory: see order_reduced_axes().
  void order_axes();
  /// Joins neighboring axes along which every operand and result steps evenly, for fewer and longer rows, and so that
  /// reductions add in the order in which eager mode does. Not for kernels that something else launches by rows and
  /// columns.
  void join_axes();
  /// Takes the source lines from the current records, which may differ from those of the plan's compilation.
  void locate(std::span<const Node* const> records);
  void run(Run& run);
  /// One launch for many steps. False, and nothing has run, if that cannot be: code for it is not there yet, or what is
  /// carried from one step to the next is read elsewhere than it is written.
  /// `data` has the address of each slot that is the same at each step, and `begin` is called before the first one.
  bool run_repeated(const Plan& plan, const Repetition& repetition, std::span<void* const> data,
                    std::span<const std::uint64_t> scalars, FunctionRef<void()> begin) const;
  /// The whole launch, with the addresses of the run; valid until the next call of this function.
  KernelLaunch launch(const Run& run);

  /// An operand in the order of the points, as many elements as there are points, that is not in this slot; and the
  /// bytes of an element. Null if there is none.
  std::pair<const std::byte*, std::int64_t> operand_beside(std::uint32_t slot) const;
  /// The pointers of that launch, of which those to the elements of a slot are moved. Not for reductions, which read
  /// more than their points, nor for kernels with more operands than there is room for.
  using Pointers = std::array<void*, 64>;
  bool can_move_pointers() const { return step_->reduced == 0 && pointers_.size() <= Pointers().size(); }
  void move_pointers(std::uint32_t slot, std::ptrdiff_t bytes, Pointers& to) const;

  const KernelStep& step() const { return *step_; }
  std::span<const std::int64_t> sizes() const { return sizes_; }
  std::int64_t rows() const { return rows_; }
  std::int64_t columns() const { return columns_; }
  std::string description() const;
  /// `except`: a slot whose elements are in a cache and are not counted.
  StepWork work(std::uint32_t except = kNoSlot) const;
  static constexpr std::uint32_t kNoSlot = ~0u;
  static constexpr std::size_t calls() { return 1; }
  template <class F> void for_each_part(F&& f) const { f(*step_, step_->where); }

 private:
  struct Address {
    std::uint32_t slot;
    std::int64_t byte_offset;
  };
  bool steps_evenly(std::size_t outer, std::size_t inner) const;
  std::optional<std::vector<Carried>> carried_by(const Plan& plan, const Repetition& repetition) const;
  void run_whole(Run& run, const KernelLaunch& whole) const;
  void run_arranged(const KernelLaunch& whole) const;
  static void run_in_rows(const Executable& executable, const KernelLaunch& whole, double row_ns);
  static void run_in_columns(const Executable& executable, const KernelLaunch& whole, double column_ns,
                             std::int64_t granule);
  void run_map(const Executable& executable, const KernelLaunch& whole) const;
  void run_in_ranges(const Executable& executable, const KernelLaunch& whole) const;
  bool is_row_kernel() const;
  std::int64_t reduction_blocks() const;
  bool is_worth_splitting(const Executable& executable, const KernelLaunch& whole) const;
  void run_in_blocks(const Executable& executable, KernelLaunch launch) const;
  bool take_kept(Run& run, const KernelLaunch& whole) const;
  void check_buffers(const KernelLaunch& launch, const Run& run) const;

  const KernelStep* step_ = nullptr;
  std::vector<std::int64_t> sizes_;
  std::vector<std::int64_t> strides_;  // consecutive by access
  std::vector<std::int64_t> offsets_;  // per access, in elements
  std::vector<Address> addresses_;     // per access
  std::vector<std::size_t> bytes_;     // per access, of its slot unless that is a leaf
  std::vector<void*> pointers_;        // of the current run
  std::vector<PositionChecks::BoundNode> checked_;
  std::int64_t rows_ = 1, columns_ = 1;
  double ns_ = 0;
};

}  // namespace fermata
