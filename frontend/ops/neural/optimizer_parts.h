// What formulas of optimizers are made of: options as operands, and tensors that are remembered.
#pragma once

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/setting.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/transforms/autograd/vjp_tensor.h"

namespace fermata::optim {

using vjp::VjpTensor;

/// Makes what an optimizer remembers: not as a part of a function that is being compiled, which would make it anew.
template <class F> Tensor outside(F&& make, Location where) {
  const OutsideScopes none;
  Tensor made = make();
  made.sync(where);
  return made;
}

/// What a formula makes of options, as an operand beside a tensor. In a function that is being compiled the options are
/// tensors, so that each call takes their present values; the formula is computed in f64 either way.
template <class F, class... Options>
VjpTensor of_options(const Tensor& beside, F&& formula, const Options&... options) {
  if (!in_capture_scope()) return VjpTensor(formula(static_cast<double>(options)...));
  const auto placed = [&](const Setting& option) {
    if (device(beside) == BackendKey::cpu) return VjpTensor(option.tensor());
    return vjp::full(1, {DType::f64, {}}, beside) * VjpTensor(option.tensor());  // on the device
  };
  return vjp::cast(formula(placed(options)...), beside.dtype());
}
inline VjpTensor of_option(const Tensor& beside, const Setting& option) {
  return of_options(
      beside, [](auto x) { return x; }, option);
}

/// What an optimizer remembers of a parameter, at the start.
inline Tensor remembered(const Tensor& parameter, Location where) {
  return zeros_like(parameter.detach(), compute_dtype(parameter.dtype()), where);
}

}  // namespace fermata::optim
