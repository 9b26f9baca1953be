// Elements in other places: axes moved, tensors rolled, repeated, tiled and brought to one shape.
//
// permute_dims, moveaxis, swapaxes, unstack, broadcast_arrays and meshgrid give views. Errors name the line of the
// call: IndexError for an axis out of range or named twice, ShapeError where shapes do not fit.
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
/// The axes `source` at the places `destination`, the others in order.
Tensor moveaxis(const Tensor& x, const IntegerList& source, const IntegerList& destination,
                Location where = Location::current());
Tensor swapaxes(const Tensor& x, std::int64_t first, std::int64_t second, Location where = Location::current());
/// All elements as a vector: a view where that is possible.
Tensor flatten(const Tensor& x, Location where = Location::current());
/// x with at least so many axes, new ones in front.
Tensor atleast_1d(const Tensor& x, Location where = Location::current());
Tensor atleast_2d(const Tensor& x, Location where = Location::current());

/// The parts of x along an axis, without it.
std::vector<Tensor> unstack(const Tensor& x, std::int64_t axis = 0, Location where = Location::current());

/// Elements moved by `shift` places along an axis, what leaves at one end coming back at the other. One shift for each
/// axis; without axes the elements are one line.
Tensor roll(const Tensor& x, const IntegerList& shift, const IntegerList& axes = {},
            Location where = Location::current());

/// Each element `count` times in a row along an axis; of all elements as one line without an axis.
Tensor repeat(const Tensor& x, std::int64_t count, std::optional<std::int64_t> axis = {},
              Location where = Location::current());
/// Element i counts[i] times; counts of one element stand for all. `total`, the sum of the counts, is read from them
/// unless it is given.
Tensor repeat(const Tensor& x, const Tensor& counts, std::optional<std::int64_t> axis = {},
              std::optional<std::int64_t> total = {}, Location where = Location::current());
/// x side by side with itself, so many times along each axis.
Tensor tile(const Tensor& x, const IntegerList& repetitions, Location where = Location::current());

/// All broadcast to their common shape.
std::vector<Tensor> broadcast_arrays(std::span<const Tensor> tensors, Location where = Location::current());
std::vector<Tensor> broadcast_arrays(std::initializer_list<Tensor> tensors, Location where = Location::current());
/// The shape that these broadcast to.
Shape broadcast_shapes(std::initializer_list<Shape> shapes, Location where = Location::current());

enum class MeshIndexing { xy, ij };
/// Coordinates of a grid, given those along each axis as vectors (0-d counts as one element). `ij`: axis k of the
/// results is that of vector k; `xy` exchanges the first two.
std::vector<Tensor> meshgrid(std::span<const Tensor> vectors, MeshIndexing indexing = MeshIndexing::xy,
                             Location where = Location::current());
std::vector<Tensor> meshgrid(std::initializer_list<Tensor> vectors, MeshIndexing indexing = MeshIndexing::xy,
                             Location where = Location::current());

}  // namespace fermata
