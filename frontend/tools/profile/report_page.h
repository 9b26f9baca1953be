// The page of a report: a template with the data of a run and of programs in it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "ir/graph.h"
#include "ir/key_set.h"
#include "passes/plan_form.h"

namespace fermata {

struct ReportProgram {
  std::uint64_t plan = 0;
  Graph graph;
  BackendKey backend{};
  PlanForm form = PlanForm::fused;
};

struct ReportContents {
  std::string title;
  std::string trace{};                    // JSON, as trace_json() gives it; may be empty
  std::uint64_t left_out = 0;             // events of it
  std::vector<ReportProgram> programs{};  // shown in this order
  std::string modes{};                    // what compare_modes says; may be empty
};

/// One HTML page that needs no other file and no network.
std::string report_page(const ReportContents& contents);

}  // namespace fermata
