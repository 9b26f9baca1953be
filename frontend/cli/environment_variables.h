// Every environment variable that the engine reads: what `fermata doctor` prints. docs/environment.md says more on
// each; a test compares both lists with what the sources read.
#pragma once

#include <array>
#include <string_view>

namespace fermata::cli {

struct EnvironmentVariable {
  std::string_view name, values, otherwise, meaning;
};

inline constexpr auto kEnvironmentVariables = std::to_array<EnvironmentVariable>({
    {"FERMATA_MODE", "eager|compiled", "compiled", "initial mode of threads"},
    {"FERMATA_NUM_THREADS", "N", "the processors allowed", "threads of the pool, including the caller"},
    {"FERMATA_COMPILE", "background|second_sight|immediate|never", "background", "when new structures are compiled"},
    {"FERMATA_PENDING_LIMIT", "N", "512", "maximum depth of pending calls"},
    {"FERMATA_FMA", "0|1", "0", "contract multiply and add to fma in compiled code"},
    {"FERMATA_CPU", "avx2|avx512|amx", "the best available", "instruction set of compiled kernels and matrix products"},
    {"FERMATA_F32_PRODUCTS", "split|fma", "split", "large f32 products use bf16 tiles, three per number"},
    {"FERMATA_WINOGRAD", "0|1", "1", "f32 convolutions with filters of 3x3 may use Winograd's algorithm"},
    {"FERMATA_CALIBRATE", "0|1", "where needed", "choose kernels by the shipped cost model only; or by measurements"},
    {"FERMATA_LLVM_PLUGIN", "FILE", "next to the library", "the LLVM plugin"},
    {"FERMATA_CACHE_DIR", "FOLDER", "~/.cache/fermata", "folder of the machine code cache; empty for none"},
    {"FERMATA_CACHE_DIR_LIMIT", "BYTES", "256 MiB", "size of the machine code cache"},
    {"FERMATA_CACHE_LIMIT", "BYTES", "half of the memory", "freed memory kept for reuse"},
    {"FERMATA_PLAN_LIMIT", "N", "4096", "cached plans"},
    {"FERMATA_KERNEL_LIMIT", "N", "8192", "cached kernels that no plan uses"},
    {"FERMATA_PACKED_LIMIT", "BYTES", "a sixteenth of the memory", "prepacked weights"},
    {"FERMATA_RETAINED_LIMIT", "BYTES", "a quarter of the memory", "buffers that only pending calls keep alive"},
    {"FERMATA_MEMORY_LIMIT", "BYTES", "the memory", "total memory taken from the system"},
    {"FERMATA_CUDA_MEMORY_LIMIT", "BYTES", "the device's memory", "memory taken from each CUDA device"},
    {"FERMATA_CUDA_SYNC", "0|1", "0", "wait for every CUDA launch, so that errors name their op"},
    {"FERMATA_CUDA_TF32", "0|1", "0", "round the operands of f32 products on CUDA to TF32"},
    {"FERMATA_CUDA_FUSE_PRODUCTS", "always|never", "by cost", "attention and similar products as one CUDA kernel"},
    {"FERMATA_CUDA_EXECUTOR", "host", "none", "run CUDA kernels on the CPU with checks; for tests"},
    {"FERMATA_DUMP", "ir,partition,passes,kernels,llvm,asm,cuda,ptx,sass", "nothing",
     "print compiler output to standard error"},
    {"FERMATA_TRACE_DISPATCH", "0|1", "0", "print every call and its kernel to standard error"},
    {"FERMATA_DISABLE_PASSES", "a,b", "none", "optional passes to skip"},
    {"FERMATA_VERIFY", "0|1", "1 in debug builds", "verify graphs after every pass"},
    {"FERMATA_CHECK_BOUNDS", "0|1", "0", "check every load and store in compiled CPU kernels; for tests"},
    {"FERMATA_PROFILE", "FILE", "none", "write a trace of the process, or a report if the name ends in .html"},
    {"FERMATA_CODE_SYMBOLS", "perf,jitdump", "none", "write the names of compiled kernels for perf"},
    {"FERMATA_CHECK_NAN", "0|1", "0", "throw at the first call that produces a NaN or an infinity"},
    {"FERMATA_CHECK_MODES", "0|1", "0", "compare every sync with eager mode"},
    {"FERMATA_CALLERS", "0|1", "0", "show the callers of a call in errors, profiles and reports"},
    {"FERMATA_WARN", "0|1", "0", "warn, once per line, about syncs in loops and structures that never recur"},
    {"FERMATA_CHECK_COLLECTIVES", "0|1", "0", "compare collectives between ranks before executing them"},
    {"FERMATA_COLLECTIVE_CHUNK", "N", "2^30", "maximum elements per MPI call; for tests"},
    {"FERMATA_COLLECTIVE_TIMEOUT", "SECONDS", "600", "timeout of collectives in seconds; 0 for none"},
    {"FERMATA_SHARED_MEMORY", "0|1", "1", "ranks on one machine communicate through memory instead of MPI"},
    {"FERMATA_CHECK_REPLAY", "0|1", "0", "record compiled functions at every call and compare"},
});

}  // namespace fermata::cli
