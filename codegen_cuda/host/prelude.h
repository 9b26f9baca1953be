// The kernel language on the host: what stands in for the device prelude, and what kernels share with the executor.
#pragma once

#include <cstdint>
#include <string_view>

namespace fermata::gpu {

std::string_view host_prelude();

/// What a running kernel and the executor tell each other; the prelude declares the same struct.
struct HostContext {
  unsigned thread[3], block[3], block_size[3], grid[3];
  unsigned char* backing;    // of the window of device addresses
  unsigned char* shadow;     // per byte of it: 0 not allocated, 1 allocated, 3 written
  std::uint64_t base, size;  // of the window
  unsigned char* shared;
  unsigned char* shared_shadow;
  std::uint64_t shared_size;
  int logging;
  void (*log)(std::uint64_t offset, unsigned bytes);
  void (*bad)(std::uint64_t address, unsigned bytes, int kind);
  void (*barrier)();
  const std::uint64_t* (*exchange)(std::uint64_t value);
};
/// Kinds of bad accesses.
enum BadAccess : int { kReadOutside, kReadUnwritten, kWriteOutside, kMisaligned, kSharedOutside, kSharedUnwritten };

}  // namespace fermata::gpu
