// CUDA devices: selection of device and stream, memory limits, and TF32.
//
//   x = x.to(fm::cuda());        the same code then runs on the GPU; fm::cuda(1) is the second device
//
// CUDA libraries are loaded when a tensor is first moved to or created on a device, so a program that does not use CUDA
// runs without a driver. docs/cuda.md explains how to build, check and debug.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "fermata/device.h"

namespace fermata {

/// A CUDA device by its index. Using it throws DeviceError FM1405 if CUDA is not available on this machine, and FM1406
/// if there is no such device.
constexpr Device cuda(int index) { return {BackendKey::cuda, index}; }
/// The current device of this thread, by default the first.
Device cuda();
/// Returns whether CUDA can be used. The first call loads the libraries, which takes a while.
bool cuda_available();
/// Returns the number of CUDA devices; 0 if CUDA is not available.
int cuda_device_count();
/// Returns the name of a device. DeviceError FM1405 if CUDA is not available, FM1406 if there is no such device.
std::string cuda_device_name(int number, Location where = Location::current());

/// Selects the current CUDA device of this thread for a scope. New tensors are allocated on it; tensors can only be
/// used while their device is current (FM1407).
class CudaDeviceGuard {
 public:
  explicit CudaDeviceGuard(int number, Location where = Location::current());
  ~CudaDeviceGuard();
  CudaDeviceGuard(const CudaDeviceGuard&) = delete;
  CudaDeviceGuard& operator=(const CudaDeviceGuard&) = delete;

 private:
  int before_;
  void* queue_before_;  // of that device
};

/// A CUDA stream on the current device. Threads share one stream by default.
class CudaStream {
 public:
  explicit CudaStream(Location where = Location::current());
  ~CudaStream();
  CudaStream(CudaStream&&) noexcept;
  CudaStream& operator=(CudaStream&&) noexcept;
  /// Waits for all enqueued work; throws its errors.
  void synchronize() const;

 private:
  friend class CudaStreamGuard;
  void* queue_;
};

/// Selects this thread's stream for a scope. A tensor may be used on any stream: a stream waits for the one that last
/// used the tensor.
class CudaStreamGuard {
 public:
  explicit CudaStreamGuard(const CudaStream& stream);
  ~CudaStreamGuard();
  CudaStreamGuard(const CudaStreamGuard&) = delete;
  CudaStreamGuard& operator=(const CudaStreamGuard&) = delete;

 private:
  void* before_;
};

/// Waits for all work on this thread's stream; throws its errors.
void cuda_synchronize(Location where = Location::current());

struct CudaMemory {
  std::size_t live_bytes = 0;    // of tensors and temporaries
  std::size_t cached_bytes = 0;  // kept for reuse
  std::size_t limit_bytes = 0;   // of live plus cached bytes; FERMATA_CUDA_MEMORY_LIMIT
};
/// Memory of the current device.
CudaMemory cuda_memory(Location where = Location::current());
/// Sets the limit and returns the previous one. Allocations beyond it throw OutOfMemoryError FM3002.
std::size_t set_cuda_memory_limit(std::size_t bytes, Location where = Location::current());
/// Returns cached memory to the driver; returns the number of bytes freed.
std::size_t trim_cuda_cache(Location where = Location::current());
/// Allows f32 matrix products to round operands to TF32: much faster, about three digits. Off by default unless
/// FERMATA_CUDA_TF32 is set. Returns the previous setting.
bool set_cuda_tf32(bool on, Location where = Location::current());

}  // namespace fermata
