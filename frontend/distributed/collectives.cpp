// See fermata/distributed.h: the calls, their gradients and batching rules.
//
// Gradients are those of the sum of the outputs of all ranks, so each of them is a collective, too: the gradient of
// a call moves elements in the opposite direction.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <functional>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/distributed.h"
#include "fermata/ops.h"
#include "fermata/views.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/op_rules.h"
#include "ir/infer.h"
#include "runtime/effects.h"

namespace fermata::distributed {
namespace {

std::int64_t number_of(Reduction reduction) { return static_cast<std::int64_t>(reduction); }

}  // namespace

Tensor all_reduce(const Tensor& x, Reduction reduction, const Group& group, Location where) {
  require_defined("all_reduce", x, where);
  return general_call<Op::all_reduce>(
      {.group = {group.number()}, .ranks = {group.size()}, .reduction = {number_of(reduction)}}, {&x, 1}, where);
}

Tensor reduce(const Tensor& x, std::int64_t root, Reduction reduction, const Group& group, Location where) {
  require_defined("reduce", x, where);
  return general_call<Op::reduce_to>(
      {.group = {group.number()}, .ranks = {group.size()}, .reduction = {number_of(reduction)}, .root = {root}},
      {&x, 1}, where);
}

Tensor all_gather(const Tensor& x, std::int64_t axis, const Group& group, Location where) {
  require_defined("all_gather", x, where);
  axis = normalize_axis("all_gather", axis, type_of(x), where);
  return general_call<Op::all_gather>({.group = {group.number()}, .ranks = {group.size()}, .axis = {axis}}, {&x, 1},
                                      where);
}

Tensor reduce_scatter(const Tensor& x, std::int64_t axis, Reduction reduction, const Group& group, Location where) {
  require_defined("reduce_scatter", x, where);
  axis = normalize_axis("reduce_scatter", axis, type_of(x), where);
  return general_call<Op::reduce_scatter>(
      {.group = {group.number()}, .ranks = {group.size()}, .reduction = {number_of(reduction)}, .axis = {axis}},
      {&x, 1}, where);
}

Tensor all_to_all(const Tensor& x, std::int64_t split_axis, std::int64_t concat_axis, const Group& group,
                  Location where) {
  require_defined("all_to_all", x, where);
  split_axis = normalize_axis("all_to_all", split_axis, type_of(x), where);
  concat_axis = normalize_axis("all_to_all", concat_axis, type_of(x), where);
  return general_call<Op::all_to_all>(
      {.group = {group.number()}, .ranks = {group.size()}, .split_axis = {split_axis}, .concat_axis = {concat_axis}},
      {&x, 1}, where);
}

Tensor broadcast(const Tensor& x, std::int64_t root, const Group& group, Location where) {
  require_defined("broadcast", x, where);
  return general_call<Op::broadcast_from>({.group = {group.number()}, .ranks = {group.size()}, .root = {root}}, {&x, 1},
                                          where);
}

Tensor scatter(const Tensor& x, std::int64_t root, std::int64_t axis, const Group& group, Location where) {
  require_defined("scatter", x, where);
  axis = normalize_axis("scatter_from", axis, type_of(x), where);
  return general_call<Op::scatter_from>(
      {.group = {group.number()}, .ranks = {group.size()}, .root = {root}, .axis = {axis}}, {&x, 1}, where);
}

Tensor gather(const Tensor& x, std::int64_t root, std::int64_t axis, const Group& group, Location where) {
  require_defined("gather", x, where);
  axis = normalize_axis("gather_to", axis, type_of(x), where);
  return general_call<Op::gather_to>(
      {.group = {group.number()}, .ranks = {group.size()}, .root = {root}, .axis = {axis}}, {&x, 1}, where);
}

Tensor permute(const Tensor& x, const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs, const Group& group,
               Location where) {
  require_defined("permute", x, where);
  std::vector<std::int64_t> list;
  for (const auto& [from, to] : pairs) list.push_back(from), list.push_back(to);
  return general_call<Op::permute_ranks>({.group = {group.number()}, .ranks = {group.size()}, .pairs = {list}}, {&x, 1},
                                         where);
}

Tensor shift(const Tensor& x, std::int64_t by, bool ring, const Group& group, Location where) {
  std::vector<std::pair<std::int64_t, std::int64_t>> pairs;
  const std::int64_t size = group.size();
  for (std::int64_t from = 0; from < size; ++from)
    if (ring)
      pairs.emplace_back(from, ((from + by) % size + size) % size);
    else if (from + by >= 0 && from + by < size)
      pairs.emplace_back(from, from + by);
  return permute(x, pairs, group, where);
}

void send(const Tensor& x, std::int64_t to, const Group& group, std::int64_t tag, Location where) {
  require_defined("send", x, where);
  static_cast<void>(general_call<Op::send_to>(
      {.group = {group.number()}, .ranks = {group.size()}, .peer = {to}, .tag = {tag}}, {&x, 1}, where));
}

Tensor receive(const IntegerList& sizes, DType dtype, std::int64_t from, const Group& group, std::int64_t tag,
               Location where) {
  check_shape("receive", sizes, dtype, where);
  const Shape shape(sizes);
  return general_call<Op::receive_from>({.group = {group.number()},
                                         .ranks = {group.size()},
                                         .peer = {from},
                                         .tag = {tag},
                                         .shape = {shape},
                                         .dtype = {dtype}},
                                        {}, where, dtype);
}

void barrier(const Group& group, Location where) {
  const Tensor passed =
      general_call<Op::barrier>({.group = {group.number()}, .ranks = {group.size()}}, {}, where, DType::boolean);
  if (!in_capture_scope()) run_effects(where);
}

namespace {

/// On the CPU, tensors of this size are reduced separately: merging them would copy all of their
/// elements twice, which takes longer than a call between ranks on one machine, and they would wait for each other.
constexpr std::int64_t kAloneFromBytes = std::int64_t{32} << 10;

/// Indices into a list of tensors that one call reduces: small ones of one dtype that fit a bucket, and
/// large ones alone. Last ones first, in the order in which the last operand of each call becomes available.
std::vector<std::vector<std::size_t>> buckets(const std::vector<Tensor>& tensors, std::int64_t most_bytes) {
  constexpr std::size_t kNone = ~std::size_t{0};
  std::vector<std::vector<std::size_t>> found;
  std::size_t open = kNone;  // the bucket for small ones
  std::int64_t bytes = 0;
  for (std::size_t i = tensors.size(); i-- > 0;) {
    const Tensor& t = tensors[i];
    const std::int64_t own = element_count(t.shape()) * static_cast<std::int64_t>(byte_size(t.dtype()));
    const bool is_small = own < kAloneFromBytes || device(t) != cpu();
    if (is_small && open != kNone && tensors[found[open][0]].dtype() == t.dtype() && bytes + own <= most_bytes) {
      found[open].push_back(i), bytes += own;
      continue;
    }
    if (is_small) open = found.size(), bytes = own;
    found.push_back({i});
  }
  std::ranges::stable_sort(found, std::greater(), [](const std::vector<std::size_t>& b) { return b.back(); });
  return found;
}

}  // namespace

std::vector<Tensor> all_reduce(const std::vector<Tensor>& tensors, Reduction reduction, const Group& group,
                               std::int64_t bucket_bytes, Location where) {
  for (const Tensor& t : tensors) require_defined("all_reduce", t, where);
  std::vector<Tensor> results(tensors.size());
  for (const std::vector<std::size_t>& places : buckets(tensors, bucket_bytes)) {
    if (places.size() == 1) {
      results[places[0]] = all_reduce(tensors[places[0]], reduction, group, where);
      continue;
    }
    std::vector<Tensor> flat;
    for (const std::size_t i : places) flat.push_back(reshape(tensors[i], {-1}, where));
    const Tensor all = all_reduce(concat(flat, 0, where), reduction, group, where);
    std::int64_t at = 0;
    for (const std::size_t i : places) {
      const std::int64_t count = element_count(tensors[i].shape());
      results[i] = reshape(slice(all, 0, at, at + count, 1, where), tensors[i].shape(), where);
      at += count;
    }
  }
  return results;
}

}  // namespace fermata::distributed

