// What checked code calls before each load and store (FERMATA_CHECK_BOUNDS): compares it with what the launch reaches.
#pragma once

#include <vector>

#include "codegen_cpu/jit/plugin.h"
#include "runtime/bounds_check.h"

namespace fermata {

/// For one call of the code of a kernel. An access outside ends the process, with a text.
class LaunchChecker : public jit::BoundsChecker {
 public:
  LaunchChecker(const Kernel& kernel, const jit::ObjectInfo& info, const KernelLaunch& launch, void* scratch);

 private:
  static void check_adjacent(const BoundsChecker* self, std::uint64_t subject, const std::byte* first,
                             std::uint64_t element_bytes, std::uint64_t mask);
  static void check_scattered(const BoundsChecker* self, std::uint64_t subject, const std::byte* const* elements,
                              std::uint64_t element_bytes, std::uint64_t mask);
  void check(std::uint64_t subject, const std::byte* address, std::uint64_t bytes) const;

  const Kernel& kernel_;
  const KernelLaunch& launch_;
  void* const scratch_;
  std::vector<Reach> reaches_;
  Reach of_scratch_, of_partials_;
};

}  // namespace fermata
