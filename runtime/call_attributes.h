// The attributes of a kernel's call, by name.
#pragma once

#include "ir/op_fields.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// const auto sort = attributes_of<ops::Sort>(args); as for a node (ir/op_fields.h).
template <class O> O attributes_of(const CallArgs& args) {
  const TensorView& out = args.outputs[0];
  return decode<O>({args.attributes, {out.sizes, out.rank}, out.dtype, args.scalars, args.subgraphs});
}

}  // namespace fermata
