// See memory_accounts.h.
#include "runtime/memory_accounts.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <limits>
#include <string>

#include "ir/error.h"
#include "runtime/allocator.h"
#include "runtime/environment.h"

namespace fermata {
namespace {

std::size_t physical_memory() {
  const long pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages <= 0 || page <= 0) return std::numeric_limits<std::size_t>::max() / 2;
  return static_cast<std::size_t>(pages) * static_cast<std::size_t>(page);
}

std::string readable(std::size_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(kUnits); ++unit) value /= 1024;
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace

MemoryAccounts::MemoryAccounts()
    : cache_limit(environment_number("FERMATA_CACHE_LIMIT", physical_memory() / 2)),
      memory_limit(environment_number("FERMATA_MEMORY_LIMIT", physical_memory())),
      packed_limit(environment_number("FERMATA_PACKED_LIMIT", physical_memory() / 16)),
      retained_limit(environment_number("FERMATA_RETAINED_LIMIT", memory_limit.load() / 4)) {}

MemoryAccounts& memory_accounts() {
  static MemoryAccounts* const accounts = new MemoryAccounts;  // never destroyed: static tensors outlive it otherwise
  return *accounts;
}

void throw_out_of_memory(std::size_t bytes) {
  const MemoryStats stats = memory_stats();
  const std::size_t limit = memory_accounts().memory_limit.load(std::memory_order_relaxed);
  throw OutOfMemoryError(
      3001, format_error(3001, "OutOfMemoryError", fmt::format("cannot allocate {} ({} bytes)", readable(bytes), bytes),
                         {{"live", readable(stats.live_bytes), ""},
                          {"cached", readable(stats.cached_bytes), ""},
                          {"limit", readable(limit), "FERMATA_MEMORY_LIMIT"}},
                         std::source_location{}));
}

void MemoryAccounts::charge(std::size_t bytes) {
  const std::size_t limit = memory_limit.load(std::memory_order_relaxed);
  for (const bool last : {false, true}) {
    const std::size_t before = reserved.fetch_add(bytes, std::memory_order_relaxed);
    if (bytes <= limit && before <= limit - bytes) return note_peak();
    discharge(bytes);
    if (last) throw_out_of_memory(bytes);
    trim_cache();
  }
}

bool MemoryAccounts::set_idle(std::size_t bytes) {
  const std::size_t limit = cache_limit.load(std::memory_order_relaxed);
  if (bytes <= limit && idle.fetch_add(bytes, std::memory_order_relaxed) <= limit - bytes) return true;
  if (bytes <= limit) idle.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

void MemoryAccounts::set_busy(std::size_t bytes) {
  idle.fetch_sub(bytes, std::memory_order_relaxed);
  note_peak();
}

void MemoryAccounts::note_peak() {
  const std::size_t taken = reserved.load(std::memory_order_relaxed), lying = idle.load(std::memory_order_relaxed);
  const std::size_t now = taken > lying ? taken - lying : 0;  // the two are read at different moments
  std::size_t before = peak.load(std::memory_order_relaxed);
  while (before < now && !peak.compare_exchange_weak(before, now, std::memory_order_relaxed)) {}
}

/// Behind each mapping there is memory that may be read: some libraries load whole vectors at the end of a matrix.
constexpr std::size_t kReadable = 64 << 10;  // whole pages of any size

void* map_huge_pages(std::size_t bytes) {
  // One huge page more than is kept, so that an aligned part can be kept.
  const std::size_t kept = bytes + kReadable, span = kept + kHugePage;
  void* const start = mmap(nullptr, span, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) return nullptr;
  auto* const first = static_cast<std::byte*>(start);
  const std::size_t skip = (kHugePage - reinterpret_cast<std::uintptr_t>(first) % kHugePage) % kHugePage;
  if (skip != 0) munmap(first, skip);
  munmap(first + skip + kept, kHugePage - skip);
  madvise(first + skip, kept, MADV_HUGEPAGE);  // advice: where it is refused, small pages do
  return first + skip;
}

void unmap_huge_pages(void* data, std::size_t bytes) { munmap(data, bytes + kReadable); }

}  // namespace fermata
