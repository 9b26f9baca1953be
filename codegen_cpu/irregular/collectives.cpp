// Collectives on the CPU: operands are brought into dense blocks, the transport of the group moves them, and the result
// is put together. Numbers of 16 bits are reduced in f32.
//
// A block is what one rank gives or gets. Along axis 0 blocks lie one after another in a row-major tensor anyway; along
// another axis they are copied.
#include <fmt/format.h>

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "ir/error.h"
#include "ir/ops/structures.h"
#include "runtime/collectives.h"
#include "runtime/storage.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

const RankGroup& group_of(const CallArgs& args, std::int64_t number, std::int64_t ranks) {
  const RankGroup* const group = find_group(number);
  if (group == nullptr || group->size() != ranks)
    throw ValueError(
        7010, format_error(7010, "ValueError",
                           fmt::format("{}: this process has no group {} of {} ranks", name(args.op), number, ranks),
                           {}, args.where));
  return *group;
}

/// A tensor whose parts along an axis are the blocks of ranks.
class Blocks {
 public:
  Blocks(const TensorView& whole, std::int64_t axis, std::int64_t ranks) : whole_(whole), ranks_(ranks) {
    axis_ = static_cast<unsigned>(axis);
    sizes_ = Shape(std::span(whole.sizes, whole.rank));
    sizes_[axis_] /= ranks;
    strides_ = dense_strides(sizes_);
    count_ = element_count(sizes_);
  }
  std::int64_t count() const { return count_; }
  /// Whether the blocks lie one after another, each of them dense.
  bool are_in_order() const {
    std::int64_t before = 1;
    for (unsigned i = 0; i < axis_; ++i) before *= whole_.sizes[i];
    return (before == 1 || ranks_ == 1) && is_contiguous(whole_, 0, whole_.rank);
  }
  void pack(void* to) const {
    for (std::int64_t rank = 0; rank < ranks_; ++rank) copy_elements(dense(to, rank), part(rank));
  }
  void unpack(void* from) const {
    for (std::int64_t rank = 0; rank < ranks_; ++rank) copy_elements(part(rank), dense(from, rank));
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

StoragePtr buffer_of(std::int64_t count, DType dtype) {
  return StoragePtr(Storage::allocate(static_cast<std::size_t>(count) * byte_size(dtype)));
}

/// What is to be done before and after the bytes have moved.
class CpuCollective final : public StartedCall {
 public:
  CpuCollective(const CallArgs& args, const RankGroup& group, CollectiveKind kind)
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

  /// The elements of x in row-major order; where they are, if they lie so.
  void take(const TensorView& x) {
    call_.dtype = x.dtype, call_.count = x.element_count();
    if (is_contiguous(x, 0, x.rank)) {
      call_.from = x.data;
      return;
    }
    packed_ = buffer_of(call_.count, x.dtype);
    const Shape strides = dense_strides({x.sizes, x.rank});
    copy_elements({packed_->data, x.dtype, x.rank, x.sizes, strides.data()}, x);
    call_.from = packed_->data;
  }
  /// A block of x for each rank.
  void take_blocks(const TensorView& x, std::int64_t axis) {
    const Blocks blocks(x, axis, group_.size());
    call_.dtype = x.dtype, call_.count = blocks.count();
    if (blocks.are_in_order()) {
      call_.from = x.data;
      return;
    }
    packed_ = buffer_of(x.element_count(), x.dtype);
    blocks.pack(packed_->data);
    call_.from = packed_->data;
  }
  /// A block of each rank becomes a part of the result.
  void give_blocks(std::int64_t axis) {
    if (gives_zeros_) return;
    blocks_.emplace(output_, axis, group_.size());
    if (blocks_->are_in_order()) {
      blocks_.reset();
      return;
    }
    unpacked_ = buffer_of(output_.element_count(), output_.dtype);
    call_.to = unpacked_->data;
  }
  /// What is taken is reduced; `elements` as many as the transport is given.
  void reduce(CollectiveReduction how, std::int64_t elements) {
    is_mean_ = how == CollectiveReduction::mean;
    call_.reduction = is_mean_ ? CollectiveReduction::sum : how;
    if (call_.dtype != DType::f16 && call_.dtype != DType::bf16) return;
    wide_ = buffer_of(elements, DType::f32);
    widen(call_.dtype, call_.from, static_cast<float*>(wide_->data), elements);
    packed_.reset();
    call_.from = wide_->data, call_.dtype = DType::f32;
    wide_result_ = buffer_of(output_.element_count(), DType::f32);
    call_.to = wide_result_->data;
  }
  /// The root gets it; the result of the others is zeros.
  void give_at(std::int64_t root) { call_.peer = root, gives_zeros_ = root != group_.rank; }

  void start() { transfer_ = group_.transport->start(call_); }
  void run() {
    group_.transport->run(call_);
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
      if (count != 0) std::memset(output_.data, 0, static_cast<std::size_t>(count) * byte_size(output_.dtype));
      return;
    }
    if (is_mean_) divide(call_.to, call_.dtype, count);
    if (wide_result_ != nullptr)
      narrow(output_.dtype, static_cast<const float*>(wide_result_->data), output_.data, count);
    if (blocks_) blocks_->unpack(unpacked_->data);
  }
  void divide(void* elements, DType dtype, std::int64_t count) const {
    const auto by = static_cast<double>(group_.size());
    const auto all = [&]<class T>(std::type_identity<T>, std::int64_t n) {
      parallel_for(0, n, 0.3, [&](std::int64_t b, std::int64_t e) {
        for (std::int64_t i = b; i < e; ++i) static_cast<T*>(elements)[i] /= static_cast<T>(by);
      });
    };
    switch (dtype) {
      case DType::f32: return all(std::type_identity<float>{}, count);
      case DType::f64: return all(std::type_identity<double>{}, count);
      case DType::c64: return all(std::type_identity<float>{}, 2 * count);
      case DType::c128: return all(std::type_identity<double>{}, 2 * count);
      default: throw_internal("a mean of other than floating numbers");
    }
  }

  const RankGroup& group_;
  const TensorView output_;
  CollectiveCall call_;
  StoragePtr packed_, unpacked_, wide_, wide_result_;
  std::optional<Blocks> blocks_;  // that the result is put together of
  bool is_mean_ = false, gives_zeros_ = false;
  std::unique_ptr<StartedTransfer> transfer_;  // goes first: it waits for what is on its way
};

template <class O> O op_of(const CallArgs& args) {
  const TensorView& result = args.outputs[0];
  return decode<O>({args.attributes, {result.sizes, result.rank}, result.dtype, {}});
}

/// Makes a call: prepare(collective, op) says what is given and what is got.
template <class O, CollectiveKind kKind, auto kPrepare> void call_collective(const CallArgs& args) {
  const auto op = op_of<O>(args);
  auto collective = std::make_unique<CpuCollective>(args, group_of(args, op.group.value, op.ranks.value), kKind);
  kPrepare(*collective, op, args);
  if (args.started == nullptr) return collective->run();
  collective->start();
  *args.started = std::move(collective);
}

CollectiveReduction reduction_of(std::int64_t number) { return static_cast<CollectiveReduction>(number); }

void prepare_all_reduce(CpuCollective& c, const ops::AllReduce& op, const CallArgs& args) {
  c.take(args.inputs[0]);
  c.reduce(reduction_of(op.reduction.value), c.call().count);
}
void prepare_reduce_to(CpuCollective& c, const ops::ReduceTo& op, const CallArgs& args) {
  c.take(args.inputs[0]);
  c.give_at(op.root.value);
  c.reduce(reduction_of(op.reduction.value), c.call().count);
}
void prepare_all_gather(CpuCollective& c, const ops::AllGather& op, const CallArgs& args) {
  c.take(args.inputs[0]);
  c.give_blocks(op.axis.value);
}
void prepare_reduce_scatter(CpuCollective& c, const ops::ReduceScatter& op, const CallArgs& args) {
  c.take_blocks(args.inputs[0], op.axis.value);
  c.reduce(reduction_of(op.reduction.value), c.call().count * c.group().size());
}
void prepare_all_to_all(CpuCollective& c, const ops::AllToAll& op, const CallArgs& args) {
  c.take_blocks(args.inputs[0], op.split_axis.value);
  c.give_blocks(op.concat_axis.value);
}
void prepare_broadcast_from(CpuCollective& c, const ops::BroadcastFrom& op, const CallArgs& args) {
  c.take(args.inputs[0]);
  c.call().peer = op.root.value;
}
void prepare_scatter_from(CpuCollective& c, const ops::ScatterFrom& op, const CallArgs& args) {
  if (op.root.value == c.group().rank)
    c.take_blocks(args.inputs[0], op.axis.value);
  else
    c.call().dtype = c.output().dtype, c.call().count = c.output().element_count();
  c.call().peer = op.root.value;
}
void prepare_gather_to(CpuCollective& c, const ops::GatherTo& op, const CallArgs& args) {
  c.take(args.inputs[0]);
  c.give_at(op.root.value);
  c.give_blocks(op.axis.value);
}
void prepare_permute_ranks(CpuCollective& c, const ops::PermuteRanks& op, const CallArgs& args) {
  c.take(args.inputs[0]);
  c.call().pairs = op.pairs.value;
}
void prepare_send_to(CpuCollective& c, const ops::SendTo& op, const CallArgs& args) {
  c.take(args.inputs[0]);
  c.call().peer = op.peer.value, c.call().tag = op.tag.value, c.call().to = nullptr;
  *static_cast<bool*>(c.output().data) = true;
}
void prepare_receive_from(CpuCollective& c, const ops::ReceiveFrom& op, const CallArgs&) {
  c.call().dtype = c.output().dtype, c.call().count = c.output().element_count();
  c.call().peer = op.peer.value, c.call().tag = op.tag.value;
}
void prepare_barrier(CpuCollective& c, const ops::Barrier&, const CallArgs&) {
  c.call().to = nullptr;
  *static_cast<bool*>(c.output().data) = true;
}

}  // namespace

