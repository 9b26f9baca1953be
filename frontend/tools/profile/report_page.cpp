// See report_page.h.
#include "frontend/tools/profile/report_page.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <map>
#include <set>

#include "dispatch/registration.h"
#include "frontend/tools/profile/json_text.h"
#include "frontend/tools/profile/report_template.h"
#include "ir/error.h"
#include "ir/scope.h"
#include "passes/plan_listing.h"

namespace fermata {
namespace {

/// What keeps a page below two megabytes.
constexpr std::size_t kMostPrograms = 24, kMostNodes = 5000, kMostKernelCodes = 24, kMostCodeBytes = 24'000,
                      kMostCodeOfAll = 350'000, kMostTextOfAll = 500'000;

class Page {
 public:
  explicit Page(const ReportContents& contents) : contents_(contents) {}

  std::string data() {
    json_.begin_object().member("title", contents_.title);
    if (contents_.left_out != 0) json_.member("trimmed", contents_.left_out);
    if (!contents_.modes.empty()) json_.member("modes", contents_.modes);
    json_.key("plans").begin_array();
    std::size_t nodes = 0, programs = 0;
    for (const ReportProgram& program : contents_.programs) {
      nodes += program.graph.nodes.size();
      if (++programs > kMostPrograms || (nodes > kMostNodes && programs > 1)) break;
      add(program);
    }
    json_.end_array();
    add_choices();
    add_sources();
    add_dispatch();
    json_.end_object();
    std::string text = json_.take();
    if (!contents_.trace.empty()) text.insert(text.size() - 1, ",\n\"trace\":" + contents_.trace);
    return text;
  }

 private:
  void add(const ReportProgram& program) {
    const PlanListing listing = list_plan(program.graph, program.backend, program.form, codes_left_);
    codes_left_ -= std::min(codes_left_, listing.kernels.size());
    const std::string_view device = kBackendNames[static_cast<std::size_t>(program.backend)];
    json_.new_line().begin_object().member("plan", program.plan).member("device", device);
    json_.member("recorded", limited(listing.recorded));
    json_.key("stages").begin_array();
    for (const PlanListing::Stage& stage : listing.stages)
      json_.new_line()
          .begin_object()
          .member("pass", stage.pass)
          .member("us", stage.us)
          .member("text", limited(stage.text))
          .end_object();
    json_.end_array().key("nodes").begin_array();
    for (const PlanListing::Node& node : listing.nodes) add(node);
    json_.end_array();
    list("steps", listing.steps), list("notes", listing.notes);
    json_.key("kernels").begin_array();
    for (const PlanListing::CompiledKernel& kernel : listing.kernels) add(kernel);
    json_.end_array().end_object();
  }

  void add(const PlanListing::Node& node) {
    ops_.insert(node.op);
    if (!node.line.empty()) lines_.emplace(node.line, node.where);
    json_.new_line().begin_object().member("id", node.id).member("op", node.op).member("type", node.type);
    json_.member("line", node.line).member("text", node.text).member("group", node.group);
    if (const std::string_view scope = scope_of(node.where); !scope.empty()) json_.member("scope", scope);
    if (const std::string_view callers = callers_of(node.where); !callers.empty()) json_.member("callers", callers);
    const Choice choice{node.form, node.winner, node.candidates};  // the same of many nodes
    json_.member("choice", choices_.try_emplace(choice, choices_.size()).first->second).key("operands").begin_array();
    for (const ValueId v : node.operands) json_.value(v);
    json_.end_array().end_object();
  }

  void add(const PlanListing::CompiledKernel& kernel) {
    json_.new_line().begin_object().member("name", kernel.name).member("description", code(kernel.code.kernel));
    add_marked("llvm", kernel.code.llvm, "  ; @"), add_marked("assembly", kernel.code.assembly, "\t# @");
    json_.member("source", code(kernel.code.source));
    add_marked("ptx", kernel.code.ptx, "  // @");
    json_.member("sass", code(kernel.code.sass)).end_object();
  }

