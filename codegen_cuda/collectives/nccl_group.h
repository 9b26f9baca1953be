// Groups of ranks whose devices talk to each other through NCCL: one device for each process.
//
// Ranks find each other through the transport that their group has anyway. Calls go to a stream of the group's own,
// which waits for the stream of the caller, and that one for it: between the two other work runs. NCCL is asked not to
// block, so that a wait for other ranks has a limit.
#pragma once

#include <chrono>
#include <memory>
#include <source_location>
#include <string>
#include <string_view>

#include "codegen_cuda/api/libraries.h"
#include "runtime/collectives.h"

namespace fermata::gpu {

class NcclGroup {
 public:
  /// Null where a rank of the group has no NCCL, or ranks are no processes. The first call makes it: all ranks call it.
  static NcclGroup* of(const RankGroup& group, const CollectiveCall& call);

  /// Starts what `enqueue(functions, group, stream)` gives to NCCL, after all that the current stream has so far.
  template <class Enqueue> void start(const CollectiveCall& call, Enqueue&& enqueue) {
    begin(call);
    settle(enqueue(*nccl_library(), handle_, stream_), call.name, call.where);
    end(call);
  }
  /// What comes on the current stream waits for all that has been started.
  void join();
  bool has_ended() const;
  /// Until what has been started has ended. CollectiveError FM7006 where other ranks do not come, or are gone.
  void wait();

 private:
  NcclGroup(const RankGroup& group, const CollectiveCall& call);
  void begin(const CollectiveCall& call);
  void end(const CollectiveCall& call);
  /// Until NCCL has taken a call.
  void settle(Result result, std::string_view name, std::source_location where);
  [[noreturn]] void fail(const std::string& what, std::string_view name, std::source_location where);

  const RankGroup& group_;
  int device_ = 0;
  Handle handle_ = nullptr, stream_ = nullptr, ready_ = nullptr, done_ = nullptr;
  bool is_started_ = false;
  std::string failure_;  // from then on no call is made
  std::string last_name_;
  std::source_location last_where_;
};

}  // namespace fermata::gpu
