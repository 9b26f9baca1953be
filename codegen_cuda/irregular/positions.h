// Index operands of take and index_add: any integer dtype; negative ones count from the end; indices out of range are
// reported at the next wait for the device.
#pragma once

#include <string>

#include "codegen_cuda/irregular/call_source.h"

namespace fermata::gpu {

/// Declares i64 `name`: index number `which` of args.inputs[1], checked and wrapped; 0 if it is out of range.
void read_position(CallSource& source, const CallArgs& args, const std::string& name, const std::string& which);

/// Sizes around the indexed axis.
struct GatherSizes {
  unsigned axis;
  std::int64_t outer = 1, size, inner = 1, positions;
};
GatherSizes gather_sizes(const CallArgs& args);

/// Sorts `count` pairs of i64 (key, value) stably by key, within lines of `size` pairs. The result is in one of the two
/// halves of `buffer` (4 * count i64): keys, then values.
std::int64_t* sort_lines(std::int64_t* buffer, std::int64_t count, std::int64_t size);

}  // namespace fermata::gpu