  /// A text of code, and in another member the lines that its lines come from: [12, 3, 0, 1] are three lines of line 12
  /// and one of none.
  void add_marked(std::string_view name, const std::string& text, std::string_view mark) {
    std::string plain;
    std::vector<std::pair<unsigned, unsigned>> runs;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find('\n', at), text.size());
      std::string_view line(text.data() + at, end - at);
      unsigned from = 0;
      if (const std::size_t found = line.rfind(mark); found != line.npos) {
        std::from_chars(line.data() + found + mark.size(), line.data() + line.size(), from);
        line = line.substr(0, found);
      }
      (plain += line) += '\n';
      if (runs.empty() || runs.back().first != from) runs.push_back({from, 0});
      ++runs.back().second;
      at = end + 1;
    }
    json_.member(name, code(plain)).key(std::string(name) + "_lines").begin_array();
    for (const auto& [from, count] : runs) json_.value(from).value(count);
    json_.end_array();
  }

  /// The beginning of a text, where there is still room for it.
  std::string code(const std::string& text) {
    const std::size_t room = std::min(kMostCodeBytes, kMostCodeOfAll - std::min(kMostCodeOfAll, code_bytes_));
    code_bytes_ += std::min(room, text.size());
    if (text.size() <= room) return text;
    return text.substr(0, text.rfind('\n', room) + 1) + "... FERMATA_DUMP=llvm,asm prints all of it";
  }
  std::string limited(const std::string& text) {
    const std::size_t room = kMostTextOfAll - std::min(kMostTextOfAll, text_bytes_);
    text_bytes_ += std::min(room, text.size());
    if (text.size() <= room) return text;
    return text.substr(0, text.rfind('\n', room) + 1) + "... left out";
  }

  void list(std::string_view name, const std::vector<std::string>& texts) {
    json_.new_line().key(name).begin_array();
    for (const std::string& text : texts) json_.value(text);
    json_.end_array();
  }

  void add_choices() {
    std::vector<const Choice*> in_order(choices_.size());
    for (const auto& [choice, number] : choices_) in_order[number] = &choice;
    json_.new_line().key("choices").begin_array();
    for (const Choice* choice : in_order) {
      json_.begin_array();
      for (const std::string& text : *choice) json_.value(text);
      json_.end_array();
    }
    json_.end_array();
  }

  /// The text of the lines that calls were made in, where the files are still there.
  void add_sources() {
    std::map<std::string, std::set<std::pair<std::uint32_t, std::string>>> wanted;
    for (const auto& [line, where] : lines_) wanted[where.file_name()].insert({where.line(), line});
    json_.new_line().key("sources").begin_object();
    for (const auto& [file, lines] : wanted) {
      std::ifstream in(file);
      std::string text;
      std::uint32_t number = 0;
      for (const auto& [line, name] : lines) {
        while (number < line && std::getline(in, text)) ++number;
        if (number == line) json_.member(name, text.substr(0, 200));
      }
    }
    json_.end_object();
  }

  void add_dispatch() {
    json_.new_line().key("dispatch").begin_array();
    for (const std::string& op : ops_)
      if (op != "input") json_.new_line().begin_object().member("op", op).member("text", describe_row(op)).end_object();
    json_.end_array();
  }

  using Choice = std::array<std::string, 3>;  // form, winner, candidates of a node

  const ReportContents& contents_;
  JsonText json_;
  std::map<Choice, std::size_t> choices_;
  std::set<std::string> ops_;
  std::map<std::string, std::source_location> lines_;
  std::size_t codes_left_ = kMostKernelCodes, code_bytes_ = 0, text_bytes_ = 0;
};

void replace(std::string& page, std::string_view what, std::string_view with) {
  const std::size_t at = page.find(what);
  if (at == page.npos) throw_internal("the template of reports has no place for a part of them");
  page.replace(at, what.size(), with);
}

}  // namespace

std::string report_page(const ReportContents& contents) {
  std::string page(report_template());
  replace(page, "/*@FERMATA_REPORT_LAYOUT@*/", report_layout_library());
  replace(page, "@FERMATA_REPORT_DATA@", Page(contents).data());
  return page;
}

}  // namespace fermata
