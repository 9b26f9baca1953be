// The CPU as a backend: kernels by way of the LLVM plugin, memory from the caching allocator.
#pragma once

#include "codegen_cpu/turned_rows.h"
#include "dispatch/backend.h"

namespace fermata {

inline constexpr BackendCapabilities kCpuCapabilities{.launches_on_caller = true,
                                                      .rows_in_vectors = true,
                                                      .turned_rows = kLongestTurnedRow,
                                                      .fewest_turned_rows = kFewestTurnedRows,
                                                      .overwrites_operands = true,
                                                      .compiles_on_caller = true,
                                                      .stores_parts = true};

class CpuBackend final : public Backend {
 public:
  std::string_view name() const override { return "cpu"; }
  bool can_compile(std::string* failure_reason) const override;
  std::string_view target() const override;
  std::shared_ptr<const Executable> compile(const Kernel& kernel, KernelListing* listing) override;
  Storage* allocate(std::size_t bytes) override;
  void copy_to_host(void* to, const void* from, std::size_t bytes) override;
  void copy_from_host(void* to, const void* from, std::size_t bytes) override;
  BackendCapabilities capabilities() const override;
  void synchronize() override {}  // the thread that needs a value runs its plan
};

}  // namespace fermata
