// See fermata/nn/convolution.h.
#include "fermata/nn/convolution.h"

#include <fmt/format.h>

#include <cmath>
#include <span>

#include "frontend/nn/parameter.h"
#include "frontend/ops/neural/floating_scope.h"
#include "ir/error.h"

namespace fermata::nn {
namespace {

template <std::size_t D> std::array<std::int64_t, D> for_each_axis(std::string_view module, std::string_view name,
                                                                   const Shape& values, Location where) {
  if (values.size() != 1 && values.size() != D)
    throw ValueError(
        1372,
        format_error(1372, "ValueError",
                     fmt::format("{}: {} has {} numbers, not one or {}", module, name, values.size(), D), {}, where));
  std::array<std::int64_t, D> all;
  for (std::size_t i = 0; i < D; ++i) all[i] = values[values.size() == 1 ? 0 : i];
  return all;
}

/// The channels of a module in groups, and its filters.
template <std::size_t D> struct Filters {
  Filters(std::string_view module, std::int64_t in, std::int64_t out, const PerAxis& kernel, std::int64_t groups,
          Location where)
      : sizes(for_each_axis<D>(module, "kernel", kernel.values(), where)) {
    require_positive(module, {{"in", in}, {"out", out}, {"groups", groups}}, where);
    for (const std::int64_t size : sizes) require_positive(module, {{"kernel", size}}, where), field *= size;
    if (in % groups != 0 || out % groups != 0)
      fail_parameter(module, fmt::format("{} groups do not divide {} and {} channels", groups, in, out), where);
  }
  /// [first, second, ..]
  Shape shape(std::int64_t first, std::int64_t second) const {
    Shape all{first, second};
    for (const std::int64_t size : sizes) all.push_back(size);
    return all;
  }
  std::array<std::int64_t, D> sizes;
  std::int64_t field = 1;
};
template <std::size_t D> std::span<const std::int64_t> list(const std::array<std::int64_t, D>& values) {
  return values;
}
double bound_of(std::int64_t fan_in) { return 1 / std::sqrt(static_cast<double>(fan_in)); }

}  // namespace

template <std::size_t D>
Conv<D>::Conv(std::int64_t in, std::int64_t out, const PerAxis& kernel, const ConvOptions& options, Location where)
    : stride(for_each_axis<D>("Conv", "stride", options.stride.values(), where)),
      padding{},
      dilation(for_each_axis<D>("Conv", "dilation", options.dilation.values(), where)),
      groups(options.groups),
      same_size(options.padding.name() == "same") {
  if (options.padding.name().empty())
    padding = for_each_axis<D>("Conv", "padding", options.padding.sizes(), where);
  else if (options.padding.name() != "same" && options.padding.name() != "valid")
    throw ValueError(
        1373, format_error(1373, "ValueError",
                           fmt::format("Conv: padding must be 'same' or 'valid', not '{}'", options.padding.name()), {},
                           where));
  const Filters<D> filters("Conv", in, out, kernel, groups, where);
  const double bound = bound_of(in / groups * filters.field);
  weight = uniform_parameter(filters.shape(out, in / groups), bound, options.dtype, where);
  if (options.bias) bias = uniform_parameter(out, bound, options.dtype, where);
}

template <std::size_t D> Tensor Conv<D>::forward(const Tensor& x, Location where) const {
  const ModuleScope scope(*this);
  const Padding around = same_size ? Padding("same") : Padding(Shape(list(padding)));
  constexpr auto run = D == 1 ? &conv1d : D == 2 ? &conv2d : &conv3d;
  return run(x, weight, bias, list(stride), around, list(dilation), groups, where);
}

template <std::size_t D> ConvTranspose<D>::ConvTranspose(std::int64_t in, std::int64_t out, const PerAxis& kernel,
                                                         const ConvTransposeOptions& options, Location where)
    : stride(for_each_axis<D>("ConvTranspose", "stride", options.stride.values(), where)),
      padding(for_each_axis<D>("ConvTranspose", "padding", options.padding.values(), where)),
      output_padding(for_each_axis<D>("ConvTranspose", "output_padding", options.output_padding.values(), where)),
      dilation(for_each_axis<D>("ConvTranspose", "dilation", options.dilation.values(), where)),
      groups(options.groups) {
  const Filters<D> filters("ConvTranspose", in, out, kernel, groups, where);
  const double bound = bound_of(out / groups * filters.field);  // torch.nn counts the second axis of the weight
  weight = uniform_parameter(filters.shape(in, out / groups), bound, options.dtype, where);
  if (options.bias) bias = uniform_parameter(out, bound, options.dtype, where);
}

template <std::size_t D> Tensor ConvTranspose<D>::forward(const Tensor& x, Location where) const {
  const ModuleScope scope(*this);
  constexpr auto run = D == 1 ? &conv_transpose1d : D == 2 ? &conv_transpose2d : &conv_transpose3d;
  return run(x, weight, bias, list(stride), list(padding), list(output_padding), groups, list(dilation), where);
}

template struct Conv<1>;
template struct Conv<2>;
template struct Conv<3>;
template struct ConvTranspose<1>;
template struct ConvTranspose<2>;
template struct ConvTranspose<3>;

}  // namespace fermata::nn
