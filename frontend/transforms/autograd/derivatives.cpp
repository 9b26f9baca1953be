// See fermata/derivatives.h.
#include "fermata/derivatives.h"

#include <fmt/format.h>

#include <optional>
#include <string>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/function_tape.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"

namespace fermata {

using detail::Linearization;

struct Linearization::State {
  std::string function;
  Location where;
  FunctionTape tape;
  std::vector<TensorType> arguments{}, results{};
  std::optional<Transposition> transposition{};  // for push()
  bool create_graph = false;

  void check(std::span<const Tensor> given, std::span<const TensorType> wanted, std::string_view what) const;
  Tensor zeros(const TensorType& type, const Tensor& like) const {
    const vjp::LineGuard line(where);
    return vjp::full(0, type, like).tensor();
  }
};

void Linearization::State::check(std::span<const Tensor> given, std::span<const TensorType> wanted,
                                 std::string_view what) const {
  if (given.size() != wanted.size())
    throw GradientError(
        1760,
        format_error(1760, "GradientError",
                     fmt::format("{}: {} {}s for {} tensors", function, given.size(), what, wanted.size()), {}, where));
  for (std::size_t i = 0; i < given.size(); ++i) {
    if (!is_inexact(wanted[i].dtype)) continue;
    require_defined(function, given[i], where);
    const bool fits = is_inexact(given[i].dtype()) && (is_complex(wanted[i].dtype) || !is_complex(given[i].dtype()));
    if (given[i].shape() == wanted[i].shape && fits) continue;
    throw GradientError(1760, format_error(1760, "GradientError",
                                           fmt::format("{}: {} {} must be floating and have the shape of its tensor",
                                                       function, what, i),
                                           {{"tensor", to_string(wanted[i].dtype, wanted[i].shape), ""},
                                            {what, to_string(given[i].dtype(), given[i].shape()), ""}},
                                           where));
  }
}

Linearization::Linearization(std::string_view function, Location where)
    : state_(new State{std::string(function), where, FunctionTape(where)}) {}
Linearization::~Linearization() = default;
Linearization::Linearization(Linearization&&) noexcept = default;
Linearization& Linearization::operator=(Linearization&&) noexcept = default;

Tensor Linearization::mark(const Tensor& x) {
  require_defined(state_->function, x, state_->where);
  state_->arguments.push_back(type_of(x));
  return state_->tape.mark(x);
}

std::vector<Tensor> Linearization::finish(std::span<const Tensor> ys, bool pushes) {
  State& s = *state_;
  for (const Tensor& y : ys) require_defined(s.function, y, s.where), s.results.push_back(type_of(y));
  s.tape.finish(ys);
  s.create_graph = s.tape.needs_outer_gradient();
  if (pushes) s.transposition.emplace(s.tape, std::span<const GradEdge>(), s.where);
  std::vector<Tensor> settled;
  for (std::size_t i = 0; i < ys.size(); ++i) settled.push_back(s.tape.result(i));
  return settled;
}

std::vector<Tensor> Linearization::pull(std::span<const Tensor> cotangents) const {
  const State& s = *state_;
  s.check(cotangents, s.results, "cotangent");
  std::vector<Tensor> seeds;
  for (std::size_t i = 0; i < cotangents.size(); ++i) {
    const vjp::LineGuard line(s.where);
    const bool floating = is_inexact(s.results[i].dtype);
    seeds.push_back(floating ? vjp::cast(cotangents[i], s.results[i].dtype).tensor() : Tensor());
  }
  std::vector<Tensor> result = s.tape.pull(seeds, {}, s.create_graph && grad_enabled());
  for (std::size_t i = 0; i < result.size(); ++i)
    if (!result[i].defined()) result[i] = s.zeros(s.arguments[i], s.tape.recorded_result(0));
  return result;
}

std::vector<Tensor> Linearization::push(std::span<const Tensor> tangents) const {
  const State& s = *state_;
  s.check(tangents, s.arguments, "tangent");
  std::vector<Tensor> along(tangents.size());
  for (std::size_t i = 0; i < tangents.size(); ++i) {
    const vjp::LineGuard line(s.where);
    if (is_inexact(s.arguments[i].dtype)) along[i] = vjp::cast(tangents[i], s.arguments[i].dtype).tensor();
  }
  std::vector<Tensor> result = s.transposition->push(along, s.create_graph && grad_enabled());
  for (std::size_t i = 0; i < result.size(); ++i)
    if (!result[i].defined()) result[i] = s.zeros(s.results[i], s.tape.recorded_result(i));
  return result;
}

namespace detail {

Tensor basis(const Tensor& like, Location where) {
  if (is_complex(like.dtype()))
    throw UnsupportedError(
        2761,
        format_error(2761, "UnsupportedError", "the Jacobian with respect to complex numbers is not a complex matrix",
                     describe(like), where, "use jvp or pullback, or split it into real() and imag()"));
  const std::int64_t count = like.element_count();
  Shape sizes{count};
  for (const std::int64_t size : like.shape()) sizes.push_back(size);
  return reshape(to(eye(count, {}, like.dtype(), where), device(like, where), where), sizes, where);
}

Tensor rows_as(const Tensor& rows, const Tensor& first, const Tensor& rest, Location where) {
  Shape sizes = first.shape();
  for (const std::int64_t size : rest.shape()) sizes.push_back(size);
  return reshape(rows, sizes, where);
}

}  // namespace detail
}  // namespace fermata
