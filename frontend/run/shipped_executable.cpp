// See shipped_executable.h.
#include "frontend/run/shipped_executable.h"

#include <algorithm>
#include <utility>

#include "runtime/streaming.h"

namespace fermata {

ShippedExecutable::ShippedExecutable(std::string_view object, Kernel kernel, std::vector<Variant> variants)
    : LoadedExecutable(object), kernel_(std::move(kernel)) {
  for (const Variant& v : variants) variants_.push_back({v.streamed, v.object});
}

const Executable& ShippedExecutable::variant_for(const KernelLaunch& launch, bool may_stream) const {
  if (!may_stream || variants_.empty()) return *this;
  std::int64_t points = 1;
  for (unsigned axis = 0; axis < kernel_.rank; ++axis) points *= launch.sizes[axis];
  constexpr std::int64_t kLargestElement = 8;
  if (points * kLargestElement < stream_threshold()) return *this;
  const StreamedStores streamed = stores_to_stream(kernel_, launch) & streamable();
  if (streamed == 0) return *this;
  const std::lock_guard lock(mutex_);
  const auto at = std::ranges::find(variants_, streamed, &Loaded::streamed);
  if (at == variants_.end()) return *this;
  if (at->executable == nullptr) {
    try {
      at->executable = std::make_unique<const LoadedExecutable>(at->object);
    } catch (const std::exception&) {  // it would only have been faster
      variants_.erase(at);
      return *this;
    }
  }
  return *at->executable;
}

}  // namespace fermata
