// Multi-process programs: groups of ranks, and collectives.
//
//   const fm::distributed::Group& world = fm::distributed::world();          // mpirun -n 4 program
//   fm::Tensor g = fm::distributed::all_reduce(gradient, fm::distributed::Reduction::mean);
//
// A process is a rank. A program that was not started by mpirun (or by Slurm) is a world of one rank and runs the same
// code. Collectives are ops like all others: recorded, differentiated, batched. Each is executed once, in program
// order, regardless of which values a rank reads and when. All ranks of a group must call the same functions in the
// same order, with operands of the same shape and dtype. Only one thread of a process may make the calls of a group.
//
// Operands and results have the same shape and dtype on every rank. The default `group` is the world. See
// docs/distributed.md.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fermata/integer_list.h"
#include "ir/collective.h"
#include "runtime/collectives.h"
#include "runtime/tensor.h"

namespace fermata::distributed {

/// sum, mean, max, min, prod. bf16 and f16 accumulate in f32.
using Reduction = CollectiveReduction;

/// A set of ranks that make collective calls together. Copies refer to the same group; groups live as long as the
/// process.
class Group {
 public:
  explicit Group(const RankGroup& group) : group_(&group) {}
  std::int64_t size() const { return group_->size(); }
  /// The rank of this process in the group.
  std::int64_t rank() const { return group_->rank; }
  /// The world ranks of its members, in the order of the group.
  std::span<const std::int64_t> ranks() const { return group_->ranks; }
  /// The number of the group in this process, 0 for the world; an attribute of the ops.
  std::int64_t number() const { return group_->number; }
  /// Returns the group of the ranks that pass the same color, ordered by key, then by rank in this group. All ranks of
  /// this group must call it. Pending calls are computed first.
  Group split(std::int64_t color, std::int64_t key = 0, Location where = Location::current()) const;
  /// The name of the transport: "one rank", "MPI".
  std::string_view transport() const { return group_->transport->name(); }
  bool operator==(const Group& other) const { return group_ == other.group_; }
  friend std::int64_t local_rank(Location where);

 private:
  const RankGroup* group_;
};

/// The group of all processes that were started together. The first call initializes MPI if this process was started by
/// mpirun; UnsupportedError FM7001 if this build has no MPI then.
const Group& world(Location where = Location::current());
/// The rank of this process among those on its machine, for selecting a device.
std::int64_t local_rank(Location where = Location::current());
/// Whether this build can communicate with other processes; if not, `reason` is set.
bool available(std::string* reason = nullptr);

/// Reduces the operands of all ranks elementwise; every rank gets the result.
///
/// DType    sum and prod: numbers; mean: floating and complex; max and min: real or bool. That of x.
/// Errors   DTypeError for other dtypes; CollectiveError if ranks are gone, late, or make a different call.
Tensor all_reduce(const Tensor& x, Reduction reduction = Reduction::sum, const Group& group = world(),
                  Location where = Location::current());
/// all_reduce() of several tensors. Small ones of the same dtype are merged, last ones first, into buckets of up to
/// `bucket_bytes`, which suits gradients in the order of a backward pass.
std::vector<Tensor> all_reduce(const std::vector<Tensor>& tensors, Reduction reduction = Reduction::sum,
                               const Group& group = world(), std::int64_t bucket_bytes = std::int64_t{1} << 22,
                               Location where = Location::current());
/// As all_reduce on the root; zeros on the other ranks.
Tensor reduce(const Tensor& x, std::int64_t root = 0, Reduction reduction = Reduction::sum,
              const Group& group = world(), Location where = Location::current());
/// Concatenates the tensors of all ranks along an axis: [.., n, ..] -> [.., size * n, ..].
Tensor all_gather(const Tensor& x, std::int64_t axis = 0, const Group& group = world(),
                  Location where = Location::current());
/// As all_reduce, but each rank keeps its part along an axis: [.., n, ..] -> [.., n / size, ..].
///
/// Errors   ShapeError FM7003 if the size of the group does not divide n.
Tensor reduce_scatter(const Tensor& x, std::int64_t axis = 0, Reduction reduction = Reduction::sum,
                      const Group& group = world(), Location where = Location::current());
/// Sends part r of x along `split_axis` to rank r; the received parts are concatenated along `concat_axis`.
Tensor all_to_all(const Tensor& x, std::int64_t split_axis, std::int64_t concat_axis, const Group& group = world(),
                  Location where = Location::current());
/// Returns the root's x on every rank.
Tensor broadcast(const Tensor& x, std::int64_t root = 0, const Group& group = world(),
                 Location where = Location::current());
/// Returns part r of the root's x along an axis on rank r. The operands of the other ranks are not read.
Tensor scatter(const Tensor& x, std::int64_t root = 0, std::int64_t axis = 0, const Group& group = world(),
               Location where = Location::current());
/// As all_gather on the root; zeros on the other ranks.
Tensor gather(const Tensor& x, std::int64_t root = 0, std::int64_t axis = 0, const Group& group = world(),
              Location where = Location::current());
/// Sends x along {source, destination} pairs of ranks; a rank that is no destination gets zeros.
///
/// Errors   ValueError FM7004 if a rank is the source, or the destination, of two pairs.
Tensor permute(const Tensor& x, const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs,
               const Group& group = world(), Location where = Location::current());
/// permute() from each rank r to r + by. In a ring, ranks wrap around; otherwise tensors that would leave the group are
/// dropped, and zeros are shifted in.
Tensor shift(const Tensor& x, std::int64_t by = 1, bool ring = true, const Group& group = world(),
             Location where = Location::current());

/// Sends x to one rank, which calls receive() with the shape, the dtype and the tag. Neither has a derivative; use
/// permute() for one.
void send(const Tensor& x, std::int64_t to, const Group& group = world(), std::int64_t tag = 0,
          Location where = Location::current());
Tensor receive(const IntegerList& sizes, DType dtype, std::int64_t from, const Group& group = world(),
               std::int64_t tag = 0, Location where = Location::current());

/// Computes this thread's pending calls and waits until all ranks of the group have called it. Inside compile(fn) it is
/// recorded.
void barrier(const Group& group = world(), Location where = Location::current());

}  // namespace fermata::distributed
