// See cancellation.h.
#include "runtime/cancellation.h"

#include <utility>

namespace fermata {

constinit thread_local const std::stop_token* wanted_stop = nullptr;
constinit thread_local const std::stop_token* stop_of_run = nullptr;
constinit thread_local bool is_unstoppable = false;

StopGuard::StopGuard(std::stop_token token) : token_(std::move(token)), outer_(wanted_stop) { wanted_stop = &token_; }
StopGuard::~StopGuard() { wanted_stop = outer_; }

void throw_cancelled() {
  throw Cancelled(3004, format_error(3004, "Cancelled", "the computation was cancelled", {}, {}));
}

}  // namespace fermata
