// See findings.h.
#include "codegen_cuda/findings.h"

#include <fmt/format.h>

#include "codegen_cuda/runtime/device.h"

namespace fermata::gpu {
namespace {

std::string gibibytes(std::size_t bytes) { return fmt::format("{:.1f} GiB", static_cast<double>(bytes) / 0x1p30); }

BackendFinding driver_finding() {
  std::string failure_reason;
  const DriverFunctions* const found = driver_library(&failure_reason);
  if (found == nullptr)
    return {"CUDA driver", "none: " + failure_reason,
            "There is no CUDA driver, so tensors cannot be moved to cuda(). Install NVIDIA's driver (12.0 or newer) if "
            "this machine has a CUDA device."};
  int version = 0;
  found->driver_version(&version);
  return {"CUDA driver", fmt::format("{}, for CUDA {}.{}", driver_file(), version / 1000, version % 1000 / 10), {}};
}

BackendFinding compiler_finding() {
  std::string failure_reason;
  const CompilerFunctions* const found = compiler_library(&failure_reason);
  if (found == nullptr)
    return {"NVRTC", "none: " + failure_reason,
            "CUDA kernels require NVRTC (libnvrtc.so.12 or .13): install the toolkit's cuda-nvrtc package, or set "
            "CUDA_HOME to the toolkit's folder."};
  int major = 0, minor = 0;
  found->version(&major, &minor);
  return {"NVRTC", fmt::format("{}.{}, {}", major, minor, compiler_file()), {}};
}

/// Loading the library takes a while, so it is only done where there is a device to use it on.
BackendFinding matmul_finding() {
  std::string failure_reason;
  if (matmul_library(&failure_reason) == nullptr)
    return {"cuBLASLt", "none: " + failure_reason,
            "Without cuBLASLt (libcublasLt.so.12 or .13) matrix products on CUDA are much slower: "
            "install the toolkit's libcublas package, or set CUDA_HOME to the toolkit's folder."};
  return {"cuBLASLt", matmul_file(), {}};
}

BackendFinding nccl_finding() {
  std::string failure_reason;
  const NcclFunctions* const found = nccl_library(&failure_reason);
  if (found == nullptr)
    return {"NCCL", "none: " + failure_reason,
            "Without NCCL (libnccl.so.2) collectives of CUDA tensors go through host memory: install NVIDIA's libnccl2 "
            "package, or add the library's folder to LD_LIBRARY_PATH."};
  int version = 0;
  found->version(&version);
  return {"NCCL", fmt::format("{}.{}.{}, {}", version / 10000, version / 100 % 100, version % 100, nccl_file()), {}};
}

}  // namespace

std::vector<BackendFinding> cuda_findings() {
  std::vector<BackendFinding> all{driver_finding(), compiler_finding()};
  std::string failure_reason;
  if (!usable(&failure_reason)) {
    if (driver_library() != nullptr) all.push_back({"CUDA devices", "none: " + failure_reason, {}});
    return all;
  }
  all.push_back(matmul_finding());
  all.push_back(nccl_finding());
  for (int i = 0; i < device_count(); ++i) {
    const DeviceInfo& d = device(i).info();
    all.push_back({fmt::format("CUDA device {}", i),
                   fmt::format("{}, sm_{}{}, {} multiprocessors, {}", d.name, d.major, d.minor, d.multiprocessors,
                               gibibytes(d.memory)),
                   {}});
  }
  return all;
}

}  // namespace fermata::gpu
