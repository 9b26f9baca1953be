// The kernels of the Tracer key: run the call below, then record it. One kernel per signature.
#include "dispatch/kernel_table.h"
#include "dispatch/pointwise.h"
#include "dispatch/tuple_results.h"
#include "frontend/transforms/trace/tracer.h"

namespace fermata {
namespace {

/// Sparse and quantized tensors have no text form; their kernels call ops on their parts, which do.
bool is_recorded(const Call& call) { return tracing() && (call.keys & kCompoundKeys).bits == 0; }

/// Graphs do not promote implicitly, so the casts that the call implies are recorded first.
template <class... Operands> Tensor trace_pointwise(const Call& call, const Operands&... operands) {
  using Below = Dispatcher<Tensor(const Operands&...)>;
  if (!is_recorded(call)) return Below::redispatch(call, Functionality::tracer, operands...);
  PointwiseOperands p(operands...);
  promote_and_broadcast(call, p);
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
  if (attributes.subgraphs != nullptr) node.subgraphs = attributes.subgraphs->shared_from_this();
  Tensor result = Below::redispatch(call, Functionality::tracer, tensors, attributes);
  tracer->record(std::move(node), result);
  return result;
}

/// Custom operators: one node if the text form can express the call, else the calls that it makes.
void trace_boxed(const Call& call, Stack& stack) {
  const Schema* schema = call.entry.schema.load(std::memory_order_acquire);
  const bool one =
      schema != nullptr && schema->results.size() == 1 && schema->results[0].type == ArgType{} && !schema->has_alias();
  if (!is_recorded(call)) return redispatch_boxed(call, Functionality::tracer, stack);
  if (!one) {  // what its kernel makes of calls is recorded, and nothing else
    const std::vector<Tensor> operands = tensors_of(stack), written = written_tensors(schema, stack);
    redispatch_boxed(call, Functionality::tracer, stack);
    tracer->note_results(call.entry.name, operands, tensors_of(stack), call.where);
    return tracer->note_results(call.entry.name, operands, written, call.where);
  }
  GraphNode node{.op = call.entry.op,
                 .dtype = {},
                 .shape = {},
                 .operands = {},
                 .attributes = encode_arguments(stack),
                 .scalars = {},
                 .where = call.where};
  for (const Tensor& t : tensors_of(stack)) node.operands.push_back({.value = tracer->id_of(t, call.where)});
  redispatch_boxed(call, Functionality::tracer, stack);
  tracer->record(std::move(node), stack.at(0).as<Tensor>());
}

}  // namespace

void register_tracer_kernels() {
  const RegistrationKey everywhere = RegistrationKey::everywhere(Functionality::tracer);
  set_family_kernels(everywhere, {&trace_unary, &trace_binary, &trace_ternary, &trace_general});
  register_fallback(
      {.boxed = &trace_boxed, .where = std::source_location::current(), .key = everywhere, .passes_composites = true})
      .keep();
}

}  // namespace fermata
