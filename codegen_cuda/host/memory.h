// The memory of the emulated device: an inaccessible address range, its backing bytes, and shadow state per byte
// (allocated, written).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>

#include "codegen_cuda/api/abi.h"

namespace fermata::gpu {

class HostMemory {
 public:
  static constexpr std::uint64_t kWindow = std::uint64_t{1} << 36;
  static HostMemory& instance();

  /// Returns 0 if the limit is reached.
  Address allocate(std::size_t bytes);
  bool release(Address address);
  std::size_t limit() const { return limit_; }
  std::size_t live() const { return live_; }

  std::uint64_t base() const { return base_; }
  unsigned char* backing() const { return backing_; }
  unsigned char* shadow() const { return shadow_; }
  /// The backing bytes, or null if not all of them are allocated.
  unsigned char* at(Address address, std::size_t bytes) const;
  void mark_written(Address address, std::size_t bytes);
  bool is_written(Address address, std::size_t bytes) const;
  /// Describes the allocation that contains or precedes an address.
  std::string describe(Address address) const;

 private:
  HostMemory();
  std::uint64_t base_;
  unsigned char *backing_, *shadow_;
  std::size_t limit_ = std::size_t{4} << 30, live_ = 0;
  std::map<std::uint64_t, std::size_t> taken_;  // offset, bytes
};

}  // namespace fermata::gpu
