// See dry_run.h.
#include "codegen_cuda/runtime/dry_run.h"

#include <array>
#include <atomic>
#include <cstring>

namespace fermata::gpu {
namespace {

constinit thread_local DryRun* current_run = nullptr;
constinit thread_local unsigned flags = 0;  // that have been read

/// No machine has as many devices: state by number belongs to the dry run.
constexpr int kFirstNumber = 30;
constexpr std::array<int, 2> kMultiprocessors{1, 4096};
/// Some are true, so that loops go round; not for ever.
constexpr unsigned kMostFlags = 16;
constexpr std::size_t kMemory = std::size_t{1} << 50;

template <class... P> Result nothing(P...) { return kSuccess; }

Result device_attribute(int* value, int attribute, int device) {
  switch (attribute) {
    case kMultiprocessorCount: *value = kMultiprocessors[static_cast<std::size_t>(device - kFirstNumber)]; break;
    case kComputeCapabilityMajor: *value = 8; break;
    case kComputeCapabilityMinor: *value = 0; break;
    case kMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    default: *value = 96 << 10;
  }
  return kSuccess;
}
Result device_get(int* device, int ordinal) { return *device = ordinal, kSuccess; }
Result device_memory(std::size_t* bytes, int) { return *bytes = kMemory, kSuccess; }
Result memory_info(std::size_t* free, std::size_t* total) { return *free = *total = kMemory, kSuccess; }
Result memory_allocate(Address* address, std::size_t bytes) {
  static constinit std::atomic<Address> next{Address{1} << 40};
  constexpr Address kAlignment = 256;
  return *address = next.fetch_add((bytes / kAlignment + 2) * kAlignment), kSuccess;
}
Result copy_to_host(void* to, Address, std::size_t bytes, Handle) {
  std::memset(to, 0, bytes);
  if (bytes == 1 && flags < kMostFlags) *static_cast<bool*>(to) = flags++ % 2 == 0;
  return kSuccess;
}
Result error_name(Result, const char** text) { return *text = "an error of a dry run", kSuccess; }

Device& device_of(DryDevice device) {
  static std::mutex mutex;
  static auto& made = *new std::array<std::unique_ptr<Device>, kMultiprocessors.size()>;
  const std::lock_guard lock(mutex);
  auto& mine = made[static_cast<std::size_t>(device)];
  if (mine == nullptr) {
    mine = std::make_unique<Device>(kFirstNumber + static_cast<int>(device));
    mine->allocator().set_limit(kMemory);  // whatever FERMATA_CUDA_MEMORY_LIMIT says
  }
  return *mine;
}

}  // namespace

const DriverFunctions& dry_driver() {
  static const DriverFunctions functions = [] {
    DriverFunctions f;
#define FERMATA_DRIVER(name, symbol, parameters) f.name = &nothing;
#include "codegen_cuda/api/functions.def"
    f.device_attribute = &device_attribute, f.device_get = &device_get, f.device_memory = &device_memory;
    f.memory_info = &memory_info, f.memory_allocate = &memory_allocate, f.copy_to_host = &copy_to_host;
    f.error_name = &error_name;
    return f;
  }();
  return functions;
}

DryRun* DryRun::current() { return current_run; }

DryRun::DryRun(DryDevice device, bool both_widths, Sources& sources)
    : device_(device), both_widths_(both_widths), sources_(sources), before_(thread_choice()) {
  current_run = this, flags = 0;
  set_thread_choice({&device_of(device)});
}

DryRun::~DryRun() {
  current_run = nullptr;
  set_thread_choice(before_);
}

std::shared_ptr<const LoadedKernel> DryRun::kernel(const std::string& name, const std::string& body,
                                                   CompileEffort effort) {
  sources_.try_emplace(name, Wanted{body, effort});
  auto& mine = kernels_[name];
  if (mine == nullptr) mine = std::make_shared<const LoadedKernel>(name, std::make_shared<const LoadedImage>(""));
  return mine;
}

}  // namespace fermata::gpu
