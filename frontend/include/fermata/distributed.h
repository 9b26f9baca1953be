// Programs of several processes: groups of ranks, and the calls that they make together.
//
//   const fm::distributed::Group& world = fm::distributed::world();          // mpirun -n 4 program
//   fm::Tensor g = fm::distributed::all_reduce(gradient, fm::distributed::Reduction::mean);
//
// A process is a rank. A program that was not started by mpirun (or by Slurm) is a world of one rank and runs the same
// code. Calls are ops like all others: recorded, differentiated, batched. Each is made once, in the order of the
// program, so it does not matter which values a rank reads, and when: all ranks of a group have to call the same
// functions in the same order, with operands of one type. One thread of a process makes the calls of a group.
//
// Every rank gives an operand of one type and gets a result of one type. Of `group` the default is the world.
// See docs/distributed.md.
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

/// sum, mean, max, min, prod. bf16 and f16 are reduced in f32.
using Reduction = CollectiveReduction;

/// Ranks that make calls together. A copy is the same group; groups live as long as the process.
class Group {
 public:
  explicit Group(const RankGroup& group) : group_(&group) {}
  std::int64_t size() const { return group_->size(); }
  /// Of this process.
  std::int64_t rank() const { return group_->rank; }
  /// The ranks of the world that it is made of, in its order.
  std::span<const std::int64_t> ranks() const { return group_->ranks; }
  /// The number of the group among those of this process, 0 for the world: an attribute of the ops.
  std::int64_t number() const { return group_->number; }
  /// The group of the ranks that give this color, in the order of their keys (of equal ones, in the order of this
  /// group). All ranks of this group call it. What was recorded before is computed first.
  Group split(std::int64_t color, std::int64_t key = 0, Location where = Location::current()) const;
  /// What moves the bytes: "one rank", "MPI".
  std::string_view transport() const { return group_->transport->name(); }
  bool operator==(const Group& other) const { return group_ == other.group_; }
  friend std::int64_t local_rank(Location where);

 private:
  const RankGroup* group_;
};

/// All processes that were started together. The first call starts MPI where mpirun has started this process.
/// UnsupportedError FM7001 where that is so, and this build has no MPI.
const Group& world(Location where = Location::current());
/// Of this process among those of the world on its machine: which device it uses, where each has one.
std::int64_t local_rank(Location where = Location::current());
/// Whether this build can talk to other processes; where not, `reason` says why.
bool available(std::string* reason = nullptr);

/// The elements of all ranks reduced one by one, on every rank.
/// DType    sum and prod: numbers; mean: floating and complex; max and min: real or bool. That of x.
/// Errors   DTypeError for other dtypes; CollectiveError where ranks are gone, late, or call something else.
Tensor all_reduce(const Tensor& x, Reduction reduction = Reduction::sum, const Group& group = world(),
                  Location where = Location::current());
/// Each of several tensors. Small ones of a dtype are joined, last ones first, to calls of up to `bucket_bytes`: the
/// gradients of a model in the order in which a backward pass makes them.
std::vector<Tensor> all_reduce(const std::vector<Tensor>& tensors, Reduction reduction = Reduction::sum,
                               const Group& group = world(), std::int64_t bucket_bytes = std::int64_t{1} << 22,
                               Location where = Location::current());
/// As all_reduce on the root; zeros on the other ranks.
Tensor reduce(const Tensor& x, std::int64_t root = 0, Reduction reduction = Reduction::sum,
              const Group& group = world(), Location where = Location::current());
/// The tensors of all ranks one after another along an axis: [.., n, ..] -> [.., size * n, ..].
Tensor all_gather(const Tensor& x, std::int64_t axis = 0, const Group& group = world(),
                  Location where = Location::current());
/// As all_reduce; each rank keeps its part along an axis: [.., n, ..] -> [.., n / size, ..].
/// Errors   ShapeError FM7003 where the size of the group does not divide n.
Tensor reduce_scatter(const Tensor& x, std::int64_t axis = 0, Reduction reduction = Reduction::sum,
                      const Group& group = world(), Location where = Location::current());
/// Part r of x along `split_axis` goes to rank r; what comes is joined along `concat_axis`.
Tensor all_to_all(const Tensor& x, std::int64_t split_axis, std::int64_t concat_axis, const Group& group = world(),
                  Location where = Location::current());
/// The elements of the root, on every rank.
Tensor broadcast(const Tensor& x, std::int64_t root = 0, const Group& group = world(),
                 Location where = Location::current());
/// Part r along an axis of the root's x, on rank r. The elements of the others are not read.
Tensor scatter(const Tensor& x, std::int64_t root = 0, std::int64_t axis = 0, const Group& group = world(),
               Location where = Location::current());
/// As all_gather on the root; zeros on the other ranks.
Tensor gather(const Tensor& x, std::int64_t root = 0, std::int64_t axis = 0, const Group& group = world(),
              Location where = Location::current());
/// The elements of the rank that is the first of the pair whose second is this one; zeros where there is none.
/// Errors   ValueError FM7004 where a rank is the first, or the second, of two pairs.
Tensor permute(const Tensor& x, const std::vector<std::pair<std::int64_t, std::int64_t>>& pairs,
               const Group& group = world(), Location where = Location::current());
/// permute() to the rank `by` further on. In a ring the first rank follows the last one; else what would leave the
/// group is dropped, and zeros come in.
Tensor shift(const Tensor& x, std::int64_t by = 1, bool ring = true, const Group& group = world(),
             Location where = Location::current());

/// To one rank, which calls receive() with the shape, the dtype and the tag. Both have no derivative: permute() has.
void send(const Tensor& x, std::int64_t to, const Group& group = world(), std::int64_t tag = 0,
          Location where = Location::current());
Tensor receive(const IntegerList& sizes, DType dtype, std::int64_t from, const Group& group = world(),
               std::int64_t tag = 0, Location where = Location::current());

/// Returns when all ranks of the group have called it, and what this thread has recorded before has been computed.
/// Inside compile(fn) it is recorded.
void barrier(const Group& group = world(), Location where = Location::current());

}  // namespace fermata::distributed
