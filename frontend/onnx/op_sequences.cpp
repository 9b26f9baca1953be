// Sequences of tensors, and optional values.
#include <algorithm>
#include <array>

#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/onnx/known.h"
#include "frontend/onnx/node_call.h"
#include "frontend/onnx/operators.h"

namespace fermata::onnx {
namespace {

using Values = std::vector<Value>;

const Values& sequence_in(const NodeCall& c, std::size_t k) {
  const Value& v = c.value(k);
  if (v.kind() != Value::Kind::sequence) c.fail("the input must be a sequence");
  return v.sequence();
}
Value number(std::int64_t n, DType dtype) {
  const AtOnce guard;
  return Value(astype(full({}, n, DType::i64), dtype), true);
}
/// A position from the end where negative; up to `size` itself where `at_end`.
std::size_t place(const NodeCall& c, std::size_t k, std::size_t size, bool at_end) {
  std::int64_t i = c.integer(k);
  if (i < 0) i += static_cast<std::int64_t>(size);
  if (i < 0 || i >= static_cast<std::int64_t>(size) + (at_end ? 1 : 0)) c.fail("position is out of range");
  return static_cast<std::size_t>(i);
}

void construct(NodeCall& c) {
  Values values;
  for (std::size_t k = 0; k < c.input_count(); ++k) values.push_back(c.value(k));
  c.give(Value::sequence(std::move(values)));
}
void empty_op(NodeCall& c) { c.give(Value::sequence({})); }
void length(NodeCall& c) { c.give(number(std::ssize(sequence_in(c, 0)), DType::i64)); }
void at_op(NodeCall& c) {
  const Values& values = sequence_in(c, 0);
  c.give(values[place(c, 1, values.size(), false)]);
}
void insert(NodeCall& c) {
  Values values = sequence_in(c, 0);
  const std::size_t at = c.has(2) ? place(c, 2, values.size(), true) : values.size();
  values.insert(values.begin() + static_cast<std::ptrdiff_t>(at), c.value(1));
  c.give(Value::sequence(std::move(values)));
}
void erase_op(NodeCall& c) {
  Values values = sequence_in(c, 0);
  if (values.empty()) c.fail("the sequence is empty");
  const std::size_t at = c.has(1) ? place(c, 1, values.size(), false) : values.size() - 1;
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(at));
  c.give(Value::sequence(std::move(values)));
}
void concat_from(NodeCall& c) {
  std::vector<Tensor> parts;
  for (const Value& v : sequence_in(c, 0)) parts.push_back(v.tensor());
  if (parts.empty()) c.fail("the sequence is empty");
  const std::int64_t axis = c.attr("axis", std::int64_t{0});
  c.give(c.attr("new_axis", std::int64_t{0}) != 0 ? stack(parts, axis, c.where) : concat(parts, axis, c.where));
}
void split_to(NodeCall& c) {
  const Tensor x = c.in(0);
  const std::int64_t axis = axis_of(c, c.attr("axis", std::int64_t{0}), x.rank()), size = x.size(axis);
  if (size > (1 << 20)) c.refuse("dimensions above 2^20 are not supported");
  std::vector<std::int64_t> sizes;
  if (c.has(1)) {
    sizes = c.integers(1);
    if (c.value(1).tensor().rank() == 0) {
      const std::int64_t each = sizes[0];
      if (each < 1) c.fail("split sizes must be positive");
      sizes.clear();
      for (std::int64_t i = 0; i < size; i += each) sizes.push_back(std::min(each, size - i));
    }
  } else {
    sizes.assign(static_cast<std::size_t>(size), 1);
  }
  const bool keeps = c.has(1) || c.attr("keepdims", std::int64_t{1}) != 0;
  Values values;
  for (const Tensor& part : split(x, sizes, axis, c.where))
    values.emplace_back(keeps ? part : squeeze(part, axis, c.where));
  c.give(Value::sequence(std::move(values)));
}

void optional_op(NodeCall& c) { c.give(c.has(0) ? c.value(0) : Value::nothing()); }
void get_element(NodeCall& c) {
  if (!c.has(0) || c.value(0).kind() == Value::Kind::nothing) c.fail("the optional is empty");
  c.give(c.value(0));
}
void has_element(NodeCall& c) {
  c.give(number(c.has(0) && c.value(0).kind() != Value::Kind::nothing ? 1 : 0, DType::boolean));
}

constexpr std::array kRows{
    OperatorRow{"ConcatFromSequence", &concat_from, {}, 0, false},
    OperatorRow{"Optional", &optional_op, {}, 0, false},
    OperatorRow{"OptionalGetElement", &get_element, {}, 0, false},
    OperatorRow{"OptionalHasElement", &has_element, {}, 0, false},
    OperatorRow{"SequenceAt", &at_op, {}, 0, false},
    OperatorRow{"SequenceConstruct", &construct, {}, 0, false},
    OperatorRow{"SequenceEmpty", &empty_op, {}, 0, false},
    OperatorRow{"SequenceErase", &erase_op, {}, 0, false},
    OperatorRow{"SequenceInsert", &insert, {}, 0, false},
    OperatorRow{"SequenceLength", &length, {}, 0, false},
    OperatorRow{"SplitToSequence", &split_to, {}, 0, false},
};

}  // namespace

Rows sequence_rows() { return kRows; }

}  // namespace fermata::onnx
