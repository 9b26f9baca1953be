// See fermata/subscript.h. Slices and integers become a view; integer tensors and masks then address its axes, as one
// position in all of them at once.
#include "fermata/subscript.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/indexing.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/ordering.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/slice_arguments.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/error.h"
#include "ir/infer.h"

namespace fermata {
namespace {

using Kind = Subscript::Kind;

/// x[subscripts] without its tensors: a view, and what addresses its axes.
struct Subscripted {
  Tensor view;
  std::vector<Tensor> positions;        // broadcast to one shape
  std::vector<std::int64_t> addressed;  // axes of the view, ascending; one for each of `positions`
  std::int64_t place = 0;               // where among the axes that stay the broadcast shape comes
  Shape chosen;                         // that shape
};

[[noreturn]] void throw_too_many(std::int64_t given, const Tensor& x, Location where) {
  throw IndexError(
      1206, format_error(1206, "IndexError", fmt::format("index: too many subscripts: {} for {} axes", given, x.rank()),
                         describe(x), where));
}

bool is_mask(const Subscript& s) { return s.kind() == Kind::tensor && s.tensor().dtype() == DType::boolean; }

std::int64_t axes_of(const Subscript& s) {
  if (s.kind() == Kind::ellipsis || s.kind() == Kind::new_axis) return 0;
  return is_mask(s) ? static_cast<std::int64_t>(s.tensor().rank()) : 1;
}

void require_mask_fits(const Tensor& mask, const Tensor& x, std::int64_t axis, Location where) {
  bool fits = true;
  for (unsigned i = 0; fits && i < mask.rank(); ++i)
    fits = axis + i < x.rank() && mask.shape()[i] == x.shape()[static_cast<std::size_t>(axis) + i];
  if (!fits)
    throw IndexError(
        1207,
        format_error(
            1207, "IndexError", fmt::format("index: the shape of a mask does not match the axes from {} on", axis),
            {{"x", to_string(x.dtype(), x.shape()), ""}, {"mask", to_string(mask.dtype(), mask.shape()), ""}}, where));
}

/// The view that slices, integers and new axes make: one of each kind at most.
class SubscriptedView {
 public:
  SubscriptedView(const Tensor& x, Location where) : x_(x), where_(where), slice_(x.shape()) {}

  void take_slice(const Slice& s) {
    const auto axis = static_cast<unsigned>(source++);
    ++axes;
    if ((s.start == kNone || s.start == 0) && s.stop == kNone && s.step == 1) return;  // all of it
    slice_.set(axis, slice_range(slice_.counts[axis], s.start, s.stop, s.step), s.step);
    is_sliced_ = true;
  }
  void take_position(std::int64_t position) {
    const auto axis = static_cast<unsigned>(source++);
    const std::int64_t size = slice_.counts[axis];
    if (position < -size || position >= size)
      throw IndexError(
          1205, format_error(
                    1205, "IndexError", fmt::format("index: position {} is out of range for axis {}", position, axis),
                    {{"x", to_string(x_.dtype(), x_.shape()), fmt::format("axis {} is {}", axis, size)}}, where_));
    slice_.set(axis, position < 0 ? position + size : position, 1, 1);
    is_sliced_ = true;
    dropped_.push_back(axis);
  }
  void skip(std::int64_t count) { source += count, axes += count; }
  void add_axis() { added_.push_back(axes++); }

  Tensor view() const {
    Tensor result = is_sliced_ ? slice_.apply(x_, where_) : x_;
    if (!dropped_.empty()) result = squeeze(result, dropped_, where_);
    return added_.empty() ? result : expand_dims(result, added_, where_);
  }

  std::int64_t source = 0, axes = 0;  // axes of x so far, and of the view

