// Views: ops whose result is the operand's elements with other sizes and strides.
#pragma once

#include "ir/irregular_op.h"

namespace fermata::ops {

inline constexpr OpFacts kKeepsOrder = [] {
  OpFacts facts = kFreeView;
  facts.keeps_order = true;
  return facts;
}();

struct Reshape {
  ResultShape shape;

  static constexpr OpFacts facts = kKeepsOrder;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  bool apply(const Shape& to, Shape& sizes, Shape& strides, std::int64_t& offset) const;
  std::optional<std::vector<ViewAxis>> view_axes(const Shape& to, const Shape& x) const;
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Reshape> example();
};

struct ExpandDims {
  Structure<Axes> axes;  // of the result

  static constexpr OpFacts facts = kKeepsOrder;
  static constexpr Operands operands{operand("x")};
  bool is_new(unsigned axis) const { return (axes.value >> axis & 1) != 0; }
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const;
  bool apply(const Shape& to, Shape& sizes, Shape& strides, std::int64_t& offset) const;
  std::optional<std::vector<ViewAxis>> view_axes(const Shape& to, const Shape& x) const;
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<ExpandDims> example();
};

struct Squeeze {
  Structure<Axes> axes;  // of the operand

  static constexpr OpFacts facts = kKeepsOrder;
  static constexpr Operands operands{operand("x")};
  bool is_gone(unsigned axis) const { return (axes.value >> axis & 1) != 0; }
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const;
  bool apply(const Shape& to, Shape& sizes, Shape& strides, std::int64_t& offset) const;
  std::optional<std::vector<ViewAxis>> view_axes(const Shape& to, const Shape& x) const;
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Squeeze> example();
};

struct Permute {
  Structure<Integers> axes;  // the operand axis of each result axis

  static constexpr OpFacts facts = kFreeView;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const;
  bool apply(const Shape& to, Shape& sizes, Shape& strides, std::int64_t& offset) const;
  std::optional<std::vector<ViewAxis>> view_axes(const Shape& to, const Shape& x) const;
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Permute> example();
};

struct Slice {
  Argument<Integers> start;  // one for each axis
  Steps step;
  ResultShape counts;

  static constexpr OpFacts facts = kFreeView;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes&) const {}
  bool apply(const Shape& to, Shape& sizes, Shape& strides, std::int64_t& offset) const;
  std::optional<std::vector<ViewAxis>> view_axes(const Shape& to, const Shape& x) const;
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Slice> example();
};

struct BroadcastTo {
  ResultShape shape;

  static constexpr OpFacts facts = kFreeView;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.stretch(0); }
  bool apply(const Shape& to, Shape& sizes, Shape& strides, std::int64_t& offset) const;
  std::optional<std::vector<ViewAxis>> view_axes(const Shape& to, const Shape& x) const;
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<BroadcastTo> example();
};

/// Windows along an axis, whose elements are a new last axis.
struct Unfold {
  Structure<Axis> axis;
  Structure<std::int64_t> size;      // of a window
  Structure<std::int64_t> step;      // from one window to the next
  Structure<std::int64_t> dilation;  // from one element of a window to the next

  static constexpr OpFacts facts = kFreeView;
  static constexpr Operands operands{operand("x")};
  TensorType infer(const InferCall& call) const;
  void relate(EqualAxes& equal) const { equal.keep_all_but(axis.value); }
  bool apply(const Shape& to, Shape& sizes, Shape& strides, std::int64_t& offset) const;
  std::optional<std::vector<ViewAxis>> view_axes(const Shape& to, const Shape& x) const;
  static ReferenceTensor reference(const GraphNode& node, const ReferenceOperands& operands);
  static Example<Unfold> example();
};

}  // namespace fermata::ops
