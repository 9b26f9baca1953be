// See allocator.h.
#include "codegen_cuda/runtime/allocator.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <new>
#include <utility>

#include "codegen_cuda/runtime/device.h"
#include "ir/error.h"

namespace fermata::gpu {
namespace {

constexpr std::size_t kSmall = std::size_t{1} << 20, kGranule = 512, kLargeGranule = std::size_t{2} << 20;

std::string mebibytes(std::size_t bytes) { return fmt::format("{:.1f} MiB", static_cast<double>(bytes) / 0x1p20); }

}  // namespace

Allocator::Allocator(Device& device, std::size_t limit)
    : device_(device), limit_(limit), caching_(!on_host_executor()) {}

std::size_t Allocator::rounded(std::size_t bytes) const {
  if (!caching_) return std::max<std::size_t>(bytes, 1);
  const std::size_t granule = bytes <= kSmall ? kGranule : kLargeGranule;
  return std::max((bytes + granule - 1) / granule * granule, kGranule);
}

Block* Allocator::take_kept(std::size_t bytes, Stream& stream) {
  auto& mine = kept_[&stream];
  const auto found = mine.lower_bound(bytes);
  // A large block is not broken for a small one, nor wasted on it.
  if (found == mine.end() || found->first > bytes + std::max(bytes / 4, kGranule)) return nullptr;
  Block* const block = found->second;
  mine.erase(found);
  cached_ -= block->bytes;
  return block;
}

bool Allocator::take_new(std::size_t bytes, Address& address) {
  if (bytes > limit_ || live_ + cached_ + bytes > limit_) return false;
  const Result r = driver().memory_allocate(&address, bytes);
  if (r != kOutOfMemory) check(r, "cuMemAlloc");
  return r == kSuccess;
}

Block* Allocator::allocate(std::size_t wanted, Stream& stream) {
  const std::size_t bytes = rounded(wanted);
  const std::lock_guard lock(mutex_);
  Block* block = take_kept(bytes, stream);
  if (block == nullptr) {
    auto made = std::make_unique<Block>(Block{0, bytes, &device_, nullptr, nullptr});
    Address& address = made->address;
    if (!take_new(bytes, address) && (trim_locked() == 0 || !take_new(bytes, address))) {
      std::size_t free = 0, total = 0;
      driver().memory_info(&free, &total);
      throw OutOfMemoryError(
          3002,
          format_error(3002, "OutOfMemoryError",
                       fmt::format("cuda:{}: cannot allocate a buffer of {}", device_.number(), mebibytes(wanted)),
                       {{"device", fmt::format("{} of {} are free", mebibytes(free), mebibytes(total)), ""},
                        {"here", fmt::format("{} are in use, of at most {}", mebibytes(live_), mebibytes(limit_)), ""}},
                       run_location(), "free tensors, work on smaller parts, or raise FERMATA_CUDA_MEMORY_LIMIT"));
    }
    block = made.release();
  }
  block->stream = &stream, block->recording = is_recording() ? recording_ : nullptr;
  try {
    blocks_[block->address] = block;
    if (block->recording != nullptr) recorded_.reserve(recorded_.size() + blocks_.size());  // for release()
  } catch (...) {
    blocks_.erase(block->address);
    give_to_driver(block);
    throw;
  }
  live_ += block->bytes;
  return block;
}

void Allocator::give_to_driver(Block* block) {
  driver().memory_free(block->address);
  delete block;
}

void Allocator::release(Block* block) {
  const std::lock_guard lock(mutex_);
  blocks_.erase(block->address);
  live_ -= block->bytes;
  if (block->recording != nullptr && block->recording == recording_) {
    recorded_.push_back(block);
    return;
  }
  if (!caching_) return give_to_driver(block);
  try {
    kept_[block->stream].emplace(block->bytes, block);
    cached_ += block->bytes;
  } catch (const std::bad_alloc&) {
    driver().stream_synchronize(block->stream->handle);  // which may still be using it
    give_to_driver(block);
  }
}

std::vector<Block*> Allocator::end_recording() {
  const std::lock_guard lock(mutex_);
  recording_ = nullptr;
  for (Block* const block : recorded_) live_ += block->bytes, blocks_[block->address] = block;
  return std::exchange(recorded_, {});
}

/// Null where no buffer has the address.
Block* Allocator::find(Address address) const {
  const auto after = blocks_.upper_bound(address);
  Block* const found = after == blocks_.begin() ? nullptr : std::prev(after)->second;
  return found == nullptr || address >= found->address + found->bytes ? nullptr : found;
}

bool Allocator::has(Address address) {
  const std::lock_guard lock(mutex_);
  return find(address) != nullptr;
}

void Allocator::use(Address address, Stream& stream) {
  const std::lock_guard lock(mutex_);
  Block* const found = find(address);
  if (found == nullptr)
    throw DeviceError(
        1407, format_error(1407, "DeviceError", fmt::format("cuda: an operand is not on device {}", device_.number()),
                           {}, run_location(), "move it with to() while that device is current"));
  Block& block = *found;
  if (block.stream == &stream) return;
  Handle event = nullptr;
  check(driver().event_create(&event, kEventDisableTiming), "cuEventCreate");
  check(driver().event_record(event, block.stream->handle), "cuEventRecord");
  check(driver().stream_wait_event(stream.handle, event, 0), "cuStreamWaitEvent");
  check(driver().event_destroy(event), "cuEventDestroy");  // which takes effect when it has been reached
  block.stream = &stream;
}

Allocator::Counts Allocator::counts() {
  const std::lock_guard lock(mutex_);
  return {live_, cached_, limit_};
}

std::size_t Allocator::set_limit(std::size_t bytes) {
  const std::lock_guard lock(mutex_);
  return std::exchange(limit_, bytes);
}

std::size_t Allocator::trim() {
  const std::lock_guard lock(mutex_);
  return trim_locked();
}

std::size_t Allocator::trim_locked() {
  std::size_t given = 0;
  for (auto& [stream, blocks] : kept_) {
    if (!blocks.empty()) driver().stream_synchronize(stream->handle);  // the next wait reports its errors
    for (const auto& [bytes, block] : blocks) {
      given += bytes;
      give_to_driver(block);
    }
    blocks.clear();
  }
  cached_ -= given;
  return given;
}

bool Allocator::set_caching(bool on) {
  const std::lock_guard lock(mutex_);
  if (!on) trim_locked();
  return std::exchange(caching_, on);
}

void Allocator::forget_stream(Stream& from, Stream& to) {
  const std::lock_guard lock(mutex_);
  for (auto& [bytes, block] : kept_[&from]) block->stream = &to, kept_[&to].emplace(bytes, block);
  kept_.erase(&from);
  for (auto& [address, block] : blocks_)
    if (block->stream == &from) block->stream = &to;
}

}  // namespace fermata::gpu
