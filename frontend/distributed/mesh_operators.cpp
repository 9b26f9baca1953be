// The operator behind shard(): a constraint, which only the partitioner interprets.
#include <array>
#include <utility>

#include "fermata/autograd.h"
#include "fermata/library.h"
#include "fermata/ops.h"
#include "frontend/distributed/mesh_state.h"
#include "frontend/ops/calls.h"
#include "ir/custom_op.h"
#include "passes/custom_split_rules.h"

namespace fermata {
namespace {

constexpr const char* kConstrain = "constrain";

/// Whether the constraint applies immediately, to materialized values.
constinit thread_local bool divides_at_once = false;

Sharding sharding_of_words(const std::vector<std::int64_t>& words) {
  Sharding sharding;
  for (std::size_t i = 0; i < words.size(); ++i) sharding.axes[i] = static_cast<std::uint8_t>(words[i]);
  return sharding;
}
std::vector<std::int64_t> words_of(const Sharding& sharding, unsigned rank) {
  return {sharding.axes.begin(), sharding.axes.begin() + rank};
}

/// Only if values are sharded immediately: in a plan without sharded values a constraint changes nothing.
Tensor run_constraint(const Call& call, const Tensor& x, std::int64_t number, const std::vector<std::int64_t>& words) {
  if (!divides_at_once) return copy(x, call.where);
  const std::shared_ptr<const MeshState> mesh = mesh_of_number(number);
  const Sharding wanted = sharding_of_words(words);
  const ShardedValue* const value = sharded_value(*x.node());
  const Tensor block = value != nullptr
                           ? resharded(value->block, x.shape(), *value->mesh, value->sharding, wanted, call.where)
                           : resharded(x, x.shape(), *mesh, {}, wanted, call.where);
  return make_sharded(copy(block, call.where), x.shape(), mesh, wanted);
}

Op op_of_constraint() {
  static const Op op = *external_op_from_name("fermata::constrain");
  return op;
}

}  // namespace

void sharding_rule(std::string_view op, std::string_view rule, Location where) {
  const OperatorHandle found = OperatorHandle::find(op, where);
  const bool removes = rule.find_first_not_of(' ') == rule.npos;
  set_custom_split_rule(found.entry().op,
                        removes ? nullptr : std::make_shared<CustomSplitRule>(parse_split_rule(op, rule, where)));
}

std::optional<ShardingConstraint> constraint_of(const GraphNode& node) {
  if (node.op != op_of_constraint()) return std::nullopt;
  const std::array<Tensor, 1> none;
  const Stack stack = decode_arguments(node.attributes, none);
  return ShardingConstraint{stack[1].as<std::int64_t>(), sharding_of_words(stack[2].as<std::vector<std::int64_t>>())};
}

std::optional<ShardingConstraint> constraint_of(const Node& node) {
  if (!is_boxed(node.op)) [[likely]]
    return std::nullopt;
  GraphNode as_recorded;
  as_recorded.op = node.op, as_recorded.attributes = attributes_of(node);
  return constraint_of(as_recorded);
}

Tensor constrain(const Tensor& x, const MeshState& mesh, const Sharding& sharding, Location where) {
  static const auto op = OperatorHandle::find("fermata::constrain")
                             .typed<Tensor(const Tensor&, std::int64_t, const std::vector<std::int64_t>&)>();
  struct AtOnce {
    bool before = std::exchange(divides_at_once, true);
    ~AtOnce() { divides_at_once = before; }
  } const at_once;
  return op(x, mesh.number, words_of(sharding, x.shape().rank()), where);
}

void register_mesh_operators() {
  Library m(Library::Kind::fragment, "fermata"), cpu(Library::Kind::implementation, "fermata", "CPU"),
      meta(Library::Kind::implementation, "fermata", "Meta"),
      autograd(Library::Kind::implementation, "fermata", "Autograd"),
      batched(Library::Kind::implementation, "fermata", "Batched");
  m.def("pure constrain(Tensor x, int mesh, int[] axes) -> Tensor", "The same values, sharded along axes of a mesh.");
  cpu.impl(kConstrain, &run_constraint);
  meta.impl(kConstrain, [](const Call&, const Tensor& x, std::int64_t, const std::vector<std::int64_t>&) {
    return meta_tensor({x.dtype(), x.shape()});
  });
  autograd.impl_boxed(kConstrain, derivative([](const DerivativeArguments& d) -> std::vector<Tensor> {
                        if (!d.gradients[0].defined()) return {Tensor()};
                        const auto& words = d.arguments[2].as<std::vector<std::int64_t>>();
                        return {constrain(d.gradients[0], *mesh_of_number(d.arguments[1].as<std::int64_t>()),
                                          sharding_of_words(words), Location::current())};
                      }));
  batched.impl_boxed(
      kConstrain, batching_rule([](const BatchedArguments& b) -> std::vector<Tensor> {
        std::vector<std::int64_t> words = b.arguments[2].as<std::vector<std::int64_t>>();
        words.insert(words.begin(), 0);
        return {constrain(b.arguments[0].as<Tensor>(), *mesh_of_number(b.arguments[1].as<std::int64_t>()),
                          sharding_of_words(words), Location::current())};
      }));
  for (Library* library : {&m, &cpu, &meta, &autograd, &batched}) library->keep();
}

}  // namespace fermata
