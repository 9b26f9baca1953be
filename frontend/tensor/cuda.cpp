// See fermata/cuda.h: names for what the backend offers (DeviceUnits in dispatch/backend.h).
#include "fermata/cuda.h"

#include <fmt/format.h>

#include <utility>

#include "dispatch/backend.h"
#include "ir/error.h"

namespace fermata {
namespace {

/// The devices of the backend, if it is built in and can be used.
DeviceUnits& units(std::string_view function, Location where) {
  Backend* const known = backend(BackendKey::cuda);
  if (known == nullptr)
    throw DeviceError(1403,
                      format_error(1403, "DeviceError", fmt::format("{}: no backend for CUDA", function), {}, where));
  known->require(function, where);
  return *known->units();
}

}  // namespace

namespace {
thread_local int chosen = 0;  // the libraries need not be there to name a device
}  // namespace

Device cuda() { return cuda(chosen); }

bool cuda_available() { return cuda_device_count() > 0; }

int cuda_device_count() {
  Backend* const known = backend(BackendKey::cuda);
  return known == nullptr ? 0 : known->units()->count();
}

std::string cuda_device_name(int number, Location where) {
  DeviceUnits& all = units("cuda_device_name", where);
  if (number < 0 || number >= all.count())
    throw DeviceError(
        1406,
        format_error(1406, "DeviceError",
                     fmt::format("cuda_device_name: no device {}; there are {}", number, all.count()), {}, where));
  return all.describe(number);
}

CudaDeviceGuard::CudaDeviceGuard(int number, Location where)
    : before_(units("CudaDeviceGuard", where).current()),
      queue_before_(units("CudaDeviceGuard", where).current_queue()) {
  DeviceUnits& all = units("CudaDeviceGuard", where);
  if (number < 0 || number >= all.count())
    throw DeviceError(
        1406, format_error(1406, "DeviceError",
                           fmt::format("CudaDeviceGuard: no device {}; there are {}", number, all.count()), {}, where));
  all.choose(number);
  chosen = number;
}
CudaDeviceGuard::~CudaDeviceGuard() {
  DeviceUnits& all = *backend(BackendKey::cuda)->units();
  all.choose(before_);  // and its shared queue
  all.choose_queue(queue_before_);
  chosen = before_;
}

CudaStream::CudaStream(Location where) : queue_(units("CudaStream", where).new_queue()) {}
CudaStream::CudaStream(CudaStream&& other) noexcept : queue_(std::exchange(other.queue_, nullptr)) {}
CudaStream& CudaStream::operator=(CudaStream&& other) noexcept {
  std::swap(queue_, other.queue_);
  return *this;
}
CudaStream::~CudaStream() {
  if (queue_ != nullptr) backend(BackendKey::cuda)->units()->end_queue(queue_);
}
void CudaStream::synchronize() const { backend(BackendKey::cuda)->units()->wait_for_queue(queue_); }

CudaStreamGuard::CudaStreamGuard(const CudaStream& stream)
    : before_(backend(BackendKey::cuda)->units()->current_queue()) {
  backend(BackendKey::cuda)->units()->choose_queue(stream.queue_);
}
CudaStreamGuard::~CudaStreamGuard() { backend(BackendKey::cuda)->units()->choose_queue(before_); }

void cuda_synchronize(Location where) {
  DeviceUnits& all = units("cuda_synchronize", where);
  all.wait_for_queue(all.current_queue());
}

CudaMemory cuda_memory(Location where) {
  const DeviceUnits::Memory m = units("cuda_memory", where).memory();
  return {m.live, m.cached, m.limit};
}
std::size_t set_cuda_memory_limit(std::size_t bytes, Location where) {
  DeviceUnits& all = units("set_cuda_memory_limit", where);
  const std::size_t before = all.memory().limit;
  all.memory(bytes);
  return before;
}
std::size_t trim_cuda_cache(Location where) { return units("trim_cuda_cache", where).trim(); }

bool set_cuda_tf32(bool on, Location where) { return units("set_cuda_tf32", where).fast_products(on); }

}  // namespace fermata
