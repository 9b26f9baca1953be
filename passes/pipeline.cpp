// The compiler, pass by pass. This is the page to read first.
//
//   simplify        drop what need not be computed
//   materialize     copies where reshapes and outputs need buffers
//   select          dispatch every node once more: which form of which cell
//   fuse            groups of emitting nodes become kernels
//   lay_out_channels  values between convolutions whose channels lie innermost
//   place_parts     what is computed for a concat alone is stored where it puts it
//   lower           kernel descriptions, fused multiply-adds, compiled code, steps
//   fuse_epilogues  kernels that run as a part of the call before them, on each tile of a product
//   chain_products  products of what such a kernel leaves, block of rows by block of rows
//   batch_calls     equal calls that do not depend on each other
//   overlap_collectives  what ranks do together starts early and is waited for late
//   plan_memory     lifetimes, so that temporaries share memory
//
// One pass runs before all that, where a program is one for all ranks:
//
//   bucket_collectives   small reductions are joined
//
// The runner times each pass, verifies the graph after it (FERMATA_VERIFY=1, and always in debug builds), honors
// FERMATA_DISABLE_PASSES and dumps with FERMATA_DUMP=ir,passes.
#include "passes/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <span>

#include "dispatch/backend.h"
#include "dispatch/dump.h"
#include "dispatch/kernel_cache.h"
#include "ir/error.h"
#include "ir/fork.h"
#include "ir/ops/reduce.h"
#include "passes/batch_calls.h"
#include "passes/bucket_collectives.h"
#include "passes/chain_products.h"
#include "passes/fuse.h"
#include "passes/fuse_epilogues.h"
#include "passes/lay_out_channels.h"
#include "passes/lower.h"
#include "passes/materialize.h"
#include "passes/overlap_collectives.h"
#include "passes/place_parts.h"
#include "passes/plan_listing.h"
#include "passes/plan_memory.h"
#include "passes/select.h"
#include "passes/simplify.h"
#include "runtime/environment.h"
#include "runtime/events.h"

