// Fuses two products and the row kernel between them into one kernel that does not materialize the intermediate:
// attention, however it is written. Requires a row kernel that can be evaluated online (emit/online_rows.h).
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

/// When to fuse a chain: if that is predicted to be faster or the intermediate is large; always if possible; never.
enum class ChainRule : std::uint8_t { by_cost, always, never };
/// Sets the rule and returns the previous one. FERMATA_CUDA_FUSE_PRODUCTS sets the initial one.
ChainRule set_chain_rule(ChainRule rule);

class ProductChain {
 public:
  ProductChain(const Kernel& kernel, const KernelSchedule& schedule);
  std::optional<ProductChainEstimate> estimate(const ProductChainSizes& sizes) const;
  void launch(std::uint16_t made, const CallArgs& first, const KernelLaunch& kernel, const CallArgs& second) const;

 private:
  /// The parameters that the source of a kernel depends on.
  struct Shape {
    DType left, right, values, result;
    std::uint16_t made;
    unsigned batch_axes, columns;  // columns of the result per thread
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
