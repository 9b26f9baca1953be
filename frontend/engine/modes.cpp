// See fermata/modes.h. The mode of a thread is whether its keys include Capture.
#include "fermata/modes.h"

#include <string_view>

#include "frontend/engine/startup.h"
#include "ir/error.h"
#include "ir/key_set.h"
#include "runtime/effects.h"
#include "runtime/environment.h"

namespace fermata {

constinit thread_local bool mode_chosen = false;

bool eager_by_default() {
  static const bool eager = [] {
    const char* wanted = environment_variable("FERMATA_MODE");
    return wanted != nullptr && std::string_view(wanted) == "eager";
  }();
  return eager;
}

Mode mode() {
  if (!mode_chosen && eager_by_default()) return Mode::eager;
  return thread_keys.included.has(Functionality::capture) ? Mode::compiled : Mode::eager;
}

void set_mode(Mode mode) {
  // Effects keep their order where the mode changes. One that fails stays pending, for the next sync to tell.
  if (mode == Mode::eager && last_effect != nullptr) try {
      run_effects({});
    } catch (const Error&) {}
  mode_chosen = true;
  const DispatchKeySet others = thread_keys.included - DispatchKeySet(Functionality::capture);
  thread_keys.included = mode == Mode::compiled ? others | Functionality::capture : others;
}

}  // namespace fermata
