// New tensors: constants, ranges, random numbers.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "fermata/creation.h"
#include "fermata/ops.h"
#include "fermata/random.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "frontend/onnx/node_call.h"
#include "frontend/onnx/operators.h"

namespace fermata::onnx {
namespace {

void constant_op(NodeCall& c) {
  if (const Attribute* const a = c.attribute("value", AttributeType::tensor)) {
    if (a->holds_text || !a->tensor.defined()) c.refuse("string tensors are not supported");
    return c.give(a->tensor);
  }
  if (const Attribute* const a = c.attribute("value_int", AttributeType::integer))
    return c.give(full({}, a->integer, DType::i64));
  if (const Attribute* const a = c.attribute("value_float", AttributeType::number))
    return c.give(full({}, a->number, DType::f32));
  if (const Attribute* const a = c.attribute("value_ints", AttributeType::integers)) return c.give(tensor(a->integers));
  if (const Attribute* const a = c.attribute("value_floats", AttributeType::numbers))
    return c.give(astype(tensor(a->numbers), DType::f32));
  c.refuse("string and sparse constants are not supported");
}
Shape sizes_of(const NodeCall& c, const std::vector<std::int64_t>& sizes) {
  if (sizes.size() > 16) c.fail("the output has more than 16 dimensions");
  for (const std::int64_t s : sizes)
    if (s < 0) c.fail("the output has a negative dimension");
  return Shape(std::span<const std::int64_t>(sizes));
}
void constant_of_shape(NodeCall& c) {
  const Shape sizes = sizes_of(c, c.integers(0));
  c.will_make(sizes);
  const Attribute* const a = c.attribute("value", AttributeType::tensor);
  if (a == nullptr) return c.give(zeros(sizes, DType::f32, c.where));
  if (!a->tensor.defined() || a->tensor.element_count() != 1) c.refuse("value must hold one element");
  c.give(broadcast_to(reshape(a->tensor, Shape{}, c.where), sizes, c.where));
}
void eye_like(NodeCall& c) {
  const Tensor x = c.in(0);
  if (x.rank() != 2) c.fail("input must be a matrix");
  const DType dtype = c.has_attribute("dtype") ? dtype_of_code(c.attr("dtype", std::int64_t{1}), c.where) : x.dtype();
  c.give(eye(x.size(0), x.size(1), c.attr("k", std::int64_t{0}), dtype, c.where));
}
void range_op(NodeCall& c) {
  const DType dtype = c.value(0).tensor().dtype();
  if (is_floating(dtype)) {
    const double start = c.number(0), limit = c.number(1), delta = c.number(2);
    const double count = std::max(std::ceil((limit - start) / delta), 0.0);
    if (!(count < 1e15)) c.fail("the output has too many elements");
    c.will_make({static_cast<std::int64_t>(count)});
    return c.give(astype(arange(static_cast<std::int64_t>(count)), dtype, c.where) * delta + start);
  }
  const std::int64_t start = c.integer(0), limit = c.integer(1), delta = c.integer(2);
  if (delta == 0) c.fail("delta must not be 0");
  const double count = (static_cast<double>(limit) - static_cast<double>(start)) / static_cast<double>(delta);
  if (count > 1e15) c.fail("the output has too many elements");
  c.will_make({static_cast<std::int64_t>(std::max(count, 0.0)) + 1});
  c.give(arange(start, limit, delta, dtype, c.where));
}

DType wanted_dtype(const NodeCall& c, DType otherwise) {
  return c.has_attribute("dtype") ? dtype_of_code(c.attr("dtype", std::int64_t{1}), c.where) : otherwise;
}
/// A generator of its own where the node has a seed, else that of the thread.
template <class Draw> Tensor drawn(const NodeCall& c, Draw draw) {
  const Attribute* const seed = c.attribute("seed", AttributeType::number);
  if (seed == nullptr) return draw(default_generator());
  Generator own(std::bit_cast<std::uint64_t>(seed->number));
  return draw(own);
}
template <bool is_like> Shape drawn_sizes(const NodeCall& c) {
  return is_like ? c.in(0).shape() : sizes_of(c, c.attr_integers("shape"));
}
template <bool is_like> DType drawn_dtype(const NodeCall& c) {
  return wanted_dtype(c, is_like && is_floating(c.in(0).dtype()) ? c.in(0).dtype() : DType::f32);
}
template <bool is_like> void random_normal_op(NodeCall& c) {
  c.give(drawn(c, [&](Generator& g) {
    return normal(drawn_sizes<is_like>(c), c.attr("mean", 0.0), c.attr("scale", 1.0), drawn_dtype<is_like>(c), g,
                  c.where);
  }));
}
template <bool is_like> void random_uniform_op(NodeCall& c) {
  c.give(drawn(c, [&](Generator& g) {
    return uniform(drawn_sizes<is_like>(c), c.attr("low", 0.0), c.attr("high", 1.0), drawn_dtype<is_like>(c), g,
                   c.where);
  }));
}
void bernoulli_op(NodeCall& c) {
  const Tensor x = c.in(0);
  c.give(astype(drawn(c, [&](Generator& g) { return bernoulli(x, g, c.where); }), wanted_dtype(c, x.dtype()), c.where));
}
void multinomial_op(NodeCall& c) {
  const Tensor x = c.in(0);
  const std::int64_t count = c.attr("sample_size", std::int64_t{1});
  if (x.rank() != 2 || count < 1) c.fail("input must be a matrix and sample_size positive");
  const Tensor wide = broadcast_to(expand_dims(x, 1, c.where), {x.size(0), count, x.size(1)}, c.where);
  c.give(astype(drawn(c, [&](Generator& g) { return categorical(wide, -1, g, c.where); }), wanted_dtype(c, DType::i32),
                c.where));
}

constexpr std::array kRows{
    OperatorRow{"Bernoulli", &bernoulli_op, "numbers of Fermata's generator", 0, false},
    OperatorRow{"Constant", &constant_op, "not of strings, and not sparse"},
    OperatorRow{"ConstantOfShape", &constant_of_shape, {}, 1},
    OperatorRow{"EyeLike", &eye_like},
    OperatorRow{"Multinomial", &multinomial_op, "numbers of Fermata's generator", 0, false},
    OperatorRow{"RandomNormal", &random_normal_op<false>, "numbers of Fermata's generator", 0, false},
    OperatorRow{"RandomNormalLike", &random_normal_op<true>, "numbers of Fermata's generator", 0, false},
    OperatorRow{"RandomUniform", &random_uniform_op<false>, "numbers of Fermata's generator", 0, false},
    OperatorRow{"RandomUniformLike", &random_uniform_op<true>, "numbers of Fermata's generator", 0, false},
    OperatorRow{"Range", &range_op, {}, 0b111},
};

}  // namespace

Rows creation_rows() { return kRows; }

}  // namespace fermata::onnx
