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
    {"FERMATA_MODE", "eager|compiled", "compiled", "the mode that threads start in"},
    {"FERMATA_NUM_THREADS", "N", "the processors allowed", "threads of the pool, the caller included"},
    {"FERMATA_COMPILE", "background|second_sight|immediate|never", "background", "when a new structure is compiled"},
    {"FERMATA_PENDING_LIMIT", "N", "512", "the longest chain of calls that are held"},
    {"FERMATA_FMA", "0|1", "0", "compiled products and sums are rounded once"},
    {"FERMATA_CPU", "avx2|avx512|amx", "the best there is", "instruction set of compiled kernels and products"},
    {"FERMATA_F32_PRODUCTS", "split|fma", "split", "large products of f32 use tiles of bf16, three for each number"},
    {"FERMATA_CALIBRATE", "0|1", "where needed",
     "kernels of products: by shipped figures alone; measured on any processor"},
    {"FERMATA_LLVM_PLUGIN", "FILE", "beside the library", "the LLVM plugin"},
    {"FERMATA_CACHE_DIR", "FOLDER", "~/.cache/fermata", "where machine code is kept; empty for nowhere"},
    {"FERMATA_CACHE_DIR_LIMIT", "BYTES", "256 MiB", "machine code that is kept"},
    {"FERMATA_CACHE_LIMIT", "BYTES", "half of the memory", "freed memory that is kept for reuse"},
    {"FERMATA_PLAN_LIMIT", "N", "4096", "compiled plans that are kept"},
    {"FERMATA_KERNEL_LIMIT", "N", "8192", "compiled kernels that are kept beside those of plans"},
    {"FERMATA_PACKED_LIMIT", "BYTES", "a sixteenth of the memory", "weights kept a second time, as products read them"},
    {"FERMATA_RETAINED_LIMIT", "BYTES", "a quarter of the memory", "buffers that only pending calls keep"},
    {"FERMATA_MEMORY_LIMIT", "BYTES", "the memory", "memory taken from the system in all"},
    {"FERMATA_CUDA_MEMORY_LIMIT", "BYTES", "the device's memory", "memory taken from a CUDA device"},
    {"FERMATA_CUDA_SYNC", "0|1", "0", "every CUDA launch is waited for, so that errors name their op"},
    {"FERMATA_CUDA_TF32", "0|1", "0", "products of f32 on CUDA round their factors to TF32"},
    {"FERMATA_CUDA_FUSE_PRODUCTS", "always|never", "by cost", "attention and the like as one CUDA kernel"},
    {"FERMATA_CUDA_EXECUTOR", "host", "none", "CUDA kernels run on the CPU, checked; for tests"},
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
    {"FERMATA_CHECK_REPLAY", "0|1", "0", "compiled functions are recorded at every call and compared"},
});

}  // namespace fermata::cli
