// Copies of a BoundPlan: what lets several threads run one captured function at once. Views of call steps point into
// the numbers and scalars of the plan that they belong to, so those of a copy point into its own; what a run leaves
// behind (recordings of a device, counts of finished columns) is not copied.
#include <functional>

#include "runtime/bound_plan.h"

namespace fermata {
namespace {

/// Where the element that `pointer` points to lies in `to`, if it is one of `from`; else the pointer as it is.
template <class T, class P> P* moved(P* pointer, const std::vector<T>& from, std::vector<T>& to) {
  const auto* const at = static_cast<const T*>(pointer);
  const std::less<const T*> before;
  if (before(at, from.data()) || before(from.data() + from.size(), at)) return pointer;  // of rank 0 the end is named
  return to.data() + (at - from.data());
}

/// Of all that is listed below.
constexpr std::size_t kBytes = sizeof(std::span<int>) + 19 * sizeof(std::vector<int>) + 4 * sizeof(std::size_t);

}  // namespace

static_assert(sizeof(BoundPlan) == kBytes, "copy a new member, too, unless it is left from a run");

BoundPlan::BoundPlan(const BoundPlan& o)
    : steps_(o.steps_),
      numbers_(o.numbers_),
      addresses_(o.addresses_),
      scalars_(o.scalars_),
      slot_bytes_(o.slot_bytes_),
      slot_offset_(o.slot_offset_),
      output_slots_(o.output_slots_),
      overwrites_(o.overwrites_),
      shared_places_(o.shared_places_),
      has_boxed_(o.has_boxed_),
      views_(o.views_),
      view_addresses_(o.view_addresses_),
      plan_number_(o.plan_number_),
      geometry_(o.geometry_),
      arena_bytes_(o.arena_bytes_) {
  for (TensorView& view : views_) {
    view.sizes = moved(view.sizes, o.numbers_, numbers_);
    view.strides = moved(view.strides, o.numbers_, numbers_);
    view.data = moved(view.data, o.scalars_, scalars_);
  }
}

}  // namespace fermata
