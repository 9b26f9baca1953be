// The engine's own fork-join pool.
//
// The calling thread always takes part and can finish a loop alone, so a worker that is late or asleep costs nothing
// but its help. Workers spin for 100 us after their last chunk, then park. The pool serves one loop at a time: a loop
// started inside another one, or by a second thread while the pool is taken, runs on its caller.
//
// FERMATA_NUM_THREADS sets the number of threads, the caller included; else it is that of the processors allowed.
#pragma once

#include <cstdint>

#include "runtime/function_ref.h"

namespace fermata {

/// Work below this many nanoseconds in total is not split: waking a helper would cost more than it saves.
inline constexpr double kSerialNanoseconds = 25'000;

/// Threads that a loop may use, the caller included; at least 1.
int thread_count();
/// Takes effect at the next loop; values below 1 count as 1. May be called from anywhere, also inside a loop.
void set_thread_count(int threads);

/// Calls `body(b, e)` on disjoint ranges that cover [begin, end), on several threads where the work is worth it:
/// `ns_per_item` is what one item takes on one core, roughly. All boundaries but `end` lie a multiple of `granule` from
/// `begin`. Ranges depend on the number of threads, so results must not depend on where they are cut.
/// An exception of `body` reaches the caller after all running ranges have ended: the one of the lowest range, if many.
void parallel_for(std::int64_t begin, std::int64_t end, double ns_per_item,
                  FunctionRef<void(std::int64_t begin, std::int64_t end)> body, std::int64_t granule = 1);

/// Loops that this thread starts while one of these exists run on this thread.
class LoopsOnCaller {
 public:
  LoopsOnCaller();
  ~LoopsOnCaller();
  LoopsOnCaller(const LoopsOnCaller&) = delete;

 private:
  const bool before_;
};

/// True inside the body of a loop that was split: further loops will run on their caller.
bool in_parallel_region();

}  // namespace fermata
