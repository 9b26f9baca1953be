// Times of steps by events of their streams.
#pragma once

#include "runtime/device_times.h"

namespace fermata::gpu {

DeviceTimer* stream_timer();

}  // namespace fermata::gpu
