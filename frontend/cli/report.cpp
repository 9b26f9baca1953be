// `fermata report RUN.json`: a page about a profiled run.
#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "frontend/cli/commands.h"
#include "frontend/tools/io/file.h"
#include "frontend/tools/profile/report_page.h"
#include "ir/error.h"
#include "ir/scope.h"

namespace fermata::cli {
namespace {

using nlohmann::json;

[[noreturn]] void throw_no_trace(const std::string& file, const std::string& why) {
  throw FileError(1603, format_error(1603, "FileError", fmt::format("report: {}: {}", file, why), {}, {},
                                     "fm::save(profile, path) and FERMATA_PROFILE=FILE write such files"));
}

/// Leaves the longest events, every n-th of those without a length, and no flows, which pages do not show. Gives how
/// many it took out.
std::uint64_t shorten(json& events) {
  constexpr std::size_t kMostSlices = 3500, kMostOthers = 1000;
  std::vector<double> lengths;
  std::map<std::string, std::size_t> counts, met;
  for (const json& event : events) {
    const std::string phase = event.value("ph", "");
    ++counts[phase];
    if (phase == "X") lengths.push_back(event.value("dur", 0.0));
  }
  double least = -1;
  if (lengths.size() > kMostSlices) {
    std::ranges::nth_element(lengths, lengths.begin() + kMostSlices, std::greater<>());
    least = lengths[kMostSlices];
  }
  json kept = json::array();
  std::uint64_t left_out = 0;
  for (json& event : events) {
    const std::string phase = event.value("ph", "");
    if (phase == "s" || phase == "f") continue;
    const bool is_kept = phase == "X"   ? event.value("dur", 0.0) > least
                         : phase == "M" ? true
                                        : met[phase]++ % (counts[phase] / kMostOthers + 1) == 0;
    if (is_kept)
      kept.push_back(std::move(event));
    else
      ++left_out;
  }
  events = std::move(kept);
  return left_out;
}

/// So that the text may stand in HTML.
std::string escaped(const json& value) {
  const std::string text = value.dump();
  std::string out;
  for (const char c : text)
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  return out;
}

/// Gives the nodes of a program the lines that its text has for them, with scopes:
/// "%3 = add(%1, %2) : f32[4]  @mlp.cpp:12 in encoder.3".
void read_lines(const std::string& text, Graph& graph) {
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t at = line.find("  @"), in = line.find(" in ", at), colon = line.rfind(':', in);
    std::size_t node = 0;
    unsigned number = 0;
    if (at == line.npos || colon < at || line[0] != '%' || std::sscanf(line.c_str(), "%%%zu", &node) != 1 ||
        std::sscanf(line.c_str() + colon, ":%u", &number) != 1 || node >= graph.nodes.size())
      continue;
    const std::string scope = in == line.npos ? "" : line.substr(in + 4);
    graph.nodes[node].where = location_of(line.substr(at + 3, colon - at - 3), number, scope);
  }
}

ReportContents read_trace(const std::string& file) {
  json trace = json::parse(read_file("report", file, {}), nullptr, false);
  if (!trace.is_object() || !trace.contains("traceEvents") || !trace.contains("fermata"))
    throw_no_trace(file, "not a Fermata trace");
  ReportContents contents{.title = "Fermata report: " + file};
  try {
    for (const json& program : trace["fermata"].value("programs", json::array())) {
      const std::string device = program.at("device");
      const auto key = std::ranges::find(kBackendNames, device);
      if (key == std::end(kBackendNames)) continue;
      try {
        const std::string text = program.at("ir");
        Graph graph = parse_graph(text);
        read_lines(text, graph);
        contents.programs.push_back({program.at("plan"), std::move(graph),
                                     static_cast<BackendKey>(key - std::begin(kBackendNames)),
                                     program.value("calls", false) ? PlanForm::calls : PlanForm::fused});
      } catch (const Error& error) {  // an operator that this process does not have
        fmt::print(stderr, "fermata report: skipping plan {}: {}\n", program.at("plan").get<std::uint64_t>(),
                   error.what());
      }
    }
    std::map<std::uint64_t, double> spent;  // in steps
    for (const json& event : trace["traceEvents"])
      if (event.value("ph", "") == "X" && (event.value("cat", "") == "kernel" || event.value("cat", "") == "call"))
        if (const auto args = event.find("args"); args != event.end() && args->contains("plan"))
          spent[args->at("plan")] += event.value("dur", 0.0);
    std::ranges::stable_sort(contents.programs, std::greater<>(),
                             [&](const ReportProgram& p) { return spent[p.plan]; });
    trace["fermata"].erase("programs");
    contents.left_out = shorten(trace["traceEvents"]);
    contents.trace = escaped(trace);
  } catch (const json::exception& error) { throw_no_trace(file, error.what()); }
  return contents;
}

}  // namespace

void add_report(CLI::App& app) {
  CLI::App* command = app.add_subcommand("report", "Write an HTML report of a profiled run");
  const auto file = std::make_shared<std::string>(), page = std::make_shared<std::string>();
  command->add_option("file", *file, "Trace written by fm::save(profile, path) or FERMATA_PROFILE")->required();
  command->add_option("-o,--output", *page, "Output file; by default the name of the trace with .html");
  command->callback([file, page] {
    std::string path = *page;
    if (path.empty()) path = (file->ends_with(".json") ? file->substr(0, file->size() - 5) : *file) + ".html";
    write_file("report", path, {report_page(read_trace(*file))}, {});
    fmt::print("{}\n", path);
  });
}

}  // namespace fermata::cli