FERMATA_KERNELS(cpu) {
  using enum CollectiveKind;
  add_native_kernel(Op::all_reduce, &call_collective<ops::AllReduce, all_reduce, &prepare_all_reduce>);
  add_native_kernel(Op::reduce_to, &call_collective<ops::ReduceTo, reduce, &prepare_reduce_to>);
  add_native_kernel(Op::all_gather, &call_collective<ops::AllGather, all_gather, &prepare_all_gather>);
  add_native_kernel(Op::reduce_scatter, &call_collective<ops::ReduceScatter, reduce_scatter, &prepare_reduce_scatter>);
  add_native_kernel(Op::all_to_all, &call_collective<ops::AllToAll, all_to_all, &prepare_all_to_all>);
  add_native_kernel(Op::broadcast_from, &call_collective<ops::BroadcastFrom, broadcast, &prepare_broadcast_from>);
  add_native_kernel(Op::scatter_from, &call_collective<ops::ScatterFrom, scatter, &prepare_scatter_from>);
  add_native_kernel(Op::gather_to, &call_collective<ops::GatherTo, gather, &prepare_gather_to>);
  add_native_kernel(Op::permute_ranks, &call_collective<ops::PermuteRanks, permute, &prepare_permute_ranks>);
  add_native_kernel(Op::send_to, &call_collective<ops::SendTo, send, &prepare_send_to>);
  add_native_kernel(Op::receive_from, &call_collective<ops::ReceiveFrom, receive, &prepare_receive_from>);
  add_native_kernel(Op::barrier, &call_collective<ops::Barrier, barrier, &prepare_barrier>);
}

}  // namespace fermata
