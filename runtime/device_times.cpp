// See device_times.h.
#include "runtime/device_times.h"

#include <array>
#include <atomic>
#include <utility>

namespace fermata {
namespace {

constinit std::array<std::atomic<DeviceTimer*>, kBackendCount> timers{};

}  // namespace

DeviceTimer* device_timer(BackendKey backend) { return timers[static_cast<std::size_t>(backend)].load(); }
void set_device_timer(BackendKey backend, DeviceTimer* timer) {
  timers[static_cast<std::size_t>(backend)].store(timer);
}

void start_device_times() {
  for (const auto& timer : timers)
    if (DeviceTimer* const t = timer.load(); t != nullptr) t->start();
}

std::vector<ThreadEvents> finish_device_times(std::int64_t since) {
  std::vector<ThreadEvents> devices;
  for (const auto& timer : timers)
    if (DeviceTimer* const t = timer.load(); t != nullptr)
      for (ThreadEvents& device : t->finish(since)) devices.push_back(std::move(device));
  return devices;
}

}  // namespace fermata
