// Work that nobody waits for: one thread of its own does it, piece by piece, and is started when there is some.
//
// When the process ends, what has not begun is dropped and what has begun is waited for.
#pragma once

#include <functional>

namespace fermata {

/// `work` must not throw. It runs at once, here, where the engine is to use one thread only.
void run_in_background(std::function<void()> work);
/// Returns when all work that was given has been done.
void wait_for_background();

}  // namespace fermata
