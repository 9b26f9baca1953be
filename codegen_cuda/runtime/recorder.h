// Recording of plan runs as CUDA graphs.
#pragma once

#include "runtime/device_run.h"

namespace fermata::gpu {

RunRecorder* graph_recorder();

}  // namespace fermata::gpu
