// See partition_functions.h.
#include "passes/partition_functions.h"

#include <algorithm>

#include "ir/custom_op.h"
#include "ir/ops/control.h"
#include "ir/tuple_layout.h"
#include "passes/sums_of_steps.h"

namespace fermata {
namespace {

/// How often a loop runs whose length depends on values: enough that what is done once does not matter.
constexpr double kRunsOfWhile = 16;
/// A sharding that a loop carries is found in a few steps: each makes it more divided, or ends.
constexpr int kMostSteps = 6;

Sharding without_first(const Sharding& all) {
  Sharding slice;
  std::copy(all.axes.begin() + 1, all.axes.end(), slice.axes.begin());
  return slice;
}
Sharding with_first(const Sharding& slice) {
  Sharding all;
  std::copy(slice.axes.begin(), slice.axes.end() - 1, all.axes.begin() + 1);
  return all;
}

bool has_effects(const Graph& graph) {
  return std::ranges::any_of(graph.nodes, [](const GraphNode& n) {
    if (effect_of(n.op) == Effect::effect) return true;
    for (std::size_t i = 0; n.subgraphs != nullptr && i < n.subgraphs->size(); ++i)
      if (has_effects((*n.subgraphs)[i].graph())) return true;
    return false;
  });
}

}  // namespace

DividedFunctions::DividedFunctions(const PartitionRequest& request, const GraphNode& node)
    : request_(request), node_(node) {
  for (std::size_t i = 0; i < node.subgraphs->size(); ++i) {
    functions_.push_back(std::make_shared<const Graph>((*node.subgraphs)[i].graph()));
    if (has_effects(*functions_.back())) obstacle_ = "its functions have effects";
  }
  const Subgraph& last = (*node.subgraphs)[node.subgraphs->size() - 1];
  arguments_ = last.arguments().size();
  results_ = ops::separate_results(node.op, node.attributes, last.results());
  if (node.op == Op::cond) {
    first_ = attributes_of<ops::Cond>(node).seeded.value ? 2 : 1;
  } else if (node.op == Op::while_loop) {
    first_ = attributes_of<ops::WhileLoop>(node).seeded.value ? 1 : 0;
    carries_ = results_.size(), runs_ = kRunsOfWhile;
  } else {
    const auto op = attributes_of<ops::ScanLoop>(node);
    first_ = op.seeded.value ? 1 : 0;
    carries_ = static_cast<std::size_t>(op.carries.value), sequences_ = static_cast<std::size_t>(op.sequences.value);
    runs_ = static_cast<double>(op.length.value);
  }
  if (carries_ == 0 || !obstacle_.empty()) return;
  is_sum_ = find_sums_of_steps(*functions_.back(), carries_);
  for (std::size_t i = 0; node.op == Op::while_loop && i < carries_; ++i) is_sum_[i] = is_sum_[i] && !is_tested(i);
}

/// Whether the condition of a loop reads a carried value.
bool DividedFunctions::is_tested(std::size_t carry) const {
  const Graph& condition = *functions_[0];
  std::size_t next = 0;
  for (ValueId v = 0; v < condition.nodes.size(); ++v) {
    if (condition.nodes[v].op != Op::input || next++ != carry) continue;
    const auto reads = [v](const GraphNode& n) {
      return std::ranges::any_of(n.operands, [v](const GraphOperand& o) { return !o.is_scalar() && o.value == v; });
    };
    return condition.outputs[0] == v || std::ranges::any_of(condition.nodes, reads);
  }
  return false;
}

std::shared_ptr<const LocalProgram> DividedFunctions::divide(std::size_t function, const Shardings& arguments,
                                                             const Wanted& results, const std::vector<unsigned>& sums) {
  for (const Memo& m : memo_)
    if (m.function == function && m.arguments == arguments && m.results == results && m.sums == sums) return m.program;
  const Graph& graph = *functions_[function];
  PartitionRequest request{.graph = graph,
                           .mesh = request_.mesh,
                           .coordinates = request_.coordinates,
                           .inputs = std::vector<GivenSharding>(graph.nodes.size()),
                           .constraint = request_.constraint,
                           .groups = request_.groups,
                           .costs = request_.costs,
                           .results = results,
                           .is_function = true,
                           .sums = sums};
  std::size_t next = 0;
  for (std::size_t v = 0; v < graph.nodes.size(); ++v)
    if (graph.nodes[v].op == Op::input) request.inputs[v] = {arguments[next++], true, false};
  memo_.push_back({function, arguments, results, sums, std::make_shared<const LocalProgram>(partition(request))});
  return memo_.back().program;
}

FunctionDivision DividedFunctions::whole() {
  if (obstacle_.empty()) return with(Shardings(arguments_), true);
  FunctionDivision whole{.operands = Shardings(node_.operands.size()), .results = Shardings(results_.size())};
  pack(whole);
  return whole;
}

void DividedFunctions::pack(FunctionDivision& division) const {
  division.sums.resize(results_.size());
  std::vector<TensorType> blocks = results_;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    blocks[i].shape = block_shape(blocks[i].shape, division.results[i], request_.mesh, request_.coordinates);
  division.type = packed_type(blocks);
  if (!is_packed()) return;
  const TupleLayout own = tuple_layout(blocks);
  division.packed = std::make_shared<const PackedSharding>(
      PackedSharding{division.results, own.offsets, tuple_layout(results_).offsets, division.sums, own.bytes});
}

/// What is carried becomes divided as the steps leave it: all of it, or what may be divided in any way at first.
void DividedFunctions::settle_carries(Shardings& arguments, const std::vector<bool>& is_free, Follow follow,
                                      bool leaves_sums) {
  if (follow == Follow::none) return;
  const std::size_t body = functions_.size() - 1;
  for (int step = 0; step < kMostSteps; ++step) {
    Wanted wanted(functions_[body]->outputs.size());
    std::vector<unsigned> sums;
    for (std::size_t i = 0; leaves_sums && i < carries_; ++i)
      if (is_sum_[i]) wanted[i] = arguments[i];
    const auto program = leaves_sums ? divide_step(arguments, wanted, sums) : divide(body, arguments, wanted);
    bool changes = false;
    for (std::size_t i = 0; i < carries_; ++i) {
      if ((follow == Follow::free && !is_free[i]) || arguments[i] == program->outputs[i]) continue;
      arguments[i] = program->outputs[i], changes = true;
    }
    if (!changes) return;
  }
}

/// Both branches give what one of them would: that of which it is the cheaper choice.
void DividedFunctions::add_cond(FunctionDivision& division, const Shardings& arguments, bool whole_results) {
  for (std::size_t like = 0; like < 2; ++like) {
    const Wanted any = whole_results ? Wanted(results_.size(), Sharding()) : Wanted(results_.size());
    const auto free = divide(like, arguments, any);
    const Wanted wanted(free->outputs.begin(), free->outputs.end());
    const auto yes = divide(0, arguments, wanted), no = divide(1, arguments, wanted);
    const double seconds = std::max(yes->seconds, no->seconds);
    if (like > 0 && seconds >= division.seconds) continue;
    division.seconds = seconds, division.results = free->outputs, division.programs = {yes, no};
  }
}

/// A step that leaves parts of sums, along mesh axes that do not divide them: only those that it uses.
std::shared_ptr<const LocalProgram> DividedFunctions::divide_step(const Shardings& arguments, const Wanted& wanted,
                                                                  std::vector<unsigned>& sums) {
  sums.assign(wanted.size(), 0);
  for (std::size_t i = 0; i < carries_; ++i)
    for (std::size_t m = 0; m < request_.mesh.count(); ++m)
      if (is_sum_[i] && request_.mesh.sizes[m] > 1 && (arguments[i].used() >> m & 1u) == 0) sums[i] |= 1u << m;
  const std::size_t body = functions_.size() - 1;
  const auto program = divide(body, arguments, wanted, sums);
  if (program->sums == sums) return program;
  sums = program->sums;
  return divide(body, arguments, wanted, sums);
}

std::vector<unsigned> DividedFunctions::counted_once(const FunctionDivision& division) const {
  std::vector<unsigned> axes(node_.operands.size());
  for (std::size_t i = 0; i < carries_; ++i) axes[first_ + i] = division.sums[i];
  return axes;
}

FunctionDivision DividedFunctions::with(const Shardings& arguments, bool whole_results, bool leaves_sums) {
  FunctionDivision division{.operands = Shardings(node_.operands.size()), .results = {}};
  for (std::size_t i = 0; i < arguments_; ++i)
    division.operands[first_ + i] = is_sequence(i) ? with_first(arguments[i]) : arguments[i];
  if (node_.op == Op::cond) {
    add_cond(division, arguments, whole_results);
    pack(division);
    return division;
  }
  const std::size_t body = functions_.size() - 1;
  Wanted wanted(functions_[body]->outputs.size());
  if (whole_results) std::ranges::fill(wanted, Sharding());
  for (std::size_t i = 0; i < carries_; ++i) wanted[i] = arguments[i];
  if (node_.op == Op::while_loop) division.programs.push_back(divide(0, arguments, {Sharding()}));
  division.programs.push_back(leaves_sums ? divide_step(arguments, wanted, division.sums)
                                          : divide(body, arguments, wanted));
  for (const auto& program : division.programs) division.seconds += program->seconds * std::max(runs_, 1.0);
  const LocalProgram& last = *division.programs.back();
  for (std::size_t i = 0; i < last.outputs.size(); ++i)
    division.results.push_back(i < carries_ || node_.op != Op::scan ? last.outputs[i] : with_first(last.outputs[i]));
  pack(division);
  return division;
}

void DividedFunctions::add(const Shardings& arguments, std::vector<FunctionDivision>& found, bool leaves_sums) {
  FunctionDivision division = with(arguments, false, leaves_sums);
  const auto is_same = [&](const FunctionDivision& other) {
    return other.operands == division.operands && other.results == division.results && other.sums == division.sums;
  };
  if (std::ranges::none_of(found, is_same)) found.push_back(std::move(division));
}

/// Where a sequence is divided along the axis that is scanned: along the first other axis that can be divided so.
bool DividedFunctions::moves_scanned_axes(Shardings& arguments,
                                          std::span<const std::optional<Sharding>> operands) const {
  bool moves = false;
  const std::span<const TensorType> types = (*node_.subgraphs)[functions_.size() - 1].arguments();
  for (std::size_t i = carries_; i < carries_ + sequences_; ++i) {
    const std::optional<Sharding>& given = operands[first_ + i];
    if (!given || given->axes[0] == 0) continue;
    for (unsigned axis = 0; axis < types[i].shape.rank(); ++axis) {
      const unsigned mask = static_cast<unsigned>(arguments[i].axes[axis] | given->axes[0]);
      if (types[i].shape[axis] == 0 || types[i].shape[axis] % request_.mesh.parts(mask) != 0) continue;
      arguments[i].axes[axis] = static_cast<std::uint8_t>(mask), moves = true;
      break;
    }
  }
  return moves;
}

void DividedFunctions::propose(std::span<const std::optional<Sharding>> operands,
                               std::vector<FunctionDivision>& found) {
  if (!obstacle_.empty()) return;
  Shardings given(arguments_);
  std::vector<bool> is_free(arguments_);
  for (std::size_t i = 0; i < arguments_; ++i) {
    const std::optional<Sharding>& from = operands[first_ + i];
    is_free[i] = !from.has_value();
    if (from) given[i] = is_sequence(i) ? without_first(*from) : *from;
  }
  Shardings moved = given;
  std::vector<Shardings> starts{given};
  if (moves_scanned_axes(moved, operands)) starts.push_back(std::move(moved));
  for (const Shardings& start : starts)
    for (const Follow follow : {Follow::none, Follow::free, Follow::all}) {
      if (follow != Follow::none && carries_ == 0) break;
      Shardings arguments = start;
      settle_carries(arguments, is_free, follow);
      add(arguments, found, false);
    }
  if (std::ranges::find(is_sum_, true) == is_sum_.end()) return;
  for (const Shardings& start : starts)
    for (const Follow follow : {Follow::none, Follow::free, Follow::all}) {
      Shardings arguments = start;
      settle_carries(arguments, is_free, follow, true);
      add(arguments, found, true);
    }
}

void take_numbers(LocalProgram& program, const Graph& whole) {
  for (std::size_t i = 0; i < program.graph.nodes.size(); ++i) {
    const ValueId from = program.scalars_of[i];
    if (from == kNoValue) continue;
    program.graph.nodes[i].scalars = whole.nodes[from].scalars;
    program.graph.nodes[i].subgraphs = whole.nodes[from].subgraphs;
  }
  for (LocalFunctions& f : program.functions) {
    std::vector<std::unique_ptr<const Subgraph>> functions;
    for (std::size_t i = 0; i < f.programs.size(); ++i) {
      take_numbers(f.programs[i], (*whole.nodes[f.global].subgraphs)[i].graph());
      functions.push_back(make_subgraph(f.programs[i].graph));
    }
    program.graph.nodes[f.local].subgraphs = std::make_shared<const Subgraphs>(std::move(functions));
  }
}

}  // namespace fermata