 private:
  const Tensor& x_;
  const Location where_;
  SliceArguments slice_;
  bool is_sliced_ = false;
  std::vector<std::int64_t> dropped_, added_;
};

Subscripted resolve(const Tensor& x, std::span<const Subscript> subscripts, Location where) {
  require_defined("index", x, where);
  std::int64_t given = 0, ellipses = 0;
  bool has_tensor = false;
  for (const Subscript& s : subscripts) {
    if (s.kind() == Kind::tensor) require_defined("index", s.tensor(), where), has_tensor = true;
    given += axes_of(s), ellipses += s.kind() == Kind::ellipsis ? 1 : 0;
  }
  if (ellipses > 1)
    throw IndexError(1208, format_error(1208, "IndexError", "index: more than one ellipsis", describe(x), where));
  if (given > x.rank()) throw_too_many(given, x, where);

  Subscripted result;
  SubscriptedView view(x, where);
  std::vector<Tensor> given_positions;
  std::vector<std::int64_t> places;  // of integers and tensors among the axes that stay
  std::int64_t staying = 0;
  for (const Subscript& s : subscripts) {
    switch (s.kind()) {
      case Kind::integer:
        view.take_position(s.position());
        places.push_back(staying);
        break;
      case Kind::slice:
        view.take_slice(s.slice());
        ++staying;
        break;
      case Kind::ellipsis: {
        const std::int64_t skipped = static_cast<std::int64_t>(x.rank()) - given;
        view.skip(skipped), staying += skipped;
        break;
      }
      case Kind::new_axis:
        view.add_axis();
        ++staying;
        break;
      case Kind::tensor: {
        places.push_back(staying);
        if (!is_mask(s)) {
          if (!is_integer(s.tensor().dtype()))
            throw DTypeError(
                1103, format_error(1103, "DTypeError",
                                   fmt::format("index: positions must be integers, not {}", name(s.tensor().dtype())),
                                   {{"x", to_string(x.dtype(), x.shape()), ""},
                                    {"index", to_string(s.tensor().dtype(), s.tensor().shape()), ""}},
                                   where));
          given_positions.push_back(s.tensor()), result.addressed.push_back(view.axes), view.skip(1);
          break;
        }
        require_mask_fits(s.tensor(), x, view.source, where);
        if (s.tensor().rank() == 0) {  // keeps or drops all of a new axis of size 1
          given_positions.push_back(flatnonzero(s.tensor(), {}, where)), result.addressed.push_back(view.axes);
          view.add_axis();
          break;
        }
        for (Tensor& p : nonzero(s.tensor(), {}, where)) {
          given_positions.push_back(std::move(p)), result.addressed.push_back(view.axes), view.skip(1);
        }
        break;
      }
    }
  }
  result.view = view.view();
  if (!has_tensor) return result;
  for (const Tensor& p : given_positions) {
    const auto common = broadcast_shapes(result.chosen, p.shape());
    if (!common)
      throw ShapeError(1001, format_error(1001, "ShapeError", "index: positions do not broadcast",
                                          describe(given_positions[0], p), where));
    result.chosen = *common;
  }
  const bool adjacent = std::ranges::all_of(places, [&](std::int64_t p) { return p == places[0]; });
  result.place = adjacent ? places[0] : 0;
  for (const Tensor& p : given_positions) result.positions.push_back(broadcast_to(p, result.chosen, where));
  return result;
}

/// The addressed axes in front of the others, as one; and the positions in it.
struct FlatRows {
  FlatRows(const Subscripted& s, Location where) {
    const Shape sizes = s.view.shape();
    order = s.addressed;
    std::int64_t count = 1;
    for (const std::int64_t a : order) count *= sizes[static_cast<std::size_t>(a)];
    Shape flat{count};
    for (std::int64_t a = 0; a < static_cast<std::int64_t>(sizes.rank()); ++a) {
      if (std::ranges::find(s.addressed, a) != s.addressed.end()) continue;
      order.push_back(a), rest.push_back(sizes[static_cast<std::size_t>(a)]);
      flat.push_back(sizes[static_cast<std::size_t>(a)]);
    }
    moved = permute(s.view, order, where);
    rows = reshape(moved, flat, where);
    if (s.positions.size() == 1) {
      at = s.positions[0];
      return;
    }
    // In 32 bits where both the given positions and those in all axes together fit: twice as many to a vector.
    const bool is_narrow = count < INT32_MAX && std::ranges::all_of(s.positions, [](const Tensor& p) {
                             return byte_size(p.dtype()) < 4 || p.dtype() == DType::i32;
                           });
    const DType narrow = is_narrow ? DType::i32 : DType::i64, without_sign = is_narrow ? DType::u32 : DType::u64;
    Tensor valid;
    for (std::size_t i = 0; i < s.positions.size(); ++i) {
      const std::int64_t size = sizes[static_cast<std::size_t>(s.addressed[i])];
      const Tensor p = astype(s.positions[i], narrow, where);
      const Tensor wrapped = fermata::where({less({p, where}, 0), where}, add({p, where}, size), p);
      const Tensor inside = less({astype(wrapped, without_sign, where), where}, size);
      valid = valid.defined() ? logical_and({valid, where}, inside) : inside;
      at = at.defined() ? add({multiply({at, where}, size), where}, wrapped) : wrapped;
    }
    at = fermata::where({valid, where}, at, count);  // one that leaves its axis leaves them all
  }

