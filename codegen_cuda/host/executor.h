// The CUDA libraries without a GPU: the driver's, NVRTC's and cuBLASLt's functions on this machine's processor.
//
// Kernels are the same source, compiled by the C++ compiler found at run time, as many at once as are waiting, because
// one alone costs most of what a hundred do. A thread block is a set of fibers that take turns in a fixed order, and,
// the first times a kernel runs, once more in the reversed order: results that differ are a race. Every access to
// memory is checked: a byte must be allocated to be written and written to be read. Barriers that not all threads of a
// block reach are errors too. What is found is reported like an illegal address of a real device, when the stream is
// next waited for.
//
// Device addresses are in a window that the processor may not touch, so that host code which does is caught as well.
#pragma once

#include <cstdint>
#include <string>

#include "codegen_cuda/api/abi.h"

namespace fermata::gpu {

const DriverFunctions& host_driver();
const CompilerFunctions& host_compiler();
const MatmulFunctions& host_matmul();
const NcclFunctions& host_nccl();

/// What the last error was about, in words; taken out.
std::string take_host_error();

struct HostCounts {
  std::uint64_t kernels_compiled = 0, compiler_runs = 0, launches = 0, reversed_launches = 0, graph_launches = 0,
                nccl_calls = 0;
};
HostCounts host_counts();

}  // namespace fermata::gpu
