// Compiles kernels to object code for named targets, for exported programs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"
#include "ir/key_set.h"

namespace fermata {

/// What the code is of: the kernel, one with its rows turned or joined, or the first or the second of its stages
/// (codegen_cpu/turned_rows.h, joined_rows.h, staged_columns.h).
enum class ObjectForm : std::uint8_t { plain, turned, joined, reductions, results };

struct ObjectCode {
  ObjectForm form;
  std::uint64_t streamed;  // the non-temporal stores
  std::string bytes;
};

struct ObjectCompiler {
  std::span<const std::string_view> targets;  // best first
  /// The target of this machine.
  std::string_view (*own_target)() = nullptr;
  /// Compiles a kernel optimized for speed, for rows of about `row` elements along the vector axis; the variant without
  /// streaming stores comes first. UnsupportedError FM2101 if it cannot be compiled, OutOfMemoryError FM3001.
  std::vector<ObjectCode> (*compile)(const Kernel& kernel, std::int64_t row, std::string_view target) = nullptr;
  /// A faster kernel of launches that all have these integer scalars (codegen_cpu/narrowed_kernel.h), if there is one.
  std::optional<Kernel> (*narrowed)(const Kernel& kernel, const std::uint64_t* numbers) = nullptr;
};

/// Returns null if the backend has none.
const ObjectCompiler* object_compiler(BackendKey backend);
/// Installs it for the lifetime of the process.
void set_object_compiler(BackendKey backend, const ObjectCompiler* compiler);

}  // namespace fermata
