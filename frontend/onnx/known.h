// Values that follow from the file and from sizes of inputs alone: shapes, axes, scalars. They are computed at once,
// eagerly and on the CPU, wherever a model runs, so that functions of operators can read them.
#pragma once

#include <cstdint>

#include "ir/key_set.h"
#include "runtime/tensor.h"

namespace fermata::onnx {

/// Larger tensors are recorded like any others.
inline constexpr std::int64_t kMostKnownElements = 1024;

/// Calls in its scope run at once, whatever the mode and the transforms around it.
class AtOnce {
 public:
  AtOnce()
      : guard_({}, DispatchKeySet(Functionality::capture) | Functionality::tracer | Functionality::autocast |
                       Functionality::user1 | Functionality::user2) {}

 private:
  KeyGuard guard_;
};

inline bool can_be_known(const Tensor& x) {
  return x.defined() && x.element_count() <= kMostKnownElements && !x.pending() && x.device() == Device();
}

/// Thrown by operators whose result is much larger than their operands: they are to be recorded after all.
struct TooLargeToKnow {};

}  // namespace fermata::onnx
