// Writing models: each node of a trace becomes one or a few nodes of opset 18. Sizes are those of the trace.
#include "frontend/onnx/save.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <unordered_map>

#include "fermata/creation.h"
#include "fermata/ops.h"
#include "frontend/onnx/schema.h"
#include "frontend/onnx/tensor_proto.h"
#include "frontend/tools/io/file.h"
#include "ir/error.h"
#include "ir/op_fields.h"
#include "ir/ops/reduce.h"
#include "ir/ops/structures.h"

namespace fermata::onnx {
namespace {

using ::onnx::AttributeProto;
using ::onnx::TensorProto;
using Name = std::string;
using Names = std::vector<std::string>;

constexpr std::int64_t kOpset = 18, kFormat = 8;

class Writer {
 public:
  Writer(const Trace& trace, const SaveOptions& options, Location where)
      : trace_(trace), options_(options), where_(where), graph_(*model_.mutable_graph()) {}

  const ::onnx::ModelProto& write();

  // What the functions below are made of.
  Name emit(const std::string& op, const Names& inputs) {
    const Name result = fmt::format("t{}", next_++);
    node(op, inputs, {result});
    return result;
  }
  ::onnx::NodeProto* node(const std::string& op, const Names& inputs, const Names& outputs) {
    ::onnx::NodeProto* const n = graph_.add_node();
    n->set_op_type(op);
    n->set_name(fmt::format("{}_{}", op, graph_.node_size()));
    for (const Name& i : inputs) n->add_input(i);
    for (const Name& o : outputs) n->add_output(o);
    return n;
  }
  /// The node that was made last.
  Writer& with(const std::string& name, std::int64_t value) {
    AttributeProto* const a = attribute(name, AttributeProto::INT);
    a->set_i(value);
    return *this;
  }
  Writer& with(const std::string& name, std::span<const std::int64_t> values) {
    AttributeProto* const a = attribute(name, AttributeProto::INTS);
    for (const std::int64_t v : values) a->add_ints(v);
    return *this;
  }
  Writer& with(const std::string& name, const std::string& text) {
    AttributeProto* const a = attribute(name, AttributeProto::STRING);
    a->set_s(text);
    return *this;
  }
  Name integers(std::span<const std::int64_t> values) {
    TensorProto* const t = initializer(DType::i64);
    t->add_dims(std::ssize(values));
    t->set_raw_data(std::string(reinterpret_cast<const char*>(values.data()), values.size_bytes()));
    return t->name();
  }
  Name integers(std::initializer_list<std::int64_t> values) {
    return integers(std::span(std::data(values), values.size()));
  }
  Name number(double value, DType dtype) { return constant(astype(full({}, value, DType::f64), dtype)); }
  Name bits(std::uint64_t value, DType compute, DType wanted) {
    double number_of_bits = 0;
    if (compute == DType::f64)
      number_of_bits = std::bit_cast<double>(value);
    else if (compute == DType::f32)
      number_of_bits = std::bit_cast<float>(static_cast<std::uint32_t>(value));
    else if (is_signed(compute)) {
      const unsigned unused = 64 - 8 * static_cast<unsigned>(byte_size(compute));
      number_of_bits = static_cast<double>(static_cast<std::int64_t>(value << unused) >> unused);
    } else
      number_of_bits = static_cast<double>(value);
    return number(number_of_bits, wanted);
  }
  Name constant(const Tensor& x) {
    TensorProto* const t = initializer(x.dtype());
    put_elements(*t, x);
    return t->name();
  }
  Name cast(const Name& x, DType from, DType to) {
    if (from == to) return x;
    const Name y = emit("Cast", {x});
    with("to", code_of_dtype(to));
    return y;
  }

  /// Another result of the node that was made last.
  Name second_result() {
    const Name result = fmt::format("t{}", next_++);
    graph_.mutable_node(graph_.node_size() - 1)->add_output(result);
    return result;
  }

  const GraphNode& at(ValueId v) const { return trace_.graph.nodes[v]; }
  const Name& name_of(ValueId v) const { return names_.at(v); }
  /// Operand k of a node, in a dtype.
  Name operand(const GraphNode& n, std::size_t k, std::optional<DType> dtype = {}) {
    const GraphOperand& o = n.operands[k];
    const DType computed = operand_dtype(trace_.graph, n);
    if (o.is_scalar()) return bits(n.scalars[o.scalar], scalar_dtype(computed), dtype.value_or(computed));
    return cast(name_of(o.value), at(o.value).dtype, dtype.value_or(at(o.value).dtype));
  }
  DType computes_in(const GraphNode& n) const { return operand_dtype(trace_.graph, n); }

