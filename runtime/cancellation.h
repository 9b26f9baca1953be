// Cancellation of a run of this thread, between its steps or between the parts of a step that several threads share.
#pragma once

#include <stop_token>

#include "ir/error.h"

namespace fermata {

/// FM3004: a computation was stopped. Its results are pending as before and can be requested again; calls whose effects
/// had not happened will not run.
struct Cancelled : Error {
  using Error::Error;
};

/// While alive, syncs and calls of compiled functions of this thread throw Cancelled soon after a stop is requested:
/// before the next kernel, or within a large one. A run that has overwritten a tensor that is written in place
/// continues to its end. Guards may be nested; the innermost applies.
class StopGuard {
 public:
  explicit StopGuard(std::stop_token token);
  ~StopGuard();
  StopGuard(const StopGuard&) = delete;
  StopGuard& operator=(const StopGuard&) = delete;

 private:
  const std::stop_token token_;
  const std::stop_token* const outer_;
};

/// The token of the innermost guard of this thread; null without one.
extern constinit thread_local const std::stop_token* wanted_stop;
/// The same within a run that may be stopped at any moment: loops check it.
extern constinit thread_local const std::stop_token* stop_of_run;

/// Whether this thread is in a run that must not be stopped.
extern constinit thread_local bool is_unstoppable;

[[noreturn]] void throw_cancelled();
/// Throws Cancelled if a stop was requested.
inline void check_stop(const std::stop_token* token) {
  if (token != nullptr && token->stop_requested()) [[unlikely]]
    throw_cancelled();
}

/// Called between iterations of a loop that calls user functions, and before a sync.
inline void check_stop_of_thread() {
  if (wanted_stop != nullptr && !is_unstoppable) [[unlikely]]
    check_stop(wanted_stop);
}

/// A part of a run that may or may not be stopped. Nested parts may be stopped only if the outer one may.
class StoppableScope {
 public:
  explicit StoppableScope(bool stoppable) : outer_(stop_of_run), outer_is_unstoppable_(is_unstoppable) {
    is_unstoppable = outer_is_unstoppable_ || !stoppable;
    stop_of_run = is_unstoppable ? nullptr : wanted_stop;
  }
  ~StoppableScope() { stop_of_run = outer_, is_unstoppable = outer_is_unstoppable_; }
  StoppableScope(const StoppableScope&) = delete;
  StoppableScope& operator=(const StoppableScope&) = delete;

 private:
  const std::stop_token* const outer_;
  const bool outer_is_unstoppable_;
};

}  // namespace fermata
