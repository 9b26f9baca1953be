// See chain_products.h.
#include "passes/chain_products.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "dispatch/kernel_table.h"

namespace fermata {
namespace {

bool works_by_rows(const CallStep& call) {
  const BackendCell* const cell = backend_cell(call.op, call.backend);
  return cell != nullptr && std::ranges::any_of(cell->variants, &KernelVariant::by_rows) &&
         call.operands == std::vector<CallOperand>{{false, 0}, {false, 1}};
}

/// The product that a step begins with, which may have an epilogue.
const CallStep* product_of(const PlanStep& step) {
  if (const auto* const with_epilogue = std::get_if<EpilogueStep>(&step)) return &with_epilogue->call;
  return std::get_if<CallStep>(&step);
}

/// The parts of a plan that read or write a slot.
std::size_t parts_with(const Plan& plan, std::uint32_t slot) {
  std::size_t count = 0;
  for (const PlanStep& step : plan.steps)
    for_each_part(step, [&](const auto& part) {
      bool touches = false;
      for_each_slot(part, [&](std::uint32_t s) { touches = touches || s == slot; });
      count += touches ? 1 : 0;
    });
  return count;
}

/// Whether only two neighboring steps use a temporary.
bool is_between(const Plan& plan, std::uint32_t slot) {
  return plan.slots[slot].kind == PlanSlot::Kind::temporary && parts_with(plan, slot) == 2;
}

/// The shape of a record, as the recording at hand has it.
const GraphNode* node_of(const Graph& graph, const CallStep& step) {
  const auto at =
      std::ranges::find_if(graph.nodes, [&](const GraphNode& n) { return n.record == step.record && n.op == step.op; });
  return at == graph.nodes.end() ? nullptr : &*at;
}

/// What the executable of the kernel says of doing it and both products at once; nothing where it cannot.
std::optional<ProductChainEstimate> estimate(const Program& program, const EpilogueStep& start,
                                             const CallStep& second) {
  const CallStep& first = start.call;
  const KernelStep& kernel = start.epilogue;
  const auto has_dtype_of_call = [](const CallStep& call) {
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
  return kernel.executable->estimate_chain({.batches = all == 0 ? 0 : all / (rows * columns),
                                            .rows = rows,
                                            .columns = columns,
                                            .depth = operand[operand.rank() - 1],
                                            .width = out[out.rank() - 1],
                                            .factors = first.operand_dtype,
                                            .weights = second.operand_dtype,
                                            .made = made});
}

bool may_be_chained(const Program& program, const EpilogueStep& start, const CallStep& second) {
  if (!works_by_rows(start.call) || !works_by_rows(second)) return false;
  const Plan& plan = *program.plan;
  const PlanSource &left = second.sources[0], &right = second.sources[1];
  if (!left.path.empty() || right.slot == left.slot || second.source_dtypes[0] != second.operand_dtype) return false;
  const auto writes_left = [&](std::uint16_t store) { return start.epilogue.sources[store].slot == left.slot; };
  if (std::ranges::none_of(start.epilogue.stores, writes_left)) return false;
  if (!is_between(plan, start.call.output.slot) || !is_between(plan, left.slot)) return false;
  return program.capabilities.launches_on_caller || estimate(program, start, second);
}

}  // namespace

std::string describe_chain(const Program& program, const ProductChainStep& chain, std::size_t number) {
  if (program.capabilities.launches_on_caller)
    return fmt::format(" on each block of rows of steps {} and {}", number - 2, number - 1);
  const std::optional<ProductChainEstimate> e = estimate(program, chain.first, chain.second());
  if (!e || e->ns == 0) return {};
  const double mib = static_cast<double>(e->bytes) / 0x1p20;
  const auto with = fmt::format("steps {} and {} as one kernel", number - 2, number - 1);
  return e->pays ? fmt::format(" with {}: about {:.1f} us, against {:.1f} us and {:.1f} MiB separately", with,
                               e->ns / 1000, e->apart_ns / 1000, mib)
                 : fmt::format(" (with {} it would take about {:.1f} us, against {:.1f} us and {:.1f} MiB separately)",
                               with, e->ns / 1000, e->apart_ns / 1000, mib);
}

bool chain_products(Program& program) {
  std::vector<PlanStep>& steps = program.plan->steps;
  std::vector<bool> starts(steps.size(), false);  // a chain with the step after it
  bool changed = false;
  for (std::size_t i = 0; i + 1 < steps.size(); ++i) {
    const auto* const start = std::get_if<EpilogueStep>(&steps[i]);
    const CallStep* const second = product_of(steps[i + 1]);
    if (start == nullptr || second == nullptr || !may_be_chained(program, *start, *second)) continue;
    starts[i] = changed = true;
    ++i;  // the second product starts no other one
  }
  std::vector<PlanStep> chained;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!starts[i]) {
      chained.push_back(std::move(steps[i]));
      continue;
    }
    ProductChainStep chain{std::get<EpilogueStep>(std::move(steps[i])), {}};
    if (auto* const with_epilogue = std::get_if<EpilogueStep>(&steps[++i]))
      chain.last = std::move(*with_epilogue);
    else
      chain.last = std::get<CallStep>(std::move(steps[i]));
    chained.push_back(std::move(chain));
  }
  steps = std::move(chained);
  return changed;
}

}  // namespace fermata
