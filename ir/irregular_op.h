// The interface of an irregular op's struct besides its attributes (ir/ops/*.h), and its types.
//
// An op is one struct: fields are its attributes (ir/op_fields.h), members answer the engine's queries. A missing
// member is a compile error in ir/op_traits.cpp, with a message that names it. docs/adding-an-op.md has an example.
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

/// A mandatory value: omitting it from a braced list is a compile error.
template <class T> class Required {
 public:
  constexpr Required(T value) : value_(value) {}
  constexpr operator T() const { return value_; }

 private:
  T value_;
};

/// Properties of an op that passes use, independent of its arguments.
struct OpFacts {
  Required<Effect> effect;
  Required<Cost> cost;
  Required<bool> may_fail_on_values;  // some operand values are errors
  Required<bool> overwrites;          // may reuse the buffer of operand 0 for its result
  Required<OperandPrecision> precision;
  bool keeps_order = false;        // a view of all elements of its operand, in row-major order whatever the sizes
  bool begins_as_operand = false;  // kernels first copy operand 0 to the result, unless it is there already
  bool gathers = false;            // reads operand 0 along its axis at positions, operand 1, and nothing else
  bool joins = false;              // its operands follow each other along its axis
};
inline constexpr OpFacts kFreeView{.effect = Effect::pure,
                                   .cost = Cost::pass,
                                   .may_fail_on_values = false,
                                   .overwrites = false,
                                   .precision = OperandPrecision::as_given};
/// Elements are known without reading memory.
inline constexpr OpFacts kLeaf{.effect = Effect::pure,
                               .cost = Cost::nothing,
                               .may_fail_on_values = false,
                               .overwrites = false,
                               .precision = OperandPrecision::as_given};

/// The operands of an op: their names in errors, and constraints on their elements.
class Operands {
 public:
  template <std::same_as<OperandInfo>... Info> constexpr explicit Operands(Info... info)
      : count(sizeof...(info)), least(count), infos{info...} {}
  /// Any number of operands; the last entry applies to the rest.
  template <std::same_as<OperandInfo>... Info> static constexpr Operands any(Info... info) {
    Operands operands(info...);
    operands.is_list = true, operands.least = 0;
    return operands;
  }
  /// The last operand is optional.
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

/// Which sizes of the result and operands are always equal (passes/dimensions.h).
class EqualAxes {
 public:
  static constexpr int kResult = -1, kOne = -2;
  struct Place {
    int of;  // operand index, kResult or kOne
    unsigned axis;
  };
  EqualAxes(const Shape& result, std::span<const Shape* const> operands) : result_(result), operands_(operands) {}

  unsigned rank() const { return result_.rank(); }
  unsigned rank_of(std::size_t operand) const { return operands_[operand]->rank(); }
  void join(Place a, Place b) { pairs.emplace_back(a, b); }
  /// Result axis `axis` is axis `from` of an operand.
  void result(unsigned axis, int operand, unsigned from) { join({kResult, axis}, {operand, from}); }
  /// An operand broadcasts to the result.
  void stretch(std::size_t operand) {
    const Shape& from = *operands_[operand];
    const unsigned lead = rank() - from.rank();
    for (unsigned i = lead; i < rank(); ++i)
      if (from[i - lead] == result_[i]) result(i, static_cast<int>(operand), i - lead);
  }
  /// The result has the leading axes of an operand, except one.
  void keep_all_but(std::int64_t axis, std::size_t operand = 0) {
    for (unsigned i = 0; i < rank() && i < rank_of(operand); ++i)
      if (i != axis) result(i, static_cast<int>(operand), i);
  }

  std::vector<std::pair<Place, Place>> pairs;

 private:
  const Shape& result_;
  std::span<const Shape* const> operands_;
};

/// Emits instructions of a fused kernel, for ops that can be fused.
class KernelEmitter {
 public:
  virtual ValueId operand(std::size_t k) = 0;
  virtual ValueId scalar(std::uint16_t index, DType dtype) = 0;
  /// The row-major index within the given axes of the result.
  virtual ValueId position(std::uint16_t axes) = 0;
  virtual ValueId convert(ValueId value, DType to) = 0;
  /// The elements of operand 0 at the positions that operand 1 has; for ops that gather.
  virtual ValueId gathered(unsigned axis) = 0;
  /// The element of the operand that is at this point; for ops that join.
  virtual ValueId joined(unsigned axis) = 0;
  /// Rounds to the dtype of the result, as a store and a load would.
  virtual ValueId rounded(ValueId value) = 0;

 protected:
  ~KernelEmitter() = default;
};

/// Operands and attributes of a valid call, for tests that call every op with each attribute changed.
template <class O> struct Example {
  std::vector<TensorType> operands;
  O op;
  DType dtype = DType::f32;  // of the result, if the shape is an argument and the dtype is fixed
};
/// The reason why an op cannot be called on its own.
struct NoExample {
  std::string_view reason;
};

using ReferenceOperands = std::vector<const ReferenceTensor*>;

/// An op that is a strided view of its operand: apply() transforms a layout into that of the result, and view_axes()
/// maps each axis of the result to an axis of the operand; it returns nullopt if only the row-major order is preserved.
template <class O>
concept ViewOp = requires(const O& op, const Shape& to, Shape& layout, std::int64_t& offset, const Shape& x) {
  { op.apply(to, layout, layout, offset) } -> std::same_as<bool>;
  { op.view_axes(to, x) } -> std::same_as<std::optional<std::vector<ViewAxis>>>;
};
/// An op that can be fused into kernels.
template <class O>
concept EmittedOp = requires(const O& op, KernelEmitter& emitter) {
  { op.emit(emitter) } -> std::same_as<ValueId>;
};

/// Fails to compile, with a message that names the member, if the struct of an op lacks one.
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
