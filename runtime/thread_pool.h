// The engine's own fork-join pool.
//
// The calling thread always takes part and can finish a loop alone, so a late or sleeping worker only fails to help.
// Workers spin for 100 us after their last chunk, then park. The pool serves one loop at a time: a loop started inside
// another one, or by a second thread while the pool is taken, runs on its caller.
//
// FERMATA_NUM_THREADS sets the number of threads, including the caller; by default it is the number of processors that
// the process may use.
#pragma once

#include <cstdint>

#include "runtime/function_ref.h"

namespace fermata {

/// Work below this many nanoseconds in total is not split: waking a helper would cost more than it saves.
inline constexpr double kSerialNanoseconds = 25'000;

/// The number of threads that a loop may use, including the caller; at least 1.
int thread_count();
/// Takes effect at the next loop; values below 1 count as 1. May be called anywhere, also inside a loop.
void set_thread_count(int threads);

/// Calls `body(b, e)` on disjoint ranges that cover [begin, end), on several threads if the work is large enough:
/// `ns_per_item` is the approximate cost of one item on one core. All boundaries but `end` are a multiple of `granule`
/// from `begin`. Ranges depend on the number of threads, so results must not depend on the split. An exception of
/// `body` reaches the caller after all running ranges have ended; if there are several, that of the lowest range.
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

/// True inside the body of a split loop: nested loops run on their caller.
bool in_parallel_region();

}  // namespace fermata
