// See deferred_check.h. Slots are a ring on each device; a recording that is replayed keeps the slots that it was made
// with.
#include "codegen_cuda/runtime/deferred_check.h"

#include <array>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

#include "codegen_cuda/runtime/device.h"

namespace fermata::gpu {
namespace {

constexpr std::size_t kSlots = 4096;

struct Slots {
  std::mutex mutex;
  Block* block = nullptr;
  std::size_t next = 0;
  bool dirty = false;  // something was checked since the slots were read
  std::array<std::function<void(const Found&)>, kSlots> raise;

  void clear(Stream& stream) {
    check(driver().fill_bytes(block->address, 0xff, kSlots * sizeof(std::uint64_t), stream.handle), "cuMemsetD8Async");
  }
};

Slots& slots_of(int device) {
  static std::mutex mutex;
  static auto* const all = new std::map<int, Slots>;
  const std::lock_guard lock(mutex);
  return (*all)[device];
}

}  // namespace

Address deferred_check(std::function<void(const Found&)> raise) {
  Device& here = current_device();
  Slots& slots = slots_of(here.number());
  const std::lock_guard lock(slots.mutex);
  if (slots.block == nullptr) {
    slots.block = here.allocator().allocate(kSlots * sizeof(std::uint64_t), here.shared_stream());
    slots.block->recording = nullptr;
    slots.clear(here.shared_stream());
    check(driver().stream_synchronize(here.shared_stream().handle), "cuStreamSynchronize");
  }
  const std::size_t mine = slots.next++ % kSlots;
  slots.raise[mine] = std::move(raise), slots.dirty = true;
  return slots.block->address + mine * sizeof(std::uint64_t);
}

void throw_failed_checks() {
  Device& here = current_device();
  Slots& slots = slots_of(here.number());
  std::unique_lock lock(slots.mutex);
  if (!slots.dirty) return;
  Stream& stream = current_stream();
  std::vector<std::uint64_t> values(kSlots);
  check(driver().copy_to_host(values.data(), slots.block->address, kSlots * sizeof(std::uint64_t), stream.handle),
        "cuMemcpyDtoHAsync");
  check(driver().stream_synchronize(stream.handle), "cuStreamSynchronize");
  for (std::size_t i = 0; i < kSlots; ++i) {
    const std::size_t at = (slots.next + i) % kSlots;  // the oldest first
    if (values[at] == ~std::uint64_t{0} || !slots.raise[at]) continue;
    slots.clear(stream);
    const auto raise = slots.raise[at];
    lock.unlock();
    raise({static_cast<std::uint32_t>(values[at] >> 32),
           static_cast<std::int32_t>(static_cast<std::uint32_t>(values[at]))});
    return;
  }
  slots.dirty = false;
}

std::uint64_t checks_made() {
  Slots& slots = slots_of(current_device().number());
  const std::lock_guard lock(slots.mutex);
  return slots.next;
}

void expect_checks() {
  Slots& slots = slots_of(current_device().number());
  const std::lock_guard lock(slots.mutex);
  slots.dirty = true;
}

}  // namespace fermata::gpu
