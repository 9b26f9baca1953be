// What the constructors of modules share.
#pragma once

#include <initializer_list>
#include <string_view>
#include <utility>

#include "fermata/integer_list.h"
#include "runtime/tensor.h"

namespace fermata::nn {

/// A parameter of uniform numbers within a bound, drawn from the default generator.
Tensor uniform_parameter(const IntegerList& sizes, double bound, DType dtype, Location where);
/// A parameter whose elements are all equal.
Tensor constant_parameter(const IntegerList& sizes, double value, DType dtype, Location where);
/// The same without a wish for a gradient.
Tensor constant_buffer(const IntegerList& sizes, double value, DType dtype, Location where);

/// ValueError FM1377 unless all sizes are positive: "Linear: in is 0, and not positive".
void require_positive(std::string_view module, std::initializer_list<std::pair<std::string_view, std::int64_t>> sizes,
                      Location where);

}  // namespace fermata::nn
