// Enqueues or records work on a stream, for the other libraries of the host executor.
#pragma once

#include <functional>

#include "codegen_cuda/api/abi.h"

namespace fermata::gpu {

Result host_enqueue(Handle stream, std::function<Result()> work);
/// Waits for all work on all streams.
void host_do_queued();
void host_count_nccl_call();

}  // namespace fermata::gpu
