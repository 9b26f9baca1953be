// Recordings of the function that is exported, each with other sizes where they are dynamic: from what differs between
// them follows what a program has to compute of the sizes that it is given.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frontend/engine/captured_function.h"
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

/// The function of a call of control flow, in every recording.
using SampledFunction = std::vector<const CapturedFunction*>;

class ExportSamples {
 public:
  /// Records the function: once, or several times where sizes are dynamic. ValueError FM2220, UnsupportedError FM2222.
  explicit ExportSamples(const ExportCall& call);

  /// What the plan is made of.
  const ExportRecording& first() const { return *recordings_[0]; }
  const std::vector<ProgramSymbol>& symbols() const { return symbols_; }
  std::vector<ProgramInput> inputs() const;
  /// Those of the symbols, in every recording.
  const std::vector<std::vector<std::int64_t>>& sizes() const { return sizes_; }
  /// Adds the records of the program and its functions, whose plans are still to be made; gives what those are made
  /// of, by number. UnsupportedError FM2222, FM2223.
  std::vector<SampledFunction> add_records(ProgramFile& file) const;
  /// Where random numbers of the program or of a function come from, by the numbers of its plan.
  std::vector<ProgramDraw> draws(const Plan& plan) const;
  std::vector<ProgramDraw> draws(const Plan& plan, const SampledFunction& function) const;
  std::uint64_t draw_count() const;

 private:
  void read_axes();
  std::int64_t size_of_sample(std::size_t sample, std::size_t symbol) const;
  std::vector<Tensor> resized(std::size_t sample) const;
  void require_same_structure() const;
  /// One program in every recording.
  using Samples = std::vector<const Program*>;
  Samples samples() const;
  [[noreturn]] void throw_other_calls(const Program& program, const Program& other) const;
  std::vector<ProgramRecord> records(const Samples& samples, ProgramFile& file,
                                     std::vector<SampledFunction>& functions) const;
  void require_same_constants(const Samples& samples, std::size_t node) const;
  ProgramRecord record(const Samples& samples, std::size_t node) const;
  /// Numbers of the functions of a node, which are added.
  std::vector<std::uint32_t> add_functions(const Samples& samples, std::size_t node, ProgramFile& file,
                                           std::vector<SampledFunction>& functions) const;
  SizeSearch search_for_symbols() const;
  SizeSearch search_for(const Samples& samples, std::size_t node) const;
  SizeExpression expression(const Samples& samples, std::size_t node, const std::vector<std::int64_t>& values,
                            std::string_view what) const;
  std::vector<ProgramDraw> draws(const Plan& plan, const Samples& samples) const;

  const ExportCall& call_;
  std::vector<ProgramSymbol> symbols_;
  std::vector<std::vector<std::int32_t>> axes_;   // by argument and axis: the symbol, or -1
  std::vector<std::vector<std::int64_t>> sizes_;  // of the symbols, by sample
  std::vector<std::unique_ptr<const ExportRecording>> recordings_;
};

}  // namespace fermata
