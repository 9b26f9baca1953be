// The CUDA libraries without a GPU: functions of the driver, NVRTC, cuBLASLt and NCCL on this machine's CPU.
//
// Kernels are the same source, compiled by the C++ compiler found at run time. All waiting kernels are compiled
// together, because one alone takes most of the time of a hundred. A thread block is a set of fibers that run in a
// fixed order. The first times a kernel runs, it runs again in reversed order; different results indicate a race. Every
// memory access is checked: a byte must be allocated to be written, and written to be read. Barriers that not all
// threads of a block reach are errors too. Errors are reported like an illegal address on a real device, at the next
// wait for the stream.
//
// Device addresses are in an inaccessible address range, so host code that dereferences them is caught as well.
#pragma once

#include <cstdint>
#include <string>

#include "codegen_cuda/api/abi.h"

namespace fermata::gpu {

const DriverFunctions& host_driver();
const CompilerFunctions& host_compiler();
const MatmulFunctions& host_matmul();
const NcclFunctions& host_nccl();

/// Returns and clears the description of the last error.
std::string take_host_error();

struct HostCounts {
  std::uint64_t kernels_compiled = 0, compiler_runs = 0, launches = 0, reversed_launches = 0, graph_launches = 0,
                nccl_calls = 0;
};
HostCounts host_counts();

}  // namespace fermata::gpu
