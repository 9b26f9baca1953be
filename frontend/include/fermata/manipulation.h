// Rearranging elements: moving axes, rolling, repeating, tiling and broadcasting.
//
// permute_dims, moveaxis, swapaxes, unstack, broadcast_arrays and meshgrid return views. Errors name the line of the
// call: IndexError for an axis out of range or named twice, ShapeError if shapes do not match.
#pragma once

#include <initializer_list>
#include <optional>
#include <span>
#include <vector>

#include "fermata/integer_list.h"
#include "runtime/operand.h"

namespace fermata {

/// permute() under its name in the array API standard.
Tensor permute_dims(const Tensor& x, const IntegerList& axes, Location where = Location::current());
/// Moves the axes `source` to the positions `destination`; the others keep their order.
Tensor moveaxis(const Tensor& x, const IntegerList& source, const IntegerList& destination,
                Location where = Location::current());
Tensor swapaxes(const Tensor& x, std::int64_t first, std::int64_t second, Location where = Location::current());
/// All elements as a vector; a view if possible.
Tensor flatten(const Tensor& x, Location where = Location::current());
/// x with at least one (two) axes; new axes are prepended.
Tensor atleast_1d(const Tensor& x, Location where = Location::current());
Tensor atleast_2d(const Tensor& x, Location where = Location::current());

/// The slices of x along an axis, which they do not have.
std::vector<Tensor> unstack(const Tensor& x, std::int64_t axis = 0, Location where = Location::current());

/// Shifts elements cyclically by `shift` positions along each axis. Without axes, x is shifted as if flattened.
Tensor roll(const Tensor& x, const IntegerList& shift, const IntegerList& axes = {},
            Location where = Location::current());

/// Repeats each element `count` times along an axis. Without an axis, x is flattened first.
Tensor repeat(const Tensor& x, std::int64_t count, std::optional<std::int64_t> axis = {},
              Location where = Location::current());
/// Repeats element i counts[i] times; a single count applies to all. `total` is the sum of the counts; it is read (a
/// sync) unless given.
Tensor repeat(const Tensor& x, const Tensor& counts, std::optional<std::int64_t> axis = {},
              std::optional<std::int64_t> total = {}, Location where = Location::current());
/// Repeats x as a whole along each axis.
Tensor tile(const Tensor& x, const IntegerList& repetitions, Location where = Location::current());

/// Broadcasts all tensors to their common shape.
std::vector<Tensor> broadcast_arrays(std::span<const Tensor> tensors, Location where = Location::current());
std::vector<Tensor> broadcast_arrays(std::initializer_list<Tensor> tensors, Location where = Location::current());
/// The common shape that these broadcast to.
Shape broadcast_shapes(std::initializer_list<Shape> shapes, Location where = Location::current());

enum class MeshIndexing { xy, ij };
/// Coordinates of a grid, from a vector of coordinates per axis (0-d counts as one element). `ij`: vector k varies
/// along axis k of the results; `xy` swaps the first two axes.
std::vector<Tensor> meshgrid(std::span<const Tensor> vectors, MeshIndexing indexing = MeshIndexing::xy,
                             Location where = Location::current());
std::vector<Tensor> meshgrid(std::initializer_list<Tensor> vectors, MeshIndexing indexing = MeshIndexing::xy,
                             Location where = Location::current());

}  // namespace fermata
