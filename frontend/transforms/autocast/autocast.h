// What the rest of the frontend asks of autocast. The public half is fermata/autocast.h.
#pragma once

#include <cstdint>

#include "fermata/autocast.h"

namespace fermata {

/// Fills the Autocast cells: ops whose policy casts get a kernel, the others fall through.
void register_autocast_kernels();

/// x as the policy of `op` wants it in this region; x itself outside of one. For calls that choose another op by the
/// value of an argument before they are dispatched.
Tensor autocast_operand(Op op, const Tensor& x, Location where);

/// A number that differs where the same calls would be cast differently: part of the key of a captured function.
std::uint64_t autocast_signature();

/// The narrow dtype that regions of this thread have set, as a number; 0 where none has. What a recorded call keeps of
/// it.
std::uint64_t autocast_region();
/// Another one for a scope, which is a region of its own for the casts that are kept; gives the one before.
std::uint64_t enter_autocast_region(std::uint64_t region);
void leave_autocast_region(std::uint64_t before);

/// Casts made while a function is captured belong to that recording, and those from before are none of it.
class FreshAutocastCache {
 public:
  FreshAutocastCache() { clear_autocast_cache(); }
  ~FreshAutocastCache() { clear_autocast_cache(); }
  FreshAutocastCache(const FreshAutocastCache&) = delete;
  FreshAutocastCache& operator=(const FreshAutocastCache&) = delete;
};

}  // namespace fermata
