// The CUDA libraries, each reached by dlopen when it is first needed; or the host executor in their place.
//
// FERMATA_CUDA_EXECUTOR=host: kernels are compiled by the C++ compiler of this machine and run on its processor, slowly
// and with every access checked (host/executor.h). For tests; nothing of NVIDIA's is needed.
#pragma once

#include <string>
#include <vector>

#include "codegen_cuda/api/abi.h"

namespace fermata::gpu {

/// Null where the library is not there or a function of it is missing; then `failure_reason` says which.
const DriverFunctions* driver_library(std::string* failure_reason = nullptr);
const CompilerFunctions* compiler_library(std::string* failure_reason = nullptr);
const MatmulFunctions* matmul_library(std::string* failure_reason = nullptr);
const NcclFunctions* nccl_library(std::string* failure_reason = nullptr);

/// NVRTC itself, also where the host executor takes its place: it needs no driver.
const CompilerFunctions* nvrtc_library(std::string* failure_reason = nullptr);

bool on_host_executor();

/// The file a library was loaded from; empty where it was not.
std::string driver_file();
std::string compiler_file();
std::string matmul_file();
std::string nccl_file();

}  // namespace fermata::gpu
