// How long steps take on a device, by the device's own clock: while somebody profiles, marks are put on its queues
// around what a step starts, and read when the profile ends. A backend that has such marks registers a DeviceTimer.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/key_set.h"
#include "runtime/events.h"

namespace fermata {

class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  /// A profile begins; profiles nest.
  virtual void start() = 0;
  /// It ends: what ran since then, on the host's clock, a ThreadEvents for each device with the device as its name.
  /// Waits for the devices.
  virtual std::vector<ThreadEvents> finish(std::int64_t since) = 0;
  /// Around what the calling thread starts. False where it cannot be timed: then there is no end.
  virtual bool begin() = 0;
  virtual void end(const EventInfo* info) = 0;
};

/// Null unless the backend has one. A timer lives as long as the process.
DeviceTimer* device_timer(BackendKey backend);
void set_device_timer(BackendKey backend, DeviceTimer* timer);
/// All of them.
void start_device_times();
std::vector<ThreadEvents> finish_device_times(std::int64_t since);

/// Times what the calling thread starts on a device until the end of the scope; nothing where `info` is null.
class DeviceTimeScope {
 public:
  DeviceTimeScope(BackendKey backend, const EventInfo* info) : info_(info) {
    if (info == nullptr || !keeps_events()) return;
    timer_ = device_timer(backend);
    if (timer_ != nullptr && !timer_->begin()) timer_ = nullptr;
  }
  ~DeviceTimeScope() {
    if (timer_ != nullptr) timer_->end(info_);
  }
  DeviceTimeScope(const DeviceTimeScope&) = delete;
  DeviceTimeScope& operator=(const DeviceTimeScope&) = delete;

 private:
  const EventInfo* info_;
  DeviceTimer* timer_ = nullptr;
};

}  // namespace fermata
