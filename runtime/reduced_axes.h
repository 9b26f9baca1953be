// The order in which a reduction goes over its axes.
#pragma once

#include <cstdint>
#include <span>

namespace fermata {

/// Exchanges reduced axes, those of `reduced`, so that elements are visited in the order in which they lie in memory;
/// the last axis has the nearest ones. `strides` are those of one operand after the other, for each axis. Nothing is
/// changed where operands disagree about the order, one repeats its elements along some of these axes only, or one has
/// neighbors along the last axis that would go the other way. Eager
/// calls and kernels have this rule in common, so they add the elements of an operand in the same order. Positions of
/// elements, if they are counted rather than computed from strides, would be other ones.
void order_reduced_axes(std::span<std::int64_t> sizes, std::uint64_t reduced, std::span<std::int64_t> strides);

}  // namespace fermata
