// See device_run.h.
#include "runtime/device_run.h"

#include <array>
#include <atomic>

namespace fermata {

constinit thread_local const RunSite* run_site = nullptr;
constinit thread_local std::uint64_t device_reads = 0;

namespace {
std::array<std::atomic<RunRecorder*>, kBackendCount> recorders{};
}

RunRecorder* run_recorder(BackendKey backend) {
  return recorders[static_cast<std::size_t>(backend)].load(std::memory_order_acquire);
}
void set_run_recorder(BackendKey backend, RunRecorder* recorder) {
  recorders[static_cast<std::size_t>(backend)].store(recorder, std::memory_order_release);
}

}  // namespace fermata
