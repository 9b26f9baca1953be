// What a backend can do, as far as passes and plans want to know. A backend that says nothing is a device: it spreads a
// launch over processors of its own, and may go on with it after the call that started it.
#pragma once

#include <cstdint>

namespace fermata {

struct BackendCapabilities {
  /// A launch runs on the thread that calls it and has ended when it returns, in memory of the host: the runtime cuts
  /// launches into ranges for its threads, and runs what belongs together part by part, in memory of the thread.
  bool launches_on_caller = false;
  /// Kernels go through rows in vectors, and compute what lies behind the end of a row for nothing.
  bool rows_in_vectors = false;
  /// Kernels that are used much go through vectors of rows where rows have at most so many elements, and there are at
  /// least so many rows along one axis; 0: none do.
  std::int64_t turned_rows = 0, fewest_turned_rows = 0;
  /// Results may lie where operands lay (docs/adr/016).
  bool overwrites_operands = false;
  /// Kernels are compiled by the thread that asks, so several may be compiled side by side.
  bool compiles_on_caller = false;
  /// Kernels of convolutions read and write images whose channels lie innermost, and do so best.
  bool channels_last = false;
};

}  // namespace fermata
