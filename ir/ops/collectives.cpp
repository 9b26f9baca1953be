// See collectives.h.
#include "ir/ops/collectives.h"

#include <fmt/format.h>

#include <vector>

namespace fermata::ops {
namespace {

void require_rank(const InferCall& call, std::int64_t rank, std::int64_t ranks, std::string_view what) {
  if (rank < 0 || rank >= ranks)
    call.fail<ValueError>(7002, "ValueError",
                          fmt::format("{} is {}, but the group has ranks 0 to {}", what, rank, ranks - 1));
}

void require_ranks(const InferCall& call, std::int64_t ranks) { call.require_positive(ranks, "the number of ranks"); }

void require_reducible(const InferCall& call, std::int64_t number) {
  if (number < 0 || number >= std::ssize(kCollectiveReductionNames))
    call.fail<ValueError>(7002, "ValueError", fmt::format("unknown reduction {}", number));
  const DType t = call.operand(0).dtype;
  switch (static_cast<CollectiveReduction>(number)) {
    case CollectiveReduction::sum:
    case CollectiveReduction::prod:
      if (!kNumbers.has(t)) call.refuse_dtype(0);
      return;
    case CollectiveReduction::mean:
      if (!is_floating(t) && !is_complex(t)) call.refuse_dtype(0);
      return;
    case CollectiveReduction::max:
    case CollectiveReduction::min:
      if (!kRealOrBoolean.has(t)) call.refuse_dtype(0);
      return;
  }
}

/// As many parts of equal size as there are ranks.
void split(const InferCall& call, Shape& shape, unsigned axis, std::int64_t ranks) {
  if (shape[axis] % ranks != 0)
    call.fail<ShapeError>(7003, "ShapeError", fmt::format("the axis cannot be split among {} ranks", ranks),
                          {fmt::format("axis {} is {}", axis, shape[axis])});
  shape[axis] /= ranks;
}

/// The type with one axis so many times as long.
TensorType joined(const InferCall& call, Shape shape, DType dtype, unsigned axis, std::int64_t ranks) {
  if (__builtin_mul_overflow(shape[axis], ranks, &shape[axis])) shape[axis] = INT64_MAX;
  return call.result(dtype, shape);
}

}  // namespace

TensorType AllReduce::infer(const InferCall& call) const {
  require_ranks(call, ranks.value), require_reducible(call, reduction.value);
  return call.operand(0);
}

TensorType ReduceTo::infer(const InferCall& call) const {
  require_ranks(call, ranks.value), require_reducible(call, reduction.value);
  require_rank(call, root.value, ranks.value, "the root");
  return call.operand(0);
}

TensorType AllGather::infer(const InferCall& call) const {
  require_ranks(call, ranks.value);
  const TensorType& x = call.operand(0);
  return joined(call, x.shape, x.dtype, call.axis(axis.value, x), ranks.value);
}

TensorType ReduceScatter::infer(const InferCall& call) const {
  require_ranks(call, ranks.value), require_reducible(call, reduction.value);
  TensorType x = call.operand(0);
  split(call, x.shape, call.axis(axis.value, x), ranks.value);
  return x;
}

TensorType AllToAll::infer(const InferCall& call) const {
  require_ranks(call, ranks.value);
  TensorType x = call.operand(0);
  const unsigned to = call.axis(concat_axis.value, x);
  split(call, x.shape, call.axis(split_axis.value, x), ranks.value);
  return joined(call, x.shape, x.dtype, to, ranks.value);
}

TensorType BroadcastFrom::infer(const InferCall& call) const {
  require_ranks(call, ranks.value), require_rank(call, root.value, ranks.value, "the root");
  return call.operand(0);
}

TensorType ScatterFrom::infer(const InferCall& call) const {
  require_ranks(call, ranks.value), require_rank(call, root.value, ranks.value, "the root");
  TensorType x = call.operand(0);
  split(call, x.shape, call.axis(axis.value, x), ranks.value);
  return x;
}

TensorType GatherTo::infer(const InferCall& call) const {
  require_ranks(call, ranks.value), require_rank(call, root.value, ranks.value, "the root");
  const TensorType& x = call.operand(0);
  return joined(call, x.shape, x.dtype, call.axis(axis.value, x), ranks.value);
}

TensorType PermuteRanks::infer(const InferCall& call) const {
  require_ranks(call, ranks.value);
  const Integers list = pairs.value;
  if (list.size() % 2 != 0) call.fail<ValueError>(7004, "ValueError", "expected pairs of ranks");
  for (std::size_t i = 0; i < list.size(); ++i) {
    require_rank(call, list[i], ranks.value, "a rank of a pair");
    for (std::size_t k = i % 2; k < i; k += 2)
      if (list[k] == list[i])
        call.fail<ValueError>(
            7004, "ValueError",
            fmt::format("two pairs have rank {} as their {}", list[i], i % 2 == 0 ? "source" : "target"));
  }
  return call.operand(0);
}

TensorType SendTo::infer(const InferCall& call) const {
  require_ranks(call, ranks.value), require_rank(call, peer.value, ranks.value, "the destination");
  return call.result(DType::boolean, {});
}

TensorType ReceiveFrom::infer(const InferCall& call) const {
  require_ranks(call, ranks.value), require_rank(call, peer.value, ranks.value, "the source");
  check_shape(name(call.op), call.wanted.shape, call.wanted.dtype, call.where);
  return call.wanted;
}

TensorType Barrier::infer(const InferCall& call) const {
  require_ranks(call, ranks.value);
  return call.result(DType::boolean, {});
}

}  // namespace fermata::ops
