// See fermata/vmap.h: what goes into a level of vmap, and what comes out of it.
#include "fermata/vmap.h"

#include <fmt/format.h>

#include <numeric>
#include <string>

#include "frontend/ops/calls.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {

using detail::VmapCall;
namespace {

[[noreturn]] void throw_axes_count(std::string_view what, std::size_t axes, std::size_t values, Location where) {
  throw ValueError(1741, format_error(1741, "ValueError", fmt::format("vmap: {} axes for {} {}", axes, values, what),
                                      {}, where, "pass one axis each, or a single one for all"));
}

Tensor permuted(const Tensor& x, const std::vector<std::int64_t>& axes, Location where) {
  return general_call<Op::permute>({.axes = {axes}}, {&x, 1}, where);
}

/// The axis that comes first, then the others in order.
std::vector<std::int64_t> front_order(unsigned rank, unsigned axis) {
  std::vector<std::int64_t> order{axis};
  for (unsigned i = 0; i < rank; ++i)
    if (i != axis) order.push_back(i);
  return order;
}

}  // namespace

struct VmapCall::State {
  const BatchAxes &in, &out;
  std::size_t arguments;
  Location where;
  VmapFrame frame;
  Tensor first;  // batched argument, for errors
  std::size_t first_argument = 0;
  std::optional<InsideLevel> inside;
};

VmapCall::VmapCall(const BatchAxes& in_axes, const BatchAxes& out_axes, std::size_t arguments, Location where)
    : state_(new State{in_axes, out_axes, arguments, where, {}, {}, 0, {}}) {
  if (!in_axes.one_for_all() && in_axes.size() != arguments)
    throw_axes_count(arguments == 1 ? "argument" : "arguments", in_axes.size(), arguments, where);
  state_->frame.outer = vmap_frame;
  state_->frame.level = new_level(0);
}
VmapCall::~VmapCall() = default;

void VmapCall::measure_tensor(const Tensor& x, std::size_t argument) {
  State& s = *state_;
  require_defined("vmap", x, s.where);
  if (!s.in[argument].is_batched()) return;
  const unsigned axis = normalize_axis("vmap", s.in[argument].axis(), type_of(x), s.where);
  const std::int64_t size = x.shape()[axis];
  if (!s.first.defined()) {
    s.frame.level.size = size, s.first = x, s.first_argument = argument;
    return;
  }
  if (size == s.frame.level.size) return;
  const unsigned first_axis = normalize_axis("vmap", s.in[s.first_argument].axis(), type_of(s.first), s.where);
  const std::string labels[] = {fmt::format("argument {}", s.first_argument), fmt::format("argument {}", argument)};
  throw ShapeError(
      1742,
      format_error(1742, "ShapeError", fmt::format("vmap: batch sizes differ ({} and {})", s.frame.level.size, size),
                   {{labels[0], to_string(s.first.dtype(), s.first.shape()),
                     fmt::format("axis {} is {}", first_axis, s.frame.level.size)},
                    {labels[1], to_string(x.dtype(), x.shape()), fmt::format("axis {} is {}", axis, size)}},
                   s.where));
}

Tensor VmapCall::wrap_tensor(const Tensor& x, std::size_t argument) const {
  const State& s = *state_;
  if (!s.in[argument].is_batched()) return x;
  const unsigned axis = normalize_axis("vmap", s.in[argument].axis(), type_of(x), s.where);
  Tensor front = axis == 0 ? same_value(x) : permuted(x, front_order(x.rank(), axis), s.where);
  return make_batched(std::move(front), s.frame.level, true);
}

void VmapCall::enter() {
  State& s = *state_;
  if (!s.first.defined())
    throw ValueError(1743, format_error(1743, "ValueError", "vmap: no argument is batched", {}, s.where,
                                        "set the batch axis of at least one argument"));
  s.first = Tensor();
  s.inside.emplace(&s.frame);
}

void VmapCall::promote_and_broadcast(const Tensor& x) {
  if (x.defined()) static_cast<void>(x.node());
}

void VmapCall::exit(std::size_t results) {
  State& s = *state_;
  s.inside.reset();
  if (!s.out.one_for_all() && s.out.size() != results)
    throw_axes_count(results == 1 ? "result" : "results", s.out.size(), results, s.where);
}

Tensor VmapCall::unwrap_tensor(const Tensor& x, std::size_t result) const {
  const State& s = *state_;
  require_defined("vmap", x, s.where);
  Tensor value = x;
  bool has_batch = false;
  if (is_batched(x)) {
    const BatchedTensor& b = batched_tensor(x);
    if (b.level.serial == s.frame.level.serial)
      value = Tensor(b.physical), has_batch = b.batched;
    else
      frame_of(b, s.where);
  }
  const BatchAxis& wanted = s.out[result];
  if (!wanted.is_batched()) {
    if (!has_batch) return value;
    throw ValueError(1746, format_error(1746, "ValueError", "vmap: the result is batched",
                                        {{"y", to_string(x.dtype(), x.shape()), "out axis is `unbatched`"}}, s.where,
                                        "give it an axis"));
  }
  TensorType whole{value.dtype(), {}};
  whole.shape.push_back(s.frame.level.size);
  for (const std::int64_t size : x.shape()) whole.shape.push_back(size);
  const unsigned axis = normalize_axis("vmap", wanted.axis(), whole, s.where);
  if (!has_batch) value = general_call<Op::broadcast_to>({.shape = {whole.shape}}, {&value, 1}, s.where, whole.dtype);
  if (axis == 0) return value;
  std::vector<std::int64_t> order;
  for (unsigned i = 1; i < whole.shape.rank(); ++i) order.push_back(i);
  order.insert(order.begin() + axis, 0);
  return permuted(value, order, s.where);
}

}  // namespace fermata
