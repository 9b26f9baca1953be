// See copy_view.h.
#include "dispatch/copy_view.h"

#include "dispatch/kernel_table.h"
#include "dispatch/operator.h"
#include "ir/shape.h"

namespace fermata {

void copy_view(const TensorView& from, void* to, BackendKey backend, std::source_location where) {
  const Shape dense = dense_strides(std::span(from.sizes, from.rank));
  const TensorView out{to, from.dtype, from.rank, from.sizes, dense.data()};
  const CallArgs copy{Op::copy, {&from, 1}, {&out, 1}, {}, {}, where};
  run_call(operator_entry(Op::copy), backend, from.dtype, copy, where);
}

}  // namespace fermata
