// The entry point that clang's libFuzzer calls. FERMATA_FUZZ_TARGET names the target (scripts/fuzz.sh sets it).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string_view>

#include "tests/fuzz/targets/target.h"

namespace {

const fermata::testing::FuzzTarget& chosen_target() {
  const char* const wanted = std::getenv("FERMATA_FUZZ_TARGET");
  const auto& targets = fermata::testing::fuzz_targets();
  const auto found = std::ranges::find(targets, std::string_view(wanted != nullptr ? wanted : ""),
                                       &fermata::testing::FuzzTarget::name);
  if (found != targets.end()) return *found;
  std::fprintf(stderr, "FERMATA_FUZZ_TARGET names one of\n");
  for (const auto& target : targets) std::fprintf(stderr, "  %s\n", std::string(target.name).c_str());
  std::exit(2);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fermata::testing::FuzzTarget& target = chosen_target();
  fermata::testing::run_target(target, {reinterpret_cast<const char*>(data), size});
  return 0;
}
