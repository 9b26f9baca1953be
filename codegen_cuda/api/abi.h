// The subset of the C interfaces of the CUDA driver, NVRTC, cuBLASLt and NCCL that is used. Declared here so that a
// build needs no toolkit, and one binary runs with and without a driver. api/check_headers.cpp compares it with the
// toolkit's headers if present; versions 12 and 13 agree on all of it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace fermata::gpu {

using Result = int;
using Address = unsigned long long;  // CUdeviceptr
using Handle = void*;                // contexts, streams, events, modules, functions, graphs, descriptors

// Results of the driver (CUresult).
inline constexpr Result kSuccess = 0, kOutOfMemory = 2, kNotInitialized = 3, kNoDevice = 100, kInvalidImage = 200,
                        kInvalidHandle = 400, kNotFound = 500, kNotReady = 600, kIllegalAddress = 700,
                        kLaunchTimeout = 702, kLaunchFailed = 719, kNotSupported = 801;
// CUdevice_attribute.
enum DeviceAttribute : int {
  kMaxSharedMemoryPerBlock = 8,
  kMultiprocessorCount = 16,
  kComputeCapabilityMajor = 75,
  kComputeCapabilityMinor = 76,
  kMaxSharedMemoryPerBlockOptin = 97,
};
inline constexpr int kFunctionMaxDynamicShared = 8;                // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
inline constexpr int kPointerMemoryType = 2, kMemoryOfDevice = 2;  // CU_POINTER_ATTRIBUTE_, CU_MEMORYTYPE_
inline constexpr unsigned kStreamNonBlocking = 1, kEventDisableTiming = 2;
inline constexpr int kCaptureRelaxed = 2;  // CU_STREAM_CAPTURE_MODE_RELAXED

// cuBLASLt.
enum DataType : int { kReal32F = 0, kReal64F = 1, kReal16F = 2, kReal8I = 3, kReal32I = 10, kReal16BF = 14 };
enum ComputeType : int { kCompute32F = 68, kCompute64F = 70, kCompute32I = 72, kCompute32FFastTF32 = 77 };
enum MatmulAttribute : int { kTransA = 3, kTransB = 4, kEpilogue = 7, kBiasPointer = 8, kBiasDataType = 26 };
enum LayoutAttribute : int { kLayoutOrder = 1, kLayoutBatchCount = 5, kLayoutBatchStride = 6 };
enum PreferenceAttribute : int {
  kPreferenceMaxWorkspace = 1,
  kPreferenceAlignmentA = 5,  // bytes; 256 is assumed where it is not set
  kPreferenceAlignmentB = 6,
  kPreferenceAlignmentC = 7,
  kPreferenceAlignmentD = 8
};
enum Epilogue : unsigned {
  kEpilogueDefault = 1,
  kEpilogueRelu = 2,
  kEpilogueBias = 4,
  kEpilogueReluBias = 6,
  kEpilogueGelu = 32,
  kEpilogueGeluBias = 36
};
inline constexpr int kOperationNone = 0, kOperationTranspose = 1;
inline constexpr int kOrderColumns = 0;
struct MatmulAlgorithm {
  std::uint64_t data[8];
};
struct MatmulHeuristic {
  MatmulAlgorithm algorithm;
  std::size_t workspace;
  Result state;
  float waves;
  int reserved[4];
};

// NCCL 2.14 and later.
inline constexpr Result kNcclRemoteError = 6, kNcclInProgress = 7;
enum NcclType : int {
  kNcclInt8 = 0,
  kNcclUint8 = 1,
  kNcclInt32 = 2,
  kNcclUint32 = 3,
  kNcclInt64 = 4,
  kNcclUint64 = 5,
  kNcclFloat32 = 7,
  kNcclFloat64 = 8
};
enum NcclReduction : int { kNcclSum = 0, kNcclProd = 1, kNcclMax = 2, kNcclMin = 3 };
struct NcclId {
  char bytes[128];
};
/// The first version of ncclConfig_t, which later NCCL versions accept.
struct NcclConfig {
  std::size_t size = sizeof(NcclConfig);
  unsigned magic = 0xcafebeef, version = 21400;
  int blocking = 0;
};

#define FERMATA_CUDA_FUNCTION(name, symbol, parameters) Result(*name) parameters = nullptr;

/// One pointer per function; null if the library lacks it.
struct DriverFunctions {
#define FERMATA_DRIVER FERMATA_CUDA_FUNCTION
#include "codegen_cuda/api/functions.def"
};
struct CompilerFunctions {
#define FERMATA_COMPILER FERMATA_CUDA_FUNCTION
#include "codegen_cuda/api/functions.def"
};
struct MatmulFunctions {
#define FERMATA_MATMUL FERMATA_CUDA_FUNCTION
#include "codegen_cuda/api/functions.def"
};
struct NcclFunctions {
#define FERMATA_NCCL FERMATA_CUDA_FUNCTION
#include "codegen_cuda/api/functions.def"
};
#undef FERMATA_CUDA_FUNCTION

}  // namespace fermata::gpu