namespace fermata {
namespace {

struct Pass {
  std::string_view name;
  bool (*run)(Program&);
  bool optional;
  bool on_graph;  // changes the graph only, so it can be run and tested on text
};
constexpr Pass kPipeline[] = {
    {"simplify", &simplify, true, true},
    {"materialize", &materialize, false, true},
    {"select", &select, false, false},
    {"fuse", &fuse, true, false},
    {"lay_out_channels", &lay_out_channels, true, false},
    {"place_parts", &place_parts, true, false},
    {"lower", &lower, false, false},
    {"fuse_epilogues", &fuse_epilogues, true, false},
    {"chain_products", &chain_products, true, false},
    {"batch_calls", &batch_calls, true, false},
    {"overlap_collectives", &overlap_collectives, true, false},
    {"plan_memory", &plan_memory, false, false},
};
/// Of programs that all ranks have alike, before they are recorded.
constexpr Pass kOfAllRanks[] = {{"bucket_collectives", &bucket_collectives, true, true}};

ForkSafeMutex& mutex() {
  static auto* const of_names = new ForkSafeMutex;
  return *of_names;
}
std::vector<std::string>& disabled() {
  static auto* names = new std::vector<std::string>([] {
    std::vector<std::string> out;
    const char* text = environment_variable("FERMATA_DISABLE_PASSES");
    std::string_view rest = text == nullptr ? "" : text;
    while (!rest.empty()) {
      const std::size_t comma = rest.find(',');
      out.emplace_back(rest.substr(0, comma));
      rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
    }
    return out;
  }());
  return *names;
}
bool is_listed(std::string_view name) {
  std::lock_guard lock(mutex());
  return std::find(disabled().begin(), disabled().end(), name) != disabled().end();
}
bool is_disabled(const Pass& pass) { return pass.optional && is_listed(pass.name); }
const Pass* find_graph_pass(std::string_view name) {
  const Pass* found = nullptr;
  const auto look_in = [&](std::span<const Pass> passes) {
    for (const Pass& p : passes)
      if (p.on_graph && p.name == name) found = &p;
  };
  look_in(kPipeline), look_in(kOfAllRanks);
  return found;
}
bool verifying() {
  static const bool on = [] {
    const char* value = environment_variable("FERMATA_VERIFY");
#ifdef NDEBUG
    return value != nullptr && std::string_view(value) != "0";
#else
    return value == nullptr || std::string_view(value) != "0";
#endif
  }();
  return on;
}

/// Without fusion every emitting node is a kernel of its own.
void one_group_each(Program& p) {
  p.groups.clear();
  p.group_of.assign(p.graph.nodes.size(), -1);
  for (ValueId v = 0; v < p.graph.nodes.size(); ++v) {
    if (p.choices[v].form != Form::emit) continue;
    const GraphNode& n = p.graph.nodes[v];
    const bool reduction = family(n.op) == Family::reduce;
    p.group_of[v] = static_cast<std::int32_t>(p.groups.size());
    p.groups.push_back({.members = {v},
                        .inlined = {false},
                        .domain = reduction ? n.operands[0].value : v,
                        .reduced = reduced_axes(n),
                        .alive = true});
  }
}

using Stages = std::vector<PlanListing::Stage>;

void run_pass(const Pass& pass, Program& program, Stages* stages) {
  if (is_disabled(pass)) {
    if (pass.run == &fuse) one_group_each(program);
    return;
  }
  const EventScope event([&] { return event_info(EventKind::pass, pass.name, {}); });
  const auto start = std::chrono::steady_clock::now();
  const bool changed = pass.run(program);
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  if (stages != nullptr)
    stages->push_back({std::string(pass.name), us, pass.on_graph && changed ? to_string(program.graph, true) : ""});
  if (pass.on_graph && verifying()) verify(program.graph);
  if (pass.on_graph && changed && is_dump_enabled("passes")) dump("passes", pass.name, to_string(program.graph, true));
}

/// The steps of a plan in words. What a step is made of is numbered as if it ran part by part.
class Description {
 public:
  explicit Description(const Program& program) : p_(program) {}

  std::string text() {
    for (const PlanStep& step : p_.plan->steps) std::visit([&](const auto& s) { add(s); }, step);
    return std::move(text_);
  }

 private:
  void add(const CallStep& call) { add(call, ""); }
  void add(const CallStep& call, const std::string& how) {
    const bool channels_last = p_.plan->slots[call.output.slot].channels_last;
    text_ +=
        fmt::format("step {}: call {}{}{}\n", number_++, call.name, channels_last ? ", channels innermost" : "", how);
  }
  void add(const KernelStep& kernel) { add(kernel, ""); }
  void add(const KernelStep& kernel, const std::string& how) {
    const Kernel& k = p_.kernels[kernel.number];
    const std::size_t bytes = kernel.executable->code_bytes();
    text_ += fmt::format(
        "step {}: kernel {} ({} kernel, {} loads and stores, {} primitives{}){}\n", number_++, kernel.name,
        k.reduced == 0      ? "map"
        : k.is_row_kernel() ? "row"
                            : "column",
        k.accesses.size(), k.program.size(), bytes == 0 ? "" : fmt::format(", {} bytes of code", bytes), how);
  }
  void add(const EpilogueStep& step) { add(step, ""); }
  void add(const EpilogueStep& step, const std::string& how) {
    add(step.call, how);
    if (step.form != EpilogueForm::whole)
      add(step.epilogue, fmt::format(" on each tile of step {}", number_ - 1));
    else if (step.epilogue.reduced == 0)
      add(step.epilogue, fmt::format(", or the epilogue of step {} if its library supports it", number_ - 1));
    else
      add(step.epilogue);
  }
  void add(const ProductChainStep& chain) {
    add(chain.first);
    const std::string how = describe_chain(p_, chain, number_);
    std::visit([&](const auto& last) { add(last, how); }, chain.last);
  }
  void add(const CallBatchStep& batch) {
    for (const CallStep& call : batch.calls)
      add(call, &call == &batch.calls.front() ? "" : fmt::format(" with step {}", number_ - 1));
  }
  void add(const StartStep& step) { add(step.call, fmt::format(" starts (transfer {})", step.number)); }
  void add(const WaitStep& step) { add(step.call, fmt::format(" (transfer {})", step.number)); }

