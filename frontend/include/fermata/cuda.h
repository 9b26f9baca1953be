// CUDA: the device, and what a program may choose of it: which of several, which stream, how much memory.
//
//   x = x.to(fm::cuda());        the same code then runs there; fm::cuda(1) is the second device
//
// Nothing of CUDA is loaded before a tensor is moved or made there; a program runs as well where there is no driver, as
// long as it does not ask. docs/cuda.md says how to build, check and debug.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "fermata/device.h"

namespace fermata {

/// One of several CUDA devices, to move tensors to or make them on. DeviceError FM1405 where it is used, if CUDA cannot
/// be used on this machine; FM1406 if there are fewer devices.
constexpr Device cuda(int index) { return {BackendKey::cuda, index}; }
/// The one that this thread has chosen, by default the first.
Device cuda();
/// Whether tensors can be moved there. Looks for the libraries, so the first call takes a while where there are any.
bool cuda_available();
/// How many CUDA devices there are; 0 where CUDA cannot be used.
int cuda_device_count();
/// The name of one of them. DeviceError FM1405, or FM1406 where there are fewer.
std::string cuda_device_name(int number, Location where = Location::current());

/// Chooses, for this thread and scope, one of several CUDA devices. Tensors made meanwhile lie there; they are used
/// while it is chosen (FM1407).
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

/// A queue of work of its own on the device that is chosen. Threads share one queue unless they choose another.
class CudaStream {
 public:
  explicit CudaStream(Location where = Location::current());
  ~CudaStream();
  CudaStream(CudaStream&&) noexcept;
  CudaStream& operator=(CudaStream&&) noexcept;
  /// Waits for all that was enqueued; throws what went wrong there.
  void synchronize() const;

 private:
  friend class CudaStreamGuard;
  void* queue_;
};

/// Chooses, for this thread and scope, the stream that work is enqueued on. A tensor may be used on any: the stream
/// waits for the one that used it last.
class CudaStreamGuard {
 public:
  explicit CudaStreamGuard(const CudaStream& stream);
  ~CudaStreamGuard();
  CudaStreamGuard(const CudaStreamGuard&) = delete;
  CudaStreamGuard& operator=(const CudaStreamGuard&) = delete;

 private:
  void* before_;
};

/// Waits for all that this thread's stream has been given; throws what went wrong there.
void cuda_synchronize(Location where = Location::current());

struct CudaMemory {
  std::size_t live_bytes = 0;    // of tensors and temporaries
  std::size_t cached_bytes = 0;  // kept for reuse
  std::size_t limit_bytes = 0;   // on both together; FERMATA_CUDA_MEMORY_LIMIT
};
/// Of the device that is chosen.
CudaMemory cuda_memory(Location where = Location::current());
/// Replaces the limit and returns the one before. OutOfMemoryError FM3002 is thrown by what does not fit.
std::size_t set_cuda_memory_limit(std::size_t bytes, Location where = Location::current());
/// Gives what is kept for reuse back to the driver; the number of bytes.
std::size_t trim_cuda_cache(Location where = Location::current());
/// Whether products of f32 may round their factors to TF32: much faster, about three digits. Off, unless
/// FERMATA_CUDA_TF32 is set. Returns what was chosen before.
bool set_cuda_tf32(bool on, Location where = Location::current());

}  // namespace fermata
