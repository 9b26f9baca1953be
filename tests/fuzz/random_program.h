// Random programs against the public interface: what a stranger's code might do, without what it means.
//
// A program is a list of steps made of plain numbers. Executing it under one set of axis sizes gives the same calls in
// every mode, so results can be compared; executing it under another meets the same plans with other sizes. Calls that
// the interface rejects leave a hole, and steps that need one do nothing.
#pragma once

#include <array>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "fermata/fermata.h"

namespace fermata::testing {

/// Sizes of the axes that inputs are made of.
using AxisSizes = std::array<std::int64_t, 4>;

enum class StepKind : std::uint8_t {
  input,
  generate,
  unary,
  binary,
  ternary,
  cast,
  reduce,
  composite,
  view,
  windowed,
  join,
  order,
  take,
  index_add,
  matmul,
  write,
};

struct Step {
  StepKind kind;
  std::array<std::uint32_t, 3> values{};   // operands, as positions in the list of values
  std::array<std::uint32_t, 8> choices{};  // meaning depends on the kind
};

struct Program {
  std::vector<Step> steps;
  std::vector<std::uint32_t> kept;  // positions of the values that are alive at the end
};

/// How much a value may depend on the order in which floats are added up. A fused reduction may have another tree than
/// an eager one (docs/adr/004): its result is close, and what jumps (floor, a comparison) can make anything of that.
enum class Certainty : std::uint8_t { exact, close, unknown };

/// One execution, of tensors on one device. `values` has an entry per step; writes and holes leave an undefined tensor.
class Execution {
 public:
  explicit Execution(const AxisSizes& sizes, Device device = BackendKey::cpu) : sizes_(sizes), device_(device) {}
  /// Makes the call; false if the interface rejects it or an operand is missing.
  bool step(const Step& step);
  /// Takes back the last step, which was rejected.
  void undo() { values.pop_back(), cell_of_.pop_back(); }
  void run(const Program& program);

  Certainty certainty(std::size_t value) const { return cells_[cell_of_[value]]; }

  std::vector<Tensor> values;
  std::string errors;  // first lines of all that was rejected

 private:
  Tensor call(const Step& s);
  Tensor input(const Step& s);
  Tensor generate(const Step& s);
  Tensor composite(const Step& s);
  Tensor view(const Step& s);
  Tensor view_of(const Tensor& x, std::uint32_t kind, std::uint32_t which, std::uint32_t how);
  Tensor views_of(Tensor x, std::uint32_t kinds, std::uint32_t hows);
  Tensor windowed(const Step& s);
  Tensor order(const Step& s);
  Tensor join(const Step& s);
  void write(const Step& s);
  void note_certainty(const Step& s, bool made);
  const Tensor& value(const Step& s, std::size_t i) const { return values.at(s.values[i]); }

  AxisSizes sizes_;
  Device device_;
  std::vector<std::size_t> cell_of_;  // per value; views share one with what they look into
  std::vector<Certainty> cells_;
  Generator generator_{7};
};

/// A program of about so many steps, all of which are accepted at `sizes`.
Program random_program(std::mt19937_64& random, std::size_t steps, const AxisSizes& sizes);

}  // namespace fermata::testing
