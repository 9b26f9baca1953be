// The CUDA libraries, each loaded by dlopen on first use, or the host executor in their place.
//
// With FERMATA_CUDA_EXECUTOR=host, kernels are compiled by the machine's C++ compiler and run on its CPU, slowly and
// with every access checked (host/executor.h). For tests; needs no NVIDIA software.
#pragma once

#include <string>
#include <vector>

#include "codegen_cuda/api/abi.h"

namespace fermata::gpu {

/// Returns null if the library or one of its functions is missing, and sets `failure_reason`.
const DriverFunctions* driver_library(std::string* failure_reason = nullptr);
const CompilerFunctions* compiler_library(std::string* failure_reason = nullptr);
const MatmulFunctions* matmul_library(std::string* failure_reason = nullptr);
const NcclFunctions* nccl_library(std::string* failure_reason = nullptr);

/// NVRTC itself, even if the host executor is used: it needs no driver.
const CompilerFunctions* nvrtc_library(std::string* failure_reason = nullptr);

bool on_host_executor();

/// The file a library was loaded from; empty if it was not loaded.
std::string driver_file();
std::string compiler_file();
std::string matmul_file();
std::string nccl_file();

}  // namespace fermata::gpu
