// See mpi_requests.h.
#include "frontend/distributed/mpi/mpi_requests.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <source_location>
#include <utility>

#include "frontend/distributed/mpi/mpi_calls.h"
#include "ir/error.h"
#include "runtime/environment.h"

namespace fermata::distributed {
namespace {

// ---- Dtypes and reductions

/// Of elements that are reduced.
MPI_Datatype number_type(DType dtype) {
  switch (dtype) {
    case DType::boolean:
    case DType::u8: return MPI_UINT8_T;
    case DType::u16: return MPI_UINT16_T;
    case DType::u32: return MPI_UINT32_T;
    case DType::u64: return MPI_UINT64_T;
    case DType::i8: return MPI_INT8_T;
    case DType::i16: return MPI_INT16_T;
    case DType::i32: return MPI_INT32_T;
    case DType::i64: return MPI_INT64_T;
    case DType::f32: return MPI_FLOAT;
    case DType::f64: return MPI_DOUBLE;
    case DType::c64: return MPI_C_FLOAT_COMPLEX;
    case DType::c128: return MPI_C_DOUBLE_COMPLEX;
    default: throw_internal("MPI cannot reduce this dtype");
  }
}

/// Of elements that are moved: any dtype of the size.
MPI_Datatype element_type(DType dtype) {
  switch (byte_size(dtype)) {
    case 1: return MPI_UINT8_T;
    case 2: return MPI_UINT16_T;
    case 4: return MPI_UINT32_T;
    case 8: return MPI_UINT64_T;
    case 16: return MPI_C_DOUBLE_COMPLEX;
    default: throw_internal("no MPI type has this element size");
  }
}

/// MPI does not specify NaN: here a NaN of any rank is the result, as in max() and min().
template <class T, bool kIsMax> void extreme(void* in, void* inout, int* count, MPI_Datatype*) {
  const auto* const a = static_cast<const T*>(in);
  auto* const b = static_cast<T*>(inout);
  for (int i = 0; i < *count; ++i)
    if (std::isnan(a[i]) || (kIsMax ? a[i] > b[i] : a[i] < b[i])) b[i] = std::isnan(b[i]) ? b[i] : a[i];
}
template <class T, bool kIsMax> MPI_Op extreme_operation() {
  static const MPI_Op operation = [] {
    MPI_Op made;
    MPI_Op_create(&extreme<T, kIsMax>, 1, &made);
    return made;
  }();
  return operation;
}

MPI_Op operation_of(CollectiveReduction reduction, DType dtype) {
  const bool is_max = reduction == CollectiveReduction::max;
  switch (reduction) {
    case CollectiveReduction::sum: return MPI_SUM;
    case CollectiveReduction::prod: return MPI_PROD;
    case CollectiveReduction::mean: throw_internal("transports do not compute means");
    case CollectiveReduction::max:
    case CollectiveReduction::min: break;
  }
  if (dtype == DType::f32) return is_max ? extreme_operation<float, true>() : extreme_operation<float, false>();
  if (dtype == DType::f64) return is_max ? extreme_operation<double, true>() : extreme_operation<double, false>();
  return is_max ? MPI_MAX : MPI_MIN;
}

// ---- One call as requests

/// Some elements as one MPI element with the extent of a block: addresses a part of each block.
class PartOfBlock {
 public:
  PartOfBlock(MPI_Datatype element, std::int64_t count, std::int64_t block_bytes, std::source_location where) {
    MPI_Datatype part;
    require_success(MPI_Type_contiguous(static_cast<int>(count), element, &part), "MPI_Type_contiguous", where);
    require_success(MPI_Type_create_resized(part, 0, block_bytes, &type_), "MPI_Type_create_resized", where);
    require_success(MPI_Type_commit(&type_), "MPI_Type_commit", where);
    MPI_Type_free(&part);
  }
  ~PartOfBlock() { MPI_Type_free(&type_); }  // after the requests that use it have completed
  PartOfBlock(const PartOfBlock&) = delete;
  PartOfBlock& operator=(const PartOfBlock&) = delete;
  MPI_Datatype type() const { return type_; }

 private:
  MPI_Datatype type_;
};

/// Starts the parts of a call; the count of each fits an int.
class Starter {
 public:
  Starter(const CollectiveCall& call, MPI_Comm comm, std::int64_t ranks, std::int64_t rank,
          std::vector<MPI_Request>& requests)
      : call_(call),
        comm_(comm),
        ranks_(ranks),
        rank_(rank),
        bytes_(static_cast<std::int64_t>(byte_size(call.dtype))),
        requests_(requests) {}

  void run() {
    if (call_.kind == CollectiveKind::barrier)
      return require_success(MPI_Ibarrier(comm_, &add()), "MPI_Ibarrier", call_.where);
    if (call_.kind == CollectiveKind::permute && call_.count != 0) fill_with_zeros();
    const std::int64_t most = largest_count();
    for (std::int64_t at = 0; at < call_.count; at += most) run_part(at, std::min(most, call_.count - at));
  }
  /// Of reduce_scatter, which reads the blocks of a part one after another.
  std::vector<std::byte> packed;