  std::vector<std::int64_t> order;
  Shape rest;
  Tensor moved, rows, at;
};

/// Where the axes [chosen.., rest..] belong in the result: chosen ones after `place` of the others.
std::vector<std::int64_t> result_order(std::int64_t chosen, std::int64_t rest, std::int64_t place) {
  std::vector<std::int64_t> order;
  for (std::int64_t i = 0; i < place; ++i) order.push_back(chosen + i);
  for (std::int64_t i = 0; i < chosen; ++i) order.push_back(i);
  for (std::int64_t i = place; i < rest; ++i) order.push_back(chosen + i);
  return order;
}

Tensor read(const Subscripted& s, Location where) {
  if (s.positions.empty()) return s.view;
  if (s.positions.size() == 1 && s.place == s.addressed[0]) return take(s.view, s.positions[0], s.addressed[0], where);
  const FlatRows flat(s, where);
  const auto chosen = static_cast<std::int64_t>(s.chosen.rank()), rest = static_cast<std::int64_t>(flat.rest.rank());
  return permute(take(flat.rows, flat.at, 0, where), result_order(chosen, rest, s.place), where);
}

Tensor as_tensor(const Operand& values, const Tensor& like, Location where) {
  return values.is_tensor() ? astype(values.tensor(), like.dtype(), where)
                            : full({}, values.scalar(), like.dtype(), device(like), where);
}

void write_positions(const Subscripted& s, const Operand& values, bool accumulate, Location where) {
  const FlatRows flat(s, where);
  const auto chosen = static_cast<std::int64_t>(s.chosen.rank()), rest = static_cast<std::int64_t>(flat.rest.rank());
  const std::vector<std::int64_t> order = result_order(chosen, rest, s.place);
  Shape wanted(s.chosen), result;
  for (const std::int64_t size : flat.rest) wanted.push_back(size);
  for (const std::int64_t a : order) result.push_back(wanted[static_cast<std::size_t>(a)]);
  std::vector<std::int64_t> back(order.size());
  for (std::size_t i = 0; i < order.size(); ++i)
    back[static_cast<std::size_t>(order[i])] = static_cast<std::int64_t>(i);
  const Tensor source = permute(broadcast_to(as_tensor(values, s.view, where), result, where), back, where);
  Shape list{element_count(s.chosen)};
  const Tensor at = reshape(flat.at, list, where);
  for (const std::int64_t size : flat.rest) list.push_back(size);
  const Tensor rows = reshape(source, list, where);
  const Tensor changed =
      accumulate ? index_add(flat.rows, at, rows, 0, where) : index_copy(flat.rows, at, rows, 0, where);
  flat.moved.assign({reshape(changed, flat.moved.shape(), where), where});
}

/// x[mask] = v for a v without an axis for what the mask chooses: a selection, which reads nothing.
bool write_masked(const Tensor& x, std::span<const Subscript> subscripts, const Operand& values, Location where) {
  if (subscripts.size() != 1 || !is_mask(subscripts[0])) return false;
  const Tensor& mask = subscripts[0].tensor();
  require_mask_fits(mask, x, 0, where);
  if (values.is_tensor() && values.tensor().rank() > x.rank() - mask.rank()) return false;
  std::vector<std::int64_t> more;
  for (unsigned i = mask.rank(); i < x.rank(); ++i) more.push_back(i);
  const Tensor selected = fermata::where({expand_dims(mask, more, where), where}, as_tensor(values, x, where), x);
  x.assign({selected, where});
  return true;
}

}  // namespace

Tensor index(const Tensor& x, std::initializer_list<Subscript> subscripts, Location where) {
  return read(resolve(x, {std::data(subscripts), subscripts.size()}, where), where);
}

void index_put(const Tensor& x, std::initializer_list<Subscript> subscripts, const Operand& values, bool accumulate) {
  const Location where = values.where();
  const std::span<const Subscript> list{std::data(subscripts), subscripts.size()};
  require_defined("index_put", x, where);
  for (const Subscript& s : list)
    if (s.kind() == Kind::tensor) require_defined("index_put", s.tensor(), where);
  if (!accumulate && write_masked(x, list, values, where)) return;
  const Subscripted s = resolve(x, list, where);
  if (!s.positions.empty()) return write_positions(s, values, accumulate, where);
  s.view.assign(accumulate ? Operand(add({s.view, where}, as_tensor(values, s.view, where)), where) : values);
}

Tensor masked_select(const Tensor& x, const Tensor& mask, std::optional<std::int64_t> size, Location where) {
  require_defined("masked_select", x, where), require_defined("masked_select", mask, where);
  require_mask_fits(mask, x, 0, where);
  Shape flat{mask.element_count()};
  for (unsigned i = mask.rank(); i < x.rank(); ++i) flat.push_back(x.shape()[i]);
  const Tensor at = flatnonzero(mask, size, where);
  return take(reshape(x, flat, where), minimum({at, where}, std::max<std::int64_t>(flat[0] - 1, 0)), 0, where);
}

}  // namespace fermata
