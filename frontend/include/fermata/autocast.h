// Autocast: mixed precision for a scope, chosen op by op.
//
// Inside an enabled AutocastGuard every call of this thread goes through the Autocast key, which casts operands as the
// op's policy says and passes the call on. docs/autocast.md lists the policies and what is cached.
#pragma once

#include <cstdint>
#include <optional>

#include "ir/key_set.h"
#include "ir/op.h"
#include "runtime/tensor.h"

namespace fermata {

/// What autocast does to the floating operands of an op. f64 operands, integers and bool are left alone whatever the
/// op.
enum class AutocastPolicy : std::uint8_t {
  untouched,  // computed in whatever dtype arrives
  lower,      // f32 operands are cast to the narrow dtype of the region
  f32,        // f16 and bf16 operands are cast to f32
  widest,     // mixed operands are cast to the widest of them, which is what promotion does without autocast
};
AutocastPolicy autocast_policy(Op op);

/// Does this thread run in an enabled region?
inline bool autocast_enabled() {
  return thread_keys.included.has(Functionality::autocast) && !thread_keys.excluded.has(Functionality::autocast);
}
/// The narrow dtype of the innermost region: what `lower` means on a device.
DType autocast_dtype(Device device = {});

/// A region of mixed precision; `enabled = false` is a region without, for the inside of another one. Guards nest and
/// restore on exceptions. Casts of leaves that want a gradient are kept until the outermost region ends.
///
/// DType    f16 or bf16; by default bf16 on the CPU and f16 on CUDA. f16 overflows above 65504, so gradients in it
///          need scaling.
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

/// x in another floating dtype, differentiably. f64, integers and bool come back as they are. Inside a region the cast
/// of a leaf that wants a gradient is made once per version of the leaf. What the kernels of the key call; kernels of
/// operators from outside may too.
///
/// Shapes   [..S] -> [..S]
Tensor cached_cast(const Tensor& x, DType dtype, Location where = Location::current());

/// What this thread's regions have done.
struct AutocastCounts {
  std::uint64_t casts = 0;   // casts made
  std::uint64_t reused = 0;  // casts of leaves that were there already
  std::uint64_t kept = 0;    // casts of leaves kept now
};
AutocastCounts autocast_counts();
/// Forgets the casts that are kept, as the end of the outermost region does.
void clear_autocast_cache();

}  // namespace fermata
