// The compiler, pass by pass. This is the page to read first.
//
//   simplify      drop what need not be computed
//   materialize   copies where reshapes and outputs need buffers
//   select        dispatch every node once more: which form of which cell
//   fuse          groups of emitting nodes become kernels
//   lower         kernel descriptions, fused multiply-adds, compiled code, steps
//   finish_tiles  kernels that run on each tile of a product
//   join_rows     products of what such a kernel leaves, block of rows by block of rows
//   gather_calls  equal calls that do not depend on each other
//   plan_memory   lifetimes, so that temporaries share memory
//
// The runner times each pass, verifies the graph after it (FERMATA_VERIFY=1, and always in debug builds), honors
// FERMATA_DISABLE_PASSES and dumps with FERMATA_DUMP=ir,passes.
#include "passes/pipeline.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <mutex>

#include "dispatch/dump.h"
#include "ir/error.h"
#include "passes/finish_tiles.h"
#include "passes/fuse.h"
#include "passes/gather_calls.h"
#include "passes/join_rows.h"
#include "passes/lower.h"
#include "passes/materialize.h"
#include "passes/plan_memory.h"
#include "passes/select.h"
#include "passes/simplify.h"

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
    {"lower", &lower, false, false},
    {"finish_tiles", &finish_tiles, true, false},
    {"join_rows", &join_rows, true, false},
    {"gather_calls", &gather_calls, true, false},
    {"plan_memory", &plan_memory, false, false},
};

std::mutex mutex;
std::vector<std::string>& disabled() {
  static auto* names = new std::vector<std::string>([] {
    std::vector<std::string> out;
    const char* text = std::getenv("FERMATA_DISABLE_PASSES");
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
bool is_disabled(const Pass& pass) {
  std::lock_guard lock(mutex);
  return pass.optional && std::find(disabled().begin(), disabled().end(), pass.name) != disabled().end();
}
bool verifying() {
  static const bool on = [] {
    const char* value = std::getenv("FERMATA_VERIFY");
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
                        .reduced = static_cast<std::uint16_t>(reduction ? n.attributes[0] : 0),
                        .alive = true});
  }
}

void run_pass(const Pass& pass, Program& program, std::string* timings) {
  if (is_disabled(pass)) {
    if (pass.run == &fuse) one_group_each(program);
    return;
  }
  const auto start = std::chrono::steady_clock::now();
  const bool changed = pass.run(program);
  const double us = std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  if (timings != nullptr) *timings += fmt::format("  {:<12} {:8.1f} us\n", pass.name, us);
  if (pass.on_graph && verifying()) verify(program.graph);
  if (pass.on_graph && changed && dump_wanted("passes")) dump("passes", pass.name, to_string(program.graph, true));
}

std::string describe(const Program& p) {
  std::string text;
  std::size_t kernel = 0;
  for (std::size_t i = 0; i < p.plan->steps.size(); ++i) {
    const PlanStep& step = p.plan->steps[i];
    if (step.kind == PlanStep::Kind::call) {
      text += fmt::format("step {}: call {}{}\n", i, step.name,
                          step.on_row_blocks ? describe_joined(p, i)
                          : step.beside      ? fmt::format(" with step {}", i - 1)
                                             : "");
      continue;
    }
    const Kernel& k = p.kernels[kernel++];
    text += fmt::format(
        "step {}: kernel {} ({} kernel, {} loads and stores, {} primitives{}){}\n", i, step.name,
        k.reduced == 0      ? "map"
        : k.is_row_kernel() ? "row"
                            : "column",
        k.accesses.size(), k.program.size(),
        step.executable->code_bytes() == 0 ? "" : fmt::format(", {} bytes of code", step.executable->code_bytes()),
        !step.on_tiles || (p.backend != BackendKey::cpu && k.reduced != 0) ? ""
        : p.backend == BackendKey::cpu ? fmt::format(" on each tile of step {}", i - 1)
                                       : fmt::format(" or, where its library can, the end of step {}", i - 1));
  }
  return text;
}

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

Program run_pipeline(Graph graph, BackendKey backend, std::string* timings) {
  Program program;
  program.backend = backend;
  program.explains = timings != nullptr;
  program.graph = std::move(graph);
  if (dump_wanted("ir")) dump("ir", "recorded", to_string(program.graph, true));
  for (const Pass& pass : kPipeline) run_pass(pass, program, timings);
  return program;
}

}  // namespace

std::unique_ptr<const Plan> compile_plan(Graph graph, std::vector<std::uint32_t> key, BackendKey backend) {
  Program program = run_pipeline(std::move(graph), backend, nullptr);
  program.plan->key = std::move(key);
  program.plan->listing = describe(program);
  return std::move(program.plan);
}

std::string explain_plan(Graph graph, BackendKey backend) {
  std::string text = "recorded\n" + to_string(graph, true), timings;
  const std::string before = to_string(graph);
  const Program program = run_pipeline(std::move(graph), backend, &timings);
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
  return text + "\npasses\n" + timings;
}

std::size_t step_count(Graph graph, BackendKey backend) {
  return run_pipeline(std::move(graph), backend, nullptr).plan->steps.size();
}

Graph run_passes(Graph graph, const std::vector<std::string>& names) {
  Program program;
  program.graph = std::move(graph);
  for (const std::string& name : names) {
    const auto* pass = std::find_if(std::begin(kPipeline), std::end(kPipeline),
                                    [&](const Pass& p) { return p.name == name && p.on_graph; });
    if (pass == std::end(kPipeline)) {
      std::string known;
      for (const std::string& n : pass_names()) known += (known.empty() ? "" : ", ") + n;
      throw ValueError(1321, format_error(1321, "ValueError", fmt::format("there is no graph pass {}", name), {}, {},
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
  return names;
}

void set_disabled_passes(std::vector<std::string> names) {
  std::lock_guard lock(mutex);
  disabled() = std::move(names);
}

}  // namespace fermata
