// The arguments of one inference, and errors shared by several ops.
//
// Internal to ir/infer.cpp and ir/ops/*.cpp; other code calls infer().
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {

struct InferCall {
  Op op;
  std::span<const TensorType> operands;
  std::span<const std::int64_t> attributes;
  const TensorType& wanted;
  std::source_location where;
  const Subgraphs* subgraphs = nullptr;

  const TensorType& operand(std::size_t i) const { return operands[i]; }
  /// "add: " followed by `what`.
  std::string headline(std::string_view what) const;
  /// The user-visible name of operand i: x, lhs, rhs, index ...
  std::string_view label(std::size_t i) const;
  /// One line per operand; `notes` may be shorter than the operands.
  std::vector<ErrorOperand> lines(const std::vector<std::string>& notes = {}) const;
  /// Throws E with the operands of the call: fail<ShapeError>(1001, "ShapeError", "shapes do not ...").
  template <class E> [[noreturn]] void fail(int code, std::string_view kind, std::string_view what,
                                            const std::vector<std::string>& notes = {},
                                            std::string_view hint = {}) const {
    throw E(code, format_error(code, kind, headline(what), lines(notes), where, hint));
  }

  /// Checks an axis attribute of `of`. Attributes are not negative: callers normalize axes.
  unsigned axis(std::int64_t given, const TensorType& of) const;
  /// ValueError FM1370 unless a step or a size is at least 1.
  void require_positive(std::int64_t value, std::string_view what) const;
  /// Throws DTypeError or UnsupportedError for an operand dtype that the op does not support.
  [[noreturn]] void refuse_dtype(std::size_t operand) const;
  /// DTypeError unless operands i and j have one dtype.
  void require_same_dtype(std::size_t i, std::size_t j) const;
  /// DTypeError unless operand 1 has an integer dtype.
  void require_index_dtype() const;
  /// DTypeError or UnsupportedError unless `wanted` has a dtype of the set.
  void require_wanted_dtype(DTypeSet accepted, std::string_view description) const;
  /// Returns the result type after checking its element count and byte size.
  TensorType result(DType dtype, const Shape& shape) const;
  /// The common shape of `a` and `b`, leading axes of operands i and j; ShapeError naming the axes that do not match.
  Shape broadcast(std::span<const std::int64_t> a, std::span<const std::int64_t> b, std::size_t i, std::size_t j) const;
};

}  // namespace fermata
