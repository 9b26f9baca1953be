// The collectives of one run that are in flight. If a step fails, the end of the run waits for those that have not
// ended.
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
  /// `call` is null if the kernel has already done all of it.
  void add(std::uint32_t number, std::unique_ptr<StartedCall> call, std::string_view name, std::source_location where);
  void finish(std::uint32_t number);
  bool empty() const { return calls_.empty(); }
  /// Advances all of them; called between the steps of a run.
  void progress();

 private:
  struct Call {
    std::uint32_t number;
    std::unique_ptr<StartedCall> call;
    const EventInfo* info;  // null if no profile runs
    std::int64_t begin_ns;
    bool has_ended = false;  // everything it waits for has arrived
  };
  static void note_end(Call& call);

  std::vector<Call> calls_;
};

}  // namespace fermata
