// Every kernel that a test has generated, compiled by NVRTC for the architectures that are promised: needs no driver.
#pragma once

#include <string>

namespace fermata::test {

/// Compiles the sources kept since the last call, many in one program, for sm_80 and sm_90. Gives NVRTC's first
/// complaint, or nothing; where there is no NVRTC it says so on standard output and gives nothing.
std::string compile_kept_sources();

}  // namespace fermata::test
