// A plugin that registers operators when it is loaded, and leaves a pending call behind whenever it is asked to
// compute.
#include <fermata/fermata.h>

#include "dispatch/library.h"

namespace {

namespace fm = fermata;

FERMATA_LIBRARY(loading, m) {
  m.pointwise<fm::DTypeRule::numeric>("twice", [](auto x) { return x + x; });
  m.def("add_up", [](const fm::Tensor& x) { return fm::sum(x); });
}

fm::Tensor pending;

}  // namespace

extern "C" int fermata_test_compute() try {
  int result = 0;
  for (const fm::Mode mode : {fm::Mode::eager, fm::Mode::compiled}) {
    const fm::ModeGuard guard(mode);
    if (pending.defined() && pending.item<int>() != 84) return -1;
    const auto twice = fm::OperatorHandle::find("loading::twice").typed<fm::Tensor(const fm::Operand&)>();
    const auto add_up = fm::OperatorHandle::find("loading::add_up").typed<fm::Tensor(const fm::Tensor&)>();
    pending = add_up(twice(fm::ones({21})));
    result = pending.item<int>();
    pending = pending * 2;
  }
  return result;
} catch (const std::exception&) { return -2; }
