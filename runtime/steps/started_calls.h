// The collectives of one run that are on their way. What has not ended when the run does, because a step has failed, is
// waited for.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <string_view>
#include <vector>

#include "runtime/collectives.h"

namespace fermata {

struct EventInfo;

class StartedCalls {
 public:
  /// Null where the kernel has done all of it.
  void add(std::uint32_t number, std::unique_ptr<StartedCall> call, std::string_view name, std::source_location where);
  void finish(std::uint32_t number);
  bool empty() const { return calls_.empty(); }
  /// Goes on with all of them: between the steps of a run.
  void progress();

 private:
  struct Call {
    std::uint32_t number;
    std::unique_ptr<StartedCall> call;
    const EventInfo* info;  // null where nobody profiles
    std::int64_t begin_ns;
    bool has_ended = false;  // all has come that it waits for
  };
  static void note_end(Call& call);

  std::vector<Call> calls_;
};

}  // namespace fermata
