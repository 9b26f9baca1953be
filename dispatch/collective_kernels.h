// Backend-independent kernels of collectives: operands are packed into dense blocks, a transport moves them, and the
// result is unpacked. 16-bit floats are reduced in f32.
//
// A block is the data that one rank sends or receives. Along axis 0, blocks of a row-major tensor are contiguous; along
// other axes they are copied.
//
// M is the memory interface of a backend:
//   Buffer(bytes), data()                     temporary memory for a call; data() of zero bytes is null
//   copy(from, to)                            views of the same sizes and dtype
//   fill(to, byte, bytes)
//   widen(dtype, from, to, count), narrow(dtype, from, to, count)   between f16 or bf16 and f32
//   divide(elements, dtype, count, by)        floating and complex numbers, in place
//   start(group, call), run(group, call), computes_means(group)     as those of Transport
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "dispatch/kernel_table.h"
#include "ir/error.h"
#include "ir/ops/structures.h"
#include "ir/shape.h"
#include "runtime/collectives.h"
#include "runtime/tensor_view.h"

namespace fermata::collective_kernels {

inline const RankGroup& group_of(const CallArgs& args, std::int64_t number, std::int64_t ranks) {
  const RankGroup* const group = find_group(number);
  if (group == nullptr || group->size() != ranks)
    throw ValueError(
        7010, format_error(7010, "ValueError",
                           fmt::format("{}: this process has no group {} of {} ranks", name(args.op), number, ranks),
                           {}, args.where));
  return *group;
}

/// A tensor whose parts along an axis are the blocks of the ranks.
template <class M> class Blocks {
 public:
  Blocks(const TensorView& whole, std::int64_t axis, std::int64_t ranks) : whole_(whole), ranks_(ranks) {
    axis_ = static_cast<unsigned>(axis);
    sizes_ = Shape(std::span(whole.sizes, whole.rank));
    sizes_[axis_] /= ranks;
    strides_ = dense_strides(sizes_);
    count_ = element_count(sizes_);
  }
  std::int64_t count() const { return count_; }
  /// Whether the blocks are contiguous and in order, each of them dense.
  bool are_in_order() const {
    std::int64_t before = 1;
    for (unsigned i = 0; i < axis_; ++i) before *= whole_.sizes[i];
    return (before == 1 || ranks_ == 1) && is_dense({whole_.sizes, whole_.rank}, {whole_.strides, whole_.rank});
  }
  void pack(void* to) const {
    for (std::int64_t rank = 0; rank < ranks_; ++rank) M::copy(part(rank), dense(to, rank));
  }
  void unpack(void* from) const {
    for (std::int64_t rank = 0; rank < ranks_; ++rank) M::copy(dense(from, rank), part(rank));
  }

 private:
  std::size_t bytes() const { return byte_size(whole_.dtype); }
  TensorView dense(void* blocks, std::int64_t rank) const {
    return {static_cast<std::byte*>(blocks) + static_cast<std::size_t>(rank * count_) * bytes(), whole_.dtype,
            whole_.rank, sizes_.data(), strides_.data()};
  }
  TensorView part(std::int64_t rank) const {
    const std::int64_t offset = rank * sizes_[axis_] * whole_.strides[axis_];
    return {static_cast<std::byte*>(whole_.data) + offset * static_cast<std::int64_t>(bytes()), whole_.dtype,
            whole_.rank, sizes_.data(), whole_.strides};
  }

  TensorView whole_;
  unsigned axis_;
  std::int64_t ranks_, count_;
  Shape sizes_, strides_;  // of a block
};

/// The work before and after the transfer of one collective.
template <class M> class Collective final : public StartedCall {
 public:
  Collective(const CallArgs& args, const RankGroup& group, CollectiveKind kind)
      : group_(group),
        output_(args.outputs[0]),
        call_{.kind = kind,
              .dtype = DType::u8,
              .count = 0,
              .from = nullptr,
              .to = output_.data,
              .name = name(args.op),
              .where = args.where} {}

  CollectiveCall& call() { return call_; }
  const RankGroup& group() const { return group_; }
  const TensorView& output() const { return output_; }

  /// Sends the elements of x in row-major order, packed if necessary.
  void take(const TensorView& x) {
    call_.dtype = x.dtype, call_.count = x.element_count();
    if (is_dense({x.sizes, x.rank}, {x.strides, x.rank})) {
      call_.from = x.data;
      return;
    }
    packed_ = buffer_of(call_.count, x.dtype);
    const Shape strides = dense_strides({x.sizes, x.rank});
    M::copy(x, {packed_.data(), x.dtype, x.rank, x.sizes, strides.data()});
    call_.from = packed_.data();
  }
  /// Sends a block of x to each rank.
  void take_blocks(const TensorView& x, std::int64_t axis) {
    const Blocks<M> blocks(x, axis, group_.size());
    call_.dtype = x.dtype, call_.count = blocks.count();
    if (blocks.are_in_order()) {
      call_.from = x.data;
      return;
    }
    packed_ = buffer_of(x.element_count(), x.dtype);
    blocks.pack(packed_.data());
    call_.from = packed_.data();
  }
  /// Receives a block of the result from each rank.
  void give_blocks(std::int64_t axis) {
    if (gives_zeros_) return;
    blocks_.emplace(output_, axis, group_.size());
    if (blocks_->are_in_order()) {
      blocks_.reset();
      return;
    }
    unpacked_ = buffer_of(output_.element_count(), output_.dtype);
    call_.to = unpacked_.data();
  }
  /// Reduces the operands; `elements` is the number of elements passed to the transport.
  void reduce(CollectiveReduction how, std::int64_t elements) {
    divides_ = how == CollectiveReduction::mean && !M::computes_means(group_);
    call_.reduction = divides_ ? CollectiveReduction::sum : how;
    if (call_.dtype != DType::f16 && call_.dtype != DType::bf16) return;
    wide_ = buffer_of(elements, DType::f32);
    M::widen(call_.dtype, call_.from, static_cast<float*>(wide_.data()), elements);
    packed_ = {};
    call_.from = wide_.data(), call_.dtype = DType::f32;
    wide_result_ = buffer_of(output_.element_count(), DType::f32);
    call_.to = wide_result_.data();
  }
  /// Only the root receives the result; it is zeros on the others.
  void give_at(std::int64_t root) { call_.peer = root, gives_zeros_ = root != group_.rank; }

  void start() { transfer_ = M::start(group_, call_); }
  void run() {
    M::run(group_, call_);
    put_together();
  }
  bool progress() override { return transfer_->progress(); }
  void finish() override {
    transfer_->wait();
    transfer_.reset();
    put_together();
  }

 private:
  void put_together() {
    const std::int64_t count = output_.element_count();
    if (gives_zeros_) {
      if (count != 0) M::fill(output_.data, std::byte{0}, static_cast<std::size_t>(count) * byte_size(output_.dtype));
      return;
    }
    if (divides_) M::divide(call_.to, call_.dtype, count, static_cast<double>(group_.size()));
    if (wide_result_.data() != nullptr)
      M::narrow(output_.dtype, static_cast<const float*>(wide_result_.data()), output_.data, count);
    if (blocks_) blocks_->unpack(unpacked_.data());
  }

  static typename M::Buffer buffer_of(std::int64_t count, DType dtype) {
    return typename M::Buffer(count * static_cast<std::int64_t>(byte_size(dtype)));
  }

  const RankGroup& group_;
  const TensorView output_;
  CollectiveCall call_;
  typename M::Buffer packed_, unpacked_, wide_, wide_result_;
  std::optional<Blocks<M>> blocks_;  // the blocks of the result
  bool divides_ = false, gives_zeros_ = false;
  std::unique_ptr<StartedTransfer> transfer_;  // destroyed first: waits for the transfer
};

template <class O> O op_of(const CallArgs& args) {
  const TensorView& result = args.outputs[0];
  return decode<O>({args.attributes, {result.sizes, result.rank}, result.dtype, {}});
}

/// Makes a call; prepare(collective, op, args) sets up operands and results.
template <class M, class O, CollectiveKind kKind, auto kPrepare> void call_collective(const CallArgs& args) {
  const auto op = op_of<O>(args);
  auto collective = std::make_unique<Collective<M>>(args, group_of(args, op.group.value, op.ranks.value), kKind);
  kPrepare(*collective, op, args);
  if (args.started == nullptr) return collective->run();
  collective->start();
  *args.started = std::move(collective);
}

inline CollectiveReduction reduction_of(std::int64_t number) { return static_cast<CollectiveReduction>(number); }

template <class M> void prepare_all_reduce(Collective<M>& c, const ops::AllReduce& op, const CallArgs& args) {
  c.take(args.inputs[0]);
  c.reduce(reduction_of(op.reduction.value), c.call().count);
}
template <class M> void prepare_reduce_to(Collective<M>& c, const ops::ReduceTo& op, const CallArgs& args) {
  c.take(args.inputs[0]);
  c.give_at(op.root.value);
  c.reduce(reduction_of(op.reduction.value), c.call().count);
}
template <class M> void prepare_all_gather(Collective<M>& c, const ops::AllGather& op, const CallArgs& args) {
  c.take(args.inputs[0]);
  c.give_blocks(op.axis.value);
}
template <class M> void prepare_reduce_scatter(Collective<M>& c, const ops::ReduceScatter& op, const CallArgs& args) {
  c.take_blocks(args.inputs[0], op.axis.value);
  c.reduce(reduction_of(op.reduction.value), c.call().count * c.group().size());
}
template <class M> void prepare_all_to_all(Collective<M>& c, const ops::AllToAll& op, const CallArgs& args) {
  c.take_blocks(args.inputs[0], op.split_axis.value);
  c.give_blocks(op.concat_axis.value);
}
template <class M> void prepare_broadcast_from(Collective<M>& c, const ops::BroadcastFrom& op, const CallArgs& args) {
  c.take(args.inputs[0]);
  c.call().peer = op.root.value;
}
template <class M> void prepare_scatter_from(Collective<M>& c, const ops::ScatterFrom& op, const CallArgs& args) {
  if (op.root.value == c.group().rank)
    c.take_blocks(args.inputs[0], op.axis.value);
  else
    c.call().dtype = c.output().dtype, c.call().count = c.output().element_count();
  c.call().peer = op.root.value;
}
template <class M> void prepare_gather_to(Collective<M>& c, const ops::GatherTo& op, const CallArgs& args) {
  c.take(args.inputs[0]);
  c.give_at(op.root.value);
  c.give_blocks(op.axis.value);
}
template <class M> void prepare_permute_ranks(Collective<M>& c, const ops::PermuteRanks& op, const CallArgs& args) {
  c.take(args.inputs[0]);
  c.call().pairs = op.pairs.value;
}
template <class M> void prepare_send_to(Collective<M>& c, const ops::SendTo& op, const CallArgs& args) {
  c.take(args.inputs[0]);
  c.call().peer = op.peer.value, c.call().tag = op.tag.value, c.call().to = nullptr;
  M::fill(c.output().data, std::byte{1}, 1);
}
template <class M> void prepare_receive_from(Collective<M>& c, const ops::ReceiveFrom& op, const CallArgs&) {
  c.call().dtype = c.output().dtype, c.call().count = c.output().element_count();
  c.call().peer = op.peer.value, c.call().tag = op.tag.value;
}
template <class M> void prepare_barrier(Collective<M>& c, const ops::Barrier&, const CallArgs&) {
  c.call().to = nullptr;
  M::fill(c.output().data, std::byte{1}, 1);
}

/// Calls add(op, kernel) for every collective op.
template <class M, class Add> void add_collective_kernels(Add&& add) {
  using enum CollectiveKind;
  add(Op::all_reduce, &call_collective<M, ops::AllReduce, all_reduce, &prepare_all_reduce<M>>);
  add(Op::reduce_to, &call_collective<M, ops::ReduceTo, reduce, &prepare_reduce_to<M>>);
  add(Op::all_gather, &call_collective<M, ops::AllGather, all_gather, &prepare_all_gather<M>>);
  add(Op::reduce_scatter, &call_collective<M, ops::ReduceScatter, reduce_scatter, &prepare_reduce_scatter<M>>);
  add(Op::all_to_all, &call_collective<M, ops::AllToAll, all_to_all, &prepare_all_to_all<M>>);
  add(Op::broadcast_from, &call_collective<M, ops::BroadcastFrom, broadcast, &prepare_broadcast_from<M>>);
  add(Op::scatter_from, &call_collective<M, ops::ScatterFrom, scatter, &prepare_scatter_from<M>>);
  add(Op::gather_to, &call_collective<M, ops::GatherTo, gather, &prepare_gather_to<M>>);
  add(Op::permute_ranks, &call_collective<M, ops::PermuteRanks, permute, &prepare_permute_ranks<M>>);
  add(Op::send_to, &call_collective<M, ops::SendTo, send, &prepare_send_to<M>>);
  add(Op::receive_from, &call_collective<M, ops::ReceiveFrom, receive, &prepare_receive_from<M>>);
  add(Op::barrier, &call_collective<M, ops::Barrier, barrier, &prepare_barrier<M>>);
}

}  // namespace fermata::collective_kernels
