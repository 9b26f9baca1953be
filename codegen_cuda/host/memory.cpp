// See memory.h.
#include "codegen_cuda/host/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <cstring>
#include <iterator>
#include <new>

namespace fermata::gpu {
namespace {

constexpr std::size_t kAlignment = 256, kGap = 256;  // what lies between two allocations catches small steps outside

void* reserve(std::size_t bytes, int protection) {
  void* const memory = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  return memory;
}

}  // namespace

HostMemory& HostMemory::instance() {
  static HostMemory* const memory = new HostMemory;
  return *memory;
}

HostMemory::HostMemory()
    : base_(reinterpret_cast<std::uint64_t>(reserve(kWindow, PROT_NONE))),
      backing_(static_cast<unsigned char*>(reserve(kWindow, PROT_READ | PROT_WRITE))),
      shadow_(static_cast<unsigned char*>(reserve(kWindow, PROT_READ | PROT_WRITE))) {}

Address HostMemory::allocate(std::size_t bytes) {
  if (bytes > limit_ || live_ + bytes > limit_) return 0;
  const std::size_t whole = (bytes + kAlignment - 1) / kAlignment * kAlignment + kGap;
  std::uint64_t at = kAlignment;
  for (const auto& [offset, size] : taken_) {
    if (offset - at >= whole) break;
    at = offset + (size + kAlignment - 1) / kAlignment * kAlignment + kGap;
  }
  if (at + whole > kWindow) return 0;
  taken_[at] = bytes, live_ += bytes;
  std::memset(shadow_ + at, 1, bytes);
  return base_ + at;
}

bool HostMemory::release(Address address) {
  const auto block = taken_.find(address - base_);
  if (block == taken_.end()) return false;
  std::memset(shadow_ + block->first, 0, block->second);
  // A released page costs nothing, and holds no numbers that somebody could read by mistake.
  if (block->second >= (std::size_t{1} << 20)) {
    const std::uint64_t begin = (block->first + 4095) / 4096 * 4096, end = (block->first + block->second) / 4096 * 4096;
    madvise(backing_ + begin, end - begin, MADV_DONTNEED), madvise(shadow_ + begin, end - begin, MADV_DONTNEED);
  }
  live_ -= block->second;
  taken_.erase(block);
  return true;
}

unsigned char* HostMemory::at(Address address, std::size_t bytes) const {
  const std::uint64_t offset = address - base_;
  if (offset >= kWindow || bytes > kWindow - offset) return nullptr;
  const auto after = taken_.upper_bound(offset);
  if (after == taken_.begin()) return nullptr;
  const auto& [start, size] = *std::prev(after);
  return offset + bytes <= start + size ? backing_ + offset : nullptr;
}

void HostMemory::mark_written(Address address, std::size_t bytes) {
  std::memset(shadow_ + (address - base_), 3, bytes);
}

bool HostMemory::is_written(Address address, std::size_t bytes) const {
  const unsigned char* const marks = shadow_ + (address - base_);
  for (std::size_t i = 0; i < bytes; ++i)
    if (marks[i] != 3) return false;
  return true;
}

std::string HostMemory::describe(Address address) const {
  const std::uint64_t offset = address - base_;
  if (offset >= kWindow) return "not an address of this device";
  const auto after = taken_.upper_bound(offset);
  if (after == taken_.begin()) return "before the first buffer";
  const auto& [start, size] = *std::prev(after);
  if (offset < start + size) return fmt::format("byte {} of a buffer of {}", offset - start, size);
  return fmt::format("{} bytes past the end of a buffer of {}", offset - start - size, size);
}

}  // namespace fermata::gpu
