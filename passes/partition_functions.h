// Control flow in the partitioner: how the functions of cond, while_loop and scan are divided.
//
// A division says how the arguments of a call are divided and how its results are; its functions are then graphs of one
// process, partitioned like any other, with collectives in them. What a loop carries is divided alike before and after
// each step, both branches of a cond give results that are divided alike, and the axis that a scan runs along is whole.
// Predicates are computed by all processes, from values that all of them have.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "ir/infer.h"
#include "passes/partition.h"

namespace fermata {

struct FunctionDivision {
  std::vector<Sharding> operands;                               // of the node
  std::vector<Sharding> results;                                // of the node, before they are packed
  std::vector<std::shared_ptr<const LocalProgram>> programs{};  // by function; none where it works on whole operands
  double seconds = 0;
  std::vector<unsigned> sums{};  // by result: mesh axes along which each process has a part of a sum (sums_of_steps.h)
  std::shared_ptr<const PackedSharding> packed{};  // where there are several results
  TensorType type{};                               // of the node that is left
};

/// The divisions of one call.
class DividedFunctions {
 public:
  DividedFunctions(const PartitionRequest& request, const GraphNode& node);

  static bool is_call(const GraphNode& node) { return node.subgraphs != nullptr; }
  /// Why its functions work on whole operands whatever those are; empty if they need not.
  const std::string& obstacle() const { return obstacle_; }
  /// On whole operands.
  FunctionDivision whole();
  /// What fits operands that are divided so; those without a sharding may have any.
  void propose(std::span<const std::optional<Sharding>> operands, std::vector<FunctionDivision>& found);

  /// By operand: the mesh axes along which only the first process begins a sum with it.
  std::vector<unsigned> counted_once(const FunctionDivision& division) const;

  bool is_packed() const { return results_.size() > 1; }
  /// Whether an operand is only waited for.
  bool is_waited(std::size_t operand) const { return operand >= first_ + arguments_; }
  std::shared_ptr<const Graph> function(std::size_t i) const { return functions_[i]; }
  std::size_t count() const { return functions_.size(); }
  /// How often its functions run; a guess where that depends on values.
  double runs() const { return runs_; }

 private:
  using Shardings = std::vector<Sharding>;
  using Wanted = std::vector<std::optional<Sharding>>;  // by result of a function
  enum class Follow : std::uint8_t { none, free, all };
  struct Memo {
    std::size_t function;
    Shardings arguments;
    Wanted results;
    std::vector<unsigned> sums;
    std::shared_ptr<const LocalProgram> program;
  };

  bool is_sequence(std::size_t argument) const { return argument >= carries_ && argument < carries_ + sequences_; }
  std::shared_ptr<const LocalProgram> divide(std::size_t function, const Shardings& arguments, const Wanted& results,
                                             const std::vector<unsigned>& sums = {});
  void settle_carries(Shardings& arguments, const std::vector<bool>& is_free, Follow follow, bool leaves_sums = false);
  bool is_tested(std::size_t carry) const;
  void pack(FunctionDivision& division) const;
  FunctionDivision with(const Shardings& arguments, bool whole_results, bool leaves_sums = false);
  std::shared_ptr<const LocalProgram> divide_step(const Shardings& arguments, const Wanted& wanted,
                                                  std::vector<unsigned>& sums);
  void add_cond(FunctionDivision& division, const Shardings& arguments, bool whole_results);
  void add(const Shardings& arguments, std::vector<FunctionDivision>& found, bool leaves_sums);
  bool moves_scanned_axes(Shardings& arguments, std::span<const std::optional<Sharding>> operands) const;

  const PartitionRequest& request_;
  const GraphNode& node_;
  std::vector<std::shared_ptr<const Graph>> functions_;
  std::size_t first_ = 0;  // operand that is an argument
  std::size_t carries_ = 0, sequences_ = 0, arguments_ = 0;
  std::vector<TensorType> results_;
  std::vector<bool> is_sum_;  // by carried value: whether steps only add to it
  double runs_ = 1;
  std::string obstacle_;
  std::vector<Memo> memo_;
};

/// Numbers that the program at hand has, in the kept program of another sync of one structure.
void take_numbers(LocalProgram& program, const Graph& whole);

}  // namespace fermata
