// The kernels of the Tracer key: run the call below, then record it. One kernel per signature.
#include "dispatch/kernel_table.h"
#include "dispatch/pointwise.h"
#include "frontend/transforms/tracer.h"

namespace fermata {
namespace {

/// Sparse and quantised tensors have no text form; their kernels call ops on their parts, which do.
bool is_recorded(const Call& call) { return tracing() && (call.keys & kCompoundKeys).bits == 0; }

/// The graph promotes nothing by itself, so the casts that the call implies are made, and recorded, first.
template <class... Operands> Tensor trace_pointwise(const Call& call, const Operands&... operands) {
  using Below = Dispatcher<Tensor(const Operands&...)>;
  if (!is_recorded(call)) return Below::redispatch(call, Functionality::tracer, operands...);
  PointwiseOperands p(operands...);
  settle(call, p);
  GraphNode node{.op = call.entry.op,
                 .dtype = {},
                 .shape = {},
                 .operands = {},
                 .attributes = {},
                 .scalars = {},
                 .where = call.where};
  unsigned k = 0;
  const auto settled = [&](const Operand& given) {
    const Tensor& held = p.held[k];
    const Operand operand = held.defined() ? Operand(held, given.where()) : given;
    if (operand.is_tensor()) {
      node.operands.push_back({.value = tracer->id_of(operand.tensor(), call.where)});
    } else {
      node.operands.push_back({.scalar = static_cast<std::uint16_t>(node.scalars.size())});
      node.scalars.push_back(p.scalar);
    }
    ++k;
    return operand;
  };
  const std::array<Operand, sizeof...(operands)> all{settled(operands)...};  // braces: from left to right
  Tensor result =
      std::apply([&](const auto&... o) { return Below::redispatch(call, Functionality::tracer, o...); }, all);
  tracer->record(std::move(node), result);
  return result;
}

Tensor trace_unary(const Call& call, const Operand& a) { return trace_pointwise(call, a); }
Tensor trace_binary(const Call& call, const Operand& a, const Operand& b) { return trace_pointwise(call, a, b); }
Tensor trace_ternary(const Call& call, const Operand& a, const Operand& b, const Operand& c) {
  return trace_pointwise(call, a, b, c);
}

Tensor trace_general(const Call& call, std::span<const Tensor> tensors, const Attributes& attributes) {
  using Below = Dispatcher<GeneralCall>;
  if (!is_recorded(call)) return Below::redispatch(call, Functionality::tracer, tensors, attributes);
  GraphNode node{.op = call.entry.op,
                 .dtype = {},
                 .shape = {},
                 .operands = {},
                 .attributes = {},
                 .scalars = {},
                 .where = call.where};
  for (const Tensor& t : tensors) node.operands.push_back({.value = tracer->id_of(t, call.where)});
  node.attributes.assign(attributes.integers.begin(), attributes.integers.end());
  node.scalars.assign(attributes.scalars.begin(), attributes.scalars.end());
  Tensor result = Below::redispatch(call, Functionality::tracer, tensors, attributes);
  tracer->record(std::move(node), result);
  return result;
}

void set_cell(Op op, std::size_t cell) {
  switch (family(op)) {
    case Family::unary: return set_kernel<UnaryCall>(op, cell, &trace_unary);
    case Family::binary: return set_kernel<BinaryCall>(op, cell, &trace_binary);
    case Family::ternary: return set_kernel<TernaryCall>(op, cell, &trace_ternary);
    default: return set_kernel<GeneralCall>(op, cell, &trace_general);
  }
}

}  // namespace

void register_tracer_kernels() {
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    if (family(op) == Family::composite) {
      set_fallthrough(op, Functionality::tracer);
      continue;
    }
    for (std::size_t column = 0; column <= kBackendCount; ++column)
      set_cell(op, cell_of(Functionality::tracer) + column);
  }
}

}  // namespace fermata
