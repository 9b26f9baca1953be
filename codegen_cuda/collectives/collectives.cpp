// Collectives of CUDA tensors (dispatch/collective_kernels.h): through NCCL between devices, through host memory
// if there is no NCCL, and on the device for a group of one rank.
#include <fmt/format.h>

#include <cstring>
#include <optional>
#include <vector>

#include "codegen_cuda/collectives/nccl_group.h"
#include "codegen_cuda/irregular/call_source.h"
#include "codegen_cuda/irregular/element_text.h"
#include "codegen_cuda/irregular/irregular.h"
#include "codegen_cuda/runtime/device.h"
#include "dispatch/collective_kernels.h"
#include "runtime/device_run.h"
#include "runtime/transfers.h"

namespace fermata::gpu {
namespace {

Address address_of(const void* data) { return reinterpret_cast<Address>(data); }

/// to[i] = text of from[i].
void for_each_element(std::string_view to_type, void* to, std::string_view from_type, const void* from,
                      std::int64_t count, const std::string& text) {
  CallSource s("collective");
  s.for_each("i", count);
  const std::string source = s.pointer(fmt::format("const {}", from_type), from), result = s.pointer(to_type, to);
  s.line(fmt::format("const {0} x = fm_load({1} + i); fm_store({2} + i, {3});", from_type, source, result, text));
  s.launch(count);
}

/// Maps floats to integers of the same order, and back. NaN is mapped to the winning extreme, so a NaN of any rank is
/// the result.
struct OrderedBits {
  std::string_view integer;
  DType dtype;
  std::string text(bool is_max) const {
    const bool is_wide = integer == "i64";
    const std::string low = is_wide ? "0x7fffffffffffffffLL" : "0x7fffffff",
                      infinity = is_wide ? "0x7ff0000000000000LL" : "0x7f800000";
    return fmt::format("({0})(x & {1}) > {2} ? {3} : x ^ (x >> {4} & {1})", integer, low, infinity,
                       is_max ? low : fmt::format("({})(-{} - 1)", integer, low), is_wide ? 63 : 31);
  }
};
std::optional<OrderedBits> ordered_bits(const CollectiveCall& call) {
  if (call.reduction != CollectiveReduction::max && call.reduction != CollectiveReduction::min) return {};
  if (call.dtype == DType::f32) return OrderedBits{"i32", DType::i32};
  if (call.dtype == DType::f64) return OrderedBits{"i64", DType::i64};
  return {};
}

bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::all_reduce || kind == CollectiveKind::reduce || kind == CollectiveKind::reduce_scatter;
}

/// Elements of a call at this rank: of what it reads and of what it writes.
struct Extent {
  std::int64_t from, to;
};
Extent extent_of(const RankGroup& group, const CollectiveCall& call) {
  const std::int64_t one = call.count, all = call.count * group.size();
  const bool is_root = call.peer == group.rank;
  switch (call.kind) {
    case CollectiveKind::reduce: return {one, is_root ? one : 0};
    case CollectiveKind::all_gather: return {one, all};
    case CollectiveKind::reduce_scatter: return {all, one};
    case CollectiveKind::all_to_all: return {all, all};
    case CollectiveKind::broadcast: return {is_root ? one : 0, one};
    case CollectiveKind::scatter: return {is_root ? all : 0, one};
    case CollectiveKind::gather: return {one, is_root ? all : 0};
    case CollectiveKind::send: return {one, 0};
    case CollectiveKind::receive: return {0, one};
    case CollectiveKind::barrier: return {0, 0};
    default: return {one, one};
  }
}

/// There is nothing to wait for.
class Ended final : public StartedTransfer {
 public:
  bool progress() override { return true; }
  void wait() override {}
};

/// Through the transport of the group, in host memory.
void run_on_host(const RankGroup& group, const CollectiveCall& call) {
  const Extent extent = extent_of(group, call);
  const auto bytes = [&](std::int64_t count) { return static_cast<std::size_t>(count) * byte_size(call.dtype); };
  std::vector<std::byte> from(bytes(extent.from)), to(bytes(extent.to));
  Stream& stream = current_stream();
  if (!from.empty())
    check(driver().copy_to_host(from.data(), address_of(call.from), from.size(), stream.handle), "cuMemcpyDtoHAsync");
  synchronize(stream);
  CollectiveCall on_host = call;
  on_host.from = from.data(), on_host.to = to.data();
  run_transfer(group, on_host);
  if (!to.empty())
    check(driver().copy_to_device(address_of(call.to), to.data(), to.size(), stream.handle), "cuMemcpyHtoDAsync");
}

/// The blocks are those of this rank.
void run_alone(const CollectiveCall& call) {
  const std::size_t bytes = static_cast<std::size_t>(call.count) * byte_size(call.dtype);
  if (bytes == 0 || call.to == nullptr || call.from == call.to) return;
  const Handle stream = launch_handle();
  if (call.kind == CollectiveKind::permute && call.pairs.empty())
    check(driver().fill_bytes(address_of(call.to), 0, bytes, stream), "cuMemsetD8Async");
  else
    check(driver().copy_on_device(address_of(call.to), address_of(call.from), bytes, stream), "cuMemcpyDtoDAsync");
}

/// The NCCL type of elements: bytes if they are only moved.
struct NcclElements {
  int type;
  std::size_t count;
  int reduction = kNcclSum;
};
std::optional<NcclElements> elements_of(const CollectiveCall& call) {
  const auto count = static_cast<std::size_t>(call.count);
  if (!reduces(call.kind)) return NcclElements{kNcclUint8, count * byte_size(call.dtype)};
  int reduction = kNcclSum;
  switch (call.reduction) {
    case CollectiveReduction::sum:
    case CollectiveReduction::mean: break;
    case CollectiveReduction::prod: reduction = kNcclProd; break;
    case CollectiveReduction::max: reduction = kNcclMax; break;
    case CollectiveReduction::min: reduction = kNcclMin; break;
  }
  switch (call.dtype) {
    case DType::boolean: {  // any and all
      const bool is_any = reduction == kNcclMax || reduction == kNcclSum;
      return NcclElements{kNcclUint8, count, is_any ? kNcclMax : kNcclMin};
    }
    case DType::i8: return NcclElements{kNcclInt8, count, reduction};
    case DType::u8: return NcclElements{kNcclUint8, count, reduction};
    case DType::i32: return NcclElements{kNcclInt32, count, reduction};
    case DType::u32: return NcclElements{kNcclUint32, count, reduction};
    case DType::i64: return NcclElements{kNcclInt64, count, reduction};
    case DType::u64: return NcclElements{kNcclUint64, count, reduction};
    case DType::f32: return NcclElements{kNcclFloat32, count, reduction};
    case DType::f64: return NcclElements{kNcclFloat64, count, reduction};
    default: return {};
  }
}

class NcclTransfer final : public StartedTransfer {
 public:
  NcclTransfer(NcclGroup& nccl, const RankGroup& group, const CollectiveCall& call) : nccl_(nccl), call_(call) {
    result_count_ = extent_of(group, call).to;
    if (reduces(call.kind)) bits_ = ordered_bits(call);
    if (bits_) {
      const std::int64_t count = extent_of(group, call).from;
      ordered_.emplace(count * static_cast<std::int64_t>(byte_size(call.dtype)));
      for_each_element(bits_->integer, ordered_->data(), bits_->integer, call.from, count, text());
      call_.from = ordered_->data(), call_.dtype = bits_->dtype;
    }
    nccl_.start(call_, [&](const NcclFunctions& f, Handle handle, Handle stream) {
      return enqueue(group, *elements_of(call_), f, handle, stream);
    });
  }
  bool progress() override { return nccl_.has_ended(); }
  void wait() override {
    nccl_.join();
    if (bits_) for_each_element(bits_->integer, call_.to, bits_->integer, call_.to, result_count_, text());
  }

