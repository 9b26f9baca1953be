// See fermata/complex.h.
#include "fermata/complex.h"

#include <array>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"

namespace fermata {

Tensor complex(const Operand& re, const Operand& im) {
  require_defined(Op::complex, re), require_defined(Op::complex, im);
  const Location where = re.where();
  const std::array given{&re, &im};
  // As beside each other in a sum: numbers and 0-d tensors do not widen.
  const DType common = re.is_tensor() || im.is_tensor() ? add(re, im).dtype() : DType::f32;
  const DType part = common == DType::f64 ? DType::f64 : DType::f32;
  std::array<Tensor, 2> parts;
  for (std::size_t k = 0; k < 2; ++k) {
    const bool narrows = given[k]->is_tensor() && !is_complex(given[k]->tensor().dtype());
    parts[k] = !given[k]->is_tensor() ? full({}, given[k]->scalar(), part, where)
               : narrows              ? astype(given[k]->tensor(), part, where)
                                      : given[k]->tensor();
  }
  if (const auto shape = broadcast_shapes(parts[0].shape(), parts[1].shape()))
    for (Tensor& part_of_all : parts) part_of_all = broadcast_to(part_of_all, *shape, where);
  return general_call(Op::complex, parts, {}, where);
}

bool is_complex(const Tensor& x, Location where) { return is_complex(x.dtype(where)); }

}  // namespace fermata
