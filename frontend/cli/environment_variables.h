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
    {"FERMATA_CALIBRATE", "0|1", "cached values", "rates of matrix products: as shipped, or measured once"},
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
     "what the compiler makes, on standard error"},
    {"FERMATA_TRACE_DISPATCH", "0|1", "0", "every call and the kernel it reached, on standard error"},
    {"FERMATA_DISABLE_PASSES", "a,b", "none", "optional passes to leave out"},
    {"FERMATA_VERIFY", "0|1", "1 in debug builds", "graphs are verified after every pass"},
    {"FERMATA_CHECK_BOUNDS", "0|1", "0", "compiled CPU kernels check every load and store; for tests"},
    {"FERMATA_PROFILE", "FILE", "none", "a trace of the process, or a report if the name ends in .html"},
    {"FERMATA_CODE_SYMBOLS", "perf,jitdump", "none", "names of compiled kernels, in files that perf reads"},
    {"FERMATA_CHECK_NAN", "0|1", "0", "an error at the first call that makes a NaN or an infinity"},
    {"FERMATA_CHECK_MODES", "0|1", "0", "every sync is compared with eager mode"},
    {"FERMATA_CALLERS", "0|1", "0", "errors, profiles and reports show through which functions a call was reached"},
    {"FERMATA_WARN", "0|1", "0", "a warning, once a line, for syncs in loops and structures that never recur"},
    {"FERMATA_CHECK_COLLECTIVES", "0|1", "0", "ranks compare their collectives before they make them"},
    {"FERMATA_COLLECTIVE_CHUNK", "N", "2^30", "elements that one call of MPI moves at most; for tests"},
    {"FERMATA_COLLECTIVE_TIMEOUT", "SECONDS", "600", "how long a collective waits for other ranks; 0 for ever"},
    {"FERMATA_SHARED_MEMORY", "0|1", "1", "ranks of one machine talk through memory; 0: through MPI"},
    {"FERMATA_CHECK_REPLAY", "0|1", "0", "compiled functions are recorded at every call and compared"},
});

}  // namespace fermata::cli
