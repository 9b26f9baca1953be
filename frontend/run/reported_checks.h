// Positions in exported programs. Compiled code only says that one is out of range, and nothing here could look for it:
// the error names the calls that it may be of.
#pragma once

#include <utility>
#include <vector>

#include "runtime/steps/kernel_step.h"

namespace fermata {

class ReportedChecks final : public PositionChecks {
 public:
  explicit ReportedChecks(std::vector<Node> nodes) : PositionChecks(std::move(nodes)) {}
  void check_empty(const KernelLaunch&) const override {}
  /// IndexError FM1204.
  [[noreturn]] void throw_error(const KernelLaunch& launch, std::span<const BoundNode> bound) const override;
  std::optional<std::int64_t> reach(std::uint16_t, const KernelLaunch&) const override { return std::nullopt; }
};

}  // namespace fermata