namespace fermata::vjp {
namespace {

constexpr std::int64_t kSum = static_cast<std::int64_t>(CollectiveReduction::sum),
                       kMean = static_cast<std::int64_t>(CollectiveReduction::mean);

VjpTensor all_reduce(const VjpTensor& x, std::int64_t group, std::int64_t ranks, std::int64_t reduction = kSum) {
  return call<Op::all_reduce>({.group = {group}, .ranks = {ranks}, .reduction = {reduction}}, {&x.tensor(), 1});
}
VjpTensor all_gather(const VjpTensor& x, std::int64_t group, std::int64_t ranks, std::int64_t axis) {
  return call<Op::all_gather>({.group = {group}, .ranks = {ranks}, .axis = {axis}}, {&x.tensor(), 1});
}
VjpTensor broadcast_from(const VjpTensor& x, std::int64_t group, std::int64_t ranks, std::int64_t root) {
  return call<Op::broadcast_from>({.group = {group}, .ranks = {ranks}, .root = {root}}, {&x.tensor(), 1});
}

/// The product of the operands of the other ranks.
VjpTensor product_of_other_ranks(const VjpTensor& x, std::int64_t group, std::int64_t ranks) {
  const VjpTensor all = all_gather(expand_dims(x, 1), group, ranks, 0);
  Shape column = all.shape();
  for (unsigned axis = 1; axis < column.rank(); ++axis) column[axis] = 1;
  const RankGroup* const own = find_group(group);
  const VjpTensor is_own = iota(column, 0, all) == VjpTensor(own == nullptr ? 0 : own->rank);
  return reduce(Op::prod, where(is_own, full(1, {all.dtype(), {}}, all), all), 1, false);
}

/// The gradient of x, given the gradient `g` of `y` on every rank: y is the reduction of the x of all ranks.
VjpTensor through_reduction(std::int64_t reduction, std::int64_t group, std::int64_t ranks, const VjpTensor& x,
                            const VjpTensor& y, const VjpTensor& g) {
  switch (static_cast<CollectiveReduction>(reduction)) {
    case CollectiveReduction::sum: return g;
    case CollectiveReduction::mean: return g / static_cast<double>(ranks);
    case CollectiveReduction::prod: return g * product_of_other_ranks(x, group, ranks);
    case CollectiveReduction::max:
    case CollectiveReduction::min: break;
  }
  const VjpTensor ties = cast(x == y, g.dtype());
  return g * ties / all_reduce(ties, group, ranks);
}
bool reads_values(std::int64_t reduction) { return reduction != kSum && reduction != kMean; }

VjpTensor all_reduce_vjp(const VjpArgs& args, unsigned) {
  const auto op = args.attributes_of<ops::AllReduce>();
  return through_reduction(op.reduction.value, op.group.value, op.ranks.value, args.x[0], args.y,
                           all_reduce(args.g, op.group.value, op.ranks.value));
}
VjpTensor reduce_to_vjp(const VjpArgs& args, unsigned) {
  const auto op = args.attributes_of<ops::ReduceTo>();
  const auto from_root = [&](const VjpTensor& t) {
    return broadcast_from(t, op.group.value, op.ranks.value, op.root.value);
  };
  const VjpTensor y = reads_values(op.reduction.value) ? from_root(args.y) : VjpTensor();
  return through_reduction(op.reduction.value, op.group.value, op.ranks.value, args.x[0], y, from_root(args.g));
}
VjpTensor reduce_scatter_vjp(const VjpArgs& args, unsigned) {
  const auto op = args.attributes_of<ops::ReduceScatter>();
  const auto of_all = [&](const VjpTensor& t) { return all_gather(t, op.group.value, op.ranks.value, op.axis.value); };
  const VjpTensor y = reads_values(op.reduction.value) ? of_all(args.y) : VjpTensor();
  return through_reduction(op.reduction.value, op.group.value, op.ranks.value, args.x[0], y, of_all(args.g));
}
VjpTensor all_gather_vjp(const VjpArgs& args, unsigned) {
  const auto op = args.attributes_of<ops::AllGather>();
  return call<Op::reduce_scatter>({.group = op.group, .ranks = op.ranks, .reduction = {kSum}, .axis = op.axis},
                                  {&args.g.tensor(), 1});
}
VjpTensor all_to_all_vjp(const VjpArgs& args, unsigned) {
  const auto op = args.attributes_of<ops::AllToAll>();
  return call<Op::all_to_all>(
      {.group = op.group, .ranks = op.ranks, .split_axis = op.concat_axis, .concat_axis = op.split_axis},
      {&args.g.tensor(), 1});
}
VjpTensor broadcast_from_vjp(const VjpArgs& args, unsigned) {
  const auto op = args.attributes_of<ops::BroadcastFrom>();
  return call<Op::reduce_to>({.group = op.group, .ranks = op.ranks, .reduction = {kSum}, .root = op.root},
                             {&args.g.tensor(), 1});
}
VjpTensor scatter_from_vjp(const VjpArgs& args, unsigned) {
  const auto op = args.attributes_of<ops::ScatterFrom>();
  return call<Op::gather_to>({.group = op.group, .ranks = op.ranks, .root = op.root, .axis = op.axis},
                             {&args.g.tensor(), 1});
}
VjpTensor gather_to_vjp(const VjpArgs& args, unsigned) {
  const auto op = args.attributes_of<ops::GatherTo>();
  return call<Op::scatter_from>({.group = op.group, .ranks = op.ranks, .root = op.root, .axis = op.axis},
                                {&args.g.tensor(), 1});
}
VjpTensor permute_ranks_vjp(const VjpArgs& args, unsigned) {
  const auto op = args.attributes_of<ops::PermuteRanks>();
  std::vector<std::int64_t> back(op.pairs.value.begin(), op.pairs.value.end());
  for (std::size_t i = 0; i + 1 < back.size(); i += 2) std::swap(back[i], back[i + 1]);
  return call<Op::permute_ranks>({.group = op.group, .ranks = op.ranks, .pairs = {back}}, {&args.g.tensor(), 1});
}

}  // namespace

FERMATA_OP_RULES(all_reduce, batched_in_front, gradient(all_reduce_vjp, kFirst | kResult), kZeroGradient);
FERMATA_OP_RULES(reduce_to, batched_in_front, gradient(reduce_to_vjp, kFirst | kResult), kZeroGradient);
FERMATA_OP_RULES(all_gather, batched_in_front, gradient(all_gather_vjp), kZeroGradient);
FERMATA_OP_RULES(reduce_scatter, batched_in_front, gradient(reduce_scatter_vjp, kFirst | kResult), kZeroGradient);
FERMATA_OP_RULES(all_to_all, batched_in_front, gradient(all_to_all_vjp), kZeroGradient);
FERMATA_OP_RULES(broadcast_from, batched_in_front, gradient(broadcast_from_vjp), kZeroGradient);
FERMATA_OP_RULES(scatter_from, batched_in_front, gradient(scatter_from_vjp), kZeroGradient);
FERMATA_OP_RULES(gather_to, batched_in_front, gradient(gather_to_vjp), kZeroGradient);
FERMATA_OP_RULES(permute_ranks, batched_in_front, gradient(permute_ranks_vjp), kZeroGradient);
FERMATA_OP_RULES(send_to, kLoop, kNoGradient, kZeroGradient);
FERMATA_OP_RULES(receive_from, kLoop, kZeroGradient);
FERMATA_OP_RULES(barrier, kLoop, kZeroGradient);

}  // namespace fermata::vjp
