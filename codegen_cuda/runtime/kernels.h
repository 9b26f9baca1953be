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

/// A cubin, or PTX, which the driver translates. Loaded into a device when that first needs it.
class LoadedImage {
 public:
  static constexpr std::size_t kMostDevices = 32;
  explicit LoadedImage(std::string code) : code_(std::move(code)) {}
  /// A function of it on the current device.
  Handle function(const std::string& name) const;
  std::size_t bytes() const { return code_.size(); }

 private:
  std::string code_;
  mutable std::mutex mutex_;
  mutable std::array<Handle, kMostDevices> modules_{};
};

/// A function of an image.
class LoadedKernel {
 public:
  LoadedKernel(std::string name, std::shared_ptr<const LoadedImage> image)
      : name_(std::move(name)), image_(std::move(image)) {}
  /// Launches it on the thread's stream. `arguments`: the slots of emit/argument_layout.h.
  void launch(const Grid& grid, const void* arguments) const;
  std::size_t code_bytes() const { return image_->bytes(); }
  const std::string& name() const { return name_; }

 private:
  Handle function_on_current_device(unsigned shared_bytes) const;

  std::string name_;
  std::shared_ptr<const LoadedImage> image_;
  mutable std::mutex mutex_;
  mutable std::array<Handle, LoadedImage::kMostDevices> functions_{};
  mutable std::array<unsigned, LoadedImage::kMostDevices> shared_{};
};

/// Compilation effort. `unrolled`: the source is already unrolled, so loop unrolling is skipped, which saves a quarter
/// of the time for ten ops without changing the code. `quick`: slower code in less than half the time, to check that a
/// source compiles.
enum class CompileEffort : std::uint8_t { full, unrolled, quick };

/// Where a process that compiles nothing has code from: the image that has a function, or null. Before the first device
/// is used.
using ImageSource = std::shared_ptr<const LoadedImage> (*)(const std::string& function);
void set_image_source(ImageSource source);
bool has_image_source();

/// The kernel of a source, which begins at its first line after the preludes. Compiled if it is not known.
/// UnsupportedError FM2102 with the compiler's words where that fails.
std::shared_ptr<const LoadedKernel> kernel_of(const std::string& name, const std::string& body,
                                              CompileEffort effort = CompileEffort::full);
/// An image of several kernels for an architecture such as "sm_90", or PTX for one such as "compute_90". Empty where
/// the compiler does not know the architecture.
std::string compile_together(const CompilerFunctions& compiler, const std::string& bodies,
                             const std::string& architecture, CompileEffort effort);
/// What NVRTC makes of a source for an architecture such as "sm_90"; `ptx` may be null. Its instructions end in the
/// line of the body that they come from, "// @7".
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
