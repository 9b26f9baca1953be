// Runs that launch nothing: plans are run as on a device, without one, to learn which kernels they need. Exported
// programs ship those.
//
// While a thread has a dry run, the driver's functions do nothing there, buffers are addresses without memory, and a
// kernel that is wanted is noted instead of compiled. What is read back is zero, but for a few single bytes, which are
// 1 and 0 in turn: loops go round, and end.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "codegen_cuda/runtime/device.h"
#include "codegen_cuda/runtime/kernels.h"

namespace fermata::gpu {

/// The devices that a dry run may stand in for. Some kernels are chosen by how many multiprocessors there are, or by
/// what else is faster: all of them are chosen on one of these.
enum class DryDevice : int { small, large };

class DryRun {
 public:
  struct Wanted {
    std::string body;
    CompileEffort effort;
  };
  using Sources = std::map<std::string, Wanted>;  // by function

  /// Adds to `sources` until it ends. `both_widths`: kernels with 64-bit indexing, too, whatever the sizes.
  DryRun(DryDevice device, bool both_widths, Sources& sources);
  ~DryRun();
  DryRun(const DryRun&) = delete;
  DryRun& operator=(const DryRun&) = delete;
  /// That of the thread; null outside of one.
  static DryRun* current();

  std::shared_ptr<const LoadedKernel> kernel(const std::string& name, const std::string& body, CompileEffort effort);
  bool wants_both_widths() const { return both_widths_; }
  /// Whether products that can run as one kernel do.
  bool chains_products() const { return device_ == DryDevice::large; }
  /// Whether an executable launches with a width for the first time.
  bool is_first(const void* executable, bool wide) { return seen_.emplace(executable, wide).second; }

 private:
  const DryDevice device_;
  const bool both_widths_;
  Sources& sources_;
  std::set<std::pair<const void*, bool>> seen_;
  std::map<std::string, std::shared_ptr<const LoadedKernel>> kernels_;
  const ThreadChoice before_;
};

const DriverFunctions& dry_driver();

}  // namespace fermata::gpu
