// See record_table.h.
#include "frontend/run/record_table.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "frontend/run/shipped_function.h"
#include "ir/error.h"
#include "ir/infer.h"
#include "ir/op_traits.h"
#include "ir/ops/control.h"
#include "ir/tuple_layout.h"

namespace fermata {
namespace {

/// The value of an expression whose variables `value(v)` gives.
template <class F> std::int64_t evaluate(const SizeExpression& x, const std::string& path, F&& value) {
  bool overflows = false;
  std::int64_t sum = x.offset;
  for (const SizeTerm& t : x.terms) {
    std::int64_t product = t.coefficient;
    for (const SizeVariable& v : t.factors) overflows |= __builtin_mul_overflow(product, value(v), &product);
    overflows |= __builtin_add_overflow(sum, product, &sum);
  }
  if (overflows) throw_damaged(path, "a size overflows");
  return sum / x.divisor - (sum % x.divisor < 0 ? 1 : 0);
}

double shaped(NumberExpression::Form form, double x) {
  switch (form) {
    case NumberExpression::Form::reciprocal: return 1 / x;
    case NumberExpression::Form::root: return std::sqrt(x);
    case NumberExpression::Form::reciprocal_root: return 1 / std::sqrt(x);
    default: return x;
  }
}

}  // namespace

std::uint64_t bits_of_number(const NumberExpression& x, std::int64_t size) {
  if (x.form == NumberExpression::Form::bits) return x.bits;
  std::uint64_t bits = 0;
  visit_compute(x.dtype, [&]<class T>() {
    T value{};
    if constexpr (std::is_floating_point_v<T>)
      value = static_cast<T>(x.factor * shaped(x.form, static_cast<double>(size)));
    else
      value = static_cast<T>(size);
    std::memcpy(&bits, &value, sizeof value);
  });
  return bits;
}

std::int64_t value_of(const SizeExpression& x, std::span<const std::int64_t> symbols, const std::string& path) {
  return evaluate(x, path, [&](const SizeVariable& v) { return symbols[v.index]; });
}

RecordTable::RecordTable(const ProgramFile& program, const ProgramBody& body, const std::string& path)
    : body_(body), path_(path), nodes_(std::make_unique<Node[]>(body.records.size())), extras_(body.records.size()) {
  for (std::size_t i = 0; i < body.records.size(); ++i) {
    const ProgramRecord& r = body.records[i];
    Node& n = nodes_[i];
    n.op = r.op, n.dtype = r.dtype, n.rank = r.rank, n.backend = body.plan->backend;
    if (r.rank > Node::kInlineRank || !r.attributes.empty() || !r.scalars.empty() || !r.functions.empty())
      n.extra = &extras_[i];
    pointers_.push_back(&n);
    if (r.functions.empty()) continue;
    std::vector<std::unique_ptr<const Subgraph>> functions;
    for (const std::uint32_t f : r.functions) {
      auto function = std::make_unique<ShippedFunction>(program, program.functions[f], path);
      calls_[i].functions.push_back(function.get());
      functions.push_back(std::move(function));
    }
    extras_[i].subgraphs = std::make_shared<const Subgraphs>(std::move(functions));
  }
  for (std::size_t i = 0; i < body.leaves.size(); ++i) {
    const ProgramLeaf& leaf = body.leaves[i];
    if (leaf.strides.empty() && leaf.offset == 0) continue;
    const std::uint32_t at = body.plan->leaf_records[i];
    NodeExtra& extra = extras_[at];
    nodes_[at].extra = &extra;
    extra.strided = true, extra.offset = leaf.offset, extra.strides = Shape(leaf.strides);
  }
}

RecordTable::~RecordTable() = default;

void RecordTable::set(std::span<const std::int64_t> symbols, std::span<const TensorType> arguments) {
  for (std::size_t i = 0; i < body_.records.size(); ++i) set_record(i, symbols, arguments);
}

std::vector<const ShippedFunction*> RecordTable::functions() const {
  std::vector<const ShippedFunction*> all;
  for (const auto& [record, call] : calls_) all.insert(all.end(), call.functions.begin(), call.functions.end());
  return all;
}

std::int64_t RecordTable::value(const SizeExpression& x, std::span<const std::int64_t> symbols) const {
  return evaluate(x, path_, [&](const SizeVariable& v) {
    return v.record == SizeVariable::kSymbol ? symbols[v.index] : nodes_[v.record].sizes()[v.index];
  });
}

TensorType RecordTable::type_of(const ProgramRecord& r, const std::vector<TensorType>& operands,
                                const std::vector<std::int64_t>& attributes,
                                std::span<const std::int64_t> symbols) const {
  TensorType wanted{r.dtype, {}};
  for (const SizeExpression& x : r.sizes) wanted.shape.push_back(value(x, symbols));
  if (r.op == Op::input) {
    check_shape("input", wanted.shape, r.dtype, {});
    return wanted;
  }
  if (!is_pointwise(r.op)) return infer(r.op, operands, attributes, wanted, {});
  TensorType type{r.dtype, operands[0].shape};
  for (const TensorType& operand : operands) {
    const auto common = broadcast_shapes(type.shape, operand.shape);
    if (!common)
      throw ShapeError(1001, format_error(1001, "ShapeError", "an exported program: shapes do not broadcast",
                                          {{"lhs", to_string(r.dtype, type.shape), ""},
                                           {"rhs", to_string(operand.dtype, operand.shape), ""}},
                                          {}));
    type.shape = *common;
  }
  check_shape(name(r.op), type.shape, type.dtype, {});
  return type;
}

TensorType RecordTable::set_call(std::size_t at, const std::vector<TensorType>& operands,
                                 const std::vector<std::int64_t>& attributes, std::span<const std::int64_t> symbols) {
  const ProgramRecord& r = body_.records[at];
  Call& call = calls_.at(at);
  const std::vector<TensorType> given = ops::function_arguments(r.op, attributes, operands);
  for (ShippedFunction* const f : call.functions) f->set(symbols, given);
  call.results = ops::separate_results(r.op, attributes, call.functions.back()->results());
  return infer(r.op, operands, attributes, {}, {}, extras_[at].subgraphs.get());
}

void RecordTable::set_record(std::size_t at, std::span<const std::int64_t> symbols,
                             std::span<const TensorType> arguments) {
  const ProgramRecord& r = body_.records[at];
  Node& n = nodes_[at];
  std::vector<TensorType> operands;
  for (const std::uint32_t in : r.operands) operands.push_back(nodes_[in].type());
  std::vector<std::int64_t> attributes;
  for (const SizeExpression& x : r.attributes) attributes.push_back(value(x, symbols));
  TensorType type;
  if (r.argument != ProgramRecord::kNoArgument) {
    if (r.argument >= arguments.size()) throw_damaged(path_, "an argument of a function is missing");
    type = arguments[r.argument];
  } else if (!r.functions.empty()) {
    type = set_call(at, operands, attributes, symbols);
  } else if (body_.is_result_of_call(r)) {
    const std::vector<TensorType>& results = calls_.at(r.operands[0]).results;
    const auto number = static_cast<std::size_t>(attributes[0]);
    if (number >= results.size()) throw_damaged(path_, "a result of a function is missing");
    type = results[number], attributes[0] = tuple_layout(results).offsets[number];
  } else {
    type = type_of(r, operands, attributes, symbols);
  }
  if (type.dtype != r.dtype || type.shape.rank() != r.rank) throw_damaged(path_, "a record has the wrong type");
  if (r.rank > Node::kInlineRank)
    extras_[at].sizes = type.shape;
  else
    std::ranges::copy(type.shape, n.inline_sizes.begin());
  if (family(r.op) == Family::reduce) {
    n.scalar = static_cast<std::uint64_t>(attributes[0] & 0xffff) | static_cast<std::uint64_t>(attributes[1] & 1) << 16;
  } else if (!attributes.empty()) {
    extras_[at].attributes.assign(attributes.begin(), attributes.end());
  }
  if (r.scalars.empty()) return;
  extras_[at].scalars.clear();
  for (const NumberExpression& x : r.scalars) extras_[at].scalars.push_back(bits_of_number(x, value(x.size, symbols)));
}

}  // namespace fermata
