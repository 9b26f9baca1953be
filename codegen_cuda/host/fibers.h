// A thread block as fibers: one stack per thread; fibers run in turn and yield at barriers and exchanges.
#pragma once

#include <cstdint>

namespace fermata::gpu {

struct HostContext;

/// The order in which threads run.
enum class Turns : std::uint8_t { forward, reversed };

/// Runs `entry(parameters)` once per thread of the block described by the context. Returns false on deadlock: a barrier
/// that not all threads reach, or a warp with exited lanes.
bool run_block(HostContext& context, void (*entry)(void**), void** parameters, Turns turns);

// Implement HostContext::barrier and ::exchange.
void fiber_barrier();
const std::uint64_t* fiber_exchange(std::uint64_t value);

}  // namespace fermata::gpu
