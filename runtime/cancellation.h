// Stopping a run of this thread between its steps, or between the parts of one that several threads share.
#pragma once

#include <stop_token>

#include "ir/error.h"

namespace fermata {

/// FM3004: a computation was stopped. What it was to compute is pending as before, and can be asked for again; calls
/// with effects that had not happened will not happen.
struct Cancelled : Error {
  using Error::Error;
};

/// While it lives, syncs and calls of compiled functions of this thread end with Cancelled soon after a stop has been
/// requested: before the next kernel, or within a large one. A run goes on to its end once it has written over a tensor
/// that was written in place. Guards may be nested; the innermost counts.
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
/// The same within a run that may be stopped at any moment: loops look at it.
extern constinit thread_local const std::stop_token* stop_of_run;

/// Whether this thread is in a run that has to go on to its end.
extern constinit thread_local bool is_unstoppable;

[[noreturn]] void throw_cancelled();
/// Throws Cancelled if a stop was requested.
inline void check_stop(const std::stop_token* token) {
  if (token != nullptr && token->stop_requested()) [[unlikely]]
    throw_cancelled();
}

/// Between the turns of a loop that calls functions of the user, and before a sync.
inline void check_stop_of_thread() {
  if (wanted_stop != nullptr && !is_unstoppable) [[unlikely]]
    check_stop(wanted_stop);
}

/// Part of a run that may be stopped, or may not. What it calls may only be stopped if it may be itself.
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
