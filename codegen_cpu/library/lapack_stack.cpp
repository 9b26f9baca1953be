// See lapack_stack.h.
#include "codegen_cpu/library/lapack_stack.h"

#include <fmt/format.h>

#include "ir/error.h"

namespace fermata {

MatrixStack::MatrixStack(const CallArgs& args, unsigned matrix_axes_of_result)
    : args_(args),
      batch_(std::span(args.outputs[0].sizes, args.outputs[0].rank - matrix_axes_of_result)),
      matrices_(element_count(batch_)),
      result_elements_(1) {
  for (unsigned i = batch_.rank(); i < args.outputs[0].rank; ++i) result_elements_ *= args.outputs[0].sizes[i];
}

Shape MatrixStack::position(std::int64_t number) const {
  Shape at(batch_);
  for (unsigned axis = batch_.rank(); axis-- > 0;) {
    at[axis] = number % batch_[axis];
    number /= batch_[axis];
  }
  return at;
}

std::int64_t MatrixStack::offset(std::size_t operand, std::int64_t number) const {
  const TensorView& v = view(operand);
  const Shape at = position(number);
  const unsigned own = v.rank - 2u, lead = batch_.rank() - own;
  std::int64_t offset = 0;
  for (unsigned axis = 0; axis < own; ++axis)
    if (v.sizes[axis] != 1) offset += at[lead + axis] * v.strides[axis];
  return offset;
}

std::int64_t MatrixStack::step(std::size_t operand) const {
  const TensorView& v = view(operand);
  const unsigned own = v.rank - 2u, lead = batch_.rank() - own;
  std::int64_t step = 0, inner = 1;  // matrices further inside
  for (unsigned axis = batch_.rank(); axis-- > 0;) {
    if (batch_[axis] == 1) continue;
    const std::int64_t stride = axis < lead || v.sizes[axis - lead] == 1 ? 0 : v.strides[axis - lead];
    if (inner == 1) step = stride;
    if (stride != step * inner) return 0;
    inner *= batch_[axis];
  }
  return inner == 1 ? 1 : step;
}

void MatrixStack::raise(const MatrixFailure& failure) const {
  const std::int64_t number = failed_.load();
  if (number == INT64_MAX) return;
  const bool two = args_.inputs.size() == 2 && args_.op != Op::pinv;
  std::vector<ErrorOperand> lines;
  for (std::size_t k = 0; k < (two ? 2u : 1u); ++k) {
    const TensorView& v = view(k);
    lines.push_back({two ? (k == 0 ? "a" : "b") : "x", to_string(v.dtype, {v.sizes, v.rank}), ""});
  }
  const std::string which = batch_.empty() ? "the matrix" : fmt::format("matrix {}", to_string(position(number)));
  throw ValueError(failure.code,
                   format_error(failure.code, "ValueError",
                                fmt::format("{}: {} {}", name(args_.op), which, failure.what), lines, args_.where));
}

}  // namespace fermata
