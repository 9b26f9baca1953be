// See run_on_host.h.
#include "frontend/ops/run_on_host.h"

#include <optional>

#include "fermata/device.h"
#include "runtime/stats.h"

namespace fermata {

BoxedKernel run_on_host() {
  return [](const Call& call, Stack& stack) {
    count_sync("CPU fallback for a device without a kernel");
    std::optional<Device> home;
    const auto move_all = [&](auto&& to_where) {
      for (Value& value : stack)
        value.for_each_tensor([&](Tensor& t) {
          if (t.defined()) t = to(t, to_where(t), call.where).sync(call.where);
        });
    };
    move_all([&](const Tensor& t) {
      const Device place = device(t, call.where);
      if (place != cpu()) home = place;
      return cpu();
    });
    call_boxed(call.entry, stack, call.where);
    if (home) move_all([&](const Tensor&) { return *home; });
  };
}

}  // namespace fermata
