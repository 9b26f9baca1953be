// Groups of ranks whose devices communicate through NCCL, one device per process.
//
// Ranks exchange the NCCL id through the transport of their group. Calls are enqueued on the group's own stream, which
// waits for the caller's stream and vice versa; other work runs in between. NCCL is used in non-blocking mode, so that
// waits for other ranks can time out.
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
  /// Returns null if a rank of the group has no NCCL, or ranks are not processes. The first call creates it and must be
  /// made by all ranks.
  static NcclGroup* of(const RankGroup& group, const CollectiveCall& call);

  /// Calls `enqueue(functions, group, stream)`, ordered after all work on the current stream.
  template <class Enqueue> void start(const CollectiveCall& call, Enqueue&& enqueue) {
    begin(call);
    settle(enqueue(*nccl_library(), handle_, stream_), call.name, call.where);
    end(call);
  }
  /// Makes later work on the current stream wait for all started calls.
  void join();
  bool has_ended() const;
  /// Waits for all started calls. CollectiveError FM7006 if other ranks do not arrive or are gone.
  void wait();

 private:
  NcclGroup(const RankGroup& group, const CollectiveCall& call);
  void begin(const CollectiveCall& call);
  void end(const CollectiveCall& call);
  /// Waits until NCCL has accepted a call.
  void settle(Result result, std::string_view name, std::source_location where);
  [[noreturn]] void fail(const std::string& what, std::string_view name, std::source_location where);

  const RankGroup& group_;
  int device_ = 0;
  Handle handle_ = nullptr, stream_ = nullptr, ready_ = nullptr, done_ = nullptr;
  bool is_started_ = false;
  std::string failure_;  // once set, no further calls are made
  std::string last_name_;
  std::source_location last_where_;
};

}  // namespace fermata::gpu
