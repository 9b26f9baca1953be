// See processor_model.h.
#include "runtime/processor_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "runtime/environment.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace fermata {

std::string processor_model() {
  const char* const wanted = environment_variable("FERMATA_CPU");
  std::string text = wanted == nullptr || *wanted == '\0' ? "best" : wanted;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) != 0) text += fmt::format(" {:x}", a);
  // Virtual machines hide features: the same name may have tiles or not.
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) != 0) text += fmt::format(" {:x} {:x} {:x}", b, c, d);
  for (unsigned leaf = 0x80000002; leaf <= 0x80000004; ++leaf)  // the name
    if (__get_cpuid(leaf, &a, &b, &c, &d) != 0)
      for (const unsigned word : {a, b, c, d}) text += fmt::format(" {:x}", word);
#endif
  return text;
}

bool permits_instructions(std::string_view set) {
  constexpr std::string_view kSets[] = {"baseline", "avx2", "avx512", "amx"};  // each has those before it
  const char* const wanted = environment_variable("FERMATA_CPU");
  if (wanted == nullptr || *wanted == '\0') return true;
  const auto* const last = std::ranges::find(kSets, std::string_view(wanted));
  return std::find(kSets, last, set) != last || set == wanted;
}

}  // namespace fermata
