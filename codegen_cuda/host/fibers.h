// A thread block as fibers: one stack for each thread, which run in turns and give way at barriers and exchanges.
#pragma once

#include <cstdint>

namespace fermata::gpu {

struct HostContext;

/// How threads take turns.
enum class Turns : std::uint8_t { forward, reversed };

/// Runs `entry(parameters)` once for each thread of the block that the context describes. False where the threads wait
/// for each other in vain: at barriers that not all of them reach, or in warps of which some lanes have left.
bool run_block(HostContext& context, void (*entry)(void**), void** parameters, Turns turns);

// What HostContext::barrier and ::exchange do.
void fiber_barrier();
const std::uint64_t* fiber_exchange(std::uint64_t value);

}  // namespace fermata::gpu