  const Program& p_;
  std::string text_;
  std::size_t number_ = 0;
};

std::string describe(const Program& p) { return Description(p).text(); }

std::string describe_choices(const Program& p) {
  std::string text;
  for (ValueId v = 0; v < p.graph.nodes.size(); ++v) {
    const Choice& c = p.choices[v];
    if (c.form != Form::emit && c.form != Form::call) continue;
    const std::int32_t group = p.group_of[v];
    text += fmt::format("  %{:<4} {:<16} -> {:<8} {}  candidates: {}\n", v, name(p.graph.nodes[v].op),
                        c.winner.empty() ? "none" : c.winner,
                        group >= 0 ? fmt::format("group {}", group) : std::string("call step"),
                        c.candidates.empty() ? "none" : c.candidates);
  }
  return text;
}

Program run_pipeline(Graph graph, BackendKey backend, Stages* stages, PlanForm form = PlanForm::fused) {
  Program program;
  program.form = form;
  program.backend = backend, program.capabilities = capabilities_of(backend);
  program.explains = stages != nullptr;
  program.graph = std::move(graph);
  if (is_dump_enabled("ir")) dump("ir", "recorded", to_string(program.graph, true));
  for (const Pass& pass : kPipeline) run_pass(pass, program, stages);
  return program;
}

}  // namespace

namespace {

std::unique_ptr<const Plan> compile_for_process(Graph graph, std::vector<std::uint32_t> key, BackendKey backend,
                                                PlanForm form) {
  Program program = run_pipeline(std::move(graph), backend, nullptr, form);
  program.plan->key = std::move(key);
  program.plan->listing = describe(program);
  return std::move(program.plan);
}

}  // namespace

std::unique_ptr<const Plan> compile_plan(Graph graph, std::vector<std::uint32_t> key, BackendKey backend) {
  return compile_for_process(std::move(graph), std::move(key), backend, PlanForm::fused);
}

std::unique_ptr<const Plan> compile_calls_plan(Graph graph, std::vector<std::uint32_t> key, BackendKey backend) {
  return compile_for_process(std::move(graph), std::move(key), backend, PlanForm::calls);
}

std::unique_ptr<const Plan> compile_shipped_plan(Graph graph, BackendKey backend, std::vector<Kernel>& kernels) {
  Program program = run_pipeline(std::move(graph), backend, nullptr, PlanForm::shipped);
  kernels = std::move(program.kernels);
  return std::move(program.plan);
}

std::string explain_plan(Graph graph, BackendKey backend) {
  std::string text = "recorded\n" + to_string(graph, true);
  Stages stages;
  const std::string before = to_string(graph);
  const Program program = run_pipeline(std::move(graph), backend, &stages);
  if (const std::string after = to_string(program.graph); after != before)
    text += "\nafter simplify and materialize\n" + to_string(program.graph, true);
  // All nodes of a plan are on one backend, so one line has the keys and the cell of each of them.
  const std::string_view device = kBackendNames[static_cast<std::size_t>(backend)];
  text += fmt::format("\nchoices by the keys {{{0}, Dense}}, in the cell Dense/{0} of each op\n", device) +
          describe_choices(program);
  text += "\nplan\n" + describe(program);
  if (!program.notes.empty()) {
    text += "\nnot fused\n";
    for (const std::string& note : program.notes) text += "  " + note + "\n";
  }
  text += "\npasses\n";
  for (const PlanListing::Stage& stage : stages) text += fmt::format("  {:<19} {:8.1f} us\n", stage.pass, stage.us);
  return text;
}

namespace {

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t end = std::min(text.find('\n', at), text.size());
    lines.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return lines;
}

/// The line of a program that defines a value.
std::string line_of_value(const std::vector<std::string>& lines, ValueId v) {
  const std::string begin = fmt::format("%{} = ", v);
  const auto found = std::ranges::find_if(lines, [&](const std::string& line) { return line.starts_with(begin); });
  return found == lines.end() ? begin : *found;
}

PlanListing::Node list_node(const Program& p, ValueId v, const std::vector<std::string>& lines) {
  constexpr std::string_view kForms[] = {"an input", "a view", "a kernel", "a call"};
  const GraphNode& n = p.graph.nodes[v];
  const Choice& choice = p.choices[v];
  PlanListing::Node node{.id = v,
                         .op = std::string(name(n.op)),
                         .type = to_string(n.dtype, n.shape),
                         .line = n.where.line() == 0 ? "" : short_location(n.where),
                         .text = line_of_value(lines, v),
                         .where = n.where};
  for (const GraphOperand& o : n.operands)
    if (!o.is_scalar()) node.operands.push_back(o.value);
  node.form = kForms[static_cast<std::size_t>(choice.form)];
  node.winner = choice.winner, node.candidates = choice.candidates, node.group = p.group_of[v];
  return node;
}

}  // namespace

