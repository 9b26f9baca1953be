// See fermata/modes.h. The mode of a thread is whether its keys include Capture.
#include "fermata/modes.h"

#include <array>
#include <cstdlib>
#include <string_view>

#include "dispatch/kernel_table.h"
#include "frontend/startup.h"

namespace fermata {
namespace {

/// Threads begin with Capture among their keys, in a thread-local image that the compiler has laid down. So where the
/// environment asks for eager mode, the Capture cells hold kernels that turn a thread that has not chosen a mode to
/// eager mode at its first call. Nothing else pays for that.
constinit thread_local bool mode_chosen = false;
std::array<std::array<ErasedKernel, 8>, kOpCount> capture_kernels;

template <class Signature> struct FirstCall;
template <class... A> struct FirstCall<Tensor(A...)> {
  static Tensor run(const Call& call, A... args) {
    if (!mode_chosen) {
      set_mode(Mode::eager);
      return Dispatcher<Tensor(A...)>::redispatch(call, Functionality::capture, args...);
    }
    const auto kernel = capture_kernels[static_cast<std::size_t>(call.entry.op)][call.keys.cell() % 8];
    return reinterpret_cast<typename Dispatcher<Tensor(A...)>::Kernel>(kernel)(call, args...);
  }
};

ErasedKernel first_call(Op op) {
  switch (family(op)) {
    case Family::unary: return reinterpret_cast<ErasedKernel>(&FirstCall<UnaryCall>::run);
    case Family::binary: return reinterpret_cast<ErasedKernel>(&FirstCall<BinaryCall>::run);
    case Family::ternary: return reinterpret_cast<ErasedKernel>(&FirstCall<TernaryCall>::run);
    default: return reinterpret_cast<ErasedKernel>(&FirstCall<GeneralCall>::run);
  }
}

bool eager_by_default = false;

}  // namespace

Mode mode() {
  if (eager_by_default && !mode_chosen) return Mode::eager;
  return thread_keys.included.has(Functionality::capture) ? Mode::compiled : Mode::eager;
}

void set_mode(Mode mode) {
  mode_chosen = true;
  const DispatchKeySet others = thread_keys.included - DispatchKeySet(Functionality::capture);
  thread_keys.included = mode == Mode::compiled ? others | Functionality::capture : others;
}

void apply_mode_of_environment() {
  const char* wanted = std::getenv("FERMATA_MODE");
  if (wanted == nullptr || std::string_view(wanted) != "eager") return;
  eager_by_default = true;
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    if (family(op) == Family::composite) continue;
    for (std::size_t column = 0; column < 8; ++column)
      capture_kernels[i][column] =
          operator_entry(op).cells[cell_of(Functionality::capture) + column].exchange(first_call(op));
  }
}

}  // namespace fermata
