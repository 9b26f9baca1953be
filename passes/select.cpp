// See select.h.
#include "passes/select.h"

#include <fmt/format.h>

#include <algorithm>
#include <source_location>
#include <string>
#include <string_view>

#include "dispatch/call_context.h"
#include "dispatch/kernel_table.h"
#include "dispatch/measured_choices.h"
#include "ir/complex_form.h"
#include "ir/error.h"
#include "ir/ops/reduce.h"
#include "ir/reduction_class.h"
#include "ir/view.h"
#include "passes/index_map.h"
#include "passes/lay_out_channels.h"

namespace fermata {
namespace {

/// ", series.cpp:12" if a program has registered the kernel. `fermata ops` shows the lines of built-in ones.
std::string registered_at(std::source_location where) {
  const std::string_view here = std::source_location::current().file_name(), file = where.file_name();
  const std::string_view root = here.substr(0, here.rfind("passes/"));
  for (const std::string_view folder : {"codegen_cpu/", "codegen_cuda/", "dispatch/", "frontend/"})
    if (file.starts_with(root) && file.substr(root.size()).starts_with(folder)) return {};
  return ", " + short_location(where);
}

/// The value that an operand shows, views apart.
const GraphNode& source_of(const Graph& g, const GraphOperand& operand) {
  const GraphNode* n = &g.nodes[operand.value];
  while (is_view(n->op)) n = &g.nodes[n->operands[0].value];
  return *n;
}

/// How a value lies in memory: views as they show what they are of, all else in rows.
Shape strides_of(const Graph& g, ValueId v) {
  const GraphNode& n = g.nodes[v];
  if (!is_view(n.op)) return dense_strides(n.shape);
  Shape sizes = g.nodes[n.operands[0].value].shape, strides = strides_of(g, n.operands[0].value);
  std::int64_t offset = 0;
  return apply_view(n.op, n.attributes, n.shape, sizes, strides, offset) ? strides : dense_strides(n.shape);
}

/// Whether strides_of() is right about the operands of a node: strides of other inputs are no part of a program.
bool lies_in_rows(const Graph& g, const GraphNode& n) {
  return std::ranges::all_of(n.operands, [&](const GraphOperand& o) { return o.is_scalar() || source_of(g, o).dense; });
}

/// Arguments with the node's sizes and no data: enough for predicates and costs.
struct ShapeArgs {
  std::vector<Shape> strides;
  std::vector<TensorView> views;
  CallArgs args;
  ShapeArgs(const Graph& g, const GraphNode& n) {
    for (const GraphOperand& o : n.operands)
      if (!o.is_scalar()) strides.push_back(strides_of(g, o.value));
    strides.push_back(dense_strides(n.shape));
    std::size_t i = 0;
    for (const GraphOperand& o : n.operands) {
      if (o.is_scalar()) continue;
      const GraphNode& x = g.nodes[o.value];
      views.push_back(
          {nullptr, x.dtype, static_cast<std::uint8_t>(x.shape.rank()), x.shape.data(), strides[i++].data()});
    }
    views.push_back({nullptr, n.dtype, static_cast<std::uint8_t>(n.shape.rank()), n.shape.data(), strides[i].data()});
    args = {n.op, {views.data(), views.size() - 1}, {&views.back(), 1}, n.attributes, n.scalars};
  }
};

/// Whether a call may be chosen before the form that fuses, which counts as 0 like every variant without a cost. Its
/// condition may hold for sizes that come later: then the step chooses.
bool may_lose(const BackendCell& cell, const Graph& g, const GraphNode& n, DType operand) {
  return std::ranges::any_of(cell.variants, [&](const KernelVariant& v) {
    if (v.call == nullptr || v.cost == nullptr || !v.dtypes.has(operand)) return false;
    const ShapeArgs shapes(g, n);
    return v.cost(shapes.args) < 0;
  });
}

std::size_t value_of(const Graph& g, const GraphNode& n) { return static_cast<std::size_t>(&n - g.nodes.data()); }

/// Rows of a kernel that picks elements are not joined: shorter ones leave its vectors nearly empty.
constexpr std::int64_t kShortestPickedRow = 32;

std::int64_t elements_along(const Shape& shape, unsigned begin, unsigned end) {
  std::int64_t count = 1;
  for (unsigned i = begin; i < end; ++i) count *= shape[i];
  return count;
}

/// Whether a take may be read by kernels. Positions are i64 there.
bool may_gather(const Program& program, const GraphNode& n, DType operand) {
  const Graph& g = program.graph;
  const GraphNode& index = g.nodes[n.operands[1].value];
  if (n.dtype != operand || is_complex(n.dtype) || index.dtype == DType::u64) return false;
  // Narrow elements at positions that are bytes: a call looks them up in registers.
  constexpr std::size_t kNarrow = 2;
  if (program.capabilities.launches_on_caller && byte_size(index.dtype) == 1 && byte_size(n.dtype) <= kNarrow)
    return false;
  const auto axis = static_cast<unsigned>(axis_of(n.op, n.attributes));
  const unsigned rank = n.shape.rank(), behind = axis + rank + 1 - g.nodes[n.operands[0].value].shape.rank();
  if (behind < rank) return elements_along(n.shape, behind, rank) >= kShortestPickedRow;
  return elements_along(n.shape, 0, axis) <= 1 || elements_along(n.shape, axis, rank) >= kShortestPickedRow;
}

/// Whether a concat may be read by kernels part by part: if it has few.
bool may_join(const Program& program, const GraphNode& n) {
  constexpr std::size_t kMostParts = 4;
  constexpr std::int64_t kShortestRowOfParts = 256;
  if (n.operands.size() < 2 || n.operands.size() > kMostParts) return false;
  const Graph& g = program.graph;
  for (const GraphOperand& o : n.operands)
    if (g.nodes[o.value].dtype != n.dtype || is_complex(n.dtype)) return false;
  const auto axis = static_cast<unsigned>(axis_of(n.op, n.attributes));
  const unsigned rank = n.shape.rank();
  return axis + 1 == rank ? n.shape[axis] >= kShortestRowOfParts
                          : elements_along(n.shape, axis + 1, rank) >= kShortestPickedRow;
}

/// Whether a node may become part of a kernel; one that joins only if `joins`.
bool emits(const Program& program, const GraphNode& n, bool joins) {
  const BackendCell* const cell = backend_cell(n.op, program.backend);
  const DType operand = operand_dtype(program.graph, n);
  if (cell == nullptr || !cell->emits.has(operand)) return false;
  if (traits(n.op).gathers && !may_gather(program, n, operand)) return false;
  if (traits(n.op).joins && !(joins && may_join(program, n))) return false;
  if (!is_of_complex(program.graph, n)) return true;
  const bool is_of_real =
      !is_complex(operand) && has_emit_form(n.op);  // a cast: real operands may lead to real results only
  return has_complex_form(n.op, operand, n.dtype) && (!is_of_real || cell->emits.has(n.dtype));
}

/// What is made of each value of a graph.
struct Uses {
  std::vector<std::int64_t> largest;  // elements of the largest value that is computed from it
  std::vector<bool> is_stored;        // an output, or a call reads it
  /// Whether a concat may be read part by part: convolutions want to know where whole images are
  /// (passes/lay_out_channels.h).
  bool joins;
  explicit Uses(const Program& program)
      : largest(program.graph.nodes.size()), is_stored(largest.size()), joins(!has_convolutions(program.graph)) {
    const Graph& g = program.graph;
    for (const ValueId v : g.outputs) is_stored[v] = true;
    for (std::size_t v = g.nodes.size(); v-- > 0;) {
      const GraphNode& n = g.nodes[v];
      const std::int64_t whole = std::max(largest[v], is_view(n.op) ? 0 : element_count(n.shape));
      const bool stores = is_view(n.op) ? is_stored[v] : n.op != Op::input && !emits(program, n, joins);
      for (const GraphOperand& o : n.operands) {
        if (o.is_scalar()) continue;
        largest[o.value] = std::max(largest[o.value], whole);
        is_stored[o.value] = is_stored[o.value] || stores;
      }
    }
  }
};

/// Elements of an operand of a reduction along its last axes, as far as they are reduced and lie as one; 0 where the
/// last one is not reduced.
std::int64_t length_of_runs(const Graph& g, const GraphNode& n) {
  const ValueId v = n.operands[0].value;
  const Shape &sizes = g.nodes[v].shape, strides = strides_of(g, v);
  const std::uint64_t reduced = reduced_axes(n);
  unsigned axis = sizes.rank();
  if (axis == 0 || (reduced >> (axis - 1u) & 1) == 0) return 0;
  std::int64_t length = sizes[--axis];
  const std::int64_t stride = strides[axis];
  for (; axis > 0 && (reduced >> (axis - 1u) & 1) != 0 && strides[axis - 1u] == stride * length; --axis)
    length *= sizes[axis - 1u];
  return length;
}

/// What a reduction keeps of its operand, and reduces.
struct KeptAndReduced {
  std::int64_t longest_kept = 1, reduced = 1;  // an axis; elements
  KeptAndReduced(const Graph& g, const GraphNode& n) {
    const Shape& sizes = g.nodes[n.operands[0].value].shape;
    for (unsigned axis = 0; axis < sizes.rank(); ++axis)
      if ((reduced_axes(n) >> axis & 1) != 0)
        reduced *= sizes[axis];
      else
        longest_kept = std::max(longest_kept, sizes[axis]);
  }
};

/// The longest rows of which a call takes less than a kernel: its loops know that a row is one block. Elements that are
/// converted take longer there.
std::int64_t longest_of_calls(Op op, DType operand) {
  using Rows = CalledRows;
  constexpr std::size_t kLeastInVectors = 4;  // bytes
  const bool is_narrow = byte_size(operand) < kLeastInVectors;
  if (op == Op::argmax || op == Op::argmin) return is_narrow ? Rows::kLongest : Rows::kOfSums;
  if (operand == DType::boolean) return Rows::kInVectors;
  if (compute_dtype(apply_rule(info(op).rule, operand)->operand) != operand) return Rows::kLongest;
  if (op == Op::max || op == Op::min) return is_narrow ? Rows::kOfBytes : Rows::kOfExtremes;
  return Rows::kOfSums;
}

/// Whether a value is a view of windows.
bool has_windows(const Graph& g, ValueId v) {
  while (is_view(g.nodes[v].op) && g.nodes[v].op != Op::unfold) v = g.nodes[v].operands[0].value;
  return g.nodes[v].op == Op::unfold;
}

/// Whether what a reduction reads is in memory whatever becomes of the reduction. Windows of what only picks elements
/// are not part of a kernel. Results of other calls may be followed by a kernel while they are in the cache.
bool is_there_anyway(const Program& program, const GraphNode& n) {
  const Graph& g = program.graph;
  const GraphNode& source = source_of(g, n.operands[0]);
  return source.op == Op::input ||
         (picks_elements(source.op) &&
          (program.choices[value_of(g, source)].form == Form::call || has_windows(g, n.operands[0].value)));
}

/// Reductions of many short rows, which leave a kernel's vectors nearly empty until it is used so much that its lanes
/// are rows: a call is so from the start. A kernel is better where rows that are computed would have to be stored, and
/// where they are used again once they are reduced.
bool is_of_short_rows(const Program& program, const GraphNode& n, const Uses& uses) {
  using Rows = CalledRows;
  const Graph& g = program.graph;
  if (family(n.op) != Family::reduce) return false;
  const Shape& shape = g.nodes[n.operands[0].value].shape;
  const std::int64_t length = length_of_runs(g, n), whole = element_count(shape);
  const KeptAndReduced axes(g, n);
  const bool has_blocks = axes.reduced != length;
  if (length == 0) return false;
  const GraphNode& source = source_of(g, n.operands[0]);
  const bool lies_apart = !source.dense || strides_of(g, n.operands[0].value).back() != 1;
  std::int64_t longest = has_blocks ? Rows::kLongest : longest_of_calls(n.op, operand_dtype(g, n));
  if (lies_apart) longest = std::min(longest, Rows::kInVectors);
  if (length > longest || whole / length < Rows::kMany) return false;
  if (has_blocks && axes.longest_kept < Rows::kManyOfAnAxis) return false;
  return is_there_anyway(program, n) && uses.largest[value_of(g, n)] < whole;
}

/// Reductions of what lies across memory: a call goes along it, in the order of the tree
/// (codegen_cpu/eager/reduce.cpp).
bool is_across(const Program& program, const GraphNode& n, const Uses& uses) {
  if (family(n.op) != Family::reduce) return false;
  const Graph& g = program.graph;
  const ValueId v = n.operands[0].value;
  const GraphNode& source = source_of(g, n.operands[0]);
  const Shape& sizes = g.nodes[v].shape;
  const std::int64_t whole = element_count(sizes);
  if (!is_there_anyway(program, n) || whole < CalledAcross::kLarge || uses.largest[value_of(g, n)] >= whole)
    return false;
  if (!source.dense && &source != &g.nodes[v]) return false;  // nobody knows how a view of it lies
  const int unit = source.dense ? last_unit_axis(strides_of(g, v)) : source.unit_inner ? -1 : source.unit_axis;
  const int last = static_cast<int>(sizes.rank()) - 1;
  if (unit < 0 || unit == last) return false;
  const auto is_reduced = [&](int axis) { return (reduced_axes(n) >> axis & 1) != 0; };
  const DType operand = operand_dtype(g, n);
  if (is_complex(operand)) return false;  // its calls are others
  const DType lifted = compute_dtype(apply_rule(info(n.op).rule, operand)->operand);
  return lifted == operand && is_reduced(unit) != is_reduced(last) &&
         sizes[static_cast<unsigned>(unit)] >= CalledAcross::kFewest &&
         (is_reduced(last) || !depends_on_order(n.op, lifted));
}

/// Copies of what is in memory, in other than row-major order: a call turns squares of it in registers.
bool is_rearranged(const Program& program, const GraphNode& n, const Uses& uses) {
  const Graph& g = program.graph;
  if (n.op != Op::copy || !uses.is_stored[value_of(g, n)]) return false;
  const GraphNode& source = source_of(g, n.operands[0]);
  const std::size_t value = value_of(g, source);
  const bool is_in_memory =
      source.op == Op::input || uses.is_stored[value] || program.choices[value].form == Form::call;
  return is_in_memory && (!source.dense || is_view(g.nodes[n.operands[0].value].op));
}

Choice choose(const Program& program, const GraphNode& n, const Uses& uses) {
  const Graph& g = program.graph;
  const BackendKey key = program.backend;
  const bool explains = program.explains;
  Choice c;
  const BackendCell* cell = backend_cell(n.op, key);
  const DType operand = operand_dtype(g, n);
  const Backend* device = backend(key);
  const bool compiles = program.form != PlanForm::calls && device != nullptr && device->can_compile(nullptr);
  // Kernels reduce at least one axis.
  const bool reduces_nothing = family(n.op) == Family::reduce && reduced_axes(n) == 0;
  const bool fuses = compiles && !reduces_nothing && emits(program, n, uses.joins);
  const bool is_better_called =
      program.capabilities.rows_in_vectors &&
      ((program.form != PlanForm::shipped && (is_of_short_rows(program, n, uses) || is_across(program, n, uses))) ||
       is_rearranged(program, n, uses));
  c.form = fuses && !is_better_called && !may_lose(*cell, g, n, operand) ? Form::emit : Form::call;
  if (cell == nullptr || !explains) return c;  // a call step chooses its kernel when it runs
  const KernelFunction* const kernel = n.context != 0 ? context_of(n.context).kernel : nullptr;
  const ShapeArgs shapes(g, n);
  const std::optional<MeasuredTimes> measured =
      c.form == Form::call && lies_in_rows(g, n) ? measured_times(key, *cell, shapes.args) : std::nullopt;
  double best = 0;
  for (const KernelVariant& v : cell->variants) {
    if (!v.dtypes.has(operand)) continue;
    if (v.form == KernelForm::emit) {
      c.candidates +=
          fmt::format("{}{} (emit, fuses{})", c.candidates.empty() ? "" : ", ", v.name, registered_at(v.where));
      if (c.form == Form::emit) c.winner = v.name;
      continue;
    }
    const bool is_kernel = v.is_boxed && kernel != nullptr;  // what the call was recorded with
    const std::string_view label = is_kernel ? kernel->variant : v.name;
    const bool fits = v.fits == nullptr || v.fits(shapes.args);
    const double cost = v.cost != nullptr && fits ? v.cost(shapes.args) : 0;
    c.candidates += fmt::format("{}{} ({}", c.candidates.empty() ? "" : ", ", label, name(v.form));
    if (!fits)
      c.candidates += fmt::format(", needs {}", v.fits_text);
    else if (cost > 0)
      c.candidates += fmt::format(", {:.1f} us", cost / 1000);
    if (measured && fits)
      if (const auto time = std::ranges::find(measured->times, v.name, &MeasuredTimes::Time::variant);
          time != measured->times.end())
        c.candidates += fmt::format(", measured {:.1f} us", time->ns / 1000);
    c.candidates += registered_at(is_kernel ? kernel->where : v.where) + ")";
    if (c.form == Form::call && fits && (c.winner.empty() || cost < best)) c.winner = label, best = cost;
  }
  if (measured && best >= kLeastCompared && !measured->winner.empty()) c.winner = measured->winner;
  return c;
}

}  // namespace

bool select(Program& program) {
  const Graph& g = program.graph;
  program.choices.clear();
  const Uses uses(program);
  for (const GraphNode& n : g.nodes) {
    if (n.op == Op::input)
      program.choices.push_back({Form::leaf, "", ""});
    else if (is_view(n.op))
      program.choices.push_back({Form::view, "", ""});
    else
      program.choices.push_back(choose(program, n, uses));
  }
  return true;
}

}  // namespace fermata
