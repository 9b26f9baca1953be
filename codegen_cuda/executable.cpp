// See executable.h.
#include "codegen_cuda/executable.h"

#include <algorithm>
#include <cstdlib>

#include "codegen_cuda/runtime/device.h"
#include "codegen_cuda/runtime/dry_run.h"
#include "ir/error.h"

namespace fermata::gpu {
namespace {

/// Parameters of a kernel: what every device takes.
constexpr int kMostSlots = 4096 / 8;
/// Fewer elements along the vector axis than this are not worth turning round.
constexpr std::int64_t kLeastTile = 16;
constexpr unsigned kThreads = 256, kWarps = kThreads / 32;

/// Enough blocks to fill a device several times over; kernels step over the rest.
unsigned grid_for(std::int64_t wanted) {
  const std::int64_t most = std::int64_t{32} * current_device().info().multiprocessors;
  return static_cast<unsigned>(std::clamp<std::int64_t>(wanted, 1, most));
}
std::int64_t parts(std::int64_t count, std::int64_t size) { return (count + size - 1) / size; }

std::string_view name_of(Schedule s) {
  constexpr std::string_view kNames[] = {"map", "tiles", "warp", "block", "column", "slices", "partial", "finish"};
  return kNames[static_cast<std::size_t>(s)];
}

/// Single-stage reductions without per-point stores: their blocks can run apart.
bool can_run_apart(const Kernel& kernel, const KernelSchedule& schedule) {
  return kernel.reduced != 0 && schedule.stages.size() == 1 && schedule.stages[0].element_stores.empty();
}

std::size_t components(const Kernel& kernel) {
  std::size_t count = 0;
  for (const Reduction& r : kernel.reductions) count += r.types.size();
  return count;
}

}  // namespace

CudaExecutable::CudaExecutable(const Kernel& kernel)
    : kernel_(kernel),
      schedule_(schedule(kernel)),
      layout_(kernel),
      described_(serialize(kernel)),
      pack_(pack_elements(kernel)),
      epilogue_(epilogue_of(kernel)),
      chain_(kernel_, schedule_) {
  if (layout_.count > kMostSlots)
    throw UnsupportedError(2101, format_error(2101, "UnsupportedError",
                                              fmt::format("cannot compile a kernel: it has {} arguments, more than {}",
                                                          layout_.count, kMostSlots),
                                              {}, {}));
  splits_ = can_run_apart(kernel_, schedule_);
  if (kernel_.reduced != 0 && kernel_.is_row_kernel()) {
    kept_ = kept_accesses(kernel_, schedule_);
    for (const std::uint16_t a : kept_) kept_bytes_ += byte_size(kernel_.accesses[a].dtype);
  }
}

Schedule CudaExecutable::usual_schedule() const {
  if (kernel_.reduced == 0) return Schedule::map;
  return kernel_.is_row_kernel() ? Schedule::warp : Schedule::column;
}

std::string CudaExecutable::source(Schedule schedule, bool wide, unsigned axis, std::string* name) const {
  const std::string described = fmt::format("{}{}{}{}", described_, name_of(schedule), wide ? "w" : "", axis);
  Emission e(kernel_, schedule_, function_name(name_of(schedule), described), wide);
  switch (schedule) {
    case Schedule::map: emit_map(e); break;
    case Schedule::tiles: emit_tiles(e, axis); break;
    case Schedule::warp: emit_warp_rows(e); break;
    case Schedule::block: emit_block_rows(e); break;
    case Schedule::column: emit_columns(e, kColumnSlices); break;
    case Schedule::slices: emit_columns(e, kMostColumnSlices); break;
    case Schedule::partial: emit_partial(e); break;
    case Schedule::finish: emit_finish(e); break;
  }
  if (name != nullptr) *name = e.name;
  return std::move(e.text);
}

const LoadedKernel& CudaExecutable::variant(Schedule schedule, bool wide, unsigned axis) const {
  const std::size_t at =
      (schedule == Schedule::tiles ? kSchedules + axis : static_cast<std::size_t>(schedule)) * 2 + (wide ? 1 : 0);
  if (DryRun::current() != nullptr) [[unlikely]] {  // which keeps what it is asked for
    std::string name;
    const std::string body = source(schedule, wide, axis, &name);
    return *kernel_of(name, body, effort_for(schedule));
  }
  const std::lock_guard lock(mutex_);
  if (variants_[at] == nullptr) {
    std::string name;
    const std::string body = source(schedule, wide, axis, &name);
    variants_[at] = kernel_of(name, body, effort_for(schedule));
  }
  return *variants_[at];
}

void CudaExecutable::prepare_all(bool wide) const {
  variant(usual_schedule(), wide);
  if (kernel_.reduced == 0) {
    for (unsigned axis = 0; axis + 1 < kernel_.rank; ++axis)
      if (reads_across(axis)) variant(Schedule::tiles, wide, axis);
    return;
  }
  variant(kernel_.is_row_kernel() ? Schedule::block : Schedule::slices, wide);
  if (splits_) variant(Schedule::partial, wide), variant(Schedule::finish, wide);
}

bool CudaExecutable::reads_across(unsigned axis) const {
  return std::ranges::any_of(schedule_.stages[0].element_values, [&](ValueId id) {
    const Instr& instr = kernel_.program[id];
    if (instr.prim != Prim::input || kernel_.accesses[instr.index].unit_stride) return false;
    const std::uint16_t axes = kernel_.accesses[instr.index].axes;
    return (axes >> (kernel_.rank - 1u) & 1u) != 0 && (axes >> axis & 1u) != 0;
  });
}

std::size_t CudaExecutable::code_bytes() const {
  const std::lock_guard lock(mutex_);
  std::size_t bytes = 0;
  for (const auto& each : variants_) bytes += each == nullptr ? 0 : each->code_bytes();
  return bytes;
}

void CudaExecutable::launch(const KernelLaunch& launch) const {
  ArgumentValues values(layout_, kernel_, launch);
  if (DryRun* const dry = DryRun::current()) [[unlikely]] {
    for (const bool wide : {false, true})
      if ((dry->wants_both_widths() || wide != values.fits_32_bits()) && dry->is_first(this, wide)) prepare_all(wide);
    return;
  }
  // Other streams may be at work on the buffers, where there are others.
  for (std::size_t a = 0; a < kernel_.accesses.size(); ++a)
    if (!kernel_.accesses[a].address_only) use_buffer(launch.pointers[a]);
  if (kernel_.reduced == 0) return launch_map(launch, values);
  return kernel_.is_row_kernel() ? launch_rows(launch, values) : launch_columns(launch, values);
}

bool CudaExecutable::packs_fit(const KernelLaunch& launch) const {
  if (launch.column_begin % pack_ != 0) return false;
  for (std::size_t a = 0; a < kernel_.accesses.size(); ++a) {
    const Access& access = kernel_.accesses[a];
    if (!access.unit_stride || access.address_only) continue;
    const std::size_t whole = std::min<std::size_t>(16, pack_ * byte_size(access.dtype));
    if (reinterpret_cast<std::uintptr_t>(launch.pointers[a]) % whole != 0) return false;
    for (unsigned axis = 0; axis + 1 < kernel_.rank; ++axis)
      if ((access.axes >> axis & 1u) != 0 && launch.sizes[axis] > 1 &&
          launch.strides[a * kernel_.rank + axis] % pack_ != 0)
        return false;
  }
  return true;
}

/// The axis along which most of what is read across lies side by side; -1 where nothing is.
int CudaExecutable::tile_axis(const KernelLaunch& launch) const {
  const unsigned v = kernel_.rank - 1u;
  if (kernel_.rank < 2 || launch.sizes[v] < kLeastTile || launch.column_begin != 0 ||
      launch.column_end != launch.sizes[v])
    return -1;
  for (const ValueId id : schedule_.stages[0].element_values) {
    const Instr& instr = kernel_.program[id];
    if (instr.prim != Prim::input || kernel_.accesses[instr.index].unit_stride) continue;
    const std::uint16_t axes = kernel_.accesses[instr.index].axes;
    const std::int64_t* const strides = launch.strides + instr.index * std::size_t{kernel_.rank};
    if ((axes >> v & 1u) == 0 || std::abs(strides[v]) < 2) continue;
    for (unsigned axis = 0; axis < v; ++axis)
      if ((axes >> axis & 1u) != 0 && std::abs(strides[axis]) == 1 && launch.sizes[axis] >= kLeastTile)
        return static_cast<int>(axis);
  }
  return -1;
}

void CudaExecutable::launch_map(const KernelLaunch& launch, ArgumentValues& values) const {
  const bool wide = !values.fits_32_bits();
  const std::int64_t rows = launch.row_end - launch.row_begin, columns = launch.column_end - launch.column_begin;
  if (rows <= 0 || columns <= 0) return;
  if (const int axis = tile_axis(launch); axis >= 0 && launch.row_begin == 0) {
    std::int64_t tiles = parts(launch.sizes[kernel_.rank - 1u], kTile) * parts(launch.sizes[axis], kTile);
    for (unsigned other = 0; other + 1 < kernel_.rank; ++other)
      if (static_cast<int>(other) != axis) tiles *= launch.sizes[other];
    std::size_t shared = 0;
    for (const ValueId id : schedule_.stages[0].element_values) {
      const Instr& instr = kernel_.program[id];
      const Access* const access = instr.prim == Prim::input ? &kernel_.accesses[instr.index] : nullptr;
      if (access == nullptr || access->unit_stride || (access->axes >> axis & 1u) == 0 ||
          (access->axes >> (kernel_.rank - 1u) & 1u) == 0)
        continue;
      shared += (byte_size(access->dtype) * kTile * (kTile + 1) + 15) / 16 * 16;
    }
    if (shared <= static_cast<std::size_t>(current_device().info().shared_bytes))
      return variant(Schedule::tiles, wide, static_cast<unsigned>(axis))
          .launch({grid_for(tiles), kTile * kTileThreads, static_cast<unsigned>(shared)}, values.data());
  }
  values.set(layout_.option, pack_ > 1 && packs_fit(launch) ? 1 : 0);
  variant(Schedule::map, wide)
      .launch({grid_for(parts(rows * parts(columns, pack_), kThreads)), kThreads, 0}, values.data());
}

void CudaExecutable::launch_rows(const KernelLaunch& launch, ArgumentValues& values) const {
  const std::int64_t blocks = reduction_blocks(kernel_, launch.sizes), rows = launch.row_end - launch.row_begin;
  if (rows <= 0) return;
  const std::int64_t length = launch.sizes[kernel_.rank - 1u];
  values.set(layout_.blocks, blocks),
      values.set(layout_.blocks_per_pass, std::max<std::int64_t>(parts(length, kReductionBlock), 1));
  const bool wide = !values.fits_32_bits();
  if (blocks <= 1) {
    std::int64_t keep = 0;
    unsigned warps = kWarps;
    if (kept_bytes_ != 0 && schedule_.stages.size() > 1) {
      // A row of each input that several stages read, for as many rows as find room.
      const auto room = static_cast<std::int64_t>(current_device().info().shared_bytes_optin);
      const std::int64_t elements = (length + 15) / 16 * 16,
                         row_bytes = elements * static_cast<std::int64_t>(kept_bytes_);
      if (row_bytes * 2 <= room && length > 0) {
        keep = elements;
        while (warps * row_bytes > room) warps /= 2;
      }
    }
    values.set(layout_.option, keep);
    const auto shared = static_cast<unsigned>(keep * static_cast<std::int64_t>(kept_bytes_) * warps);
    return variant(Schedule::warp, wide).launch({grid_for(parts(rows, warps)), warps * 32, shared}, values.data());
  }
  if (splits_ && rows * kWarps < std::int64_t{16} * current_device().info().multiprocessors)
    return launch_split(launch, values, rows, blocks);
  const auto shared = static_cast<unsigned>(components(kernel_) * kReductionLanes * 8);
  variant(Schedule::block, wide).launch({grid_for(rows), kThreads, shared}, values.data());
}

void CudaExecutable::launch_columns(const KernelLaunch& launch, ArgumentValues& values) const {
  const std::int64_t blocks = reduction_blocks(kernel_, launch.sizes);
  const std::int64_t rows = launch.row_end - launch.row_begin, columns = launch.column_end - launch.column_begin;
  if (rows <= 0 || columns <= 0) return;
  unsigned inner = kernel_.rank - 1u;
  while (!kernel_.is_reduced(inner)) --inner;
  values.set(layout_.blocks, blocks);
  values.set(layout_.blocks_per_pass, std::max<std::int64_t>(parts(launch.sizes[inner], kColumnBlock), 1));
  const std::int64_t groups = rows * parts(columns, 32);
  if (splits_ && blocks > kColumnSlices && groups < std::int64_t{4} * current_device().info().multiprocessors)
    return launch_split(launch, values, rows * columns, blocks);
  const bool are_few = groups < std::int64_t{4} * current_device().info().multiprocessors;
  const bool has_many = are_few && blocks >= 2 * std::int64_t{kColumnSlices};
  const unsigned slices = has_many ? kMostColumnSlices : kColumnSlices;
  const auto shared = static_cast<unsigned>(components(kernel_) * 32 * slices * 8);
  variant(has_many ? Schedule::slices : Schedule::column, !values.fits_32_bits())
      .launch({grid_for(groups), 32 * slices, shared}, values.data());
}

/// Blocks apart and then their merge: for few rows or columns that are long.
void CudaExecutable::launch_split(const KernelLaunch&, ArgumentValues& values, std::int64_t units,
                                  std::int64_t blocks) const {
  const std::size_t bytes = components(kernel_) * 8 * static_cast<std::size_t>(units * blocks);
  Allocator& allocator = current_device().allocator();
  Block* const states = allocator.allocate(bytes, current_stream());
  struct Release {
    Allocator& allocator;
    Block* block;
    ~Release() { allocator.release(block); }  // what is enqueued later runs later
  } release{allocator, states};
  values.set(layout_.partials, static_cast<std::int64_t>(states->address));
  const bool wide = !values.fits_32_bits();
  const std::int64_t per_block = kernel_.is_row_kernel() ? kWarps : kThreads;
  variant(Schedule::partial, wide).launch({grid_for(parts(units * blocks, per_block)), kThreads, 0}, values.data());
  variant(Schedule::finish, wide).launch({grid_for(parts(units, per_block)), kThreads, 0}, values.data());
}

}  // namespace fermata::gpu
