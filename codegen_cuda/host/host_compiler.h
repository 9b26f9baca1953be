// Kernels of the host executor: sources waiting for compilation, and compiled functions.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace fermata::gpu {

struct HostModule {
  std::string source;
  bool has_turns = false;   // uses barriers, exchanges or shared memory, so it needs fibers
  void* library = nullptr;  // null until it is compiled
  std::string failure_reason;
};

struct HostFunction {
  std::shared_ptr<HostModule> module;
  std::string name;
  void (*entry)(void**) = nullptr;  // null until it is looked up
  std::size_t parameter_bytes = 0;  // as declared in its source
  void** context = nullptr;         // the library's pointer to the running kernel's context
  unsigned runs = 0;
};

/// Adds a source to be compiled.
std::shared_ptr<HostModule> add_host_module(std::string source);
/// Compiles all waiting sources. Returns false if one fails; its module has the reason.
bool compile_host_modules();
/// Parameter bytes as declared in the source: FM_KERNEL(name, slots of 8 bytes, ...).
std::size_t parameter_bytes(const HostFunction& function);
/// Looks up a compiled function; returns false if compilation failed or it does not exist.
bool look_up(HostFunction& function);

struct CompileCounts {
  std::uint64_t kernels = 0, runs = 0;
};
CompileCounts host_compile_counts();

}  // namespace fermata::gpu
