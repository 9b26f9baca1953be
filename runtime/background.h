// Fire-and-forget background work: one thread of its own does it, piece by piece, and is started when there is some.
//
// When the process ends, what has not begun is dropped and what has begun is waited for; so it is before a fork, and
// the child begins with none.
#pragma once

#include <functional>

namespace fermata {

/// `work` must not throw. It runs at once, here, where the engine is to use one thread only.
void run_in_background(std::function<void()> work);
/// The same, but never here, for work that would hold up a caller who has something better to do.
void run_beside(std::function<void()> work);
/// Called after what the work uses has been loaded, if that was from within the work: it ends before that is unloaded.
void join_background_at_exit();
/// Returns when all work that was given has been done.
void wait_for_background();

}  // namespace fermata