 private:
  MPI_Request& add() { return requests_.emplace_back(MPI_REQUEST_NULL); }
  const void* from(std::int64_t at) const {
    return call_.from == nullptr ? nullptr : static_cast<const std::byte*>(call_.from) + at * bytes_;
  }
  void* to(std::int64_t at) const {
    return call_.to == nullptr ? nullptr : static_cast<std::byte*>(call_.to) + at * bytes_;
  }
  void fill_with_zeros() const {
    for (std::size_t i = 1; i < call_.pairs.size(); i += 2)
      if (call_.pairs[i] == rank_) return;
    std::memset(call_.to, 0, static_cast<std::size_t>(call_.count * bytes_));
  }

  void run_part(std::int64_t at, std::int64_t count) {
    const auto n = static_cast<int>(count), peer = static_cast<int>(call_.peer), tag = static_cast<int>(call_.tag);
    const MPI_Datatype element = element_type(call_.dtype);
    int code = MPI_SUCCESS;
    switch (call_.kind) {
      case CollectiveKind::all_reduce:
        code = MPI_Iallreduce(from(at), to(at), n, number_type(call_.dtype), operation(), comm_, &add());
        break;
      case CollectiveKind::reduce:
        code = MPI_Ireduce(from(at), to(at), n, number_type(call_.dtype), operation(), peer, comm_, &add());
        break;
      case CollectiveKind::reduce_scatter: code = reduce_scatter(at, count); break;
      case CollectiveKind::broadcast:
        if (rank_ == call_.peer) std::memcpy(to(at), from(at), static_cast<std::size_t>(count * bytes_));
        code = MPI_Ibcast(to(at), n, element, peer, comm_, &add());
        break;
      case CollectiveKind::all_gather:
      case CollectiveKind::all_to_all:
      case CollectiveKind::scatter:
      case CollectiveKind::gather: code = move_blocks(at, count); break;
      case CollectiveKind::permute: code = permute(at, n, element); break;
      case CollectiveKind::send: code = MPI_Isend(from(at), n, element, peer, tag, comm_, &add()); break;
      case CollectiveKind::receive: code = MPI_Irecv(to(at), n, element, peer, tag, comm_, &add()); break;
      case CollectiveKind::barrier: break;
    }
    require_success(code, call_.name, call_.where);
  }

  MPI_Op operation() const { return operation_of(call_.reduction, call_.dtype); }

  int reduce_scatter(std::int64_t at, std::int64_t count) {
    const void* blocks = call_.from;
    if (count != call_.count) {
      if (packed.empty()) packed.resize(static_cast<std::size_t>(call_.count * ranks_ * bytes_));
      std::byte* const part = packed.data() + at * ranks_ * bytes_;
      for (std::int64_t r = 0; r < ranks_; ++r)
        std::memcpy(part + r * count * bytes_, from(r * call_.count + at), static_cast<std::size_t>(count * bytes_));
      blocks = part;
    }
    return MPI_Ireduce_scatter_block(blocks, to(at), static_cast<int>(count), number_type(call_.dtype), operation(),
                                     comm_, &add());
  }

  int move_blocks(std::int64_t at, std::int64_t count) {
    const PartOfBlock part(element_type(call_.dtype), count, call_.count * bytes_, call_.where);
    const int peer = static_cast<int>(call_.peer);
    switch (call_.kind) {
      case CollectiveKind::all_gather:
        return MPI_Iallgather(from(at), 1, part.type(), to(at), 1, part.type(), comm_, &add());
      case CollectiveKind::all_to_all:
        return MPI_Ialltoall(from(at), 1, part.type(), to(at), 1, part.type(), comm_, &add());
      case CollectiveKind::scatter:
        return MPI_Iscatter(from(at), 1, part.type(), to(at), 1, part.type(), peer, comm_, &add());
      default: return MPI_Igather(from(at), 1, part.type(), to(at), 1, part.type(), peer, comm_, &add());
    }
  }

  int permute(std::int64_t at, int n, MPI_Datatype element) {
    int code = MPI_SUCCESS;
    for (std::size_t i = 0; i + 1 < call_.pairs.size() && code == MPI_SUCCESS; i += 2) {
      const auto source = static_cast<int>(call_.pairs[i]), target = static_cast<int>(call_.pairs[i + 1]);
      if (target == rank_) code = MPI_Irecv(to(at), n, element, source, 0, comm_, &add());
      if (source == rank_ && code == MPI_SUCCESS) code = MPI_Isend(from(at), n, element, target, 0, comm_, &add());
    }
    return code;
  }

  const CollectiveCall& call_;
  MPI_Comm comm_;
  std::int64_t ranks_, rank_, bytes_;
  std::vector<MPI_Request>& requests_;
};

}  // namespace

std::int64_t largest_count() {
  static const auto most =
      static_cast<std::int64_t>(environment_number("FERMATA_COLLECTIVE_CHUNK", std::uint64_t{1} << 30, 1));
  return std::min<std::int64_t>(most, std::numeric_limits<int>::max());
}

std::vector<std::byte> start_requests(const CollectiveCall& call, MPI_Comm comm, std::int64_t ranks, std::int64_t rank,
                                      std::vector<MPI_Request>& requests) {
  Starter starter(call, comm, ranks, rank, requests);
  starter.run();
  return std::move(starter.packed);
}

}  // namespace fermata::distributed
