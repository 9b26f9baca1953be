// Step timing by stream events.
#pragma once

#include "runtime/device_times.h"

namespace fermata::gpu {

DeviceTimer* stream_timer();

}  // namespace fermata::gpu
