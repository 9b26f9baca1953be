// See parameter.h.
#include "frontend/nn/parameter.h"

#include <fmt/format.h>

#include "fermata/autograd.h"
#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/random.h"
#include "frontend/ops/neural/floating_scope.h"

namespace fermata::nn {

Tensor uniform_parameter(const IntegerList& sizes, double bound, DType dtype, Location where) {
  const NoGradGuard no_history;
  const DType drawn = dtype == DType::f64 ? DType::f64 : DType::f32;
  Tensor x = astype(uniform(sizes, -bound, bound, drawn, default_generator(), where), dtype, where);
  return x.requires_grad(true, where);
}

Tensor constant_parameter(const IntegerList& sizes, double value, DType dtype, Location where) {
  Tensor x = constant_buffer(sizes, value, dtype, where);
  return x.requires_grad(true, where);
}

Tensor constant_buffer(const IntegerList& sizes, double value, DType dtype, Location where) {
  return full(sizes, value, dtype, where);
}

void require_positive(std::string_view module, std::initializer_list<std::pair<std::string_view, std::int64_t>> sizes,
                      Location where) {
  for (const auto& [name, size] : sizes)
    if (size < 1) fail_parameter(module, fmt::format("{} is {}, not positive", name, size), where);
}

}  // namespace fermata::nn
