// The kernels of the Quantized key. Each calls public functions on the parts, which are recorded, fused and run like
// anything a user writes. Ops that have none are refused with what to do instead.
#include <fmt/format.h>

#include <algorithm>

#include "dispatch/kernel_table.h"
#include "dispatch/registration.h"
#include "dispatch/value.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/engine/alias.h"
#include "frontend/layouts/quantized_tensor.h"
#include "frontend/layouts/quantized_weights.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"
#include "ir/op_traits.h"

namespace fermata {
namespace {

using Tensors = std::span<const Tensor>;
constexpr std::string_view kDequantize = "dequantize() returns floats, which every op accepts";

ErrorOperand line(std::string_view label, const Tensor& x) { return {label, to_string(x.dtype(), x.shape()), ""}; }

std::vector<ErrorOperand> lines(Tensors tensors) {
  if (tensors.size() == 2) return {line("lhs", tensors[0]), line("rhs", tensors[1])};
  std::vector<ErrorOperand> result;
  for (const Tensor& t : tensors) result.push_back(line("x", t));
  return result;
}

std::vector<ErrorOperand> lines(std::span<const Operand* const> operands) {
  std::vector<Tensor> tensors;
  for (const Operand* o : operands)
    if (o->is_tensor()) tensors.push_back(o->tensor());
  return lines(tensors);
}

[[noreturn]] void throw_missing(const Call& call, const std::vector<ErrorOperand>& operands) {
  const auto backend = static_cast<std::size_t>(call.keys.backend());
  throw UnsupportedError(
      2001, format_error(2001, "UnsupportedError",
                         fmt::format("{}: no kernel for Quantized/{}", call.entry.name, kBackendNames[backend]),
                         operands, call.where, kDequantize));
}

template <class... Operands> Tensor refuse_pointwise(const Call& call, const Operands&... operands) {
  const std::array<const Operand*, sizeof...(operands)> all{&operands...};
  throw_missing(call, lines(std::span<const Operand* const>(all)));
}
Tensor refuse_unary(const Call& call, const Operand& a) { return refuse_pointwise(call, a); }
Tensor refuse_binary(const Call& call, const Operand& a, const Operand& b) { return refuse_pointwise(call, a, b); }
Tensor refuse_ternary(const Call& call, const Operand& a, const Operand& b, const Operand& c) {
  return refuse_pointwise(call, a, b, c);
}
Tensor refuse_general(const Call& call, Tensors tensors, const Attributes&) { throw_missing(call, lines(tensors)); }

/// The payload of an operand that must be quantized as the others are.
const QuantizedPayload& part(const Call& call, const Tensor& x, Tensors all) {
  const QuantizedPayload* payload = quantized_payload(x);
  if (payload == nullptr) throw_missing(call, lines(all));
  return *payload;
}

[[noreturn]] void throw_channels(const Call& call, std::string_view what, Tensors tensors) {
  throw UnsupportedError(2020, format_error(2020, "UnsupportedError", fmt::format("{}: {}", call.entry.name, what),
                                            lines(tensors), call.where, kDequantize));
}

Tensor values_of(const QuantizedPayload& x, Location where) {
  const unsigned rank = x.bytes.rank();
  const Tensor wide = astype(x.bytes, DType::i32, where);
  const Tensor steps = subtract({wide, where}, along_channels(x.how.zero_point, x.how, rank, where));
  const Tensor values =
      multiply({astype(steps, DType::f32, where), where}, along_channels(x.how.scale, x.how, rank, where));
  return with_nondifferentiable_history(values, x.history);
}

/// Operands x, scale, zero_point.
Tensor run_quantize(const Call& call, Tensors tensors, const Attributes& attributes) {
  const Location where = call.where;
  const Tensor& x = tensors[0];
  Quantization how{tensors[1], tensors[2], {}};
  const auto given = attributes_of<QuantizeAttributes>(attributes);
  if (given.axis.value >= 0) how.axis = given.axis.value;
  GradEdge history;
  if (GradEdge below = thread_keys.excluded.has(Functionality::autograd) ? GradEdge() : grad_edge(x)) {
    history = make_grad_node(Op::quantize, 1, where);  // there is no rule for it: asking raises
    history->depth = below->depth + 1;
    GradOperand& operand = history->operands()[0];
    operand.dtype = x.dtype(), operand.shape = std::make_unique<Shape>(x.shape());
    operand.edge = std::move(below);
  }
  const DType dtype = given.dtype.value;
  const std::int64_t low = dtype == DType::qi8 ? -128 : 0, high = low + 255;
  const Tensor floats = astype(x.detach(), DType::f32, where);
  const Tensor steps = round({divide({floats, where}, along_channels(how.scale, how, x.rank(), where)), where});
  // Beyond 512 steps every zero point saturates; NaN is zero as an integer.
  const Tensor whole = astype(clip({steps, where}, -512, 512), DType::i32, where);
  const Tensor moved = add({whole, where}, along_channels(how.zero_point, how, x.rank(), where));
  const Tensor bytes = astype(clip({moved, where}, low, high), dtype == DType::qi8 ? DType::i8 : DType::u8, where);
  return make_quantized(bytes, how, given.centered.value, history);
}

Tensor run_dequantize(const Call& call, Tensors x, const Attributes&) {
  if (const WeightPayload* weights = weight_payload(x[0]))
    return astype(unpacked_weights(weights->bytes, weights->form, call.where), x[0].dtype(), call.where);
  return values_of(part(call, x[0], x), call.where);
}

Tensor run_cast(const Call& call, Tensors x, const Attributes& attributes) {
  const DType wanted = attributes.wanted.dtype;
  if (!is_floating(wanted)) throw_missing(call, lines(x));
  if (const WeightPayload* weights = weight_payload(x[0]))
    return wanted == DType::f64 ? astype(dequantize(x[0], call.where), wanted, call.where)
                                : make_weights(weights->bytes, weights->form, wanted);
  return astype(values_of(part(call, x[0], x), call.where), wanted, call.where);
}

Tensor run_copy(const Call& call, Tensors x, const Attributes&) {
  if (const WeightPayload* weights = weight_payload(x[0]))
    return make_weights(copy(weights->bytes, call.where), weights->form, x[0].dtype());
  const QuantizedPayload& q = part(call, x[0], x);
  return make_quantized(copy(q.bytes, call.where), q.how, q.centered, q.history);
}

/// Views of one scale, of any shape; with channels, those that only move axes.
Tensor run_view(const Call& call, Tensors x, const Attributes& attributes) {
  if (weight_payload(x[0]) != nullptr) return view_of_weights(call, x[0], attributes);
  const QuantizedPayload& q = part(call, x[0], x);
  const Op op = call.entry.op;
  Quantization how = q.how;
  if (how.axis) {
    if (op != Op::permute) throw_channels(call, "the channels of the result would not be along one axis", x);
    const Integers axes = attributes_of<ops::Permute>(attributes).axes.value;
    for (std::size_t i = 0; i < axes.size(); ++i)
      if (axes[i] == *q.how.axis) how.axis = static_cast<std::int64_t>(i);
  }
  const Tensor bytes = make_view(op, q.bytes, attributes.integers, attributes.wanted.shape, call.where);
  return make_quantized(bytes, how, q.centered, q.history);
}

Tensor run_relu(const Call& call, const Operand& x) {
  const QuantizedPayload& q = part(call, x.tensor(), {&x.tensor(), 1});
  const Location where = call.where;
  const Tensor zero = astype(along_channels(q.how.zero_point, q.how, q.bytes.rank(), where), q.bytes.dtype(), where);
  return make_quantized(maximum({q.bytes, where}, zero), q.how, q.centered, q.history);
}

Tensor run_add(const Call& call, const Operand& a, const Operand& b) {
  const Operand* const operands[] = {&a, &b};
  for (const Operand* o : operands)
    if (!o->is_tensor() || quantized_payload(o->tensor()) == nullptr) throw_missing(call, lines(operands));
  const Tensor lhs = values_of(*quantized_payload(a.tensor()), call.where);
  return add({lhs, call.where}, values_of(*quantized_payload(b.tensor()), call.where));
}

/// lhs [.., M, K] and rhs [.., K, N], or [N, K] where it is transposed, in f32.
Tensor product(const Call& call, Tensors x, bool transposed) {
  const Location where = call.where;
  const QuantizedPayload &lhs = part(call, x[0], x), &rhs = part(call, x[1], x);
  if (lhs.how.axis) throw_channels(call, "the left operand has a scale per channel", x);
  if (rhs.how.axis && *rhs.how.axis != static_cast<std::int64_t>(rhs.bytes.rank()) - (transposed ? 2 : 1))
    throw_channels(call, "channels are along a contracted or batch axis", x);
  const Tensor sums = astype(integer_product(lhs, rhs, transposed, where), DType::f32, where);
  const Tensor values = multiply({sums, where}, multiply({lhs.how.scale, where}, rhs.how.scale));
  return with_nondifferentiable_history(values, lhs.history ? lhs.history : rhs.history);
}

Tensor run_matmul(const Call& call, Tensors x, const Attributes&) {
  const TensorType types[] = {{DType::i8, x[0].shape()}, {DType::i8, x[1].shape()}};
  infer(Op::matmul, types, {}, {}, call.where);
  return product(call, x, false);
}

Tensor run_linear(const Call& call, Tensors x, const Attributes&) {
  if (weight_payload(x[1]) != nullptr) return linear_with_weights(x, call.where);
  const Tensor values = product(call, x.first(2), true);
  if (x.size() < 3) return values;
  const QuantizedPayload* bias = quantized_payload(x[2]);
  return add({values, call.where}, bias != nullptr ? values_of(*bias, call.where) : x[2]);
}

Tensor run_take(const Call& call, Tensors x, const Attributes& attributes) {
  const WeightPayload* const weights = weight_payload(x[0]);
  if (weights == nullptr || attributes_of<ops::Take>(attributes).axis.value != 0) throw_missing(call, lines(x));
  return take_of_weights(*weights, x[0].dtype(), x[1], call.where);
}

struct GeneralRow {
  Op op;
  Dispatcher<GeneralCall>::Kernel run;
};
constexpr GeneralRow kGeneralRows[] = {
    {Op::dequantize, &run_dequantize}, {Op::cast, &run_cast},     {Op::copy, &run_copy},
    {Op::matmul, &run_matmul},         {Op::linear, &run_linear}, {Op::take, &run_take}};

/// Custom operators that are not pointwise.
void refuse_boxed(const Call& call, Stack& stack) { throw_missing(call, lines(Tensors(tensors_of(stack)))); }

/// They are made of other calls, and so are those of every device.
void register_on(BackendKey backend) {
  const RegistrationKey here = RegistrationKey::cell(Functionality::quantized, backend);
  set_family_kernels(here, {&refuse_unary, &refuse_binary, &refuse_ternary, &refuse_general});
  set_kernel<UnaryCall>(Op::relu, here, &run_relu);
  set_kernel<BinaryCall>(Op::add, here, &run_add);
  for (const GeneralRow& row : kGeneralRows) set_kernel<GeneralCall>(row.op, here, row.run);
  for (std::size_t op = 0; op < kOpCount; ++op)
    if (is_view(static_cast<Op>(op))) set_kernel<GeneralCall>(static_cast<Op>(op), here, &run_view);
  set_family_kernel<GeneralCall>(Family::composite, here, &refuse_general);  // its parts would fail one by one
  register_fallback({.boxed = &refuse_boxed, .where = std::source_location::current(), .key = here}).keep();
}

}  // namespace

void register_quantized_kernels() {
  register_on(BackendKey::cpu), register_on(BackendKey::cuda);
  const RegistrationKey parts = RegistrationKey::composite();
  set_kernel<GeneralCall>(Op::quantize, parts, &run_quantize);
  set_kernel<GeneralCall>(Op::dequantize, parts, &run_dequantize);
}

}  // namespace fermata
