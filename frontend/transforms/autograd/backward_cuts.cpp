// See backward_cuts.h.
#include "frontend/transforms/autograd/backward_cuts.h"

#include <algorithm>
#include <bit>

#include "frontend/engine/capture_scope.h"
#include "frontend/engine/pending_bound.h"

namespace fermata {
namespace {

/// Nodes of the tape between two cuts, about: each gives two or three nodes to compute.
constexpr std::size_t kBetween = 64;
/// Backward passes are two to three times as deep as their tapes, and the values that they read come on top.
constexpr std::uint64_t kPartOfBound = 4;

}  // namespace

BackwardCuts::BackwardCuts(std::uint64_t depth)
    : active_(depth >= bound_on_pending() / kPartOfBound && !in_capture_scope()), before_(backward_pass_cuts) {
  if (active_) backward_pass_cuts = true;
}
BackwardCuts::~BackwardCuts() { backward_pass_cuts = before_; }

bool BackwardCuts::is_due(const GradNode& visited) {
  if (!active_) return false;
  const std::uint64_t site = call_site(visited.op, visited.where);
  if (site == site_ && ++seen_ < turns_) return false;
  if (site != site_ && !find_site(site)) return false;
  seen_ = 0;
  visited_.clear();
  return true;
}

/// Once enough has been visited, the first site that was there before shows what a turn is. A site that does not come
/// any more belonged to a loop that is over.
bool BackwardCuts::find_site(std::uint64_t site) {
  visited_.push_back(site);
  if (visited_.size() <= (site_ == 0 ? kBetween : 4 * kBetween)) return false;
  const auto last = std::find(visited_.rbegin() + 1, visited_.rend(), site);
  if (last == visited_.rend()) return false;
  const auto turn = static_cast<std::size_t>(last - visited_.rbegin());
  site_ = site, turns_ = static_cast<std::uint32_t>(std::bit_ceil((kBetween + turn - 1) / turn));
  return true;
}

}  // namespace fermata
