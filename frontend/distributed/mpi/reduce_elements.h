// Elementwise reduction of the operands of several ranks.
#pragma once

#include <cstdint>
#include <span>

#include "ir/collective.h"
#include "ir/dtype.h"

namespace fermata::distributed {

/// to[i] = sources[0][i] op sources[1][i] op ..., in this order, so that all ranks get the same bits. At least one
/// source; `to` overlaps none of them. A mean is the sum, divided by the number of sources. Dtypes and reductions are
/// those of a CollectiveCall.
void reduce_elements(DType dtype, CollectiveReduction how, std::span<const void* const> sources, void* to,
                     std::int64_t count);

}  // namespace fermata::distributed
