// Groups, and the world. See fermata/distributed.h.
#include "fermata/distributed.h"
#include "frontend/distributed/processes.h"
#include "frontend/distributed/simulated_world.h"
#include "runtime/effects.h"

namespace fermata::distributed {
namespace {

const RankGroup& start_world() { return start_processes(); }

}  // namespace

const Group& world(Location) {
  if (simulated_world != nullptr) return *simulated_world;
  static const Group group(start_world());
  return group;
}

std::int64_t local_rank(Location where) { return world(where).group_->local_rank; }

Group Group::split(std::int64_t color, std::int64_t key, Location where) const {
  run_effects(where);
  Transport::Part part = group_->transport->split(color, key, where);
  std::int64_t rank = 0;
  for (std::int64_t& r : part.ranks) {
    if (r == group_->rank) rank = &r - part.ranks.data();
    r = group_->ranks[static_cast<std::size_t>(r)];
  }
  return Group(add_group(rank, std::move(part.ranks), std::move(part.transport)));
}

}  // namespace fermata::distributed
