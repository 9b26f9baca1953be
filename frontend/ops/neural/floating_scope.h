// What compositions compute in: the common floating dtype of their operands, f32 for f16 and bf16, rounded once at the
// end.
#pragma once

#include <initializer_list>
#include <string_view>

#include "frontend/transforms/autograd/vjp_tensor.h"

namespace fermata {

/// Casts operands into what is computed in, and results back. While it lives, what is recorded has the caller's line.
/// Integers take no part in choosing the dtype.
class FloatingScope {
 public:
  /// ValueError FM1306 for an undefined operand. Inside an autocast region the result of f16 and bf16 is f32, as that
  /// of composite ops is, unless the function keeps dtypes.
  FloatingScope(std::string_view function, std::initializer_list<const Tensor*> operands, Location where,
                bool keeps_dtype = false);
  vjp::VjpTensor operator()(const Tensor& x) const;
  /// The result in the dtype of the operands.
  Tensor result(const vjp::VjpTensor& y) const;
  std::string_view function() const { return function_; }
  Location where() const { return where_; }

 private:
  vjp::LineGuard line_;
  std::string_view function_;
  Location where_;
  DType dtype_;
};

/// Throws ValueError FM1377 with the name of a function and what is wrong with a parameter.
[[noreturn]] void fail_parameter(std::string_view function, std::string_view what, Location where);
/// Of what is dropped from x: the same for a number that is none between 0 and 1, FM1306 for an undefined x.
void require_probability(std::string_view function, const Tensor& x, double p, Location where);

}  // namespace fermata
