// The state shared by the passes: the graph, and the decisions made about it so far.
//
// Groups are sets of nodes that become one kernel. Within a group every member has a *home*: its values are indexed by
// the axes of the group's domain, at element level (all axes) or at row level (the axes that are not reduced). Members
// that are read through a transposition, a broadcast etc. are recomputed where they are read; they are `inlined` and
// have no home.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ir/graph.h"
#include "ir/kernel.h"
#include "passes/plan_form.h"
#include "runtime/plan.h"

namespace fermata {

enum class Form : std::uint8_t { leaf, view, emit, call };

/// The decision of select for a node, and its explain() text.
struct Choice {
  Form form = Form::leaf;
  std::string winner;      // "jit", "onednn"
  std::string candidates;  // the others, with predicate or cost
};

struct Group {
  std::vector<ValueId> members;  // in graph order
  std::vector<bool> inlined;     // per member
  ValueId domain = kNoValue;     // a value with the element-level shape
  std::uint16_t reduced = 0;     // logical axes of the domain
  bool alive = true;
  bool channels_last = false;  // its loops go along channels innermost, see lay_out_channels.h
};

/// Where the result of a kernel is stored: the part of a concat's result that is its operand. kNoValue: a buffer of its
/// own.
struct Part {
  ValueId whole = kNoValue;
  std::uint32_t operand = 0;
  std::uint16_t axis = 0;
  bool is_stacked = false;  // the axis is not one of the value
};

struct Program {
  Graph graph;
  BackendKey backend{};              // runs the whole program
  BackendCapabilities capabilities;  // of that backend
  std::vector<Choice> choices;       // per node
  std::vector<Group> groups;
  std::vector<std::int32_t> group_of;  // per node: index into groups, or -1
  std::vector<bool> channels_last;     // per node: its buffer is channels-last; empty if none is
  std::vector<Part> parts;             // per node; empty if there are none
  PlanForm form = PlanForm::fused;
  bool explains = true;            // whether to write texts: candidates and notes take longer than the choices
  std::vector<std::string> notes;  // why things were not fused
  std::vector<Kernel> kernels;     // by KernelStep::number, for dumps and explain
  std::vector<std::string> kernel_names;
  /// Per output of the graph: the node that it is the value of. Its shape may be another one than that of the output,
  /// whose buffer has the elements in the same order.
  std::vector<std::uint32_t> output_records;
  std::unique_ptr<Plan> plan;
};

inline bool is_channels_last(const Program& p, ValueId v) { return !p.channels_last.empty() && p.channels_last[v]; }

inline Part part_of(const Program& p, ValueId v) { return p.parts.empty() ? Part{} : p.parts[v]; }

/// Bytes, operations and sizes of this recording, for cost estimates only.
inline double elements(const Graph& g, ValueId v) {
  double n = 1;
  for (const std::int64_t s : g.nodes[v].shape) n *= static_cast<double>(s);
  return n;
}

}  // namespace fermata
