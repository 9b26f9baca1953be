// Autocast: mixed precision within a scope, chosen per op.
//
// Inside an enabled AutocastGuard, every call on this thread goes through the Autocast key. Its kernel casts operands
// according to the op's policy and redispatches. docs/autocast.md lists the policies and what is cached.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/key_set.h"
#include "ir/op.h"
#include "runtime/tensor.h"

namespace fermata {

/// What autocast does to the floating operands of an op. f64, integer and bool operands are never cast.
enum class AutocastPolicy : std::uint8_t {
  untouched,  // computed in the dtype of the operands
  lower,      // f32 operands are cast to the narrow dtype of the region
  f32,        // f16 and bf16 operands are cast to f32
  widest,     // mixed operands are cast to the widest of them, as by ordinary promotion
};
AutocastPolicy autocast_policy(Op op);

/// Whether this thread is inside an enabled autocast region.
inline bool autocast_enabled() {
  return thread_keys.included.has(Functionality::autocast) && !thread_keys.excluded.has(Functionality::autocast);
}
/// The narrow dtype of the innermost region, which `lower` casts to on this device.
DType autocast_dtype(Device device = {});

/// Enables mixed precision for a scope; `enabled = false` disables it within an enclosing region. Guards nest and
/// restore on exceptions. Casts of leaves that require a gradient are cached until the outermost region ends.
///
/// DType    f16 or bf16; by default bf16 on the CPU and f16 on CUDA. f16 overflows above 65504, so f16 gradients need
///          scaling.
/// Errors   DTypeError FM1140 for another dtype.
class AutocastGuard {
 public:
  explicit AutocastGuard(std::optional<DType> dtype = {}, bool enabled = true, Location where = Location::current());
  explicit AutocastGuard(bool enabled, Location where = Location::current()) : AutocastGuard({}, enabled, where) {}
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  std::optional<DType> saved_dtype_;
  KeyGuard keys_;
};

/// Casts x to another floating dtype, differentiably. f64, integer and bool tensors are returned unchanged. Inside a
/// region the cast of a leaf that requires a gradient is made once per version of the leaf. Autocast kernels call this;
/// kernels of custom operators may too.
///
/// Shapes   [..S] -> [..S]
Tensor cached_cast(const Tensor& x, DType dtype, Location where = Location::current());

/// Counts of the casts that this thread's regions made.
struct AutocastCounts {
  std::uint64_t casts = 0;   // casts made
  std::uint64_t reused = 0;  // casts of leaves found in the cache
  std::uint64_t kept = 0;    // casts of leaves in the cache now
};
AutocastCounts autocast_counts();
/// Drops the cached casts, as the end of the outermost region does.
void clear_autocast_cache();

}  // namespace fermata
