// Types of results: shape and dtype of every op from its operands and attributes, and every check that a call makes.
//
// This is where user errors about shapes, dtypes, axes and sizes come from: recording, eager kernels, the parser and
// the verifier all ask here, so a bad call fails the same way everywhere, before anything is allocated.
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

/// The element count of a shape that a user gave; ShapeError for negative sizes, ranks above kMaxRank, or counts or
/// byte sizes that overflow.
std::int64_t check_shape(std::string_view op, std::span<const std::int64_t> sizes, DType dtype,
                         std::source_location where);
/// An axis counted from the end where negative; IndexError if out of range.
unsigned normalize_axis(std::string_view op, std::int64_t axis, const TensorType& operand, std::source_location where);
/// A bit mask of distinct axes; an empty list means all of them.
std::uint16_t axes_mask(std::string_view op, std::span<const std::int64_t> axes, const TensorType& operand,
                        std::source_location where);
/// The sizes of a reshape with at most one -1 replaced by what is left over.
Shape resolve_reshape(std::span<const std::int64_t> sizes, const TensorType& operand, std::source_location where);

/// The type of a result. `operands` are the tensor operands; host scalars take no part (their effect on the dtype has
/// been decided before). For ops whose result shape or dtype is an argument (input, full, iota, random, cast, reshape,
/// slice, broadcast_to) `wanted` gives it and is checked. Pointwise operands must already agree in dtype up to the
/// op's rule; at least one operand of a pointwise op is a tensor, and the condition of `where` always is. With nothing
/// but the condition, `wanted` gives the dtype of `where`. Ops that call functions have them in `subgraphs`. Throws the
/// user error of the call.
TensorType infer(Op op, std::span<const TensorType> operands, std::span<const std::int64_t> attributes,
                 const TensorType& wanted, std::source_location where, const Subgraphs* subgraphs = nullptr);

}  // namespace fermata