 private:
  std::string text() const { return bits_->text(call_.reduction == CollectiveReduction::max); }

  Result enqueue(const RankGroup& group, const NcclElements& e, const NcclFunctions& f, Handle handle, Handle stream) {
    const int root = static_cast<int>(call_.peer), ranks = static_cast<int>(group.size());
    const auto* const from = static_cast<const std::byte*>(call_.from);
    auto* const to = static_cast<std::byte*>(call_.to);
    switch (call_.kind) {
      case CollectiveKind::all_reduce: return f.all_reduce(from, to, e.count, e.type, e.reduction, handle, stream);
      case CollectiveKind::reduce: return f.reduce(from, to, e.count, e.type, e.reduction, root, handle, stream);
      case CollectiveKind::all_gather: return f.all_gather(from, to, e.count, e.type, handle, stream);
      case CollectiveKind::reduce_scatter:
        return f.reduce_scatter(from, to, e.count, e.type, e.reduction, handle, stream);
      case CollectiveKind::broadcast: return f.broadcast(from, to, e.count, e.type, root, handle, stream);
      default: break;
    }
    // All others are messages between two ranks, started together.
    const auto rank = static_cast<int>(group.rank);
    Result r = f.group_start();
    const auto add = [&](Result of_call) {
      if (r == kSuccess || r == kNcclInProgress) r = of_call;
    };
    const auto send = [&](int block, int peer) {
      add(f.send(from + static_cast<std::size_t>(block) * e.count, e.count, e.type, peer, handle, stream));
    };
    const auto receive = [&](int block, int peer) {
      add(f.receive(to + static_cast<std::size_t>(block) * e.count, e.count, e.type, peer, handle, stream));
    };
    for (int peer = 0; peer < ranks; ++peer) {
      if (call_.kind == CollectiveKind::all_to_all || (call_.kind == CollectiveKind::scatter && rank == root))
        send(peer, peer);
      if (call_.kind == CollectiveKind::all_to_all || (call_.kind == CollectiveKind::gather && rank == root))
        receive(peer, peer);
    }
    if (call_.kind == CollectiveKind::scatter) receive(0, root);
    if (call_.kind == CollectiveKind::gather) send(0, root);
    if (call_.kind == CollectiveKind::permute) {
      add(driver().fill_bytes(address_of(to), 0, e.count, stream));
      for (std::size_t i = 0; i + 1 < call_.pairs.size(); i += 2) {
        if (call_.pairs[i] == group.rank) send(0, static_cast<int>(call_.pairs[i + 1]));
        if (call_.pairs[i + 1] == group.rank) receive(0, static_cast<int>(call_.pairs[i]));
      }
    }
    const Result end = f.group_end();
    return r == kSuccess || r == kNcclInProgress ? end : r;
  }

