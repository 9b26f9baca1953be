// Groups of ranks, and the transports that move bytes between them.
//
// A process is one rank. The transport of a group is fixed when the group is made: a world of one process needs none,
// others come from a plugin (frontend/distributed). Kernels of collectives copy their operands into dense blocks, one
// for each rank if there are several, and pass them to the transport.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/collective.h"
#include "ir/dtype.h"
#include "ir/error.h"

namespace fermata {

/// A collective call failed: other ranks are gone, late, or make a different call.
struct CollectiveError : Error {
  using Error::Error;
};

/// The operations of a transport. `count` below is that of CollectiveCall; blocks are contiguous in rank order.
enum class CollectiveKind : std::uint8_t {
  all_reduce,      // count -> count
  reduce,          // count -> count, at the root
  all_gather,      // count -> a block of each rank
  reduce_scatter,  // a block for each rank -> count
  all_to_all,      // a block for each rank -> a block of each rank
  broadcast,       // count at the root -> count
  scatter,         // a block for each rank at the root -> count
  gather,          // count -> a block of each rank, at the root
  permute,         // count -> count
  send,            // count ->
  receive,         // -> count
  barrier,
};

/// One call of a rank. The memory of `from` and `to` must stay valid until the call has ended.
struct CollectiveCall {
  CollectiveKind kind;
  DType dtype;         // of the elements; of reductions no f16 and no bf16, and a mean only if computes_means()
  std::int64_t count;  // elements of a block
  const void* from;
  void* to;
  CollectiveReduction reduction = CollectiveReduction::sum;
  std::int64_t peer = 0;                     // the root, destination or source
  std::int64_t tag = 0;                      // of send and receive
  std::span<const std::int64_t> pairs = {};  // of permute
  std::string_view name = {};                // of the op, for errors
  std::source_location where{};
};

/// A call that has been started. Destroying it before it has ended waits for it.
class StartedTransfer {
 public:
  virtual ~StartedTransfer() = default;
  /// Advances the call if that needs the processor; returns true when it has ended.
  virtual bool progress() = 0;
  /// Throws CollectiveError if the other ranks do not arrive, or are gone.
  virtual void wait() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::unique_ptr<StartedTransfer> start(const CollectiveCall& call) = 0;
  /// Runs the call from start to end. Overridden by transports that have a faster way.
  virtual void run(const CollectiveCall& call) { start(call)->wait(); }
  struct Part {
    std::unique_ptr<Transport> transport;
    std::vector<std::int64_t> ranks;  // of this group, in the order of the part
  };
  /// Forms a group of the ranks of one color, in the order of their keys. Every rank must call it.
  virtual Part split(std::int64_t color, std::int64_t key, std::source_location where) = 0;
  virtual std::string_view name() const = 0;
  /// Whether reductions may be means, of floating and complex numbers: a division while the sum is in a register is
  /// cheaper than another pass. Otherwise the caller divides the sum.
  virtual bool computes_means() const { return false; }
  /// Whether ranks are processes: a backend may then move elements between their devices directly.
  virtual bool spans_processes() const { return false; }
  /// Called before a backend performs a call of the group itself, to check the known state and calls of the other
  /// ranks.
  virtual void expect(const CollectiveCall&) {}
  /// What a wait does that cannot end yet: lets a rank that shares the processor compute.
  virtual void yield() const {}
};

struct RankGroup {
  std::int64_t number = 0;          // the world is 0
  std::int64_t rank = 0;            // of this process
  std::int64_t local_rank = 0;      // of the world: among the processes of this machine
  std::vector<std::int64_t> ranks;  // of the world, in the order of the group
  std::unique_ptr<Transport> transport;

  std::int64_t size() const { return static_cast<std::int64_t>(ranks.size()); }
};

/// Groups live as long as the process. The first one is the world.
const RankGroup& add_group(std::int64_t rank, std::vector<std::int64_t> ranks, std::unique_ptr<Transport> transport,
                           std::int64_t local_rank = 0);
/// Null if no group has that number.
const RankGroup* find_group(std::int64_t number);
/// The transport of a group with one rank: data arrives immediately.
std::unique_ptr<Transport> transport_of_one();

/// A call that a collective's kernel has started: finish() waits, and stores the result in its place.
class StartedCall {
 public:
  virtual ~StartedCall() = default;
  virtual bool progress() = 0;
  virtual void finish() = 0;
};

}  // namespace fermata
