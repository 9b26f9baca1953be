// One run of the function that is exported, on arguments of some sizes.
#pragma once

#include <span>
#include <vector>

#include "fermata/export.h"
#include "frontend/engine/function_recording.h"

namespace fermata {

class ExportRecording : public FunctionRecording {
 public:
  /// Each result is an output of the program, and one of its own. UnsupportedError FM2221 where the function does what
  /// no program can.
  ExportRecording(std::span<const Tensor> arguments, const detail::ExportBody& body, Location where);

  /// Names of the results, and their numbers among the outputs of the walk.
  struct Result {
    std::string name;
    std::uint32_t output;
  };
  std::vector<Result> results;
  std::uint64_t draws = 0;  // numbers taken from the generator

 private:
  void require_no_effects(Location where) const;
};

/// UnsupportedError FM2221.
[[noreturn]] void throw_not_exported(std::string_view what, Location where, std::string_view hint = {});

}  // namespace fermata
