// Recordings of the function that is exported, each with other sizes where they are dynamic: from what differs between
// them follows what a program has to compute of the sizes that it is given.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frontend/export/recording.h"
#include "frontend/export/size_search.h"
#include "frontend/run/program_file.h"

namespace fermata {

/// What the caller gives.
struct ExportCall {
  const ExportPath& to;
  const ExportOptions& options;
  const std::vector<detail::NamedTensor>& arguments;  // dense, on the CPU
  const detail::ExportBody& body;
};

class ExportSamples {
 public:
  /// Records the function: once, or several times where sizes are dynamic. ValueError FM2220, UnsupportedError FM2222.
  explicit ExportSamples(const ExportCall& call);

  /// What the plan is made of.
  const ExportRecording& first() const { return *recordings_[0]; }
  const std::vector<ProgramSymbol>& symbols() const { return symbols_; }
  std::vector<ProgramInput> inputs() const;
  /// The records of the program. UnsupportedError FM2223.
  std::vector<ProgramRecord> records() const;
  /// Where random numbers come from, by the numbers of a plan.
  std::vector<ProgramDraw> draws(const Plan& plan) const;
  std::uint64_t draw_count() const;

 private:
  void read_axes();
  std::int64_t size_of_sample(std::size_t sample, std::size_t symbol) const;
  std::vector<Tensor> resized(std::size_t sample) const;
  void require_same_structure() const;
  void require_same_constants(std::size_t node) const;
  ProgramRecord record(std::size_t node) const;
  const ProgramNode& node(std::size_t sample, std::size_t node) const {
    return recordings_[sample]->program.nodes[node];
  }
  SizeSearch search_for(std::size_t node) const;
  SizeExpression expression(std::size_t node, const std::vector<std::int64_t>& values, std::string_view what) const;

  const ExportCall& call_;
  std::vector<ProgramSymbol> symbols_;
  std::vector<std::vector<std::int32_t>> axes_;   // by argument and axis: the symbol, or -1
  std::vector<std::vector<std::int64_t>> sizes_;  // of the symbols, by sample
  std::vector<std::unique_ptr<const ExportRecording>> recordings_;
};

}  // namespace fermata
