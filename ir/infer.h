// Type inference: shape and dtype of every op's result from its operands and attributes, and all checks of a call.
//
// All user errors about shapes, dtypes, axes and sizes are thrown here. Recording, eager kernels, the parser and the
// verifier use it, so an invalid call fails the same way everywhere, before anything is allocated.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string_view>

#include "ir/dtype.h"
#include "ir/op.h"
#include "ir/shape.h"

namespace fermata {

class Subgraphs;

struct TensorType {
  DType dtype = DType::f32;
  Shape shape;
  bool operator==(const TensorType&) const = default;
};

/// Returns the element count of a user-provided shape; ShapeError for negative sizes, ranks above kMaxRank, or counts
/// or byte sizes that overflow.
std::int64_t check_shape(std::string_view op, std::span<const std::int64_t> sizes, DType dtype,
                         std::source_location where);
/// Normalizes an axis, which counts from the end if negative; IndexError if it is out of range.
unsigned normalize_axis(std::string_view op, std::int64_t axis, const TensorType& operand, std::source_location where);
/// A bit mask of distinct axes; an empty list means all of them.
std::uint16_t axes_mask(std::string_view op, std::span<const std::int64_t> axes, const TensorType& operand,
                        std::source_location where);
/// The sizes of a reshape, with at most one -1 inferred.
Shape resolve_reshape(std::span<const std::int64_t> sizes, const TensorType& operand, std::source_location where);

/// Infers the type of a result. `operands` are the tensor operands; host scalars are not included (promotion has
/// happened before). For ops whose result shape or dtype is an argument (input, full, iota, random, cast, reshape,
/// slice, broadcast_to), `wanted` has it and is checked. Pointwise operands must already agree in dtype up to the op's
/// rule. At least one operand of a pointwise op is a tensor, and the condition of `where` always is. If it is the only
/// one, `wanted` has the dtype of `where`. `subgraphs` has the functions of ops that call some. Throws user errors.
TensorType infer(Op op, std::span<const TensorType> operands, std::span<const std::int64_t> attributes,
                 const TensorType& wanted, std::source_location where, const Subgraphs* subgraphs = nullptr);

}  // namespace fermata
