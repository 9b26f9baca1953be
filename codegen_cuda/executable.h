// A kernel description on CUDA: chooses a schedule per launch; schedules are compiled on first use.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "codegen_cuda/emit/emission.h"
#include "codegen_cuda/library/matmul_epilogue.h"
#include "codegen_cuda/library/product_chain.h"
#include "codegen_cuda/runtime/kernels.h"
#include "runtime/executable.h"

namespace fermata::gpu {

/// Kernels without reductions process unrolled packs of elements.
constexpr CompileEffort effort_for(Schedule schedule) {
  return schedule == Schedule::map || schedule == Schedule::tiles ? CompileEffort::unrolled : CompileEffort::full;
}

class CudaExecutable final : public Executable {
 public:
  explicit CudaExecutable(const Kernel& kernel);
  void launch(const KernelLaunch& launch) const override;
  std::optional<ProductChainEstimate> estimate_chain(const ProductChainSizes& sizes) const override {
    return chain_.estimate(sizes);
  }
  void launch_chain(std::uint16_t made, const CallArgs& first, const KernelLaunch& launch,
                    const CallArgs& second) const override {
    chain_.launch(made, first, launch, second);
  }
  std::size_t code_bytes() const override;

  /// The source of a schedule, for dumps and tests. `axis` is for tiles.
  std::string source(Schedule schedule, bool wide, unsigned axis = 0, std::string* name = nullptr) const;
  /// The schedule of most launches.
  Schedule usual_schedule() const;
  /// Compiles the usual schedule ahead of a launch.
  void prepare() const { variant(usual_schedule(), false); }
  /// The kernel as a cuBLASLt epilogue, if it is one.
  const std::optional<KernelEpilogue>& epilogue() const { return epilogue_; }
  unsigned rank() const { return kernel_.rank; }
  /// Compiles all schedules that a launch may choose, so that they are compiled together.
  void prepare_all(bool wide = false) const;

 private:
  static constexpr std::size_t kSchedules = 8;
  const LoadedKernel& variant(Schedule schedule, bool wide, unsigned axis = 0) const;
  void launch_map(const KernelLaunch& launch, ArgumentValues& values) const;
  void launch_rows(const KernelLaunch& launch, ArgumentValues& values) const;
  void launch_columns(const KernelLaunch& launch, ArgumentValues& values) const;
  void launch_split(const KernelLaunch& launch, ArgumentValues& values, std::int64_t units, std::int64_t blocks) const;
  bool reads_across(unsigned axis) const;
  int tile_axis(const KernelLaunch& launch) const;
  bool packs_fit(const KernelLaunch& launch) const;

  Kernel kernel_;
  KernelSchedule schedule_;
  ArgumentLayout layout_;
  std::string described_;  // the input of function_name()
  unsigned pack_ = 1;
  std::vector<std::uint16_t> kept_;  // by warp schedules
  std::size_t kept_bytes_ = 0;       // of an element of each
  bool splits_ = false;
  std::optional<KernelEpilogue> epilogue_;
  ProductChain chain_;
  mutable std::mutex mutex_;
  mutable std::array<std::shared_ptr<const LoadedKernel>, kSchedules * 2 + kMaxRank * 2> variants_;
};

}  // namespace fermata::gpu
