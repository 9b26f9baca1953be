// Two products and the row kernel between them as one kernel, so that what is between is never in memory: attention,
// written in any way. Needs rows that can be taken part by part (emit/online_rows.h).
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "codegen_cuda/emit/online_rows.h"
#include "codegen_cuda/runtime/kernels.h"
#include "runtime/executable.h"

namespace fermata::gpu {

/// When they run as one: where that is expected to be faster, or what is between is large; always or never where they
/// can.
enum class ChainRule : std::uint8_t { by_cost, always, never };
/// Returns the rule before. At first it is what FERMATA_CUDA_FUSE_PRODUCTS says.
ChainRule set_chain_rule(ChainRule rule);

class ProductChain {
 public:
  ProductChain(const Kernel& kernel, const KernelSchedule& schedule);
  std::optional<ProductChainEstimate> estimate(const ProductChainSizes& sizes) const;
  void launch(std::uint16_t made, const CallArgs& first, const KernelLaunch& kernel, const CallArgs& second) const;

 private:
  /// What the text of a kernel depends on.
  struct Shape {
    DType left, right, values, result;
    std::uint16_t made;
    unsigned batch_axes, columns;  // columns of the result that a thread adds up
    bool wide;
    auto operator<=>(const Shape&) const = default;
  };
  std::string source(const Shape& shape, std::string* name) const;
  const LoadedKernel& kernel_for(const Shape& shape) const;

  const Kernel& kernel_;
  const KernelSchedule& schedule_;
  const std::unique_ptr<const OnlineRows> rows_;
  mutable std::mutex mutex_;
  mutable std::map<Shape, std::shared_ptr<const LoadedKernel>> kernels_;
};

}  // namespace fermata::gpu
