// The C interface between the engine and the LLVM plugin, libfermata_llvm.so.
//
// One function compiles: serialized kernel in, relocatable ELF object out. The object defines kEntrySymbol and
// kInfoSymbol and needs no other symbol. Nothing here needs LLVM; both sides include it.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "ir/kernel.h"

extern "C" {

struct FermataLlvmRequest {
  const char* kernel;  // bytes of fermata::serialize()
  std::size_t kernel_size;
  const char* target;      // "avx512" or "avx2"
  std::uint32_t flags;     // FermataLlvmFlags
  std::uint64_t streamed;  // bit i: store i is non-temporal; see JitVariant in jit_executable.h
};

enum FermataLlvmFlags : std::uint32_t {
  kFermataLlvmWantIr = 1,        // the LLVM IR as text
  kFermataLlvmWantAssembly = 2,  // the machine code as assembly text
  kFermataLlvmVerify = 4,        // run LLVM's verifier over the IR first
  kFermataLlvmWide = 8,          // for hot kernels: more interleaving and more LLVM passes
  kFermataLlvmCheck = 16,        // bounds checks; see BoundsChecker
  kFermataLlvmTurned = 32,       // a kernel of turned rows; see turned_rows.h
  kFermataLlvmGathers = 64,      // for a processor whose gathers are fast; see gather_speed.h
  kFermataLlvmBf16 = 128,        // for a processor with AVX-512 BF16
};

/// Either `error` or `object` is set. All pointers come from malloc; fermata_llvm_free() releases them.
struct FermataLlvmResult {
  char* object;
  std::size_t object_size;
  char* ir;
  char* assembly;
  char* error;
};

using FermataLlvmCompile = void (*)(const FermataLlvmRequest*, FermataLlvmResult*);
using FermataLlvmFree = void (*)(FermataLlvmResult*);

}  // extern "C"

namespace fermata::jit {

inline constexpr const char* kCompileSymbol = "fermata_llvm_compile";
inline constexpr const char* kFreeSymbol = "fermata_llvm_free";

/// The symbols that an object defines: the code, and the constant ObjectInfo.
inline constexpr const char* kEntrySymbol = "fermata_kernel";
inline constexpr const char* kInfoSymbol = "fermata_kernel_info";
/// The bytes of serialize(), in code with bounds checks.
inline constexpr const char* kCheckedKernelSymbol = "fermata_checked_kernel";

/// The part of the work that a call does; see Executable for the last two.
enum class Part : std::uint64_t { whole = 0, partial = 1, finish = 2 };

/// Called by checked code before each load and store of an access of the kernel, the scratch or the partials: for
/// adjacent elements from an address on, or for one element at each of several addresses. Only elements whose mask bit
/// is set are accessed.
struct BoundsChecker {
  static constexpr std::uint64_t kScratch = 0xffff, kPartials = 0xfffe, kSubject = 0xffff;
  static constexpr std::uint64_t kStores = 1 << 16;   // a store; otherwise a load
  static constexpr std::uint64_t kOrStack = 1 << 17;  // the address may be on the stack
  void (*adjacent)(const BoundsChecker*, std::uint64_t subject, const std::byte* first, std::uint64_t element_bytes,
                   std::uint64_t mask);
  void (*scattered)(const BoundsChecker*, std::uint64_t subject, const std::byte* const* elements,
                    std::uint64_t element_bytes, std::uint64_t mask);
};

/// `scratch` holds kept values (spilled_values.h): scratch_bytes() bytes, 64-byte aligned, private to this call. Only
/// checked code uses the checker.
using EntryPoint = void (*)(const KernelLaunch*, Part, void* scratch, const BoundsChecker*);

/// Increment with every change of KernelLaunch or of the entry point, so that older objects in a disk cache are not
/// run.
inline constexpr std::uint64_t kObjectVersion = 8;
struct ObjectInfo {
  std::uint64_t version;
  std::uint64_t state_bytes;          // of a row or column; 0: cannot be split
  std::uint64_t streamable;           // bit i: a variant may stream store i
  std::uint64_t rank, reduced;        // of the kernel
  std::uint64_t scratch_slots;        // number of kept values; 0: no scratch needed
  std::uint64_t scratch_point_bytes;  // bytes per point of all slots
  std::uint64_t scratch_columns,
      scratch_lanes;                   // maximum and granularity of a group of a column kernel; 1 in row kernels
  std::uint64_t checked_kernel_bytes;  // of kCheckedKernelSymbol; 0: no bounds checks
};

/// The states of one block of a launch that is split. Those of columns are stored a group at a time.
inline std::size_t block_bytes(const ObjectInfo& info, const KernelLaunch& launch) {
  if (info.scratch_columns <= 1) return info.state_bytes;
  const auto columns = static_cast<std::uint64_t>(launch.sizes[info.rank - 1]);
  return (columns + info.scratch_lanes - 1) / info.scratch_lanes * info.scratch_lanes * info.state_bytes;
}

/// The vector axis of a row is rounded up to kScratchGranule points, and slots are kScratchSlack bytes apart, so that
/// vectors can be accessed unmasked.
inline constexpr std::int64_t kScratchGranule = kReductionLanes, kScratchSlack = 512;
/// The size of the scratch for a launch: one element per slot and point of the reduced axes in each column of a group.
inline std::size_t scratch_bytes(const ObjectInfo& info, const KernelLaunch& launch) {
  const auto round_up = [](std::int64_t size, std::int64_t step) {
    return static_cast<std::uint64_t>((size + step - 1) / step * step);
  };
  std::uint64_t points = 1;
  for (std::uint64_t axis = 0; axis < info.rank; ++axis)
    if ((info.reduced >> axis & 1u) != 0)
      points *= round_up(launch.sizes[axis], axis + 1 == info.rank ? kScratchGranule : 1);
  const auto lanes = static_cast<std::int64_t>(info.scratch_lanes);
  if (info.scratch_columns > 1)
    points *= std::min(info.scratch_columns, round_up(launch.column_end - launch.column_begin, lanes));
  return points * info.scratch_point_bytes + info.scratch_slots * static_cast<std::uint64_t>(kScratchSlack);
}

}  // namespace fermata::jit
