// See lower.h.
#include "passes/lower.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <optional>
#include <set>

#include "dispatch/dump.h"
#include "dispatch/kernel_cache.h"
#include "dispatch/kernel_table.h"
#include "ir/custom_op.h"
#include "ir/error.h"
#include "ir/ops/reduce.h"
#include "passes/build_kernel.h"
#include "passes/dimensions.h"
#include "passes/form_fma.h"
#include "passes/index_map.h"
#include "passes/position_checks.h"
#include "runtime/stats.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// A group or a node that runs as one step.
struct Unit {
  std::int32_t group = -1;
  ValueId node = kNoValue;
};

class Lowering {
 public:
  explicit Lowering(Program& program)
      : p_(program), g_(program.graph), dims_(program.graph), users_(g_.nodes.size()), output_(g_.nodes.size(), false) {
    for (ValueId v = 0; v < g_.nodes.size(); ++v)
      for (const GraphOperand& o : g_.nodes[v].operands)
        if (!o.is_scalar()) users_[o.value].push_back(v);
    for (const ValueId v : g_.outputs) output_[v] = true;
  }

  void run() {
    compile_groups();
    p_.plan = std::make_unique<Plan>();
    p_.plan->backend = p_.backend, p_.plan->capabilities = p_.capabilities;
    slot_of_.assign(g_.nodes.size(), kNoSlot);
    for (ValueId v = 0; v < g_.nodes.size(); ++v)
      if (g_.nodes[v].op == Op::input) add_leaf(v);
    p_.plan->output_slots.resize(g_.outputs.size());
    for (std::size_t i = 0; i < g_.outputs.size(); ++i)
      p_.plan->output_slots[i] = slot_of_[g_.outputs[i]] = add_slot(PlanSlot::Kind::output, g_.outputs[i]);
    p_.plan->output_records = p_.output_records;
    for (const Unit& unit : ordered_units()) unit.group >= 0 ? add_kernel_step(unit.group) : add_call_step(unit.node);
  }

 private:
  static constexpr std::uint32_t kNoSlot = ~0u;
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

  // ---- Compiling
  // ------------------------------------------------------------------------------------------------------

  void compile_groups() {
    const bool has_layouts = !p_.channels_last.empty();
    built_.assign(p_.groups.size(), std::nullopt);
    executables_.assign(p_.groups.size(), nullptr);
    std::vector<std::size_t> groups;
    for (std::size_t i = 0; i < p_.groups.size(); ++i)
      if (p_.groups[i].alive) groups.push_back(i);
    for (const std::size_t i : groups) build_group(i);
    compile_ahead(groups);
    for (const std::size_t i : groups)
      if (p_.groups[i].alive) compile_group(i);
    if (has_layouts && p_.channels_last.empty()) compile_groups();  // others were built with layouts
  }

  /// False where it has been taken apart.
  bool build_group(std::size_t i) {
    try {
      built_[i] = build_kernel(p_, dims_, p_.groups[i], stored_members(p_.groups[i]));
      form_fma(built_[i]->kernel);
      return true;
    } catch (const OutOfMemoryError&) { throw; } catch (const Error& error) {
      counters.compile_failures.fetch_add(1, std::memory_order_relaxed);
      take_apart(i, error);
      return false;
    }
  }

