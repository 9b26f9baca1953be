// Times of steps on a device, by the device's own clock. While a profile runs, markers are put on the device's queues
// around the work of a step, and read when the profile ends. A backend with such markers registers a DeviceTimer.
#pragma once

#include <cstdint>
#include <vector>

#include "ir/key_set.h"
#include "runtime/events.h"

namespace fermata {

class DeviceTimer {
 public:
  virtual ~DeviceTimer() = default;
  /// Called when a profile begins; profiles nest.
  virtual void start() = 0;
  /// Called when it ends. Returns the work since then, on the host's clock, as one ThreadEvents for each device, named
  /// after the device. Waits for the devices.
  virtual std::vector<ThreadEvents> finish(std::int64_t since) = 0;
  /// Called before the calling thread starts work. Returns false if the work cannot be timed: end() is not called then.
  virtual bool begin() = 0;
  virtual void end(const EventInfo* info) = 0;
};

/// Null if the backend has none. A timer lives as long as the process.
DeviceTimer* device_timer(BackendKey backend);
void set_device_timer(BackendKey backend, DeviceTimer* timer);
/// All of them.
void start_device_times();
std::vector<ThreadEvents> finish_device_times(std::int64_t since);

/// Times the work that the calling thread starts on a device until the end of the scope; does nothing if `info` is
/// null.
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
