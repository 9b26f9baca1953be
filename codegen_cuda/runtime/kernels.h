// Kernels: source compiled by NVRTC, cached in memory and on disk, and loaded into the devices that launch them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "codegen_cuda/api/abi.h"

namespace fermata::gpu {

struct Grid {
  unsigned blocks = 1, threads = 1, shared_bytes = 0;
};

/// Machine code of one function, loaded into a device on its first launch there.
class LoadedKernel {
 public:
  LoadedKernel(std::string name, std::string code) : name_(std::move(name)), code_(std::move(code)) {}
  /// Launches it on the thread's stream. `arguments`: the slots of emit/argument_layout.h.
  void launch(const Grid& grid, const void* arguments) const;
  std::size_t code_bytes() const { return code_.size(); }
  const std::string& name() const { return name_; }

 private:
  static constexpr std::size_t kMostDevices = 32;
  Handle function_on_current_device(unsigned shared_bytes) const;

  std::string name_, code_;
  mutable std::mutex mutex_;
  mutable std::array<Handle, kMostDevices> functions_{};
  mutable std::array<unsigned, kMostDevices> shared_{};
};

/// Compilation effort. `unrolled`: the source is already unrolled, so loop unrolling is skipped, which saves a quarter
/// of the time for ten ops without changing the code. `quick`: slower code in less than half the time, to check that a
/// source compiles.
enum class CompileEffort : std::uint8_t { full, unrolled, quick };

/// Returns the kernel of a source, compiled if it is not cached. Line numbers start after the preludes.
/// UnsupportedError FM2102 with the compiler's output if compilation fails.
std::shared_ptr<const LoadedKernel> kernel_of(const std::string& name, const std::string& body,
                                              CompileEffort effort = CompileEffort::full);
/// Compiles a source for an architecture such as "sm_90" with NVRTC. If `ptx` is not null it receives the PTX, in which
/// instructions end in the line of the body, "// @7".
std::string compile_source(const CompilerFunctions& compiler, const std::string& body, const std::string& architecture,
                           std::string* ptx, CompileEffort effort = CompileEffort::full);
/// The machine code of a source, from the disk cache or compiled and stored there.
std::string code_of(const std::string& name, const std::string& body, const std::string& architecture,
                    CompileEffort effort = CompileEffort::full);
/// A function name that is unique per source.
std::string function_name(std::string_view prefix, std::string_view described);
/// The architecture of the current device, as used by NVRTC and the cache keys.
std::string current_architecture();

/// For tests: records every requested kernel source.
struct KernelSource {
  std::string name, body;
};
void keep_sources(bool on);
std::vector<KernelSource> kept_sources();

}  // namespace fermata::gpu
