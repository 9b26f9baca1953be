// Groups of ranks, and what moves bytes between them.
//
// A process is one rank. Which transport a group has was settled when the group was made: the world of one process
// needs none, others come from a plugin (frontend/distributed). Kernels of collectives bring their operands into dense
// blocks, one for each rank where there are several, and hand them to the transport.
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

/// A call that several ranks make did not come to its end: other ranks are gone, late, or call something else.
struct CollectiveError : Error {
  using Error::Error;
};

/// What a transport does. `count` below is that of CollectiveCall; blocks lie one after another in the order of ranks.
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

/// One call of a rank. What `from` and `to` point to stays until the call has ended.
struct CollectiveCall {
  CollectiveKind kind;
  DType dtype;         // of the elements; of reductions no f16, no bf16 and no mean
  std::int64_t count;  // elements of a block
  const void* from;
  void* to;
  CollectiveReduction reduction = CollectiveReduction::sum;
  std::int64_t peer = 0;                     // the root, or whom it goes to or comes from
  std::int64_t tag = 0;                      // of send and receive
  std::span<const std::int64_t> pairs = {};  // of permute
  std::string_view name = {};                // of the op, for errors
  std::source_location where{};
};

/// A call that has been started. Whoever drops it before it has ended waits for it.
class StartedTransfer {
 public:
  virtual ~StartedTransfer() = default;
  /// Goes on with it where that needs the processor; true when it has ended.
  virtual bool progress() = 0;
  /// CollectiveError where the other ranks do not come, or are gone.
  virtual void wait() = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::unique_ptr<StartedTransfer> start(const CollectiveCall& call) = 0;
  /// From start to end. The same, unless a transport can do better.
  virtual void run(const CollectiveCall& call) { start(call)->wait(); }
  struct Part {
    std::unique_ptr<Transport> transport;
    std::vector<std::int64_t> ranks;  // of this group, in the order of the part
  };
  /// The ranks of one color, in the order of their keys. Every rank calls it.
  virtual Part split(std::int64_t color, std::int64_t key, std::source_location where) = 0;
  virtual std::string_view name() const = 0;
  /// Whether ranks are processes: then a backend may move elements between devices of theirs by itself.
  virtual bool spans_processes() const { return false; }
  /// Before a backend makes a call of the group by itself: what is known of the other ranks, and what they call.
  virtual void expect(const CollectiveCall&) {}
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
/// Null where there is none of that number.
const RankGroup* find_group(std::int64_t number);
/// Of a group with one rank: what is sent arrives at once.
std::unique_ptr<Transport> transport_of_one();

/// What a kernel of a collective has started: finish() waits, and puts the result where it belongs.
class StartedCall {
 public:
  virtual ~StartedCall() = default;
  virtual bool progress() = 0;
  virtual void finish() = 0;
};

}  // namespace fermata
