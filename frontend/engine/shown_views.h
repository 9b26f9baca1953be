// Views that are not computed by a sync, because they show the buffer of another value (runtime/walk.h).
#pragma once

#include <vector>

#include "runtime/walk.h"

namespace fermata {

enum class ViewsOf : std::uint8_t { leaves, outputs };

/// Gives those that show leaves, or outputs once these have been published, the buffers that they show. What has one
/// now is added to `published`.
void show_views(const Walk& walk, ViewsOf which, std::vector<Node*>& published);

}  // namespace fermata
