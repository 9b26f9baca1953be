// See fermata/mesh.h.
#include "fermata/mesh.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>

#include "fermata/autograd.h"
#include "fermata/creation.h"
#include "fermata/custom_function.h"
#include "fermata/device.h"
#include "fermata/modes.h"
#include "fermata/ops.h"
#include "fermata/sync.h"
#include "fermata/views.h"
#include "frontend/distributed/mesh_state.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "frontend/transforms/vmap/batched.h"
#include "ir/error.h"
#include "ir/fork.h"

namespace fermata {
namespace {

struct Meshes {
  ForkSafeMutex mutex;
  std::map<std::int64_t, std::weak_ptr<const MeshState>> by_number;
  std::int64_t last = 0;
};
Meshes& meshes() {
  static auto* all = new Meshes;
  return *all;
}

std::shared_ptr<const MeshState> make_mesh(std::span<const MeshAxis> axes, Location where) {
  auto state = std::make_shared<MeshState>();
  const auto fail = [&](const std::string& what) {
    throw ValueError(7101, format_error(7101, "ValueError", "Mesh: " + what, {}, where));
  };
  for (const MeshAxis& axis : axes) {
    if (axis.size < 1) fail(fmt::format("axis {} has size {}", axis.name, axis.size));
    if (std::ranges::find(state->axes.names, axis.name) != state->axes.names.end())
      fail(fmt::format("duplicate axis name {}", axis.name));
    state->axes.names.push_back(axis.name), state->axes.sizes.push_back(axis.size);
  }
  if (axes.size() > kMaxMeshAxes) fail(fmt::format("{} axes, more than {}", axes.size(), kMaxMeshAxes));
  const distributed::Group& world = distributed::world(where);
  if (state->axes.processes() != world.size())
    fail(fmt::format("the product of its sizes is {}, but there {} {}", state->axes.processes(),
                     world.size() == 1 ? "is" : "are", world.size()));
  state->rank = world.rank(), state->coordinates = state->axes.coordinates(state->rank);
  // Processes along an axis are those that differ in its coordinate alone.
  std::int64_t stride = 1;
  std::vector<std::int64_t> colors(axes.size());
  for (std::size_t m = axes.size(); m-- > 0; stride *= state->axes.sizes[m])
    colors[m] = state->rank - state->coordinates[m] * stride;
  for (const std::int64_t color : colors) state->groups.push_back(world.split(color, state->rank, where));
  const std::lock_guard lock(meshes().mutex);
  state->number = ++meshes().last;
  meshes().by_number[state->number] = state;
  std::erase_if(meshes().by_number, [](const auto& m) { return m.second.expired(); });
  return state;
}

std::vector<ErrorOperand> line_of(const Tensor& x) { return {{"x", to_string(x.dtype(), x.shape()), ""}}; }

/// A materialized tensor without gradients or transforms: it is sharded immediately.
bool is_plain_value(const Tensor& x) {
  return x.impl()->payload == nullptr && !x.node()->pending() && !(grad_enabled() && grad_edge(x)) &&
         vmap_frame == nullptr && !in_capture_scope();
}

Tensor block_of_whole(const Tensor& x, const MeshState& mesh, const Sharding& sharding, Location where) {
  Tensor block = x.detach(where);
  const Shape begin = block_begin(x.shape(), sharding, mesh.axes, mesh.coordinates),
              sizes = block_shape(x.shape(), sharding, mesh.axes, mesh.coordinates);
  for (unsigned i = 0; i < x.shape().rank(); ++i)
    if (sizes[i] != x.shape()[i]) block = block.slice(i, begin[i], begin[i] + sizes[i], 1, where);
  return copy(block, where);
}

using Backward = FunctionCall::Backward;

/// make(x) without a gradient, with the given gradient.
Tensor with_gradient(std::string name, const Tensor& x, FunctionRef<Tensor()> make, Backward backward, Location where) {
  if (!(grad_enabled() && grad_edge(x))) return make();
  FunctionCall call(std::move(name), {x}, std::move(backward), where);
  std::vector<Tensor> results;
  {
    const NoGradGuard no_grad;
    results.push_back(make());
  }
  return call.finish(std::move(results))[0];
}

/// The mesh axes along which all processes have the same blocks.
std::vector<std::size_t> repeated_axes(const MeshState& mesh, const Sharding& sharding) {
  std::vector<std::size_t> axes;
  for (std::size_t m = 0; m < mesh.axes.count(); ++m)
    if ((sharding.used() >> m & 1u) == 0 && mesh.axes.sizes[m] > 1) axes.push_back(m);
  return axes;
}

Tensor divided(const Tensor& x, const std::shared_ptr<const MeshState>& mesh, const Sharding& sharding,
               Location where) {
  if (!is_plain_value(x) || sharded_value(*x.node()) != nullptr) return constrain(x, *mesh, sharding, where);
  return make_sharded(block_of_whole(x, *mesh, sharding, where), x.shape(), mesh, sharding);
}

/// The sharded tensor of these blocks. Processes with the same block share its gradient evenly: the contributions
/// are added where the block was taken.
Tensor joined(const Tensor& block, const Shape& whole, const std::shared_ptr<const MeshState>& mesh,
              const Sharding& sharding, Location where) {
  return with_gradient(
      "from_blocks", block, [&] { return make_sharded(block.detach(where), whole, mesh, sharding); },
      [mesh, sharding, where](FunctionContext&, std::span<const Tensor> g) -> std::vector<Tensor> {
        if (!g[0].defined()) return {Tensor()};
        std::int64_t same = 1;
        for (const std::size_t m : repeated_axes(*mesh, sharding)) same *= mesh->axes.sizes[m];
        const Tensor part = own_block(divided(g[0], mesh, sharding, where), where);
        return {same == 1 ? part : divide({part, where}, static_cast<double>(same))};
      },
      where);
}

}  // namespace

// ---- Mesh

Mesh::Mesh(std::initializer_list<MeshAxis> axes, Location where)
    : state_(make_mesh({axes.begin(), axes.end()}, where)) {}
Mesh::Mesh(const std::vector<MeshAxis>& axes, Location where) : state_(make_mesh(axes, where)) {}
std::int64_t Mesh::processes() const { return state_->axes.processes(); }
std::int64_t Mesh::rank() const { return state_->rank; }
const std::vector<std::string>& Mesh::axes() const { return state_->axes.names; }
std::int64_t Mesh::size(std::string_view axis, Location where) const {
  return state_->axes.sizes[state_->axis(axis, where)];
}
std::int64_t Mesh::coordinate(std::string_view axis, Location where) const {
  return state_->coordinates[state_->axis(axis, where)];
}

std::size_t MeshState::axis(std::string_view name, Location where) const {
  const auto found = std::ranges::find(axes.names, name);
  if (found == axes.names.end())
    throw ValueError(7102, format_error(7102, "ValueError", fmt::format("the mesh has no axis {}", name), {}, where,
                                        fmt::format("its axes are {}", fmt::join(axes.names, ", "))));
  return static_cast<std::size_t>(found - axes.names.begin());
}

std::shared_ptr<const MeshState> mesh_of_number(std::int64_t number) {
  const std::lock_guard lock(meshes().mutex);
  const auto found = meshes().by_number.find(number);
  std::shared_ptr<const MeshState> mesh = found == meshes().by_number.end() ? nullptr : found->second.lock();
  if (mesh == nullptr)
    throw UserError(7106, format_error(7106, "UserError", "a constraint refers to a mesh that no longer exists", {}, {},
                                       "keep the mesh alive as long as the calls recorded with it"));
  return mesh;
}

Sharding MeshState::sharding_of(const AxisSplits& splits, const Tensor& x, std::string_view function,
                                Location where) const {
  const Shape shape = x.shape();
  if (splits.size() > shape.rank())
    throw ValueError(7104, format_error(7104, "ValueError",
                                        fmt::format("{}: {} splits for {} axes", function, splits.size(), shape.rank()),
                                        line_of(x), where));
  Sharding sharding;
  for (unsigned i = 0; i < splits.size(); ++i) {
    for (const std::string& name : splits[i].names) {
      const std::size_t m = axis(name, where);
      if ((sharding.used() >> m & 1u) != 0 || (sharding.axes[i] >> m) != 0)
        throw ValueError(7103, format_error(7103, "ValueError",
                                            (sharding.used() >> m & 1u) != 0
                                                ? fmt::format("{}: {} is named twice", function, name)
                                                : fmt::format("{}: {} is not in the order of the mesh", function, name),
                                            line_of(x), where));
      sharding.axes[i] = static_cast<std::uint8_t>(sharding.axes[i] | 1u << m);
    }
  }
  return sharding;
}

// ---- Sharded tensors

bool ShardedValue::is_divided_like(const DistributedValue& other) const {
  const auto& o = static_cast<const ShardedValue&>(other);
  const bool is_packed_like = packed == o.packed || (packed != nullptr && o.packed != nullptr && *packed == *o.packed);
  return mesh == o.mesh && sharding == o.sharding && is_placed == o.is_placed && is_packed_like;
}

std::shared_ptr<const DistributedValue> ShardedValue::division() const {
  auto same = std::make_shared<ShardedValue>(Tensor(), mesh, sharding, is_placed);
  same->packed = packed;
  return same;
}

void require_no_capture(std::string_view function, Location where) {
  if (in_capture_scope())
    throw NotRecordable(
        7112, format_error(7112, "UnsupportedError",
                           fmt::format("{}: blocks do not exist while a function is captured", function), {}, where,
                           "call it outside the function"));
}

const ShardedValue* sharded_value(const Node& node) {
  const Storage* storage = node.storage.load(std::memory_order_acquire);
  return storage == nullptr || storage->data != nullptr ? nullptr
                                                        : static_cast<const ShardedValue*>(distributed_value(*storage));
}

Tensor make_sharded(const Tensor& block, const Shape& whole, std::shared_ptr<const MeshState> mesh,
                    const Sharding& sharding) {
  StoragePtr storage = make_distributed_storage(std::make_unique<ShardedValue>(block, std::move(mesh), sharding, true));
  return Tensor(make_leaf({block.dtype(), whole}, storage.release(), block.node()->backend, Node::kTensor),
                block.keys() & kDataKeys);
}

namespace {

/// Where the program has placed a value that is there, or that is recorded.
std::optional<ShardingConstraint> place_of(const Node& node) {
  if (node.pending()) return constraint_of(node);
  const ShardedValue* const value = sharded_value(node);
  if (value == nullptr || !value->is_placed) return std::nullopt;
  return ShardingConstraint{value->mesh->number, value->sharding};
}

}  // namespace

Tensor placed_like(const Tensor& target, const Tensor& value, Location where) {
  const std::optional<ShardingConstraint> place = place_of(*target.node());
  if (!place || place_of(*value.node()) == place) [[likely]]
    return value;
  return constrain(value, *mesh_of_number(place->mesh), place->sharding, where);
}

namespace {

Tensor filled(Tensor block, const Shape& shape, Location where) {
  for (unsigned axis = 0; axis < shape.rank(); ++axis) {
    Shape missing = block.shape();
    missing[axis] = shape[axis] - missing[axis];
    if (missing[axis] != 0) block = concat({block, full(missing, 0, block.dtype(), device(block), where)}, axis, where);
  }
  return block;
}
Tensor part(Tensor block, const Shape& begin, const Shape& shape, Location where) {
  for (unsigned axis = 0; axis < shape.rank(); ++axis)
    if (block.shape()[axis] != shape[axis]) block = block.slice(axis, begin[axis], begin[axis] + shape[axis], 1, where);
  return block;
}

}  // namespace

Tensor resharded(const Tensor& block, const Shape& whole, const MeshState& mesh, const Sharding& from,
                 const Sharding& to, Location where) {
  Tensor value = block;
  Sharding now = from;
  for (const ReshardStep& step : plan_reshard(from, to, whole.rank(), mesh.axes)) {
    const Sharding next = after(step, now);
    const Shape outer = block_begin(whole, now, mesh.axes, mesh.coordinates);
    Shape begin = block_begin(whole, next, mesh.axes, mesh.coordinates);
    for (unsigned i = 0; i < whole.rank(); ++i) begin[i] = step.collective ? 0 : begin[i] - outer[i];
    if (step.collective && mesh.axes.sizes[step.mesh_axis] > 1) {
      const Exchange& what = *step.collective;
      value = filled(value, exchange_shapes(what, whole, now, next, mesh.axes).operand, where);
      value = call_collective(value, mesh, what, where);
    }
    now = next;
    value = part(value, begin, block_shape(whole, now, mesh.axes, mesh.coordinates), where);
  }
  return value;
}

Tensor shard(const Tensor& x, const Mesh& mesh, const AxisSplits& splits, Location where) {
  require_defined("shard", x, where);
  return divided(x, mesh.state(), mesh.state()->sharding_of(splits, x, "shard", where), where);
}

void shard_(const Tensor& x, const Mesh& mesh, const AxisSplits& splits, Location where) {
  require_defined("shard_", x, where);
  Tensor value;
  {
    const NoGradGuard no_grad;
    const Tensor now = x.detach(where).sync(where);
    value = shard(now, mesh, splits, where).sync(where);
  }
  value.node()->refs.fetch_add(Node::kTensor, std::memory_order_relaxed);
  x.set_node(value.node());
}

Tensor from_blocks(const Tensor& block, const Mesh& mesh, const AxisSplits& splits, Location where) {
  require_defined("from_blocks", block, where);
  const Sharding sharding = mesh.state()->sharding_of(splits, block, "from_blocks", where);
  const Shape own = block.shape();
  std::vector<std::int64_t> whole(own.begin(), own.end());
  for (unsigned i = 0; i < splits.size(); ++i) whole[i] *= mesh.state()->axes.parts(sharding.axes[i]);
  return from_blocks(block, whole, mesh, splits, where);
}
Tensor from_blocks(const Tensor& block, const std::vector<std::int64_t>& sizes, const Mesh& mesh,
                   const AxisSplits& splits, Location where) {
  require_defined("from_blocks", block, where);
  require_no_capture("from_blocks", where);
  const MeshState& state = *mesh.state();
  const Sharding sharding = state.sharding_of(splits, block, "from_blocks", where);
  const Shape whole(sizes);
  const auto fail = [&](const std::string& what) {
    throw ShapeError(7105,
                     format_error(7105, "ShapeError", fmt::format("from_blocks: {}", what), line_of(block), where));
  };
  if (whole.rank() != block.shape().rank())
    fail(fmt::format("a block of {} axes is none of a tensor {}", block.shape().rank(), to_string(whole)));
  if (const Shape own = block_shape(whole, sharding, state.axes, state.coordinates); block.shape() != own)
    fail(fmt::format("this process has the block {} of a tensor {}, but got {}", to_string(own), to_string(whole),
                     to_string(block.shape())));
  return joined(block, whole, mesh.state(), sharding, where);
}

namespace {

/// The sizes of the tensor that the blocks of all processes are, which may differ. Collective.
std::vector<std::int64_t> sizes_of_all(const Tensor& block, const MeshState& mesh, const Sharding& sharding,
                                       Location where) {
  const NoGradGuard no_grad;
  const ModeGuard now(Mode::eager);
  std::vector<std::int64_t> sizes;
  for (unsigned i = 0; i < block.shape().rank(); ++i) {
    Tensor size = full({}, block.shape()[i], DType::i64, where);
    for (std::size_t m = 0; m < mesh.axes.count(); ++m)
      if ((sharding.axes[i] >> m & 1u) != 0)
        size = distributed::all_reduce(size, distributed::Reduction::sum, mesh.groups[m], where);
    sizes.push_back(size.item<std::int64_t>(where));
  }
  return sizes;
}

bool is_even(const Shape& shape, const Sharding& sharding, const MeshAxes& mesh) {
  for (unsigned i = 0; i < shape.rank(); ++i)
    if (shape[i] % mesh.parts(sharding.axes[i]) != 0) return false;
  return true;
}

}  // namespace

Tensor own_block(const Tensor& x, Location where) {
  require_defined("own_block", x, where);
  if (x.node()->pending()) require_no_capture("own_block", where);
  x.sync(where);
  const ShardedValue* const value = sharded_value(*x.node());
  if (value == nullptr) return x;
  require_no_capture("own_block", where);
  return with_gradient(
      "own_block", x, [&] { return value->block.detach(where); },
      [mesh = value->mesh, sharding = value->sharding, whole = x.shape(), where](
          FunctionContext&, std::span<const Tensor> g) -> std::vector<Tensor> {
        if (!g[0].defined()) return {Tensor()};
        Tensor sum = g[0];
        for (const std::size_t m : repeated_axes(*mesh, sharding))
          sum = distributed::all_reduce(sum, distributed::Reduction::sum, mesh->groups[m], where);
        return {joined(sum, whole, mesh, sharding, where)};
      },
      where);
}

Tensor unshard(const Tensor& x, Location where) {
  require_defined("unshard", x, where);
  if (x.node()->pending()) {
    if (in_capture_scope()) return x;  // it has the same values, whether it will be sharded or not
    x.sync(where);
  }
  const ShardedValue* const value = sharded_value(*x.node());
  if (value == nullptr) return x;
  return in_capture_scope() || (grad_enabled() && grad_edge(x)) ? constrain(x, *value->mesh, {}, where)
                                                                : gathered(*value, x.shape(), where);
}

Tensor gathered(const ShardedValue& value, const Shape& whole, Location where) {
  const NoGradGuard no_grad;
  const ModeGuard now(Mode::eager);
  return resharded(value.block, whole, *value.mesh, value.sharding, {}, where).sync(where);
}

bool is_sharded(const Tensor& x, Location where) {
  require_defined("is_sharded", x, where);
  return sharded_value(*x.node()) != nullptr;
}

std::string sharding_of(const Tensor& x, Location where) {
  require_defined("sharding_of", x, where);
  x.sync(where);
  const ShardedValue* const value = sharded_value(*x.node());
  return value != nullptr ? to_string(value->sharding, x.shape().rank(), value->mesh->axes) : "whole";
}

BlockFunction shard_map(BlockFunction fn, const Mesh& mesh, std::vector<AxisSplits> in, std::vector<AxisSplits> out,
                        Location where) {
  return [fn = std::move(fn), mesh, in = std::move(in), out = std::move(out),
          where](const std::vector<Tensor>& arguments) {
    const auto require = [&](std::size_t given, std::size_t expected, std::string_view what) {
      if (given != expected)
        throw ValueError(
            7107, format_error(7107, "ValueError",
                               fmt::format("shard_map: {} {} for {} shardings", given, what, expected), {}, where));
    };
    require(arguments.size(), in.size(), "arguments");
    std::vector<Tensor> blocks, results;
    bool are_even = true;
    for (std::size_t i = 0; i < in.size(); ++i) {
      const Tensor x = shard(arguments[i], mesh, in[i], where);
      const Sharding sharding = mesh.state()->sharding_of(in[i], x, "shard_map", where);
      are_even = are_even && is_even(x.shape(), sharding, mesh.state()->axes);
      blocks.push_back(own_block(x, where));
    }
    blocks = fn(blocks);
    require(blocks.size(), out.size(), "results");
    for (std::size_t i = 0; i < out.size(); ++i) {
      if (are_even) {
        results.push_back(from_blocks(blocks[i], mesh, out[i], where));
        continue;
      }
      const Sharding sharding = mesh.state()->sharding_of(out[i], blocks[i], "shard_map", where);
      const std::vector<std::int64_t> sizes = sizes_of_all(blocks[i], *mesh.state(), sharding, where);
      results.push_back(from_blocks(blocks[i], sizes, mesh, out[i], where));
    }
    return results;
  };
}

distributed::Group Mesh::group(std::string_view axis, Location where) const {
  return state_->groups[state_->axis(axis, where)];
}

Tensor call_collective(const Tensor& block, const MeshState& mesh, const Exchange& what, Location where) {
  const distributed::Group& group = mesh.groups[what.mesh_axis];
  if (group.size() == 1) return block;
  switch (what.kind) {
    case ExchangeKind::all_reduce: return distributed::all_reduce(block, what.combine, group, where);
    case ExchangeKind::all_gather: return distributed::all_gather(block, what.axis, group, where);
    case ExchangeKind::reduce_scatter: return distributed::reduce_scatter(block, what.axis, what.combine, group, where);
    default: return distributed::all_to_all(block, what.to_axis, what.axis, group, where);
  }
}

}  // namespace fermata
