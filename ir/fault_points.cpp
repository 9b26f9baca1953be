// See fault_points.h.
#include "ir/fault_points.h"

namespace fermata {

constinit std::atomic<FaultInjector> fault_injector{nullptr};
constinit thread_local int WithoutFaults::depth_ = 0;

}  // namespace fermata
