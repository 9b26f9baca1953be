// The compiler: turns the graph of a walk into a plan.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/kernel.h"
#include "passes/plan_form.h"
#include "runtime/plan.h"
#include "runtime/walk.h"

namespace fermata {

/// The graph of a walk: an arena copy whose nodes refer to their numbers in the walk as records.
Graph import_graph(const Walk& walk);

/// Runs the pipeline and returns the plan. Never fails for a graph that runs eagerly: a kernel that cannot be compiled
/// becomes call steps, with a warning that names its source line.
std::unique_ptr<const Plan> compile_plan(Graph graph, std::vector<std::uint32_t> key, BackendKey backend);

/// A plan of the same results with one call per op: nothing in it is compiled. Its leaves and outputs are those of the
/// plan above.
std::unique_ptr<const Plan> compile_calls_plan(Graph graph, std::vector<std::uint32_t> key, BackendKey backend);

/// A plan that a process without a compiler can run, and the descriptions of its kernels by the numbers of their steps.
/// Ops with an emit form run only as part of kernels, unless their kernel cannot be compiled.
std::unique_ptr<const Plan> compile_shipped_plan(Graph graph, BackendKey backend, std::vector<Kernel>& kernels);

/// Describes what the pipeline would do: the IR after each stage that changes it, groups, kernels, choices and reasons.
std::string explain_plan(Graph graph, BackendKey backend);

/// The number of kernels and calls in the plan of the graph.
std::size_t step_count(Graph graph, BackendKey backend);

/// Runs passes by name over a graph (the `fermata opt` command and golden tests): "simplify", ... as listed in
/// pipeline.cpp. Throws UserError for an unknown name.
Graph run_passes(Graph graph, const std::vector<std::string>& names);
std::vector<std::string> pass_names();

/// Disables passes by name; FERMATA_DISABLE_PASSES=a,b sets the initial list. Only optional passes can be disabled.
void set_disabled_passes(std::vector<std::string> names);
bool is_pass_disabled(std::string_view name);

}  // namespace fermata
