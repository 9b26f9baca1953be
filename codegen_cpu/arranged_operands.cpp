// See arranged_operands.h.
#include "codegen_cpu/arranged_operands.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <span>
#include <vector>

#include "codegen_cpu/irregular/operand_in_order.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "ir/error.h"

namespace fermata {
namespace {

bool varies_along(const Access& access, unsigned axis) { return (access.axes >> axis & 1u) != 0; }
unsigned vector_axis(const Kernel& kernel) { return kernel.rank - 1u; }

template <class F> void for_accesses(AccessSet accesses, F&& f) {
  for (; accesses != 0; accesses &= accesses - 1) f(static_cast<std::size_t>(std::countr_zero(accesses)));
}
template <class F> AccessSet filter(AccessSet accesses, F&& keeps) {
  AccessSet kept = 0;
  for_accesses(accesses, [&](std::size_t a) { kept |= keeps(a) ? AccessSet{1} << a : 0; });
  return kept;
}

/// Of an operand at a launch.
std::span<const std::int64_t> strides_of(const Kernel& kernel, const KernelLaunch& launch, std::size_t access) {
  return {launch.strides + access * kernel.rank, kernel.rank};
}
/// Along the axes that an access varies along; 1 for others.
std::vector<std::int64_t> sizes_of(const Kernel& kernel, const KernelLaunch& launch, std::size_t access) {
  std::vector<std::int64_t> sizes(kernel.rank, 1);
  for (unsigned axis = 0; axis < kernel.rank; ++axis)
    if (varies_along(kernel.accesses[access], axis)) sizes[axis] = launch.sizes[axis];
  return sizes;
}
std::int64_t product(std::span<const std::int64_t> sizes) {
  std::int64_t product = 1;
  for (const std::int64_t size : sizes) product *= size;
  return product;
}

/// Tiles of 32-bit elements, which are as wide as rows are long.
bool is_read_by_tiles(const Kernel& kernel, const KernelLaunch& launch, std::size_t access, unsigned along) {
  constexpr std::int64_t kFewestColumns = 64, kFewestRows = 16;
  constexpr std::ptrdiff_t kMostOperands = 4;
  const unsigned last = vector_axis(kernel);
  if (byte_size(kernel.accesses[access].dtype) != 4 || kernel.is_reduced(last)) return false;
  if (strides_of(kernel, launch, access)[along] != 1 || (kernel.reduced != 0 && !kernel.is_reduced(along)))
    return false;
  if (launch.sizes[last] < kFewestColumns || launch.sizes[along] < kFewestRows) return false;
  const auto in_tiles = [](const Access& a) { return !a.is_in_order() && byte_size(a.dtype) == 4; };
  return std::ranges::count_if(kernel.accesses, in_tiles) <= kMostOperands;
}

/// An operand that lies anyhow, and is read again for many points.
bool is_repeated(const Kernel& kernel, const KernelLaunch& launch, std::size_t access) {
  constexpr std::int64_t kFewestTimes = 8;
  const std::vector<std::int64_t> sizes = sizes_of(kernel, launch, access);
  return sizes.back() > 1 && std::abs(strides_of(kernel, launch, access).back()) > 1 &&
         product(sizes) * kFewestTimes <= product({launch.sizes, kernel.rank});
}

bool lies_across(const Kernel& kernel, const KernelLaunch& launch, std::size_t access) {
  const std::span<const std::int64_t> strides = strides_of(kernel, launch, access);
  const std::vector<std::int64_t> sizes = sizes_of(kernel, launch, access);
  if (sizes.back() < 2 || !lies_across(TensorView{.dtype = kernel.accesses[access].dtype,
                                                  .rank = kernel.rank,
                                                  .sizes = sizes.data(),
                                                  .strides = strides.data()}))
    return false;
  for (unsigned axis = 0; axis < vector_axis(kernel); ++axis)
    if (std::abs(strides[axis]) == 1 && sizes[axis] > 1) return !is_read_by_tiles(kernel, launch, access, axis);
  return false;
}

std::vector<std::int64_t> row_major(std::span<const std::int64_t> sizes) {
  std::vector<std::int64_t> strides(sizes.size(), 0);
  std::int64_t step = 1;
  for (std::size_t axis = sizes.size(); axis-- > 0; step *= sizes[axis])
    if (sizes[axis] != 1) strides[axis] = step;
  strides.back() = 1;
  return strides;
}

}  // namespace

AccessSet accesses_to_arrange(const Kernel& kernel) {
  const std::size_t count = std::min<std::size_t>(kernel.accesses.size(), 64);
  if (kernel.rank < 2 || count == 0) return 0;
  return filter(~AccessSet{0} >> (64 - count), [&](std::size_t access) {
    const Access& a = kernel.accesses[access];
    return !a.address_only && !a.gathered && !a.guarded && a.half == Half::none && !a.is_in_order() &&
           varies_along(a, vector_axis(kernel)) &&
           std::ranges::none_of(kernel.stores, [&](const Store& s) { return s.access == access; }) &&
           std::ranges::none_of(kernel.program.instrs(),  // which a copy would change
                                [&](const Instr& i) { return i.prim == Prim::offset && i.index == access; });
  });
}

AccessSet accesses_across(const Kernel& kernel, AccessSet candidates, const KernelLaunch& launch) {
  return filter(candidates,
                [&](std::size_t a) { return lies_across(kernel, launch, a) || is_repeated(kernel, launch, a); });
}

AccessSet accesses_in_order(const Kernel& kernel, AccessSet candidates, const KernelLaunch& launch) {
  return filter(candidates, [&](std::size_t a) { return strides_of(kernel, launch, a)[vector_axis(kernel)] == 1; });
}

AccessSet accesses_stretched(const Kernel& kernel, AccessSet candidates, const KernelLaunch& launch) {
  if (launch.sizes[vector_axis(kernel)] < 2) return 0;
  return filter(candidates, [&](std::size_t a) { return strides_of(kernel, launch, a)[vector_axis(kernel)] == 0; });
}

Kernel arranged_kernel(const Kernel& kernel, AccessSet in_order, AccessSet stretched) {
  Kernel result = kernel;
  for_accesses(in_order, [&](std::size_t a) { result.accesses[a].unit_stride = true; });
  for_accesses(stretched, [&](std::size_t a) {
    result.accesses[a].axes &= static_cast<std::uint16_t>(~(1u << vector_axis(kernel)));
  });
  return result;
}

void run_arranged(const Kernel& kernel, AccessSet arranged, const KernelLaunch& launch,
                  FunctionRef<void(const KernelLaunch&)> run) {
  std::vector<void*> pointers(launch.pointers, launch.pointers + kernel.accesses.size());
  std::vector<std::int64_t> strides(launch.strides, launch.strides + kernel.accesses.size() * kernel.rank);
  std::vector<Scratch<std::byte>> copies;
  try {
    for_accesses(arranged, [&](std::size_t a) {
      const std::vector<std::int64_t> sizes = sizes_of(kernel, launch, a), in_order = row_major(sizes);
      const std::size_t bytes = byte_size(kernel.accesses[a].dtype);
      copies.emplace_back(product(sizes) * static_cast<std::int64_t>(bytes));
      strided_copy({copies.back().data(), in_order}, {pointers[a], strides_of(kernel, launch, a)}, sizes, bytes);
      pointers[a] = copies.back().data();
      std::ranges::copy(in_order, strides.begin() + static_cast<std::ptrdiff_t>(a * kernel.rank));
    });
  } catch (const OutOfMemoryError&) { return run(launch); }
  KernelLaunch in_order = launch;
  in_order.pointers = pointers.data(), in_order.strides = strides.data();
  run(in_order);
}

}  // namespace fermata
