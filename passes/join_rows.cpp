// See join_rows.h.
#include "passes/join_rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "dispatch/kernel_table.h"

namespace fermata {
namespace {

bool works_by_rows(const PlanStep& call) {
  if (call.kind != PlanStep::Kind::call) return false;
  const BackendCell* cell = backend_cell(call.op, call.backend);
  return cell != nullptr && std::ranges::any_of(cell->variants, &KernelVariant::by_rows) &&
         call.operand_order == std::vector<std::int32_t>{0, 1};
}

bool touches(const PlanStep& step, std::uint32_t slot) {
  return (step.kind == PlanStep::Kind::call && step.output.slot == slot) ||
         std::ranges::any_of(step.sources, [&](const PlanSource& s) { return s.slot == slot; });
}

/// Whether a slot is a temporary that only two steps touch, one after the other.
bool is_between(const Plan& plan, std::uint32_t slot, std::size_t step) {
  if (plan.slots[slot].kind != PlanSlot::Kind::temporary || !touches(plan.steps[step], slot)) return false;
  for (std::size_t i = 0; i < plan.steps.size(); ++i)
    if (i != step && i != step + 1 && touches(plan.steps[i], slot)) return false;
  return true;
}

/// The shape of a record, as the recording at hand has it.
const GraphNode* node_of(const Graph& graph, const PlanStep& step) {
  const auto at =
      std::ranges::find_if(graph.nodes, [&](const GraphNode& n) { return n.record == step.record && n.op == step.op; });
  return at == graph.nodes.end() ? nullptr : &*at;
}

/// What the executable of a device says of doing the step and the two before it at once; nothing where it cannot.
std::optional<JoinEstimate> estimate_on_device(const Program& program, std::size_t step) {
  const Plan& plan = *program.plan;
  const PlanStep &second = plan.steps[step], &kernel = plan.steps[step - 1], &first = plan.steps[step - 2];
  const auto has_dtype_of_call = [](const PlanStep& call) {
    return std::ranges::all_of(call.source_dtypes, [&](DType t) { return t == call.operand_dtype; });
  };
  const std::uint16_t made = access_of(kernel, first.output.slot), left = access_of(kernel, second.sources[0].slot);
  const GraphNode *const a = node_of(program.graph, first), *const b = node_of(program.graph, second);
  if (made == kNoAccess || left == kNoAccess || !has_dtype_of_call(first) || !has_dtype_of_call(second) ||
      a == nullptr || b == nullptr || a->shape.rank() < 2 || b->shape.rank() < 2)
    return {};
  const Shape &between = a->shape, &out = b->shape, &operand = program.graph.nodes[a->operands[0].value].shape;
  const std::int64_t rows = between[between.rank() - 2], columns = between[between.rank() - 1],
                     all = element_count(between);
  return kernel.executable->estimate_joined({.batches = all == 0 ? 0 : all / (rows * columns),
                                             .rows = rows,
                                             .columns = columns,
                                             .depth = operand[operand.rank() - 1],
                                             .width = out[out.rank() - 1],
                                             .factors = first.operand_dtype,
                                             .weights = second.operand_dtype,
                                             .made = made});
}

}  // namespace

std::string describe_joined(const Program& program, std::size_t step) {
  if (program.backend == BackendKey::cpu)
    return fmt::format(" on each block of rows of steps {} and {}", step - 2, step - 1);
  const std::optional<JoinEstimate> e = estimate_on_device(program, step);
  if (!e || e->ns == 0) return {};
  const double mib = static_cast<double>(e->bytes) / 0x1p20;
  const auto with = fmt::format("steps {} and {} as one kernel", step - 2, step - 1);
  return e->pays ? fmt::format(" with {}: about {:.1f} us, against {:.1f} us and {:.1f} MiB apart", with, e->ns / 1000,
                               e->apart_ns / 1000, mib)
                 : fmt::format(" (with {} it would take about {:.1f} us, against {:.1f} us and {:.1f} MiB apart)", with,
                               e->ns / 1000, e->apart_ns / 1000, mib);
}

bool join_rows(Program& program) {
  Plan& plan = *program.plan;
  bool changed = false;
  for (std::size_t i = 2; i < plan.steps.size(); ++i) {
    PlanStep& last = plan.steps[i];
    const PlanStep &kernel = plan.steps[i - 1], &first = plan.steps[i - 2];
    if (!works_by_rows(last) || !works_by_rows(first) || !kernel.on_tiles || first.on_row_blocks) continue;
    const PlanSource &left = last.sources[0], &right = last.sources[1];
    if (!left.path.empty() || right.slot == left.slot || last.source_dtypes[0] != last.operand_dtype) continue;
    if (!is_between(plan, first.output.slot, i - 2) || !is_between(plan, left.slot, i - 1)) continue;
    if (program.backend != BackendKey::cpu && !estimate_on_device(program, i)) continue;
    last.on_row_blocks = changed = true;
  }
  return changed;
}

}  // namespace fermata
