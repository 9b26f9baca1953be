// See exchanged_axes.h.
#include "codegen_cpu/exchanged_axes.h"

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

namespace fermata {
namespace {

unsigned before_vector_axis(const Kernel& kernel) { return kernel.rank - 2u; }
bool varies_along(const Access& access, unsigned axis) { return (access.axes >> axis & 1u) != 0; }

/// Read across rows, as far as is known without strides.
bool may_be_turned(const Kernel& kernel, std::size_t access) {
  const Access& a = kernel.accesses[access];
  return !a.address_only && !a.is_in_order() && varies_along(a, kernel.rank - 1u) &&
         varies_along(a, before_vector_axis(kernel)) &&
         std::ranges::none_of(kernel.stores, [&](const Store& s) { return s.access == access; });
}

/// The axis to change places with the one before the vector axis; nullopt where none should.
std::optional<unsigned> axis_to_exchange(const Kernel& kernel, const KernelLaunch& launch) {
  constexpr std::int64_t kFewRows = 16;  // of a tile
  const unsigned before = before_vector_axis(kernel);
  const auto stride = [&](std::size_t access, unsigned axis) { return launch.strides[access * kernel.rank + axis]; };
  // What an access varies along is in its code.
  const auto can_exchange = [&](unsigned axis) {
    return launch.sizes[axis] >= kFewRows && std::ranges::all_of(kernel.accesses, [&](const Access& a) {
             return varies_along(a, axis) == varies_along(a, before);
           });
  };
  std::optional<unsigned> found;
  for (std::size_t a = 0; a < kernel.accesses.size(); ++a) {
    if (!may_be_turned(kernel, a) || stride(a, kernel.rank - 1u) == 1) continue;
    if (stride(a, before) == 1 && launch.sizes[before] >= kFewRows) return std::nullopt;
    for (unsigned axis = 0; axis < before && !found; ++axis)
      if (stride(a, axis) == 1 && can_exchange(axis)) found = axis;
  }
  return found;
}

class ExchangingExecutable final : public Executable {
 public:
  ExchangingExecutable(const Kernel& kernel, std::shared_ptr<const Executable> code)
      : kernel_(kernel), code_(std::move(code)) {}
  void launch(const KernelLaunch& launch) const override {
    launch_exchanged(kernel_, launch, [this](const KernelLaunch& exchanged) { code_->launch(exchanged); });
  }
  std::size_t code_bytes() const override { return code_->code_bytes(); }

 private:
  const Kernel kernel_;
  const std::shared_ptr<const Executable> code_;
};

}  // namespace

bool may_exchange_axes(const Kernel& kernel) {
  if (kernel.reduced != 0 || kernel.rank < 3) return false;
  for (std::size_t a = 0; a < kernel.accesses.size(); ++a)
    if (may_be_turned(kernel, a)) return true;
  return false;
}

void launch_exchanged(const Kernel& kernel, const KernelLaunch& launch, FunctionRef<void(const KernelLaunch&)> code) {
  const std::optional<unsigned> axis = axis_to_exchange(kernel, launch);
  if (!axis) return code(launch);
  const unsigned other = before_vector_axis(kernel), rank = kernel.rank;
  std::vector<std::int64_t> sizes(launch.sizes, launch.sizes + rank),
      strides(launch.strides, launch.strides + rank * kernel.accesses.size());
  std::swap(sizes[*axis], sizes[other]);
  for (std::size_t first = 0; first < strides.size(); first += rank)
    std::swap(strides[first + *axis], strides[first + other]);
  KernelLaunch exchanged = launch;
  exchanged.sizes = sizes.data(), exchanged.strides = strides.data();
  code(exchanged);
}

std::shared_ptr<const Executable> exchanging_executable(const Kernel& kernel, std::shared_ptr<const Executable> code) {
  return std::make_shared<ExchangingExecutable>(kernel, std::move(code));
}

}  // namespace fermata
