// Every kernel that a test has generated, compiled by NVRTC for the architectures that are promised: needs no driver.
#pragma once

#include <string>

namespace fermata::test {

/// Keeps the sources of kernels while it lives, and then expects that NVRTC compiles those that are new, many in one
/// program, for sm_80 and sm_90. Where there is no NVRTC it says so on standard output.
class CompiledSources {
 public:
  CompiledSources();
  ~CompiledSources();
  CompiledSources(const CompiledSources&) = delete;
  CompiledSources& operator=(const CompiledSources&) = delete;
};

}  // namespace fermata::test
