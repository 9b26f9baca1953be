// `fermata ops --coverage`: the functions of the array API standard and of neural nets, as found by running each.
#include <fmt/format.h>

#include <algorithm>
#include <string>

#include "frontend/cli/commands.h"
#include "frontend/coverage/coverage.h"

namespace fermata::cli {
namespace {

using coverage::Finding;
using coverage::Function;
using coverage::name;

/// Runs of dtypes of one kind: "bool u8-u64 i8-i64 f16-f64". Small dtypes are left out: whatever computes widens them.
std::string dtypes_text(DTypeSet set) {
  std::string text;
  for (std::size_t t = 0; t < kDTypeCount; ++t) {
    if (!set.has(static_cast<DType>(t)) || is_small(static_cast<DType>(t))) continue;
    std::size_t last = t;
    while (last + 1 < kDTypeCount && kDTypes[last + 1].kind == kDTypes[t].kind && set.has(static_cast<DType>(last + 1)))
      ++last;
    if (!text.empty()) text += ' ';
    text += last == t ? std::string(kDTypes[t].name) : fmt::format("{}-{}", kDTypes[t].name, kDTypes[last].name);
    t = last;
  }
  return text;
}

void print_function(const Function& f) {
  if (f.call == nullptr) {
    fmt::print("{:<26} absent: {}\n", f.name, f.reason);
    return;
  }
  const Finding found = coverage::examine(f);
  const bool fixed = f.inputs.empty();
  fmt::print("{:<26} {:<46} {:<5} {:<8} {:<7} {:<7} {:<7} {}\n", f.name,
             fixed ? "an argument" : dtypes_text(found.dtypes), found.eager ? "yes" : "NO",
             found.equal      ? "yes"
             : found.compiled ? "DIFFERS"
                              : "NO",
             name(found.vjp), name(found.jvp), name(found.vmap),
             f.numpy.empty() ? "differences, loop" : "NumPy, differences, loop");
  if (!found.trouble.empty()) fmt::print("    {}\n", found.trouble);
}

}  // namespace

void print_coverage() {
  fmt::print(
      "Each row is a call that has just been run. vjp and jvp: compared with finite differences (zero: constant\n"
      "everywhere; -: nothing floating); vmap: with a loop. A line below a row is the error that refused something.\n");
  std::string_view section;
  std::size_t present = 0, all = 0;
  for (const Function& f : coverage::functions()) {
    if (f.section != section) {
      std::string title(f.section);
      std::replace(title.begin(), title.end(), '_', ' ');
      fmt::print("\n{:<26} {:<46} {:<5} {:<8} {:<7} {:<7} {:<7} {}\n", title, "dtypes", "eager", "compiled", "vjp",
                 "jvp", "vmap", "tested against");
      section = f.section;
    }
    print_function(f);
    ++all, present += f.call != nullptr ? 1 : 0;
  }
  fmt::print("\n{} of {} functions.\n", present, all);
}

}  // namespace fermata::cli
