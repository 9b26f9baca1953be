// For the other libraries of the host executor: work on a stream, queued or recorded.
#pragma once

#include <functional>

#include "codegen_cuda/api/abi.h"

namespace fermata::gpu {

Result host_enqueue(Handle stream, std::function<Result()> work);
/// What has been started on any stream is done when this returns.
void host_do_queued();
void host_count_nccl_call();

}  // namespace fermata::gpu