  NcclGroup& nccl_;
  CollectiveCall call_;
  std::optional<OrderedBits> bits_;
  std::optional<Workspace> ordered_;
  std::int64_t result_count_ = 0;
};

struct CudaMemory {
  class Buffer {
   public:
    Buffer() = default;
    explicit Buffer(std::int64_t bytes) : held_(std::make_unique<Workspace>(bytes)) {}
    void* data() const { return held_ == nullptr ? nullptr : held_->data(); }

   private:
    std::unique_ptr<Workspace> held_;
  };

  static void copy(const TensorView& from, const TensorView& to) { copy_elements(from, to); }
  static void fill(void* to, std::byte value, std::size_t bytes) {
    check(driver().fill_bytes(address_of(to), static_cast<unsigned char>(value), bytes, launch_handle()),
          "cuMemsetD8Async");
  }
  static void widen(DType dtype, const void* from, float* to, std::int64_t count) {
    const ElementText half = element_text(dtype, false);
    for_each_element("f32", to, half.memory, from, count, half.widen + "(x)");
  }
  static void narrow(DType dtype, const float* from, void* to, std::int64_t count) {
    const ElementText half = element_text(dtype, false);
    for_each_element(half.memory, to, "f32", from, count, half.stored("x"));
  }
  static void divide(void* elements, DType dtype, std::int64_t count, double by) {
    const std::string type = element_text(dtype, false).memory;
    for_each_element(type, elements, type, elements, count, fmt::format("x / ({}){}", type, by));
  }

  static std::unique_ptr<StartedTransfer> start(const RankGroup& group, const CollectiveCall& call) {
    ++device_reads;  // a recorded graph would not make the other ranks call
    use_buffer(call.from), use_buffer(call.to);
    const bool is_message = call.kind == CollectiveKind::send || call.kind == CollectiveKind::receive;
    if (group.size() == 1 && !is_message)
      run_alone(call);
    else if (NcclGroup* const nccl = is_message || !elements_of(call) ? nullptr : NcclGroup::of(group, call))
      return call.count == 0 ? std::make_unique<Ended>() : transfer_of(*nccl, group, call);
    else
      run_on_host(group, call);
    return std::make_unique<Ended>();
  }
  static void run(const RankGroup& group, const CollectiveCall& call) { start(group, call)->wait(); }
  static bool computes_means(const RankGroup&) { return false; }

 private:
  static std::unique_ptr<StartedTransfer> transfer_of(NcclGroup& nccl, const RankGroup& group,
                                                      const CollectiveCall& call) {
    return std::make_unique<NcclTransfer>(nccl, group, call);
  }
};

}  // namespace

FERMATA_KERNELS(cuda) {
  collective_kernels::add_collective_kernels<CudaMemory>([](Op op, CallKernel call) { add_nvrtc_kernel(op, call); });
}

}  // namespace fermata::gpu
