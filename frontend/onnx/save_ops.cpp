// What each op is in a model: one node of opset 18, or a few.
#include <cmath>
#include <limits>
#include <optional>

#include "frontend/onnx/model_writer.h"
#include "ir/op_fields.h"
#include "ir/ops/reduce.h"
#include "ir/ops/structures.h"

namespace fermata::onnx {
namespace {

/// One node of the same operands, in the dtype that the op computes in.
Emit same(const std::string& op) {
  return [op](Writer& w, const GraphNode& n) {
    Names inputs;
    for (std::size_t k = 0; k < n.operands.size(); ++k) inputs.push_back(w.operand(n, k, w.computes_in(n)));
    return w.emit(op, inputs);
  };
}
/// A formula of x in the dtype that the op computes in.
Emit formula(Name (*f)(Writer&, const Name& x, DType)) {
  return [f](Writer& w, const GraphNode& n) {
    const DType dtype = w.computes_in(n);
    return f(w, w.operand(n, 0, dtype), dtype);
  };
}
Emit formula2(Name (*f)(Writer&, const Name& x, const Name& y, DType)) {
  return [f](Writer& w, const GraphNode& n) {
    const DType dtype = w.computes_in(n);
    return f(w, w.operand(n, 0, dtype), w.operand(n, 1, dtype), dtype);
  };
}
Name times(Writer& w, const Name& x, double by, DType t) { return w.emit("Mul", {x, w.number(by, t)}); }
Name plus(Writer& w, const Name& x, double by, DType t) { return w.emit("Add", {x, w.number(by, t)}); }

/// And, Or, Xor of bool; the bitwise ones of integers.
Emit bitwise(const std::string& op) {
  return [op](Writer& w, const GraphNode& n) {
    const DType dtype = w.computes_in(n);
    const bool is_bool = dtype == DType::boolean;
    Names inputs;
    for (std::size_t k = 0; k < n.operands.size(); ++k) inputs.push_back(w.operand(n, k, dtype));
    return w.emit(is_bool ? op : fmt::format("Bitwise{}", op), inputs);
  };
}
Emit reduction(const std::string& op) {
  return [op](Writer& w, const GraphNode& n) {
    const auto a = attributes_of<ops::Reduction>(n);
    std::vector<std::int64_t> axes;
    for (unsigned i = 0; i < 16; ++i)
      if (a.is_reduced(i)) axes.push_back(i);
    const bool is_position = op.starts_with("Arg");
    const bool is_truth = n.op == Op::all || n.op == Op::any;
    const DType dtype = is_position ? w.at(n.operands[0].value).dtype : is_truth ? DType::i32 : n.dtype;
    const Name x =
        is_truth ? w.cast(w.operand(n, 0, DType::boolean), DType::boolean, DType::i32) : w.operand(n, 0, dtype);
    if (axes.empty() && !is_position) return w.cast(w.emit("Identity", {x}), dtype, n.dtype);
    Name y;
    if (is_position) {
      y = w.emit(op, {x});
      w.with("axis", axes.at(0));
    } else {
      y = w.emit(op, {x, w.integers(axes)});
    }
    w.with("keepdims", a.keepdims.value ? 1 : 0);
    return w.cast(y, is_position ? DType::i64 : dtype, n.dtype);
  };
}
Emit scattered(const std::string& how) {
  return [how](Writer& w, const GraphNode& n) {
    const Name y = w.emit("ScatterElements", {w.operand(n, 0), w.operand(n, 1, DType::i64), w.operand(n, 2, n.dtype)});
    w.with("axis", static_cast<std::int64_t>(attributes_of<ops::Scatter>(n).axis.value));
    if (!how.empty()) w.with("reduction", how);
    return y;
  };
}
std::vector<std::int64_t> bits_set(std::uint64_t mask) {
  std::vector<std::int64_t> axes;
  for (unsigned i = 0; i < 64; ++i)
    if ((mask >> i & 1) != 0) axes.push_back(i);
  return axes;
}
template <class C> void window_attributes(Writer& w, const C& c) {
  std::vector<std::int64_t> pads(c.padding.value.begin(), c.padding.value.end());
  pads.insert(pads.end(), c.padding_end.value.begin(), c.padding_end.value.end());
  w.with("strides", c.strides.value)
      .with("dilations", c.dilation.value)
      .with("pads", pads)
      .with("group", c.groups.value);
}

Name write_slice(Writer& w, const GraphNode& n) {
  const auto a = attributes_of<ops::Slice>(n);
  const Shape& from = w.at(n.operands[0].value).shape;
  std::vector<std::int64_t> starts, ends, axes, steps;
  for (unsigned i = 0; i < n.shape.rank(); ++i) {
    const std::int64_t start = a.start.value[i], step = a.step.value[i], end = start + n.shape[i] * step;
    if (start == 0 && step == 1 && end == from[i]) continue;
    starts.push_back(start), axes.push_back(i), steps.push_back(step);
    ends.push_back(end < 0 ? std::numeric_limits<std::int64_t>::min() : end);
  }
  if (axes.empty()) return w.emit("Identity", {w.operand(n, 0)});
  return w.emit("Slice", {w.operand(n, 0), w.integers(starts), w.integers(ends), w.integers(axes), w.integers(steps)});
}
/// Windows: the elements at their positions along the axis, and those of a window as the last axis.
Name write_unfold(Writer& w, const GraphNode& n) {
  const auto a = attributes_of<ops::Unfold>(n);
  const auto axis = static_cast<std::int64_t>(a.axis.value);
  const std::int64_t count = n.shape[static_cast<std::size_t>(axis)], size = n.shape.back();
  std::vector<std::int64_t> places;
  for (std::int64_t i = 0; i < count; ++i)
    for (std::int64_t k = 0; k < size; ++k) places.push_back(i * a.step.value + k * a.dilation.value);
  const Name index = w.emit("Reshape", {w.integers(places), w.integers({count, size})});
  const Name windows = w.emit("Gather", {w.operand(n, 0), index});
  w.with("axis", axis);
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < static_cast<std::int64_t>(n.shape.rank()); ++i)
    if (i != axis + 1) order.push_back(i);
  order.push_back(axis + 1);
  const Name y = w.emit("Transpose", {windows});
  w.with("perm", order);
  return y;
}
Name write_iota(Writer& w, const GraphNode& n) {
  const auto axis = static_cast<std::size_t>(attributes_of<ops::Iota>(n).axis.value);
  const Name line =
      w.emit("Range", {w.constant(full({}, 0, DType::i64)), w.constant(full({}, n.shape[axis], DType::i64)),
                       w.constant(full({}, 1, DType::i64))});
  std::vector<std::int64_t> narrow(n.shape.rank(), 1);
  narrow[axis] = n.shape[axis];
  return w.emit("Expand", {w.emit("Reshape", {line, w.integers(narrow)}), w.integers(n.shape)});
}

/// Where the values of an update begin along each axis of the result, if they are a block of it.
std::optional<std::vector<std::int64_t>> block_begin(const Writer& w, const GraphNode& n) {
  const auto a = attributes_of<ops::Update>(n);
  const Shape& values = w.at(n.operands[1].value).shape;
  if (values.rank() != n.shape.rank()) return std::nullopt;
  std::vector<std::int64_t> begin(values.rank());
  std::int64_t stride = 1, offset = a.offset.value;
  for (unsigned i = values.rank(); i-- > 0; stride *= n.shape[i]) {
    if (values[i] == 0 || n.shape[i] == 0 || (values[i] > 1 && a.strides.value[i] != stride)) return std::nullopt;
    begin[i] = offset / stride % n.shape[i];
    if (begin[i] + values[i] > n.shape[i]) return std::nullopt;
  }
  return begin;
}
/// Values in a block of one number are a Pad, others elements at their row-major positions.
Name write_update(Writer& w, const GraphNode& n) {
  const GraphNode &base = w.at(n.operands[0].value), &values = w.at(n.operands[1].value);
  const Name elements = w.operand(n, 1, n.dtype);
  const auto begin = block_begin(w, n);
  if (begin && base.op == Op::full && n.dtype != DType::boolean) {
    std::vector<std::int64_t> pads = *begin;
    for (unsigned i = 0; i < n.shape.rank(); ++i) pads.push_back(n.shape[i] - (*begin)[i] - values.shape[i]);
    return w.emit("Pad", {elements, w.integers(pads), w.bits(base.scalars.at(0), scalar_dtype(n.dtype), n.dtype)});
  }
  const auto a = attributes_of<ops::Update>(n);
  Name places = w.constant(full({}, a.offset.value, DType::i64));
  for (unsigned i = 0; i < values.shape.rank(); ++i) {
    const Name line =
        w.emit("Range", {w.constant(full({}, 0, DType::i64)), w.constant(full({}, values.shape[i], DType::i64)),
                         w.constant(full({}, 1, DType::i64))});
    std::vector<std::int64_t> narrow(values.shape.rank(), 1);
    narrow[i] = values.shape[i];
    const Name along = w.emit("Reshape", {line, w.integers(narrow)});
    const Name steps = w.emit("Mul", {along, w.constant(full({}, a.strides.value[i], DType::i64))});
    places = w.emit("Add", {places, steps});
  }
  const auto flat = [&](const Name& x) { return w.emit("Reshape", {x, w.integers({-1})}); };
  const Name y = w.emit("ScatterElements", {flat(w.operand(n, 0)), flat(places), flat(elements)});
  return w.emit("Reshape", {y, w.integers(n.shape)});
}

}  // namespace

