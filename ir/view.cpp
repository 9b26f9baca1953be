// See view.h.
#include "ir/view.h"

#include "ir/error.h"
#include "ir/op_traits.h"

namespace fermata {

bool apply_view(Op op, std::span<const std::int64_t> attributes, const Shape& to, Shape& sizes, Shape& strides,
                std::int64_t& offset) {
  const OpTraits& about = traits(op);
  if (about.apply == nullptr) throw_internal("not a view op");
  return about.apply({attributes, to, {}, {}}, to, sizes, strides, offset);
}

void apply_stretch(std::span<const std::int64_t> to, Shape& sizes, Shape& strides) {
  Shape out;
  const std::size_t lead = to.size() - sizes.rank();
  for (std::size_t i = 0; i < to.size(); ++i)
    out.push_back(i < lead || (sizes[i - lead] == 1 && to[i] != 1) ? 0 : strides[i - lead]);
  sizes = Shape(to), strides = out;
}

}  // namespace fermata
