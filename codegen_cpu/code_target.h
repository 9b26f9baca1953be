// The instruction sets that kernels are compiled for, and which of them this processor runs.
#pragma once

#include <string>
#include <string_view>

namespace fermata {

/// Best first.
inline constexpr std::string_view kCodeTargets[] = {"avx512", "avx2"};

/// Whether this processor (and its operating system) runs code for an instruction set.
bool processor_runs(std::string_view target);
/// The best one that this processor runs, or the one that FERMATA_CPU names; "" with the reason where neither will do.
std::string_view code_target(std::string* failure_reason = nullptr);

}  // namespace fermata
