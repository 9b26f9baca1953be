// What the struct of an irregular op says beside its attributes (ir/ops/*.h), and the types that it says it with.
//
// An op is one struct: fields are its attributes (ir/op_fields.h), members are what the engine asks of it. A member
// that is missing is an error where the table is made (ir/op_traits.cpp), with a message that names it.
// docs/adding-an-op.md shows one.
#pragma once

#include <array>
#include <concepts>
#include <optional>
#include <vector>

#include "ir/graph.h"
#include "ir/infer_call.h"
#include "ir/op_fields.h"
#include "ir/op_traits.h"
#include "ir/scalar_program.h"

namespace fermata {

/// A value that has to be given: leaving it out of a braced list is an error.
template <class T> class Required {
 public:
  constexpr Required(T value) : value_(value) {}
  constexpr operator T() const { return value_; }

 private:
  T value_;
};

/// What the passes ask of an op, whatever its arguments.
struct OpFacts {
  Required<Effect> effect;
  Required<Cost> cost;
  Required<bool> may_fail_on_values;  // what it finds in its operands may be an error
  Required<bool> overwrites;          // writes its result where operand 0 lies, if nothing else reads that
  Required<OperandPrecision> precision;
};
inline constexpr OpFacts kFreeView{.effect = Effect::pure,
                                   .cost = Cost::pass,
                                   .may_fail_on_values = false,
                                   .overwrites = false,
                                   .precision = OperandPrecision::as_given};
/// The elements are known without reading any.
inline constexpr OpFacts kLeaf{.effect = Effect::pure,
                               .cost = Cost::nothing,
                               .may_fail_on_values = false,
                               .overwrites = false,
                               .precision = OperandPrecision::as_given};

/// The operands of an op: what errors call them, and what their elements must be for a call to be valid.
class Operands {
 public:
  template <std::same_as<OperandInfo>... Info> constexpr explicit Operands(Info... info)
      : count(sizeof...(info)), least(count), infos{info...} {}
  /// Any number of operands; the last name stands for the rest.
  template <std::same_as<OperandInfo>... Info> static constexpr Operands any(Info... info) {
    Operands operands(info...);
    operands.is_list = true, operands.least = 0;
    return operands;
  }
  /// The last one may be left out.
  template <std::same_as<OperandInfo>... Info> static constexpr Operands last_optional(Info... info) {
    Operands operands(info...);
    --operands.least;
    return operands;
  }
  constexpr std::span<const OperandInfo> list() const { return {infos.data(), count}; }

  std::size_t count, least;
  std::array<OperandInfo, 10> infos;
  bool is_list = false;
};
constexpr OperandInfo operand(std::string_view name, OperandElements elements = OperandElements::any) {
  return {name, elements};
}

/// Which sizes of the result and of operands are equal whatever they are (passes/dimensions.h).
class EqualAxes {
 public:
  static constexpr int kResult = -1, kOne = -2;
  struct Place {
    int of;  // the number of an operand, kResult or kOne
    unsigned axis;
  };
  EqualAxes(const Shape& result, std::span<const Shape* const> operands) : result_(result), operands_(operands) {}

  unsigned rank() const { return result_.rank(); }
  unsigned rank_of(std::size_t operand) const { return operands_[operand]->rank(); }
  void join(Place a, Place b) { pairs.emplace_back(a, b); }
  /// Result axis `axis` is axis `from` of an operand.
  void result(unsigned axis, int operand, unsigned from) { join({kResult, axis}, {operand, from}); }
  /// An operand is stretched to the result.
  void stretch(std::size_t operand) {
    const Shape& from = *operands_[operand];
    const unsigned lead = rank() - from.rank();
    for (unsigned i = lead; i < rank(); ++i)
      if (from[i - lead] == result_[i]) result(i, static_cast<int>(operand), i - lead);
  }
  /// The result has the leading axes of an operand, but for one.
  void keep_all_but(std::int64_t axis, std::size_t operand = 0) {
    for (unsigned i = 0; i < rank() && i < rank_of(operand); ++i)
      if (i != axis) result(i, static_cast<int>(operand), i);
  }

  std::vector<std::pair<Place, Place>> pairs;

 private:
  const Shape& result_;
  std::span<const Shape* const> operands_;
};

/// Instructions of a fused kernel, as an op that has a form there asks for them.
class KernelEmitter {
 public:
  virtual ValueId operand(std::size_t k) = 0;
  virtual ValueId scalar(std::uint16_t index, DType dtype) = 0;
  /// The row-major position within the named axes of the result.
  virtual ValueId position(std::uint16_t axes) = 0;
  virtual ValueId convert(ValueId value, DType to) = 0;
  /// Rounds to the dtype of the result, as a store and a load would.
  virtual ValueId rounded(ValueId value) = 0;

 protected:
  ~KernelEmitter() = default;
};

/// Operands and attributes that make a valid call, for tests that call every op with each attribute changed.
template <class O> struct Example {
  std::vector<TensorType> operands;
  O op;
  DType dtype = DType::f32;  // of the result, where the shape is an argument and the dtype is fixed
};
/// An op that cannot be called by itself, and why.
struct NoExample {
  std::string_view reason;
};

using ReferenceOperands = std::vector<const ReferenceTensor*>;

/// An op that is a strided view of its operand says how: apply() changes a layout into that of the result, and
/// view_axes() says which axis of the operand each of the result moves along, nothing where only the row-major order
/// stays.
template <class O>
concept ViewOp = requires(const O& op, const Shape& to, Shape& layout, std::int64_t& offset, const Shape& x) {
  { op.apply(to, layout, layout, offset) } -> std::same_as<bool>;
  { op.view_axes(to, x) } -> std::same_as<std::optional<std::vector<ViewAxis>>>;
};
/// An op that kernels may fuse has a form in their programs.
template <class O>
concept EmittedOp = requires(const O& op, KernelEmitter& emitter) {
  { op.emit(emitter) } -> std::same_as<ValueId>;
};

/// Fails to compile, with a message that names it, where the struct of an op lacks a member.
template <class O> consteval bool is_complete() {
  static_assert(
      requires {
        { O::facts } -> std::convertible_to<const OpFacts&>;
      },
      "an op must define `static constexpr OpFacts facts`: effect, cost, may_fail_on_values, overwrites, precision");
  static_assert(
      requires {
        { O::operands } -> std::convertible_to<const Operands&>;
      },
      "an op must define `static constexpr Operands operands`");
  static_assert(
      requires(const O& op, const InferCall& call) {
        { op.infer(call) } -> std::same_as<TensorType>;
      },
      "an op must define `TensorType infer(const InferCall&) const`");
  static_assert(
      requires(const O& op, EqualAxes& axes) {
        { op.relate(axes) } -> std::same_as<void>;
      },
      "an op must define `void relate(EqualAxes&) const`, which says where its axes come from");
  static_assert(
      requires(const GraphNode& node, const ReferenceOperands& operands) {
        { O::reference(node, operands) } -> std::same_as<ReferenceTensor>;
      } ||
          requires {
            { O::no_reference } -> std::convertible_to<std::string_view>;
          },
      "an op must define its reference evaluation, or why there is none: `static ReferenceTensor reference(const "
      "GraphNode&, const ReferenceOperands&)` or `static constexpr std::string_view no_reference`");
  static_assert(
      requires {
        { O::example() } -> std::same_as<Example<O>>;
      } ||
          requires {
            { O::example() } -> std::same_as<NoExample>;
          },
      "an op must define an example call for tests, or why there is none: `static Example<O> example()`");
  return true;
}

}  // namespace fermata