PlanListing list_plan(Graph graph, BackendKey backend, PlanForm form, std::size_t most_code) {
  PlanListing listing;
  listing.recorded = to_string(graph, true);
  const Program program = run_pipeline(std::move(graph), backend, &listing.stages, form);
  const std::vector<std::string> lines = lines_of(to_string(program.graph, true));
  for (ValueId v = 0; v < program.graph.nodes.size(); ++v) listing.nodes.push_back(list_node(program, v, lines));
  listing.steps = lines_of(describe(program)), listing.notes = program.notes;
  for (std::size_t i = 0; i < program.kernels.size(); ++i) {
    PlanListing::CompiledKernel kernel{.name = program.kernel_names[i]};
    try {
      if (i < most_code) compile_cached(backend, program.kernels[i], &kernel.code);
    } catch (const Error&) {}  // the description is left
    kernel.code.kernel = to_string(program.kernels[i]);
    listing.kernels.push_back(std::move(kernel));
  }
  return listing;
}

std::size_t step_count(Graph graph, BackendKey backend) {
  const Program program = run_pipeline(std::move(graph), backend, nullptr);
  std::size_t count = 0;
  for (const PlanStep& step : program.plan->steps) for_each_part(step, [&](const auto&) { ++count; });
  return count;
}

Graph run_passes(Graph graph, const std::vector<std::string>& names) {
  Program program;
  program.graph = std::move(graph);
  for (const std::string& name : names) {
    const Pass* const pass = find_graph_pass(name);
    if (pass == nullptr) {
      std::string known;
      for (const std::string& n : pass_names()) known += (known.empty() ? "" : ", ") + n;
      throw ValueError(1321, format_error(1321, "ValueError", fmt::format("unknown graph pass {}", name), {}, {},
                                          "one of: " + known));
    }
    pass->run(program);
    verify(program.graph);
  }
  return std::move(program.graph);
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : kPipeline)
    if (pass.on_graph) names.emplace_back(pass.name);
  for (const Pass& pass : kOfAllRanks) names.emplace_back(pass.name);
  return names;
}

bool is_pass_disabled(std::string_view name) { return is_listed(name); }

void set_disabled_passes(std::vector<std::string> names) {
  std::lock_guard lock(mutex());
  disabled() = std::move(names);
}

}  // namespace fermata
