// See code_target.h.
#include "codegen_cpu/code_target.h"

#include "runtime/environment.h"

namespace fermata {

bool processor_runs(std::string_view target) {
#if defined(__x86_64__)
  if (target == "avx512") return __builtin_cpu_supports("x86-64-v4") != 0;
  if (target == "avx2") return __builtin_cpu_supports("x86-64-v3") != 0;
#endif
  return target.empty();
}

namespace {

constexpr const char* kCpuVariable = "FERMATA_CPU";

std::string_view choose_target(std::string& failure_reason) {
  const char* const forced = environment_variable(kCpuVariable);
  if (forced != nullptr && *forced != '\0' && std::string_view(forced) != "amx") {  // tiles are for products only
    for (const std::string_view target : kCodeTargets) {
      if (target != forced) continue;
      if (processor_runs(target)) return target;
      failure_reason = std::string(kCpuVariable) + "=" + forced + ", but this processor does not support it";
      return {};
    }
    failure_reason = std::string(kCpuVariable) + "=" + forced + ": kernels are compiled for avx2 and avx512";
    return {};
  }
  for (const std::string_view target : kCodeTargets)
    if (processor_runs(target)) return target;
  failure_reason = "this processor lacks AVX2, FMA or F16C";
  return {};
}

}  // namespace

std::string_view code_target(std::string* failure_reason) {
  struct Choice {
    std::string failure_reason;
    std::string_view target = choose_target(failure_reason);
  };
  static const auto& choice = *new Choice;
  if (failure_reason != nullptr) *failure_reason = choice.failure_reason;
  return choice.target;
}

}  // namespace fermata