  /// Compiles the kernels of several groups side by side, one that is there more than once for its first group only.
  /// What goes wrong is left to compile_group().
  void compile_ahead(const std::vector<std::size_t>& groups) {
    constexpr double kNanoseconds = 3e6;
    if (groups.size() < 2 || !p_.capabilities.compiles_on_caller || before_compile != nullptr) return;
    std::set<std::string> known;
    std::vector<std::size_t> first;
    for (const std::size_t i : groups)
      if (built_[i] && known.insert(serialize(built_[i]->kernel)).second) first.push_back(i);
    parallel_for(0, static_cast<std::int64_t>(first.size()), kNanoseconds, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t k = begin; k < end; ++k) {
        const std::size_t i = first[static_cast<std::size_t>(k)];
        try {
          const std::string name = kernel_name(p_.groups[i]);
          const KernelNameScope scope(name);
          executables_[i] = compile_cached(p_.backend, built_[i]->kernel, nullptr);
        } catch (const Error&) {}
      }
    });
  }

  void compile_group(std::size_t i) {
    if ((!built_[i] && !build_group(i)) || executables_[i] != nullptr) return;
    try {
      const std::string name = kernel_name(p_.groups[i]);
      const KernelNameScope scope(name);
      executables_[i] = compile_cached(p_.backend, built_[i]->kernel, nullptr);
    } catch (const OutOfMemoryError&) { throw; } catch (const Error& error) {
      counters.compile_failures.fetch_add(1, std::memory_order_relaxed);
      take_apart(i, error);
    }
  }

  /// What a group is taken apart into may be calls, whose results are row-major: all values are then.
  void drop_layouts() {
    p_.channels_last.clear();
    for (Group& group : p_.groups) group.channels_last = false;
  }

  void take_apart(std::size_t i, const Error& error) {
    drop_layouts();
    const std::vector<ValueId> members = p_.groups[i].members;
    for (const ValueId v : members)  // what becomes a call has a buffer of its own
      if (!p_.parts.empty()) p_.parts[v] = {};
    p_.groups[i].alive = false;
    built_[i].reset(), executables_[i].reset();
    if (members.size() == 1) {
      const ValueId v = members[0];
      p_.group_of[v] = -1;
      p_.choices[v].form = Form::call;
      p_.choices[v].winner = "call; its kernel could not be compiled";
      fmt::print(stderr, "fermata warning: {} at {} runs as a call: its kernel could not be compiled\n  {}\n",
                 name(g_.nodes[v].op), short_location(g_.nodes[v].where), error.what());
      return;
    }
    for (const ValueId v : members) {
      Group alone{.members = {v}, .inlined = {false}, .domain = v, .reduced = 0, .alive = true};
      if (family(g_.nodes[v].op) == Family::reduce) {
        alone.domain = g_.nodes[v].operands[0].value;
        alone.reduced = reduced_axes(g_.nodes[v]);
      }
      p_.group_of[v] = static_cast<std::int32_t>(p_.groups.size());
      p_.groups.push_back(std::move(alone));
      built_.emplace_back(), executables_.emplace_back();
    }
    for (const ValueId v : members) compile_group(index(p_.group_of[v]));
  }

  std::vector<ValueId> stored_members(const Group& group) const {
    std::vector<ValueId> stored;
    for (std::size_t i = 0; i < group.members.size(); ++i) {
      const ValueId v = group.members[i];
      if (!group.inlined[i] && (output_[v] || read_outside(group, v))) stored.push_back(v);
    }
    return stored;
  }
  bool read_outside(const Group& group, ValueId v) const {
    std::vector<ValueId> work(users_[v]);
    while (!work.empty()) {
      const ValueId u = work.back();
      work.pop_back();
      if (is_view(g_.nodes[u].op))
        work.insert(work.end(), users_[u].begin(), users_[u].end());
      else if (!std::binary_search(group.members.begin(), group.members.end(), u))
        return true;
    }
    return false;
  }

  // ---- Order
  // ----------------------------------------------------------------------------------------------------------

  /// Units after everything they read; among those that are ready, in graph order.
  std::vector<Unit> ordered_units() const {
    std::vector<Unit> ordered;
    std::vector<std::uint8_t> state(g_.nodes.size(), 0);  // 1: being visited, 2: done
    std::vector<ValueId> work;
    for (ValueId root = 0; root < g_.nodes.size(); ++root) {
      work.push_back(root);
      while (!work.empty()) {
        const ValueId v = work.back();
        if (state[v] == 2) {
          work.pop_back();
          continue;
        }
        const std::int32_t group = p_.group_of[v];
        const std::vector<ValueId> alone{v};
        const std::vector<ValueId>& members = group >= 0 ? p_.groups[index(group)].members : alone;
        bool ready = true;
        for (const ValueId m : members)
          for (const GraphOperand& o : g_.nodes[m].operands) {
            if (o.is_scalar()) continue;
            ValueId s = o.value;  // views are no steps, and may stand between members of a group
            while (is_view(g_.nodes[s].op)) s = g_.nodes[s].operands[0].value;
            if (state[s] != 2 && (group < 0 || p_.group_of[s] != group)) work.push_back(s), ready = false;
          }
        if (!ready) {
          if (state[v] == 1 && ++visits_ > 64 * g_.nodes.size() + 4096)
            throw_internal("groups depend on each other in a circle");
          state[v] = 1;
          continue;
        }
        for (const ValueId m : members) state[m] = 2;
        if (group >= 0)
          ordered.push_back({group, kNoValue});
        else if (p_.choices[v].form == Form::call)
          ordered.push_back({-1, v});
      }
    }
    return ordered;
  }

  // ---- Steps
  // ----------------------------------------------------------------------------------------------------------

  std::uint32_t add_slot(PlanSlot::Kind kind, ValueId v, std::uint16_t mask = 0) {
    p_.plan->slots.push_back({.kind = kind, .record = g_.nodes[v].record, .mask = mask});
    return static_cast<std::uint32_t>(p_.plan->slots.size() - 1);
  }
  void add_leaf(ValueId v) {
    slot_of_[v] = add_slot(PlanSlot::Kind::leaf, v);
    p_.plan->leaf_slots.push_back(slot_of_[v]);
    p_.plan->leaf_records.push_back(g_.nodes[v].record);
  }
  std::uint32_t result_slot(ValueId v) {
    if (const Part part = part_of(p_, v); part.whole != kNoValue) return result_slot(part.whole);
    if (slot_of_[v] == kNoSlot) {
      slot_of_[v] = add_slot(PlanSlot::Kind::temporary, v);
      p_.plan->slots.back().channels_last = is_channels_last(p_, v);
    }
    return slot_of_[v];
  }

  /// From the buffer of a concat's result to the part that is its operand.
  std::vector<PathStep> path_to(const Part& part) const {
    std::vector<PathStep> path;
    const auto add = [&](PathStep::Kind kind, std::uint32_t operand) {
      const ValueId v = g_.nodes[part.whole].operands[operand].value;
      path.push_back({kind, g_.nodes[v].record, part.axis});
    };
    for (std::uint32_t before = 0; before < part.operand; ++before) add(PathStep::Kind::after, before);
    add(PathStep::Kind::part, part.operand);
    return path;
  }
  std::vector<PathStep> path_of(const KernelSource& source) const {
    const Part part = source.kind == KernelSource::Kind::store ? part_of(p_, source.value) : Part{};
    if (part.whole == kNoValue) return source.path;
    std::vector<PathStep> path = path_to(part);
    if (part.is_stacked) path.push_back({PathStep::Kind::drop, 0, part.axis});
    path.insert(path.end(), source.path.begin(), source.path.end());
    return path;
  }
  /// Operand `k` of a concat, if a kernel stores it in the result.
  std::optional<Part> stored_part(ValueId whole, std::size_t k) const {
    if (p_.parts.empty() || g_.nodes[whole].op != Op::concat) return std::nullopt;
    const ValueId operand = g_.nodes[whole].operands[k].value;
    for (const ValueId v : {operand, is_view(g_.nodes[operand].op) ? g_.nodes[operand].operands[0].value : operand})
      if (const Part part = p_.parts[v]; part.whole == whole && part.operand == k) return part;
    return std::nullopt;
  }
  /// Whether kernels store all operands of a concat in its result.
  bool is_made_of_parts(ValueId v) const {
    if (g_.nodes[v].op != Op::concat) return false;
    for (std::size_t k = 0; k < g_.nodes[v].operands.size(); ++k)
      if (!stored_part(v, k)) return false;
    return true;
  }

  ScalarRange add_scalars(const std::vector<ScalarSource>& scalars) {
    std::vector<ScalarSource>& all = p_.plan->scalars;
    const ScalarRange range{static_cast<std::uint32_t>(all.size()), static_cast<std::uint32_t>(scalars.size())};
    all.insert(all.end(), scalars.begin(), scalars.end());
    return range;
  }

  void add_kernel_step(std::int32_t group) {
    BuiltKernel& built = *built_[index(group)];
    KernelStep step;
    step.record = built.domain_record, step.number = static_cast<std::uint32_t>(p_.kernels.size());
    step.scalars = add_scalars(built.scalars);
    for (const Store& store : built.kernel.stores) step.stores.push_back(static_cast<std::uint16_t>(store.access));
    step.executable = executables_[index(group)], step.axes = built.axes;
    step.reduced = built.kernel.reduced, step.ns_per_point = built.ns_per_point;
    step.operations_per_point = static_cast<double>(std::max<std::size_t>(built.kernel.program.size(), 1));
    for (std::size_t i = 0; i < built.sources.size(); ++i) {
      const KernelSource& s = built.sources[i];
      std::uint32_t slot;
      switch (s.kind) {
        case KernelSource::Kind::position: slot = add_slot(PlanSlot::Kind::position, s.value, s.mask); break;
        case KernelSource::Kind::store: slot = result_slot(s.value); break;
        default: slot = slot_of_[s.value];
      }
      step.sources.push_back({slot, path_of(s)});
      const Access& access = built.kernel.accesses[i];
      step.element_bytes.push_back(access.address_only ? 0 : byte_size(access.dtype));
    }
    step.checks = position_checks(g_, built);
    step.is_of_weights = is_of_weights(p_.groups[index(group)]);
    step.name = kernel_name(p_.groups[index(group)]);
    step.where = g_.nodes[p_.groups[index(group)].members.back()].where;
    dump_kernel(step.name, built.kernel, p_.backend);
    p_.kernels.push_back(std::move(built.kernel));
    p_.kernel_names.push_back(step.name);
    p_.plan->steps.push_back(std::move(step));
  }

  /// Whether a kernel only brings a leaf into the dtype of the products and convolutions that read it on their right.
  bool is_of_weights(const Group& group) const {
    if (!p_.capabilities.channels_last || p_.form == PlanForm::shipped || group.members.size() != 1) return false;
    const ValueId v = group.members[0];
    const GraphNode& n = g_.nodes[v];
    if (n.op != Op::cast || output_[v] || g_.nodes[n.operands[0].value].op != Op::input) return false;
    return std::ranges::all_of(users_[v], [&](ValueId u) {
      ValueId read = v;
      while (is_view(g_.nodes[u].op) && users_[u].size() == 1 && !output_[u]) read = u, u = users_[u][0];
      const GraphNode& user = g_.nodes[u];
      return (user.op == Op::convolution || user.op == Op::matmul) && user.operands[1].value == read &&
             user.operands[0].value != read;
    });
  }

  std::string kernel_name(const Group& group) const {
    constexpr std::size_t kShown = 4;
    std::string text;
    for (std::size_t i = 0; i < std::min(group.members.size(), kShown); ++i)
      text += fmt::format("{}{}", i == 0 ? "" : "_", name(g_.nodes[group.members[i]].op));
    if (group.members.size() > kShown) text += fmt::format("_and_{}", group.members.size() - kShown);
    return text;
  }

  void add_call_step(ValueId v) {
    const GraphNode& n = g_.nodes[v];
    if (is_made_of_parts(v)) return;
    CallStep step;
    std::vector<ScalarSource> scalars;
    step.backend = p_.backend, step.context = n.context;
    step.record = n.record, step.op = n.op;
    step.operand_dtype = operand_dtype(g_, n), step.output_dtype = n.dtype;
    // Call kernels of reductions convert as they read: of real numbers the converted dtype will do.
    if (family(n.op) == Family::reduce && is_complex(g_.nodes[n.operands[0].value].dtype))
      step.operand_dtype = g_.nodes[n.operands[0].value].dtype;
    step.where = n.where, step.name = std::string(name(n.op));
    for (std::size_t k = 0; k < n.operands.size(); ++k) {
      if (n.operands[k].is_scalar()) {
        step.operands.push_back({true, static_cast<std::uint16_t>(scalars.size())});
        scalars.push_back({n.record, n.operands[k].scalar});
        continue;
      }
      if (const std::optional<Part> part = stored_part(v, k)) {
        step.operands.push_back({false, static_cast<std::uint16_t>(step.sources.size())});
        step.sources.push_back({result_slot(v), path_to(*part)});
        step.source_dtypes.push_back(n.dtype), step.element_bytes.push_back(byte_size(n.dtype));
        continue;
      }
      const std::size_t rank = is_pointwise(n.op) ? n.shape.rank() : g_.nodes[n.operands[k].value].shape.rank();
      const auto map = is_pointwise(n.op) ? into_operand(g_, v, identity_map(rank), k) : identity_map(rank);
      const auto followed = map ? follow_views(g_, n.operands[k].value, *map) : std::nullopt;
      if (!followed) throw_internal("an operand of a call step is not a view of a buffer");
      step.operands.push_back({false, static_cast<std::uint16_t>(step.sources.size())});
      step.sources.push_back({slot_of_[followed->source], followed->map.path});
      step.source_dtypes.push_back(g_.nodes[followed->source].dtype);
      step.element_bytes.push_back(byte_size(g_.nodes[followed->source].dtype));
    }
    if (!is_pointwise(n.op))  // of a boxed call the stream that it draws from
      for (std::size_t i = 0; i < n.scalars.size(); ++i) scalars.push_back({n.record, static_cast<std::uint16_t>(i)});
    step.scalars = add_scalars(scalars);
    step.output = {result_slot(v), {}};
    if (!gives_buffer(n.op, p_.backend)) {
      p_.plan->steps.emplace_back(std::move(step));
      return;
    }
    for (const PlanSource& s : step.sources) p_.plan->slots[s.slot].is_owned = true;
    p_.plan->slots[step.output.slot].is_given = true;
    p_.plan->steps.emplace_back(BoxedCallStep{std::move(step)});
  }

  Program& p_;
  const Graph& g_;
  const Dimensions dims_;
  std::vector<std::vector<ValueId>> users_;
  std::vector<bool> output_;
  std::vector<std::optional<BuiltKernel>> built_;
  std::vector<std::shared_ptr<const Executable>> executables_;
  std::vector<std::uint32_t> slot_of_;
  mutable std::size_t visits_ = 0;
};

}  // namespace

bool lower(Program& program) {
  Lowering(program).run();
  return true;
}

}  // namespace fermata
