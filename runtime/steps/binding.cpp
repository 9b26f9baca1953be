// See binding.h.
#include "runtime/steps/binding.h"

#include <algorithm>
#include <span>

#include "ir/channels_last.h"
#include "ir/error.h"
#include "ir/view.h"

namespace fermata {
namespace {

void apply_insert(std::uint16_t mask, Shape& sizes, Shape& strides) {
  Shape new_sizes, new_strides;
  for (unsigned i = 0, from = 0; from < sizes.rank() || (mask >> i) != 0; ++i) {
    const bool inserted = (mask >> i & 1) != 0;
    new_sizes.push_back(inserted ? 1 : sizes[from]);
    new_strides.push_back(inserted ? 0 : strides[from]);
    from += inserted ? 0 : 1;
  }
  sizes = new_sizes, strides = new_strides;
}

/// Strides that count over the axes in `mask`.
Shape counting_strides(const Shape& sizes, std::uint16_t mask) {
  Shape counted = sizes;
  for (unsigned i = 0; i < counted.rank(); ++i)
    if ((mask >> i & 1) == 0) counted[i] = 1;
  Shape strides = dense_strides(counted);
  for (unsigned i = 0; i < counted.rank(); ++i)
    if ((mask >> i & 1) == 0) strides[i] = 0;
  return strides;
}

// A file may say anything, so these are checked.
void leave_out(std::int64_t count, unsigned axis, BoundSource& s) {
  if (count > s.sizes[axis]) throw_internal("a part begins outside of its buffer");
  s.sizes[axis] -= count, s.offset += count * s.strides[axis];
}
void take_part(std::span<const std::int64_t> sizes, unsigned axis, BoundSource& s) {
  if (sizes[axis] <= s.sizes[axis]) s.sizes[axis] = sizes[axis];
  if (!std::ranges::equal(sizes, s.sizes)) throw_internal("a part is not within its buffer");
}
void drop_axis(unsigned axis, BoundSource& s) {
  if (s.sizes[axis] != 1) throw_internal("an axis that is dropped has several elements");
  Shape sizes, strides;
  for (unsigned i = 0; i < s.sizes.rank(); ++i)
    if (i != axis) sizes.push_back(s.sizes[i]), strides.push_back(s.strides[i]);
  s.sizes = sizes, s.strides = strides;
}

/// The axes of positions stand for the one that they are on.
void gather(std::span<const std::int64_t> sizes, unsigned axis, BoundSource& s) {
  const std::size_t of_positions = sizes.size() + 1 - s.sizes.rank();
  Shape strides;
  for (unsigned i = 0; i < sizes.size(); ++i)
    strides.push_back(i < axis                  ? s.strides[i]
                      : i < axis + of_positions ? 0
                                                : s.strides[static_cast<unsigned>(i - of_positions + 1)]);
  s.sizes = Shape(sizes), s.strides = strides;
}

}  // namespace

BoundSource Binding::resolve(const PlanSource& source) const {
  const PlanSlot& slot = plan.slots[source.slot];
  const Node& origin = *records[slot.record];
  BoundSource s{Shape(origin.sizes()), {}, 0};
  if (slot.kind == PlanSlot::Kind::leaf && !origin.is_dense_leaf())
    s.strides = origin.extra->strides, s.offset = origin.extra->offset;
  else if (slot.kind == PlanSlot::Kind::position)
    s.strides = counting_strides(s.sizes, slot.mask);
  else
    s.strides = slot.channels_last ? channels_last_strides(s.sizes) : dense_strides(s.sizes);
  for (const PathStep& step : source.path) {
    switch (step.kind) {
      case PathStep::Kind::view: {
        const Node& view = *records[step.record];
        if (!apply_view(view.op, view.stored_attributes(), Shape(view.sizes()), s.sizes, s.strides, s.offset))
          throw_internal("a reshape was folded into a load that it cannot be folded into");
        break;
      }
      case PathStep::Kind::stretch: apply_stretch(records[step.record]->sizes(), s.sizes, s.strides); break;
      case PathStep::Kind::insert: apply_insert(step.mask, s.sizes, s.strides); break;
      case PathStep::Kind::after: leave_out(records[step.record]->sizes()[step.mask], step.mask, s); break;
      case PathStep::Kind::part: take_part(records[step.record]->sizes(), step.mask, s); break;
      case PathStep::Kind::drop: drop_axis(step.mask, s); break;
      case PathStep::Kind::half:
        for (std::int64_t& stride : s.strides) stride *= 2;
        s.offset = 2 * s.offset + step.mask;
        break;
      case PathStep::Kind::gathered: gather(records[step.record]->sizes(), step.mask, s); break;
      case PathStep::Kind::step: s = {Shape(), Shape(), s.strides[step.mask]}; break;
      case PathStep::Kind::before: s.offset -= records[step.record]->sizes()[step.mask] * s.strides[step.mask]; break;
      case PathStep::Kind::widened: s.sizes = Shape(records[step.record]->sizes()); break;
      case PathStep::Kind::size: s = {Shape(), Shape(), records[step.record]->sizes()[step.mask]}; break;
      case PathStep::Kind::plus: s.offset += records[step.record]->sizes()[step.mask]; break;
    }
  }
  return s;
}

}  // namespace fermata
