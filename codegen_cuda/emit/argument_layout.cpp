// See argument_layout.h.
#include "codegen_cuda/emit/argument_layout.h"

#include <cstdlib>

namespace fermata::gpu {
namespace {

/// Grids step over up to this many elements more than there are.
constexpr std::int64_t kIndexLimit = (std::int64_t{1} << 31) - (std::int64_t{1} << 26);

}  // namespace

ArgumentLayout::ArgumentLayout(const Kernel& kernel) {
  int next = 0;
  for (const Access& access : kernel.accesses) pointers.push_back(access.address_only ? kNone : next++);
  for (const Access& access : kernel.accesses) offsets.push_back(access.address_only ? next++ : kNone);
  for (std::size_t i = 0; i < kernel.scalars.size(); ++i) scalars.push_back(next++);
  for (unsigned axis = 0; axis < kernel.rank; ++axis) sizes.push_back(next++);
  for (const Access& access : kernel.accesses) {
    std::vector<int>& mine = strides.emplace_back();
    for (unsigned axis = 0; axis < kernel.rank; ++axis) {
      const bool varies = (access.axes >> axis & 1u) != 0;
      mine.push_back(varies && !(access.unit_stride && axis + 1u == kernel.rank) ? next++ : kNone);
    }
  }
  row_begin = next++, row_end = next++, column_begin = next++, column_end = next++;
  blocks = next++, blocks_per_pass = next++, option = next++, partials = next++;
  count = next;
}

ArgumentValues::ArgumentValues(const ArgumentLayout& layout, const Kernel& kernel, const KernelLaunch& launch)
    : values_(static_cast<std::size_t>(layout.count)) {
  std::int64_t points = 1;
  for (unsigned axis = 0; axis < kernel.rank; ++axis) {
    set(layout.sizes[axis], launch.sizes[axis]);
    fits_ = fits_ && !__builtin_mul_overflow(points, launch.sizes[axis] == 0 ? 1 : launch.sizes[axis], &points);
  }
  fits_ = fits_ && points < kIndexLimit;
  for (std::size_t a = 0; a < kernel.accesses.size(); ++a) {
    if (layout.pointers[a] >= 0)
      set(layout.pointers[a], static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(launch.pointers[a])));
    std::int64_t reach = 0;
    if (layout.offsets[a] >= 0) set(layout.offsets[a], launch.offsets[a]), reach = std::abs(launch.offsets[a]);
    for (unsigned axis = 0; axis < kernel.rank; ++axis) {
      if ((kernel.accesses[a].axes >> axis & 1u) == 0) continue;
      const std::int64_t stride = launch.strides[a * kernel.rank + axis];
      if (layout.strides[a][axis] >= 0) set(layout.strides[a][axis], stride);
      std::int64_t extent = 0;
      fits_ = fits_ && !__builtin_mul_overflow(std::abs(stride), launch.sizes[axis], &extent) &&
              !__builtin_add_overflow(reach, extent, &reach);
    }
    fits_ = fits_ && reach < kIndexLimit;
  }
  for (std::size_t i = 0; i < kernel.scalars.size(); ++i)
    values_[static_cast<std::size_t>(layout.scalars[i])] = launch.scalars[i];
  set(layout.row_begin, launch.row_begin), set(layout.row_end, launch.row_end);
  set(layout.column_begin, launch.column_begin), set(layout.column_end, launch.column_end);
}

}  // namespace fermata::gpu
