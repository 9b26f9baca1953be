// Positions along an axis, as take and index_add read them: any integer dtype, negative ones count from the end, what
// is out of range is reported when the device is next waited for.
#pragma once

#include <string>

#include "codegen_cuda/irregular/call_source.h"

namespace fermata::gpu {

/// Declares i64 `name`: position number `which` of args.inputs[1], checked and wrapped; 0 where it is out of range.
void read_position(CallSource& source, const CallArgs& args, const std::string& name, const std::string& which);

/// Sizes around the indexed axis.
struct GatherSizes {
  unsigned axis;
  std::int64_t outer = 1, size, inner = 1, positions;
};
GatherSizes gather_sizes(const CallArgs& args);

/// Sorts pairs of i64 by key, stably, within lines of `size` each: count keys and the numbers that go with them. The
/// result is in one of the two halves of `buffer` (4 * count i64): keys, then numbers.
std::int64_t* sort_lines(std::int64_t* buffer, std::int64_t count, std::int64_t size);

}  // namespace fermata::gpu