const std::map<Op, Emit>& emitters() {
  static const std::map<Op, Emit> all{
      {Op::negative, same("Neg")},
      {Op::positive, same("Identity")},
      {Op::abs, same("Abs")},
      {Op::sign, same("Sign")},
      {Op::sqrt, same("Sqrt")},
      {Op::reciprocal, same("Reciprocal")},
      {Op::exp, same("Exp")},
      {Op::log, same("Log")},
      {Op::sin, same("Sin")},
      {Op::cos, same("Cos")},
      {Op::tan, same("Tan")},
      {Op::asin, same("Asin")},
      {Op::acos, same("Acos")},
      {Op::atan, same("Atan")},
      {Op::sinh, same("Sinh")},
      {Op::cosh, same("Cosh")},
      {Op::asinh, same("Asinh")},
      {Op::acosh, same("Acosh")},
      {Op::atanh, same("Atanh")},
      {Op::tanh, same("Tanh")},
      {Op::sigmoid, same("Sigmoid")},
      {Op::erf, same("Erf")},
      {Op::relu, same("Relu")},
      {Op::floor, same("Floor")},
      {Op::ceil, same("Ceil")},
      {Op::round, same("Round")},
      {Op::isnan, same("IsNaN")},
      {Op::isinf, same("IsInf")},
      {Op::softplus, same("Softplus")},
      {Op::softsign, same("Softsign")},
      {Op::hardswish, same("HardSwish")},
      {Op::mish, same("Mish")},
      {Op::logical_not, same("Not")},
      {Op::add, same("Add")},
      {Op::subtract, same("Sub")},
      {Op::multiply, same("Mul")},
      {Op::divide, same("Div")},
      {Op::pow, same("Pow")},
      {Op::maximum, same("Max")},
      {Op::minimum, same("Min")},
      {Op::equal, same("Equal")},
      {Op::less, same("Less")},
      {Op::less_equal, same("LessOrEqual")},
      {Op::greater, same("Greater")},
      {Op::greater_equal, same("GreaterOrEqual")},
      {Op::logical_and, same("And")},
      {Op::logical_or, same("Or")},
      {Op::logical_xor, same("Xor")},
      {Op::bitwise_and, bitwise("And")},
      {Op::bitwise_or, bitwise("Or")},
      {Op::bitwise_xor, bitwise("Xor")},
      {Op::bitwise_invert, bitwise("Not")},
      {Op::square, formula([](Writer& w, const Name& x, DType) {
         return w.emit("Mul", {x, x});
       })},
      {Op::rsqrt, formula([](Writer& w, const Name& x, DType) { return w.emit("Reciprocal", {w.emit("Sqrt", {x})}); })},
      {Op::expm1, formula([](Writer& w, const Name& x, DType t) { return plus(w, w.emit("Exp", {x}), -1, t); })},
      {Op::log1p, formula([](Writer& w, const Name& x, DType t) { return w.emit("Log", {plus(w, x, 1, t)}); })},
      {Op::exp2,
       formula([](Writer& w, const Name& x, DType t) { return w.emit("Exp", {times(w, x, std::log(2.0), t)}); })},
      {Op::log2,
       formula([](Writer& w, const Name& x, DType t) { return times(w, w.emit("Log", {x}), 1 / std::log(2.0), t); })},
      {Op::log10,
       formula([](Writer& w, const Name& x, DType t) { return times(w, w.emit("Log", {x}), 1 / std::log(10.0), t); })},
      {Op::erfc,
       formula([](Writer& w, const Name& x, DType t) { return plus(w, w.emit("Neg", {w.emit("Erf", {x})}), 1, t); })},
      {Op::silu, formula([](Writer& w, const Name& x, DType) {
         return w.emit("Mul", {x, w.emit("Sigmoid", {x})});
       })},
      {Op::gelu, formula([](Writer& w, const Name& x, DType t) {
         const Name e = plus(w, w.emit("Erf", {times(w, x, std::sqrt(0.5), t)}), 1, t);
         return times(w, w.emit("Mul", {x, e}), 0.5, t);
       })},
      {Op::gelu_tanh, formula([](Writer& w, const Name& x, DType t) {
         const Name cube = w.emit("Mul", {w.emit("Mul", {x, x}), x});
         const Name inner =
             times(w, w.emit("Add", {x, times(w, cube, 0.044715, t)}), std::sqrt(2 / 3.14159265358979323846), t);
         return times(w, w.emit("Mul", {x, plus(w, w.emit("Tanh", {inner}), 1, t)}), 0.5, t);
       })},
      {Op::relu6, formula([](Writer& w, const Name& x, DType t) {
         return w.emit("Clip", {x, w.number(0, t), w.number(6, t)});
       })},
      {Op::hardsigmoid, formula([](Writer& w, const Name& x, DType t) {
         return times(w, w.emit("Clip", {plus(w, x, 3, t), w.number(0, t), w.number(6, t)}), 1.0 / 6, t);
       })},
      {Op::log_sigmoid, formula([](Writer& w, const Name& x, DType) {
         return w.emit("Neg", {w.emit("Softplus", {w.emit("Neg", {x})})});
       })},
      {Op::isfinite, formula([](Writer& w, const Name& x, DType) {
         return w.emit("Not", {w.emit("Or", {w.emit("IsNaN", {x}), w.emit("IsInf", {x})})});
       })},
      {Op::trunc, formula([](Writer& w, const Name& x, DType) {
         return w.emit("Mul", {w.emit("Sign", {x}), w.emit("Floor", {w.emit("Abs", {x})})});
       })},
      {Op::not_equal, formula2([](Writer& w, const Name& x, const Name& y, DType) {
         return w.emit("Not", {w.emit("Equal", {x, y})});
       })},
      {Op::remainder, formula2([](Writer& w, const Name& x, const Name& y, DType t) {
         if (!is_floating(t)) return w.emit("Mod", {x, y});
         return w.emit("Sub", {x, w.emit("Mul", {w.emit("Floor", {w.emit("Div", {x, y})}), y})});
       })},
      {Op::fmod, formula2([](Writer& w, const Name& x, const Name& y, DType) {
         const Name r = w.emit("Mod", {x, y});
         w.with("fmod", 1);
         return r;
       })},
      {Op::floor_divide, formula2([](Writer& w, const Name& x, const Name& y, DType t) {
         if (is_floating(t)) return w.emit("Floor", {w.emit("Div", {x, y})});
         return w.emit("Div", {w.emit("Sub", {x, w.emit("Mod", {x, y})}), y});
       })},
      {Op::hypot, formula2([](Writer& w, const Name& x, const Name& y, DType) {
         return w.emit("Sqrt", {w.emit("Add", {w.emit("Mul", {x, x}), w.emit("Mul", {y, y})})});
       })},
      {Op::where,
       [](Writer& w, const GraphNode& n) {
         return w.emit("Where", {w.operand(n, 0, DType::boolean), w.operand(n, 1, n.dtype), w.operand(n, 2, n.dtype)});
       }},
      {Op::sum, reduction("ReduceSum")},
      {Op::prod, reduction("ReduceProd")},
      {Op::max, reduction("ReduceMax")},
      {Op::min, reduction("ReduceMin")},
      {Op::all, reduction("ReduceMin")},
      {Op::any, reduction("ReduceMax")},
      {Op::argmax, reduction("ArgMax")},
      {Op::argmin, reduction("ArgMin")},
      {Op::copy, [](Writer& w, const GraphNode& n) { return w.emit("Identity", {w.operand(n, 0)}); }},
      {Op::cast, [](Writer& w, const GraphNode& n) { return w.emit("Identity", {w.operand(n, 0, n.dtype)}); }},
      {Op::full,
       [](Writer& w, const GraphNode& n) {
         const Name value = w.bits(n.scalars.at(0), scalar_dtype(n.dtype), n.dtype);
         return w.emit("Expand", {value, w.integers(n.shape)});
       }},
      {Op::iota, &write_iota},
      {Op::reshape,
       [](Writer& w, const GraphNode& n) {
         const Name y = w.emit("Reshape", {w.operand(n, 0), w.integers(n.shape)});
         w.with("allowzero", 1);
         return y;
       }},
      {Op::expand_dims,
       [](Writer& w, const GraphNode& n) {
         return w.emit("Unsqueeze",
                       {w.operand(n, 0), w.integers(bits_set(attributes_of<ops::ExpandDims>(n).axes.value))});
       }},
      {Op::squeeze,
       [](Writer& w, const GraphNode& n) {
         return w.emit("Squeeze", {w.operand(n, 0), w.integers(bits_set(attributes_of<ops::Squeeze>(n).axes.value))});
       }},
      {Op::permute,
       [](Writer& w, const GraphNode& n) {
         const Name y = w.emit("Transpose", {w.operand(n, 0)});
         w.with("perm", attributes_of<ops::Permute>(n).axes.value);
         return y;
       }},
      {Op::broadcast_to,
       [](Writer& w, const GraphNode& n) {
         return w.emit("Expand", {w.operand(n, 0), w.integers(n.shape)});
       }},
      {Op::slice, &write_slice},
      {Op::update, &write_update},
      {Op::unfold, &write_unfold},
      {Op::concat,
       [](Writer& w, const GraphNode& n) {
         Names parts;
         for (std::size_t k = 0; k < n.operands.size(); ++k) parts.push_back(w.operand(n, k, n.dtype));
         const Name y = w.emit("Concat", parts);
         w.with("axis", static_cast<std::int64_t>(attributes_of<ops::Concat>(n).axis.value));
         return y;
       }},
      {Op::take,
       [](Writer& w, const GraphNode& n) {
         const Name y = w.emit("Gather", {w.operand(n, 0), w.operand(n, 1, DType::i64)});
         w.with("axis", static_cast<std::int64_t>(attributes_of<ops::Take>(n).axis.value));
         return y;
       }},
      {Op::gather,
       [](Writer& w, const GraphNode& n) {
         const Name y = w.emit("GatherElements", {w.operand(n, 0), w.operand(n, 1, DType::i64)});
         w.with("axis", static_cast<std::int64_t>(attributes_of<ops::Gather>(n).axis.value));
         return y;
       }},
      {Op::scatter, scattered("")},
      {Op::scatter_add, scattered("add")},
      {Op::scatter_multiply, scattered("mul")},
      {Op::scatter_maximum, scattered("max")},
      {Op::scatter_minimum, scattered("min")},
      {Op::cumulative_sum,
       [](Writer& w, const GraphNode& n) {
         const auto axis = static_cast<std::int64_t>(attributes_of<ops::Scan>(n).axis.value);
         return w.emit("CumSum", {w.operand(n, 0, n.dtype), w.constant(full({}, axis, DType::i64))});
       }},
      {Op::top_k_indices,
       [](Writer& w, const GraphNode& n) {
         const auto a = attributes_of<ops::TopKIndices>(n);
         w.emit("TopK", {w.operand(n, 0), w.integers({a.k.value})});
         w.with("axis", static_cast<std::int64_t>(a.axis.value)).with("largest", a.largest.value ? 1 : 0);
         return w.second_result();
       }},
      {Op::matmul,
       [](Writer& w, const GraphNode& n) {
         return w.emit("MatMul", {w.operand(n, 0, n.dtype), w.operand(n, 1, n.dtype)});
       }},
      {Op::convolution,
       [](Writer& w, const GraphNode& n) {
         const Name y = w.emit("Conv", {w.operand(n, 0, n.dtype), w.operand(n, 1, n.dtype)});
         window_attributes(w, attributes_of<ops::Convolution>(n));
         return y;
       }},
      {Op::convolution_data_gradient,
       [](Writer& w, const GraphNode& n) {
         const Name y = w.emit("ConvTranspose", {w.operand(n, 0, n.dtype), w.operand(n, 1, n.dtype)});
         const auto a = attributes_of<ops::ConvolutionDataGradient>(n);
         window_attributes(w, a);
         // What the strides leave over lies at the end.
         const Shape &from = w.at(n.operands[0].value).shape, &filter = w.at(n.operands[1].value).shape;
         std::vector<std::int64_t> extra;
         for (unsigned i = 2; i < n.shape.rank(); ++i)
           extra.push_back(n.shape[i] - ((from[i] - 1) * a.strides.value[i - 2] - a.padding.value[i - 2] -
                                         a.padding_end.value[i - 2] + a.dilation.value[i - 2] * (filter[i] - 1) + 1));
         w.with("output_padding", extra);
         return y;
       }},
  };
  return all;
}

}  // namespace fermata::onnx
