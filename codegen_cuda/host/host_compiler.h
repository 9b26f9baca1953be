// Kernels of the host executor: sources that wait, and functions of those that have been compiled.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fermata::gpu {

struct HostModule {
  std::string source;
  bool has_turns = false;   // barriers, exchanges or shared memory: it needs fibers
  void* library = nullptr;  // null until it is compiled
  std::string failure_reason;
};

struct HostFunction {
  std::shared_ptr<HostModule> module;
  std::string name;
  void (*entry)(void**) = nullptr;  // null until it is looked up
  std::size_t parameter_bytes = 0;  // as its source says
  void** context = nullptr;         // where the library keeps the running kernel's context
  unsigned runs = 0;
};

/// Adds to what waits.
std::shared_ptr<HostModule> add_host_module(std::string source);
/// Compiles everything that waits. False where one of the sources is wrong; its module says why.
bool compile_host_modules();
/// What its source says: FM_KERNEL(name, slots of 8 bytes, ...).
std::size_t parameter_bytes(const HostFunction& function);
/// The function, compiled; false where it could not be or is not there.
bool look_up(HostFunction& function);

struct CompileCounts {
  std::uint64_t kernels = 0, runs = 0;
};
CompileCounts host_compile_counts();

}  // namespace fermata::gpu
