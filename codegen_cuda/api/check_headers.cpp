// Compares api/abi.h with the headers of the toolkit, where the build has any: a constant or a signature that differed
// would be a crash on somebody's machine.
#include <cublasLt.h>
#include <cuda.h>
#include <nvrtc.h>

#include <type_traits>

#include "codegen_cuda/api/abi.h"

namespace fermata::gpu {
namespace {

static_assert(kSuccess == CUDA_SUCCESS && kOutOfMemory == CUDA_ERROR_OUT_OF_MEMORY &&
              kNotFound == CUDA_ERROR_NOT_FOUND);
static_assert(kNotInitialized == CUDA_ERROR_NOT_INITIALIZED && kNoDevice == CUDA_ERROR_NO_DEVICE);
static_assert(kInvalidImage == CUDA_ERROR_INVALID_IMAGE && kIllegalAddress == CUDA_ERROR_ILLEGAL_ADDRESS);
static_assert(kLaunchTimeout == CUDA_ERROR_LAUNCH_TIMEOUT && kLaunchFailed == CUDA_ERROR_LAUNCH_FAILED);
static_assert(kNotSupported == CUDA_ERROR_NOT_SUPPORTED);
static_assert(kMaxSharedMemoryPerBlock == int{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK});
static_assert(kMultiprocessorCount == int{CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT});
static_assert(kComputeCapabilityMajor == int{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR});
static_assert(kComputeCapabilityMinor == int{CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR});
static_assert(kMaxSharedMemoryPerBlockOptin == int{CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN});
static_assert(kFunctionMaxDynamicShared == CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES);
static_assert(kPointerMemoryType == int{CU_POINTER_ATTRIBUTE_MEMORY_TYPE} &&
              kMemoryOfDevice == int{CU_MEMORYTYPE_DEVICE});
static_assert(kStreamNonBlocking == CU_STREAM_NON_BLOCKING && kEventDisableTiming == CU_EVENT_DISABLE_TIMING);
static_assert(kCaptureRelaxed == CU_STREAM_CAPTURE_MODE_RELAXED);

static_assert(kReal32F == int{CUDA_R_32F} && kReal64F == int{CUDA_R_64F} && kReal16F == int{CUDA_R_16F});
static_assert(kReal8I == int{CUDA_R_8I} && kReal32I == int{CUDA_R_32I} && kReal16BF == int{CUDA_R_16BF});
static_assert(kCompute32F == int{CUBLAS_COMPUTE_32F} && kCompute64F == int{CUBLAS_COMPUTE_64F});
static_assert(kCompute32I == int{CUBLAS_COMPUTE_32I} && kCompute32FFastTF32 == int{CUBLAS_COMPUTE_32F_FAST_TF32});
static_assert(kTransA == int{CUBLASLT_MATMUL_DESC_TRANSA} && kTransB == int{CUBLASLT_MATMUL_DESC_TRANSB});
static_assert(kEpilogue == int{CUBLASLT_MATMUL_DESC_EPILOGUE} &&
              kBiasPointer == int{CUBLASLT_MATMUL_DESC_BIAS_POINTER});
static_assert(kBiasDataType == int{CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE});
static_assert(kLayoutOrder == int{CUBLASLT_MATRIX_LAYOUT_ORDER});
static_assert(kLayoutBatchCount == int{CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT});
static_assert(kLayoutBatchStride == int{CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET});
static_assert(kPreferenceMaxWorkspace == int{CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES});
static_assert(kPreferenceAlignmentA == int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES} &&
              kPreferenceAlignmentB == int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES} &&
              kPreferenceAlignmentC == int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES} &&
              kPreferenceAlignmentD == int{CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES});
