// See op_traits.h: the table, made from the structs of irregular ops and the families of the others.
#include "ir/op_traits.h"

#include <fmt/format.h>

#include <array>

#include "ir/custom_op.h"
#include "ir/field_names.h"
#include "ir/ops/reduce.h"
#include "ir/ops/structures.h"

namespace fermata {
namespace {

template <class O> constexpr auto kFields = detail::attribute_fields_of<O>();
template <class O> constexpr auto kSubgraphs = detail::subgraph_names_of<O>();

#ifndef FERMATA_INFERENCE_ONLY
template <class O> OpCall call_of(const Example<O>& example) {
  OpCall call;
  call.dtype = example.dtype;
  for (const TensorType& t : example.operands) call.dtypes.push_back(t.dtype), call.shapes.push_back(t.shape);
  call.attributes = encode_list(example.op);
  detail::each_field(example.op, [&]<class F>(F& field) {
    if constexpr (std::same_as<std::remove_const_t<F>, ResultShape>) call.shape = Shape(field.value);
    if constexpr (std::same_as<std::remove_const_t<F>, ResultDType>) call.dtype = field.value;
    if constexpr (std::same_as<std::remove_const_t<F>, HostScalar>) call.scalars.push_back(field.bits);
  });
  return call;
}

template <class O> OpCall example_call() { return call_of(O::example()); }
template <class O> std::vector<OpCall> other_example_calls() {
  std::vector<OpCall> calls;
  for (const Example<O>& example : O::other_examples()) calls.push_back(call_of(example));
  return calls;
}
#endif

/// Nodes count axes from the first one: kernels, plans and reference read them as they are.
template <class O> void require_absolute_axes(const O& op, const InferCall& call) {
  detail::each_field(op, [&]<class F>(const F& field) {
    if constexpr (detail::Traits<F>::kind == AttributeKind::axis)
      if (field.value < 0)
        call.fail<IndexError>(1201, "IndexError",
                              fmt::format("axis {} is not counted from the first one", field.value));
  });
}

template <class O> constexpr OpTraits traits_of() {
  static_assert(is_complete<O>());
  OpTraits t;
  t.fields = kFields<O>, t.subgraphs = kSubgraphs<O>;
  t.operands = O::operands.list();
  t.least_operands = static_cast<std::uint8_t>(O::operands.least), t.takes_any_operands = O::operands.is_list;
  t.effect = O::facts.effect, t.cost = O::facts.cost, t.precision = O::facts.precision;
  t.may_fail_on_values = O::facts.may_fail_on_values, t.overwrites = O::facts.overwrites;
  t.keeps_order = O::facts.keeps_order, t.begins_as_operand = O::facts.begins_as_operand;
  t.gathers = O::facts.gathers, t.joins = O::facts.joins;
  t.is_keyed = detail::count_fields<O, detail::IsKeyed>() == detail::field_count<O>();
  t.takes_shape = detail::count_fields<O, detail::IsShape>() != 0;
  t.takes_dtype = detail::count_fields<O, detail::IsDType>() != 0;
  t.scalars = detail::count_fields<O, detail::IsScalar>();
  t.infer = [](const InferCall& call) {
    const auto op = decode<O>({call.attributes, call.wanted.shape, call.wanted.dtype, {}, call.subgraphs});
    require_absolute_axes(op, call);
    return op.infer(call);
  };
  if constexpr (ViewOp<O>) {
    t.is_view = true;
    t.apply = [](const OpArguments& arguments, const Shape& to, Shape& sizes, Shape& strides, std::int64_t& offset) {
      return decode<O>(arguments).apply(to, sizes, strides, offset);
    };
  }
#ifndef FERMATA_INFERENCE_ONLY  // for programs that are compiled (run/CMakeLists.txt)
  t.relate = [](const OpArguments& arguments, EqualAxes& axes) { decode<O>(arguments).relate(axes); };
  if constexpr (ViewOp<O>)
    t.axes = [](const OpArguments& arguments, const Shape& to, const Shape& x) {
      return decode<O>(arguments).view_axes(to, x);
    };
  if constexpr (EmittedOp<O>)
    t.emit = [](const OpArguments& arguments, KernelEmitter& emitter) { return decode<O>(arguments).emit(emitter); };
  if constexpr (requires { &O::reference; }) t.reference = &O::reference;
  if constexpr (requires { O::example().reason; })
    t.no_example = O::example().reason;
  else
    t.example = &example_call<O>;
  if constexpr (requires { O::other_examples(); }) t.other_examples = &other_example_calls<O>;
#endif
  return t;
}

/// Of regular ops only `where` has names of its own for its operands; the others are called x, or lhs and rhs.
constexpr OperandInfo kChoiceOperands[] = {operand("cond"), operand("x"), operand("y")};
constexpr AttributeField kBoxedFields[] = {{"arguments", AttributeKind::list, AttributeRole::argument}};

constexpr OpTraits traits_of_family(Family family) {
  OpTraits t;
  t.may_fail_on_values = false;
  switch (family) {
    case Family::reduce: t.fields = kFields<ops::Reduction>, t.cost = Cost::more; break;
    case Family::random: t.scalars = 2, t.takes_shape = true, t.takes_dtype = true, t.is_keyed = false; break;
    case Family::external:
      t.fields = kBoxedFields, t.cost = Cost::more, t.may_fail_on_values = true, t.is_keyed = false;
      break;
    case Family::binary:
    case Family::ternary: t.precision = OperandPrecision::widest; break;
    case Family::unary:
    case Family::composite:
    case Family::irregular: break;
  }
  return t;
}

constexpr OpTraits traits_of_ternary(DTypeRule rule) {
  OpTraits t = traits_of_family(Family::ternary);
  if (rule == DTypeRule::choose) t.operands = kChoiceOperands;
  return t;
}

constexpr OpTraits with_precision(OpTraits t, OperandPrecision precision) {
  t.precision = precision;
  return t;
}
/// Sums and products of many elements, scans included, in f32.
constexpr OpTraits accumulated(OpTraits t, DTypeRule rule) {
  return rule == DTypeRule::accumulate ? with_precision(t, OperandPrecision::f32) : t;
}

// Ops with the same traits share them.
template <Family kFamily> constexpr OpTraits kOfFamily = traits_of_family(kFamily);
template <Family kFamily, OperandPrecision kPrecision>
constexpr OpTraits kPrecise = with_precision(traits_of_family(kFamily), kPrecision);
template <DTypeRule kRule> constexpr OpTraits kTernary = traits_of_ternary(kRule);
template <DTypeRule kRule> constexpr OpTraits kReduction = accumulated(traits_of_family(Family::reduce), kRule);
template <DTypeRule kRule> constexpr OpTraits kScan = accumulated(traits_of<ops::Scan>(), kRule);
template <class O> constexpr OpTraits kIrregular = traits_of<O>();

constexpr std::array<const OpTraits*, kOpCount> kTraits = {
#define FERMATA_UNARY(name, rule, formula, vjp, doc) &kOfFamily<Family::unary>,
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) &kOfFamily<Family::binary>,
#define FERMATA_STEEP_UNARY(...) &kPrecise<Family::unary, OperandPrecision::f32>,
#define FERMATA_STEEP_BINARY(...) &kPrecise<Family::binary, OperandPrecision::f32>,
#define FERMATA_TERNARY(name, rule, formula, vjp_a, vjp_b, vjp_c, doc) &kTernary<DTypeRule::rule>,
#define FERMATA_REDUCE(name, rule, vjp, doc) &kReduction<DTypeRule::rule>,
#define FERMATA_RANDOM(name, formula, doc) &kOfFamily<Family::random>,
#define FERMATA_IRREGULAR(name, structure, doc) &kIrregular<ops::structure>,
#define FERMATA_SCAN(name, monoid, rule, doc) &kScan<DTypeRule::rule>,
#define FERMATA_COMPOSITE(name, precision, doc) &kPrecise<Family::composite, OperandPrecision::precision>,
#include "ir/ops.def"
};
constexpr std::array kFamilies = {&kOfFamily<Family::unary>,     &kOfFamily<Family::binary>,
                                  &kOfFamily<Family::ternary>,   &kOfFamily<Family::reduce>,
                                  &kOfFamily<Family::random>,    &kOfFamily<Family::irregular>,
                                  &kOfFamily<Family::composite>, &kOfFamily<Family::external>};

}  // namespace

const OpTraits& traits(Op op) {
  return *(is_external(op) ? kFamilies[static_cast<std::size_t>(family(op))] : kTraits[static_cast<std::size_t>(op)]);
}

Effect effect_of(Op op) {
  return is_external(op) ? state_of(op).effect.load(std::memory_order_relaxed) : traits(op).effect;
}

std::optional<std::size_t> attribute_list_length(const OpTraits& op, std::size_t count) {
  std::size_t lists = 0;
  for (const AttributeField& field : op.fields) lists += field.kind == AttributeKind::list ? 1 : 0;
  const std::size_t single = op.fields.size() - lists;
  if (count < single) return std::nullopt;
  const std::size_t listed = count - single, length = lists <= 1   ? listed
                                                      : lists == 2 ? listed / 2  // every slice: without a division
                                                                   : listed / lists;
  if (listed != length * lists) return std::nullopt;
  return length;
}

bool may_be_merged(const GraphNode& node) {
  if (!node.scalars.empty() || effect_of(node.op) != Effect::pure) return false;
  // Of a boxed call with tensors only each attribute says "a tensor".
  if (is_boxed(node.op)) return node.attributes.size() == node.operands.size();
  return traits(node.op).is_keyed;
}

}  // namespace fermata
