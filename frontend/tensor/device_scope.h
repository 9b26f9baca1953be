// Work on one of several devices of a kind, whichever the thread has chosen.
#pragma once

#include <string_view>

#include "ir/device.h"
#include "runtime/function_ref.h"
#include "runtime/tensor.h"

namespace fermata {

class DeviceUnits;

/// The one of a kind that this thread works on.
Device chosen_device(BackendKey backend);

/// Makes a device the one that this thread works on, for a scope. DeviceError FM1406 where there is none of its index.
class DeviceScope {
 public:
  DeviceScope(std::string_view function, Device device, Location where);
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  /// Whether the thread had chosen another one.
  bool is_elsewhere() const { return units_ != nullptr; }

 private:
  DeviceUnits* units_ = nullptr;  // null where nothing has to be chosen
  int before_ = 0;
  void* queue_ = nullptr;
};

/// What `make` makes, on a device. On one that is not chosen it is computed now: later it would be elsewhere.
Tensor make_on(std::string_view function, Device device, FunctionRef<Tensor()> make, Location where);

}  // namespace fermata