static_assert(kEpilogueDefault == int{CUBLASLT_EPILOGUE_DEFAULT} && kEpilogueRelu == int{CUBLASLT_EPILOGUE_RELU});
static_assert(kEpilogueBias == int{CUBLASLT_EPILOGUE_BIAS} && kEpilogueReluBias == int{CUBLASLT_EPILOGUE_RELU_BIAS});
static_assert(kEpilogueGelu == int{CUBLASLT_EPILOGUE_GELU} && kEpilogueGeluBias == int{CUBLASLT_EPILOGUE_GELU_BIAS});
static_assert(kOperationNone == CUBLAS_OP_N && kOperationTranspose == CUBLAS_OP_T &&
              kOrderColumns == CUBLASLT_ORDER_COL);
static_assert(sizeof(MatmulAlgorithm) == sizeof(cublasLtMatmulAlgo_t));
static_assert(sizeof(MatmulHeuristic) == sizeof(cublasLtMatmulHeuristicResult_t));
static_assert(offsetof(MatmulHeuristic, workspace) == offsetof(cublasLtMatmulHeuristicResult_t, workspaceSize));
static_assert(offsetof(MatmulHeuristic, state) == offsetof(cublasLtMatmulHeuristicResult_t, state));
static_assert(sizeof(Address) == sizeof(CUdeviceptr) && sizeof(int) == sizeof(CUdevice) &&
              sizeof(Handle) == sizeof(CUstream));

/// Functions of one shape: as many parameters, each passed the same way.
template <class A, class B>
constexpr bool kPassedAlike = sizeof(A) == sizeof(B) && std::is_pointer_v<A> == std::is_pointer_v<B>;
template <class Mine, class Theirs> struct Alike;
template <class... Mine, class Their, class... Theirs> struct Alike<Result (*)(Mine...), Their(Theirs...)> {
  static constexpr bool value = [] {
    if constexpr (sizeof...(Mine) != sizeof...(Theirs))
      return false;
    else
      return sizeof(Their) == sizeof(Result) && (kPassedAlike<Mine, Theirs> && ...);
  }();
};
#define FERMATA_ALIKE(table, name, function) static_assert(Alike<decltype(table::name), decltype(function)>::value)
FERMATA_ALIKE(DriverFunctions, launch, cuLaunchKernel);
FERMATA_ALIKE(DriverFunctions, memory_allocate, cuMemAlloc_v2);
FERMATA_ALIKE(DriverFunctions, memory_info, cuMemGetInfo_v2);
FERMATA_ALIKE(DriverFunctions, copy_to_device, cuMemcpyHtoDAsync_v2);
FERMATA_ALIKE(DriverFunctions, copy_to_host, cuMemcpyDtoHAsync_v2);
FERMATA_ALIKE(DriverFunctions, context_push, cuCtxPushCurrent_v2);
FERMATA_ALIKE(DriverFunctions, context_pop, cuCtxPopCurrent_v2);
FERMATA_ALIKE(DriverFunctions, pointer_attribute, cuPointerGetAttribute);
FERMATA_ALIKE(DriverFunctions, fill_bytes, cuMemsetD8Async);
FERMATA_ALIKE(DriverFunctions, stream_wait_event, cuStreamWaitEvent);
FERMATA_ALIKE(DriverFunctions, capture_begin, cuStreamBeginCapture_v2);
FERMATA_ALIKE(DriverFunctions, graph_instantiate, cuGraphInstantiateWithFlags);
FERMATA_ALIKE(DriverFunctions, function_set_attribute, cuFuncSetAttribute);
FERMATA_ALIKE(CompilerFunctions, create, nvrtcCreateProgram);
FERMATA_ALIKE(CompilerFunctions, compile, nvrtcCompileProgram);
FERMATA_ALIKE(MatmulFunctions, matmul, cublasLtMatmul);
FERMATA_ALIKE(MatmulFunctions, layout_create, cublasLtMatrixLayoutCreate);
FERMATA_ALIKE(MatmulFunctions, heuristic, cublasLtMatmulAlgoGetHeuristic);
FERMATA_ALIKE(MatmulFunctions, description_set, cublasLtMatmulDescSetAttribute);

}  // namespace
}  // namespace fermata::gpu
