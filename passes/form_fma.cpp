// See form_fma.h.
#include "passes/form_fma.h"

#include <atomic>
#include <string_view>

#include "runtime/environment.h"

namespace fermata {
namespace {

std::atomic<bool> enabled{[] {
  const char* value = environment_variable("FERMATA_FMA");
  return value != nullptr && std::string_view(value) == "1";
}()};

}  // namespace

bool set_form_fma(bool on) { return enabled.exchange(on); }
bool form_fma(Kernel& kernel) { return enabled.load(std::memory_order_relaxed) && form_fma_always(kernel); }

bool form_fma_always(Kernel& kernel) {
  const ScalarProgram& from = kernel.program;
  std::vector<unsigned> uses(from.size(), 0);
  const auto use = [&](ValueId v) {
    if (v != kNoValue) ++uses[v];
  };
  for (const Instr& i : from.instrs()) use(i.a), use(i.b), use(i.c);
  for (const Store& s : kernel.stores) use(s.value);
  for (const Reduction& r : kernel.reductions)
    for (const ValueId v : r.lifted) use(v);
  ScalarProgram to;
  std::vector<ValueId> moved(from.size(), kNoValue);
  const auto at = [&](ValueId v) { return v == kNoValue ? kNoValue : moved[v]; };
  const auto product = [&](ValueId v) { return from[v].prim == Prim::mul && uses[v] == 1; };
  bool changed = false;
  for (ValueId v = 0; v < from.size(); ++v) {
    Instr i = from[v];
    if (i.prim == Prim::add && is_floating(i.type) && (product(i.a) || product(i.b))) {
      const ValueId mul = product(i.a) ? i.a : i.b, other = mul == i.a ? i.b : i.a;
      moved[v] =
          to.add({.prim = Prim::fma, .type = i.type, .a = at(from[mul].a), .b = at(from[mul].b), .c = at(other)});
      changed = true;
      continue;
    }
    i.a = at(i.a), i.b = at(i.b), i.c = at(i.c);
    moved[v] = to.add(i);
  }
  if (!changed) return false;
  for (Store& s : kernel.stores) s.value = moved[s.value];
  for (Reduction& r : kernel.reductions)
    for (ValueId& v : r.lifted) v = moved[v];
  kernel.program = std::move(to);  // products without a use are left out by schedule()
  return true;
}

}  // namespace fermata
