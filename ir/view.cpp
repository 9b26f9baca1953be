// See view.h.
#include "ir/view.h"

#include "ir/error.h"

namespace fermata {

bool apply_view(Op op, std::span<const std::int64_t> a, const Shape& to, Shape& sizes, Shape& strides,
                std::int64_t& offset) {
  Shape out;
  switch (op) {
    case Op::reshape: {
      const auto moved = reshape_strides(sizes, strides, to);
      if (!moved) return false;
      out = *moved;
      break;
    }
    case Op::expand_dims:
      for (unsigned i = 0, from = 0; i < to.rank(); ++i) out.push_back((a[0] >> i & 1) != 0 ? 0 : strides[from++]);
      break;
    case Op::squeeze:
      for (unsigned i = 0; i < sizes.rank(); ++i)
        if ((a[0] >> i & 1) == 0) out.push_back(strides[i]);
      break;
    case Op::permute:
      for (const std::int64_t from : a) out.push_back(strides[static_cast<std::size_t>(from)]);
      break;
    case Op::slice:
      for (unsigned i = 0; i < to.rank(); ++i) {
        offset += to[i] == 0 ? 0 : a[i] * strides[i];
        out.push_back(strides[i] * a[to.rank() + i]);
      }
      break;
    case Op::unfold: {
      const auto axis = static_cast<std::size_t>(a[0]);
      out = strides;
      out[axis] = strides[axis] * a[2];
      out.push_back(strides[axis] * a[3]);
      break;
    }
    case Op::broadcast_to: apply_stretch(to, sizes, strides); return true;
    default: throw_internal("not a view op");
  }
  sizes = to, strides = out;
  return true;
}

void apply_stretch(std::span<const std::int64_t> to, Shape& sizes, Shape& strides) {
  Shape out;
  const std::size_t lead = to.size() - sizes.rank();
  for (std::size_t i = 0; i < to.size(); ++i)
    out.push_back(i < lead || (sizes[i - lead] == 1 && to[i] != 1) ? 0 : strides[i - lead]);
  sizes = Shape(to), strides = out;
}

}  // namespace fermata
