// See dump.h.
#include "dispatch/dump.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <mutex>

#include "dispatch/backend.h"
#include "ir/error.h"
#include "ir/fork.h"
#include "runtime/environment.h"

namespace fermata {
namespace {

ForkSafeMutex& mutex() {
  static auto* const of_kinds = new ForkSafeMutex;
  return *of_kinds;
}
std::string& kinds() {
  static auto* text = new std::string([] {
    const char* value = environment_variable("FERMATA_DUMP");
    return value == nullptr ? "" : value;
  }());
  return *text;
}

}  // namespace

bool is_dump_enabled(std::string_view kind) {
  std::lock_guard lock(mutex());
  std::string_view rest = kinds();
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    if (rest.substr(0, comma) == kind) return true;
    rest = comma == std::string_view::npos ? std::string_view() : rest.substr(comma + 1);
  }
  return false;
}

void set_dump(std::string_view text) {
  std::lock_guard lock(mutex());
  kinds() = text;
}

void dump(std::string_view kind, std::string_view title, std::string_view text) {
  if (is_dump_enabled(kind)) fmt::print(stderr, "--- fermata {}: {}\n{}\n", kind, title, text);
}

void dump_kernel(std::string_view title, const Kernel& kernel, BackendKey of) {
  if (is_dump_enabled("kernels")) dump("kernels", title, to_string(kernel));
  struct Kind {
    std::string_view name;
    std::string KernelListing::*text;
  };
  constexpr Kind kKinds[] = {{"llvm", &KernelListing::llvm},
                             {"asm", &KernelListing::assembly},
                             {"cuda", &KernelListing::source},
                             {"ptx", &KernelListing::ptx},
                             {"sass", &KernelListing::sass}};
  const auto wanted = std::ranges::find_if(kKinds, [](const Kind& kind) { return is_dump_enabled(kind.name); });
  if (wanted == std::end(kKinds)) return;
  KernelListing listing;
  try {
    backend(of)->compile(kernel, &listing);
  } catch (const Error& error) { return dump(wanted->name, title, error.what()); }
  for (const Kind& kind : kKinds)
    if (is_dump_enabled(kind.name) && !(listing.*kind.text).empty()) dump(kind.name, title, listing.*kind.text);
}

}  // namespace fermata
