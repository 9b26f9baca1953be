// See arena.h.
#include "runtime/arena.h"

#include <algorithm>

namespace fermata {
namespace {

std::size_t rounded(std::size_t bytes) {
  constexpr std::size_t kAlignment = 64;
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

std::size_t place_temporaries(const Plan& plan, std::span<const std::size_t> slot_bytes,
                              std::vector<std::size_t>& offsets) {
  // First fit by decreasing size over lifetimes: within a few percent of optimal for such plans, and quick.
  offsets.assign(plan.slots.size(), 0);
  std::size_t total = 0;
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < plan.slots.size(); ++i)
    if (plan.slots[i].kind == PlanSlot::Kind::temporary && !plan.slots[i].is_owned && !plan.slots[i].is_given)
      order.push_back(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return slot_bytes[a] > slot_bytes[b]; });
  std::vector<std::uint32_t> placed;
  for (const std::uint32_t i : order) {
    const PlanSlot& slot = plan.slots[i];
    const std::size_t bytes = rounded(slot_bytes[i]);
    std::size_t at = 0;
    for (bool moved = true; moved;) {
      moved = false;
      for (const std::uint32_t j : placed) {
        const PlanSlot& other = plan.slots[j];
        if (other.last_step < slot.first_step || slot.last_step < other.first_step) continue;
        const std::size_t end = offsets[j] + rounded(slot_bytes[j]);
        if (at < end && offsets[j] < at + bytes) at = end, moved = true;
      }
    }
    offsets[i] = at;
    total = std::max(total, at + bytes);
    placed.push_back(i);
  }
  return total;
}

}  // namespace fermata
