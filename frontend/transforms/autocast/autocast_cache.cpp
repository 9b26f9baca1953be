// The state of autocast regions: the narrow dtype, and the casts of leaves that are kept.
//
// A kept cast is good only for the value and the history that it was made from, so an entry remembers both: the version
// of the leaf, its edge on the tape, and whether gradients were being recorded.
#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "fermata/autograd.h"
#include "fermata/ops.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autocast/autocast.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "ir/error.h"
#include "ir/per_thread.h"

namespace fermata {
namespace {

struct KeptCast {
  Tensor leaf;  // held, so that its address stays its own
  std::uint64_t version;
  GradEdge edge;
  bool recorded;
  Tensor cast;
};

struct CacheKey {
  const TensorImpl* leaf;
  DType dtype;
  bool operator==(const CacheKey&) const = default;
};
struct CacheKeyHash {
  std::size_t operator()(const CacheKey& k) const {
    return std::hash<const void*>()(k.leaf) ^ static_cast<std::size_t>(k.dtype) << 1;
  }
};

struct Regions {
  unsigned depth = 0;
  std::optional<DType> dtype;
  AutocastCounts counts;
  std::unordered_map<CacheKey, KeptCast, CacheKeyHash> kept;
};
Regions& regions() {
  static constinit thread_local PerThread<Regions> mine;
  return mine.get();
}

Tensor fresh_cast(const Tensor& x, DType dtype, Location where) {
  ++regions().counts.casts;
  return astype(x, dtype, where);
}

/// A leaf that wants a gradient, and whose elements nobody can change behind its version. A view of one is not: its
/// cast must hang on the view's own edge, which may be what a gradient is asked for.
bool is_kept(const Tensor& x) {
  const TensorImpl* impl = x.impl();
  if (impl->view != nullptr || impl->slot == nullptr || impl->pinned != nullptr) return false;
  return grad_state(impl)->leaf != nullptr;
}

Tensor cast_of_leaf(const Tensor& leaf, DType dtype, Location where) {
  Regions& r = regions();
  const GradEdge edge = grad_edge(leaf);
  const auto found = r.kept.find({leaf.impl(), dtype});
  if (found != r.kept.end()) {
    const KeptCast& k = found->second;
    if (k.version == leaf.version() && k.edge == edge && (k.recorded || !grad_enabled())) {
      ++r.counts.reused;
      return k.cast;
    }
  }
  Tensor cast = fresh_cast(leaf, dtype, where);
  r.kept.insert_or_assign(CacheKey{leaf.impl(), dtype}, KeptCast{leaf, leaf.version(), edge, grad_enabled(), cast});
  return cast;
}

DType checked(DType dtype, Location where) {
  if (dtype == DType::f16 || dtype == DType::bf16) return dtype;
  throw DTypeError(
      1140, format_error(1140, "DTypeError", fmt::format("autocast: {} is not a narrow floating dtype", name(dtype)),
                         {}, where, "use f16 or bf16"));
}

}  // namespace

DType autocast_dtype(Device device) {
  return regions().dtype.value_or(device.backend() == BackendKey::cuda ? DType::f16 : DType::bf16);
}

AutocastGuard::AutocastGuard(std::optional<DType> dtype, bool enabled, Location where)
    : saved_dtype_(regions().dtype),
      keys_(enabled ? DispatchKeySet(Functionality::autocast) : DispatchKeySet(),
            enabled ? DispatchKeySet() : DispatchKeySet(Functionality::autocast)) {
  if (dtype) regions().dtype = checked(*dtype, where);
  if (enabled) thread_keys.excluded = thread_keys.excluded - Functionality::autocast;
  ++regions().depth;
}

AutocastGuard::~AutocastGuard() {
  regions().dtype = saved_dtype_;
  if (--regions().depth == 0) clear_autocast_cache();
}

Tensor cached_cast(const Tensor& x, DType dtype, Location where) {
  require_defined("cached_cast", x, where);
  const bool casts = is_floating(x.dtype()) && x.dtype() != DType::f64 && x.dtype() != dtype && is_floating(dtype) &&
                     (x.keys() & kCompoundKeys).bits == 0;
  if (!casts) return x;
  if (regions().depth == 0) return fresh_cast(x, dtype, where);
  return is_kept(x) ? cast_of_leaf(x, dtype, where) : fresh_cast(x, dtype, where);
}

AutocastCounts autocast_counts() {
  AutocastCounts counts = regions().counts;
  counts.kept = regions().kept.size();
  return counts;
}

void clear_autocast_cache() {
  // Emptied before what was in it is destroyed: that may be the last handle of anything.
  auto kept = std::exchange(regions().kept, {});
}

std::uint64_t autocast_region() {
  const std::optional<DType> dtype = regions().dtype;
  return dtype ? 1 + static_cast<std::uint64_t>(*dtype) : 0;
}
static void set_region(std::uint64_t region) {
  if (region == 0)
    regions().dtype.reset();
  else
    regions().dtype = static_cast<DType>(region - 1);
}
std::uint64_t enter_autocast_region(std::uint64_t region) {
  const std::uint64_t before = autocast_region();
  set_region(region);
  ++regions().depth;
  return before;
}
void leave_autocast_region(std::uint64_t before) {
  set_region(before);
  if (--regions().depth == 0) clear_autocast_cache();
}

std::uint64_t autocast_signature() {
  if (!autocast_enabled()) return 0;
  const std::optional<DType> dtype = regions().dtype;
  return dtype ? 2 + static_cast<std::uint64_t>(*dtype) : 1;
}

}  // namespace fermata
