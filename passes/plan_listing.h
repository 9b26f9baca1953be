// A structured record of how a program is compiled, for reports: the program after each pass, the choice for each node,
// steps, kernels and their code.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "dispatch/backend.h"
#include "ir/graph.h"
#include "passes/plan_form.h"

namespace fermata {

struct PlanListing {
  struct Stage {
    std::string pass;
    double us = 0;
    std::string text;  // the program after the pass; empty if it did not change
  };
  struct Node {
    ValueId id = 0;
    std::string op, type, line, text;  // "matmul", "f32[4, 8]", "mlp.cpp:42", as the program has it
    std::source_location where{};
    std::vector<ValueId> operands{};
    std::string form{}, winner{}, candidates{};
    std::int32_t group = -1;  // the kernel that contains it
  };
  struct CompiledKernel {
    std::string name;
    /// Lines of LLVM IR and assembly end in a comment with the line of the description that they come from, "; @12" and
    /// "# @12"; lines of PTX with the line of the source, "// @7".
    KernelListing code{};
  };
  std::string recorded;
  std::vector<Stage> stages;
  std::vector<Node> nodes;  // after the passes over graphs
  std::vector<std::string> steps, notes;
  std::vector<CompiledKernel> kernels;
};

/// `most_code`: the number of kernels that are compiled again for the text of their code; the others have only a
/// description.
PlanListing list_plan(Graph graph, BackendKey backend, PlanForm form, std::size_t most_code);

}  // namespace fermata
