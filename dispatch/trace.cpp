// The dispatch trace: which kernel every call reached, indented by nesting. FERMATA_TRACE_DISPATCH=1 turns it on.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "dispatch/operator.h"
#include "ir/error.h"

namespace fermata {
namespace {

bool wanted_from_start() {
  const char* value = std::getenv("FERMATA_TRACE_DISPATCH");
  return value != nullptr && std::string_view(value) != "0";
}
thread_local int depth = 0;

}  // namespace

std::atomic<bool> trace_dispatch{wanted_from_start()};

void trace_call(const Call& call, bool entering) {
  if (!entering) {
    if (depth > 0) --depth;
    return;
  }
  const std::size_t row = call.keys.cell() / 8, column = call.keys.cell() % 8;
  fmt::print(stderr, "fermata dispatch {:{}}{} [{}{}{}]  {}\n", "", 2 * depth, call.entry.name,
             row == 0 ? "-" : kFunctionalityNames[row - 1], column == 0 ? "" : "/",
             column == 0 ? "" : kBackendNames[column - 1], short_location(call.where));
  ++depth;
}

}  // namespace fermata
