// Fire-and-forget background work: a dedicated thread, started on first use, runs it in order.
//
// At process exit, work that has not started is dropped, and work in progress is waited for. The same happens before a
// fork; the child starts with an empty queue.
#pragma once

#include <functional>

namespace fermata {

/// `work` must not throw. Runs it immediately on this thread if the engine is limited to one thread.
void run_in_background(std::function<void()> work);
/// The same, but never on this thread, for work that must not delay the caller.
void run_beside(std::function<void()> work);
/// To be called after loading libraries that background work uses, if the work itself loaded them: the work then ends
/// before they are unloaded.
void join_background_at_exit();
/// Returns when all submitted work is done.
void wait_for_background();

}  // namespace fermata
