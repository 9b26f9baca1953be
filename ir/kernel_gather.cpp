// What a kernel description says of its gathers.
#include <algorithm>

#include "ir/error.h"
#include "ir/kernel.h"

namespace fermata {
namespace {

bool is_of_launch(const Kernel& kernel, ValueId id) {
  const Instr& instr = kernel.program[id];
  return instr.prim == Prim::constant || (instr.prim == Prim::offset && kernel.accesses[instr.index].address_only &&
                                          kernel.accesses[instr.index].axes == 0);
}

std::int64_t value_of(const Kernel& kernel, ValueId id, const KernelLaunch& launch) {
  const Instr& instr = kernel.program[id];
  return instr.prim == Prim::constant ? static_cast<std::int64_t>(instr.bits) : launch.offsets[instr.index];
}

}  // namespace

bool has_positions(const Kernel& kernel) {
  return std::ranges::any_of(kernel.program.instrs(), [](const Instr& i) { return i.prim == Prim::position; });
}

std::optional<GatheredAxis> gathered_axis(const Kernel& kernel, const Instr& gather) {
  const Instr* offset = &kernel.program[gather.a];
  GatheredAxis axis{kNoValue, kNoValue};
  if (offset->prim == Prim::mul) axis.step = offset->b, offset = &kernel.program[offset->a];
  if (offset->prim != Prim::position) return std::nullopt;
  axis.size = offset->b;
  if (!is_of_launch(kernel, axis.size) || (axis.step != kNoValue && !is_of_launch(kernel, axis.step)))
    return std::nullopt;
  return axis;
}

std::optional<std::int64_t> gathered_reach(const Kernel& kernel, std::uint16_t access, const KernelLaunch& launch) {
  for (const Instr& instr : kernel.program.instrs()) {
    if (instr.prim != Prim::gather || instr.index != access) continue;
    const std::optional<GatheredAxis> axis = gathered_axis(kernel, instr);
    if (!axis) throw_internal("a kernel gathers at an offset of unknown kind");
    const std::int64_t last = value_of(kernel, axis->size, launch) - 1;
    if (last < 0) return std::nullopt;
    return axis->step == kNoValue ? last : last * value_of(kernel, axis->step, launch);
  }
  return 0;
}

}  // namespace fermata
