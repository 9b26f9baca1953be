// For the other libraries of the host executor: work on a stream, queued or recorded.
#pragma once

#include <functional>

#include "codegen_cuda/api/abi.h"

namespace fermata::gpu {

Result host_enqueue(Handle stream, std::function<Result()> work);

}  // namespace fermata::gpu
