// Evaluates the values of a scalar program at a point of the loop nest.
//
// A value that does not vary along the vector axis is *uniform*: a scalar, computed once at the outermost point where
// its operands are known, and broadcast to lanes there. Other values are vectors, emitted primitive by primitive over
// all vectors of an interleaved group, so that independent instructions are adjacent.
#pragma once

#include <optional>

#include "codegen_cpu/jit/accesses.h"
#include "codegen_cpu/jit/edges.h"
#include "codegen_cpu/jit/integer_division.h"
#include "codegen_cpu/jit/rare_values.h"
#include "codegen_cpu/jit/spilled_values.h"
#include "codegen_cpu/jit/uniform_division.h"
#include "ir/kernel.h"
#include "ir/kernel_lines.h"

namespace fermata::jit {

/// A value at a point: a scalar and its splat, or one vector per member of the group.
struct Known {
  Value* uniform = nullptr;
  Value* splat = nullptr;
  Values vectors;
  Values places;                            // of elements in memory, per vector; between edges
  std::optional<UniformDivisor> divisor{};  // set if vectors will be divided by it
  std::optional<IntegerDivisor> integer_divisor{};
  bool exists() const { return uniform != nullptr || !vectors.empty(); }
};

/// The values known at a point; copied when the code branches into a loop or a second version.
struct Environment {
  std::vector<Known> values;                     // per program value
  std::vector<std::vector<Known>> reduced;       // per reduction and component
  const std::vector<KeptValue>* read = nullptr;  // read from slots instead of computed
};

/// A group of vectors at one point.
struct Group {
  const Values& addresses;
  Span span;
  unsigned first, last;  // vectors [first, last) of the span
};

class Evaluator {
 public:
  /// With `for_speed`, vectors of f32 are divided by uniform values without a hardware division where
  /// profitable. With `joins`, parts that are chosen between are one load.
  Evaluator(CodeBuilder& b, const Accesses& accesses, const Kernel& kernel, const SpilledValues& kept, bool for_speed,
            bool joins);

  Environment empty() const;
  /// Positions along the vector axis and what they are compared with (edges.h).
  const Edges& edges() const { return edges_; }
  /// The columns where comparisons of `ids` with uniform values that are known change.
  Values edge_columns(const std::vector<ValueId>& ids, const Values& addresses, const Environment& env);
  /// What those comparisons are at a column, per value; null for other values.
  Values decide(const std::vector<ValueId>& ids, const Values& addresses, const Environment& env, Value* column);
  /// The axes that a value varies along.
  std::uint16_t axes(ValueId id) const { return axes_[id]; }
  const KernelLines& lines() const { return lines_; }
  bool varies_along_vector_axis(ValueId id) const { return (axes_[id] >> (kernel_.rank - 1u) & 1u) != 0; }

  /// Computes the uniform values of `ids`, except those that vary along an axis outside `within` or (with `early`) need
  /// a reduction.
  void uniforms(const std::vector<ValueId>& ids, std::uint16_t within, bool early, const Values& addresses,
                Environment& env);
  /// Whether vectors of a value are computed for each point: not what is uniform, or hardly ever needed.
  bool is_usual_vector(ValueId id) const { return varies_along_vector_axis(id) && !rare_.contains(id); }
  /// Computes `ids` for a group, including uniform ones.
  void group(const std::vector<ValueId>& ids, const Group& group, Environment& env);
  /// Vector `vector` of a value.
  Value* vector(const Environment& env, ValueId id, unsigned vector);
  void set_uniform(Known& known, Value* scalar);

  /// Evaluates a formula over several sets of operands, primitive by primitive.
  std::vector<Values> apply(const Formula& formula, const std::vector<Values>& operands);

 private:
  void compute_uniform(ValueId id, const Values& addresses, Environment& env);
  /// Computes a value that is not rare, or one behind the branch.
  void compute_in_group(ValueId id, const Group& group, Environment& env);
  /// Computes what of `ids` is needed only under a condition that is rare, where it holds.
  void compute_rare(ValueId usual, const std::vector<ValueId>& ids, const Group& group, Environment& env);
  Value* operand(const Environment& env, ValueId id, unsigned vector, bool uniform);
  Value* lower(const Instr& instr, const Environment& env, unsigned vector, bool uniform);
  void prepare(ValueId divisor, Known& known);
  /// Whether a guarded element exists; for a scalar, or a vector.
  Value* is_here(const Instr& instr, const Environment& env, unsigned vector, bool uniform);
  /// The column from which on a position is not less than a uniform value, or (`after`) greater than it.
  Value* edge(ValueId position, ValueId uniform, bool after, const Values& addresses, const Environment& env);
  /// A comparison that has edges; `side(edge, behind)` is whether a point is before an edge, or (`behind`) not.
  Value* compare(ValueId id, const Values& addresses, const Environment& env,
                 llvm::function_ref<Value*(Value* edge, bool behind)> side);
  bool is_known(ValueId comparison, const Environment& env) const;
  bool is_constant(ValueId id, std::int64_t value) const;
  Value* lanes_of_comparison(ValueId id, const Group& group, const Environment& env, unsigned vector);
  void between_edges(ValueId id, const Group& group, Environment& env);
  /// Whether one of a vector may, found without looking at lanes; null if that is not known.
  Value* may_be_here(const Instr& instr, const Group& group, const Environment& env, unsigned vector);
  Value* load_uniform_if(const Instr& instr, const Values& addresses, Value* condition);
  void load_if(const Instr& instr, const Group& group, Value* condition, Known& to);
  void check_positions(const Instr& instr, const Group& group, const Environment& env, Known& to);
  /// Computes one vector of a value that is not a constant, uniform value or reduction.
  Value* compute(ValueId id, const Group& group, const Environment& env, unsigned vector);

  CodeBuilder& b_;
  const Accesses& accesses_;
  const Kernel& kernel_;
  const KernelLines lines_;
  const Edges edges_;
  const RareValues rare_;
  const bool for_speed_;
  std::vector<std::uint16_t> axes_;
  std::vector<bool> needs_reduction_;
  std::vector<bool> is_divisor_;  // uniform divisors of vectors, which are prepared
};

/// The maximum number of simultaneously live vectors.
unsigned peak_live_values(const Kernel& kernel, const Evaluator& evaluator, const std::vector<ValueId>& ids);

}  // namespace fermata::jit