 private:
  AttributeProto* attribute(const std::string& name, AttributeProto::AttributeType type) {
    AttributeProto* const a = graph_.mutable_node(graph_.node_size() - 1)->add_attribute();
    a->set_name(name);
    a->set_type(type);
    return a;
  }
  TensorProto* initializer(DType dtype) {
    TensorProto* const t = graph_.add_initializer();
    t->set_name(fmt::format("c{}", next_++));
    t->set_data_type(code_of_dtype(dtype));
    return t;
  }
  void put_elements(TensorProto& t, const Tensor& x) const {
    for (const std::int64_t s : x.shape()) t.add_dims(s);
    const Tensor dense = x.contiguous(where_).sync(where_);
    const auto copy = [&]<class T>() {
      // A vector of bool has no bytes to copy.
      const auto all = stored_elements<std::conditional_t<std::is_same_v<T, bool>, std::uint8_t, T>>(dense, where_);
      t.set_raw_data(std::string(reinterpret_cast<const char*>(all.data()), all.size() * sizeof(all[0])));
    };
    if (!visit_real(x.dtype(), copy))
      throw UnsupportedError(2307, format_error(2307, "UnsupportedError",
                                                fmt::format("onnx: elements of type {}", name(x.dtype())), {}, where_));
  }
  void describe(::onnx::ValueInfoProto* value, const Name& name, const GraphNode& n) const {
    value->set_name(name);
    auto* const type = value->mutable_type()->mutable_tensor_type();
    type->set_elem_type(code_of_dtype(n.dtype));
    auto* const shape = type->mutable_shape();
    for (const std::int64_t s : n.shape) shape->add_dim()->set_dim_value(s);
  }

  const Trace& trace_;
  const SaveOptions& options_;
  Location where_;
  ::onnx::ModelProto model_;
  ::onnx::GraphProto& graph_;
  std::unordered_map<ValueId, Name> names_;
  int next_ = 0;
};

using Emit = std::function<Name(Writer&, const GraphNode&)>;

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

const ::onnx::ModelProto& Writer::write() {
  model_.set_ir_version(kFormat);
  model_.set_producer_name("fermata");
  model_.set_producer_version(FERMATA_VERSION);
  model_.add_opset_import()->set_version(kOpset);
  graph_.set_name(options_.name);
  std::map<std::string, std::vector<std::string>> unsupported;
  std::size_t argument = 0;
  for (ValueId v = 0; v < trace_.graph.nodes.size(); ++v) {
    const GraphNode& n = trace_.graph.nodes[v];
    if (n.op == Op::input) {
      if (argument < trace_.arguments.size()) {
        names_[v] =
            argument < options_.input_names.size() ? options_.input_names[argument] : fmt::format("x{}", argument);
        describe(graph_.add_input(), names_[v], n);
        ++argument;
        continue;
      }
      for (const TracedConstant& c : trace_.constants)
        if (c.node == v) names_[v] = constant(c.value);
      continue;
    }
    const auto found = emitters().find(n.op);
    if (found == emitters().end()) {
      unsupported[std::string(name(n.op))].push_back(short_location(n.where));
      names_.emplace(v, Name());
      continue;
    }
    names_[v] = found->second(*this, n);
  }
  if (!unsupported.empty()) {
    std::string text;
    for (const auto& [op, places] : unsupported)
      text +=
          fmt::format("\n  {}  at {}{}", op,
                      fmt::join(places.begin(), places.begin() + std::min<std::ptrdiff_t>(3, std::ssize(places)), ", "),
                      places.size() > 3 ? ", ..." : "");
    throw UnsupportedError(
        2307, format_error(2307, "UnsupportedError", "onnx: ops that have no form in ONNX yet" + text, {}, where_));
  }
  std::size_t result = 0;
  for (std::size_t i = 0; i < trace_.outputs.size(); ++i) {
    if (trace_.outputs[i].kind != TracedOutput::Kind::result)
      throw UnsupportedError(
          2307, format_error(2307, "UnsupportedError", "onnx: a function that writes in place", {}, where_));
    const Name name =
        result < options_.output_names.size() ? options_.output_names[result] : fmt::format("y{}", result);
    const ValueId v = trace_.graph.outputs[i];
    node("Identity", {name_of(v)}, {name});
    describe(graph_.add_output(), name, at(v));
    ++result;
  }
  return model_;
}

}  // namespace

void save_model(const Trace& trace, const std::string& path, const SaveOptions& options, Location where) {
  Writer writer(trace, options, where);
  std::string bytes;
  if (!writer.write().SerializeToString(&bytes))
    throw UnsupportedError(2307, format_error(2307, "UnsupportedError", "onnx: a model of more than 2 GB", {}, where));
  write_file("onnx", path, {bytes}, where);
}

}  // namespace fermata::onnx
