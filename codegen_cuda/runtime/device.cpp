// See device.h.
#include "codegen_cuda/runtime/device.h"

#include <fmt/format.h>

#include <atomic>
#include <utility>

#include "codegen_cuda/host/executor.h"
#include "codegen_cuda/runtime/deferred_check.h"
#include "codegen_cuda/runtime/dry_run.h"
#include "codegen_cuda/runtime/kernels.h"
#include "ir/error.h"
#include "runtime/device_run.h"
#include "runtime/environment.h"

namespace fermata::gpu {
namespace {

struct Devices {
  std::vector<std::unique_ptr<Device>> all;
  std::mutex mutex;
  int count = 0;
  std::string failure_reason;

  Devices() {
    const DriverFunctions* const functions = driver_library(&failure_reason);
    if (functions == nullptr) {
      failure_reason = "there is no CUDA driver: " + failure_reason;
      return;
    }
    if (const Result r = functions->init(0); r != kSuccess) {
      const char* name = "an unknown error";
      functions->error_name(r, &name);
      failure_reason = fmt::format("the CUDA driver reports {}", name);
      return;
    }
    functions->device_count(&count);
    if (count == 0) failure_reason = "the CUDA driver found no device";
    if (count != 0 && !has_image_source() && compiler_library(&failure_reason) == nullptr)
      failure_reason = "compiling kernels requires NVRTC: " + failure_reason;
    if (!failure_reason.empty()) count = 0;
    all.resize(static_cast<std::size_t>(count));
  }
};
Devices& devices() {
  static Devices* const known = new Devices;
  return *known;
}

std::size_t memory_limit(std::size_t otherwise) { return environment_number("FERMATA_CUDA_MEMORY_LIMIT", otherwise); }

/// FERMATA_CUDA_SYNC=1: every launch is waited for, so that an error names the one op it belongs to.
bool waits_for_each() {
  static const bool on = [] {
    const char* const text = environment_variable("FERMATA_CUDA_SYNC");
    return text != nullptr && std::string_view(text) != "0" && *text != '\0';
  }();
  return on;
}

constinit thread_local ThreadChoice choice;
std::atomic<bool> many_streams{false};

Stream* make_stream(int device) {
  auto* const stream = new Stream;
  stream->device = device;
  check(driver().stream_create(&stream->handle, kStreamNonBlocking), "cuStreamCreate");
  return stream;
}

[[noreturn]] void throw_failed(Result result, const char* call, const std::string& detail,
                               const std::vector<ErrorOperand>& operands, std::source_location where) {
  const char* name = "an unknown error";
  driver().error_name(result, &name);
  throw InternalError(
      9101, format_error(9101, "InternalError",
                         fmt::format("cuda: {} failed with {}{}{}", call, name, detail.empty() ? "" : ": ", detail),
                         operands, where));
}

}  // namespace

bool usable(std::string* failure_reason) {
  if (DryRun::current() != nullptr) return true;
  if (failure_reason != nullptr) *failure_reason = devices().failure_reason;
  return devices().count > 0;
}

void require_usable(std::string_view function, std::source_location where) {
  std::string failure_reason;
  if (usable(&failure_reason)) return;
  throw DeviceError(
      1405, format_error(1405, "DeviceError", fmt::format("{}: CUDA is not available: {}", function, failure_reason),
                         {}, where, "`fermata doctor` shows what was searched for and how to fix it"));
}

int device_count() { return devices().count; }

Device::Device(int number) : number_(number) {
  int handle = 0;
  check(driver().device_get(&handle, number), "cuDeviceGet");
  char name[256] = {};
  check(driver().device_name(name, sizeof name, handle), "cuDeviceGetName");
  info_.name = name;
  const auto attribute = [&](int which) {
    int value = 0;
    check(driver().device_attribute(&value, which, handle), "cuDeviceGetAttribute");
    return value;
  };
  info_.major = attribute(kComputeCapabilityMajor), info_.minor = attribute(kComputeCapabilityMinor);
  info_.multiprocessors = attribute(kMultiprocessorCount);
  info_.shared_bytes = attribute(kMaxSharedMemoryPerBlock);
  info_.shared_bytes_optin = attribute(kMaxSharedMemoryPerBlockOptin);
  check(driver().device_memory(&info_.memory, handle), "cuDeviceTotalMem");
  check(driver().context_retain(&context_, handle), "cuDevicePrimaryCtxRetain");
  check(driver().context_push(context_), "cuCtxPushCurrent");
  struct Pop {
    ~Pop() {
      Handle context = nullptr;
      driver().context_pop(&context);
    }
  } const pop;
  shared_stream_.reset(make_stream(number));
  allocator_ = std::make_unique<Allocator>(*this, memory_limit(info_.memory));
}

Stream* Device::new_stream() {
  many_streams = true;
  return make_stream(number_);
}

Stream* Device::lent_stream(Handle handle) {
  many_streams = true;
  auto* const stream = new Stream;
  stream->handle = handle, stream->device = number_;
  return stream;
}
void Device::return_stream(Stream* stream) {
  driver().stream_synchronize(stream->handle);
  allocator_->forget_stream(*stream, *shared_stream_);
  delete stream;
}

void Device::end_stream(Stream* stream) {
  driver().stream_synchronize(stream->handle);
  allocator_->forget_stream(*stream, *shared_stream_);
  driver().stream_destroy(stream->handle);
  delete stream;
}

Device& device(int number) {
  Devices& d = devices();
  const std::lock_guard lock(d.mutex);
  auto& mine = d.all.at(static_cast<std::size_t>(number));
  if (mine == nullptr) mine = std::make_unique<Device>(number);
  return *mine;
}

Device& current_device() {
  if (choice.device == nullptr) [[unlikely]] {
    require_usable("cuda", run_location());
    choose_device(0);
  }
  return *choice.device;
}

void check_number(int number) {
  if (number < 0 || number >= device_count())
    throw DeviceError(1406, format_error(1406, "DeviceError",
                                         fmt::format("cuda: no device {}: there {} {}", number,
                                                     device_count() == 1 ? "is" : "are", device_count()),
                                         {}, {}));
}

void choose_device(int number) {
  require_usable("cuda", run_location());
  check_number(number);
  Device& chosen = device(number);
  check(driver().context_set(chosen.context()), "cuCtxSetCurrent");
  choice = {&chosen, nullptr, nullptr};
}

Stream& current_stream() {
  Device& here = current_device();
  return choice.stream != nullptr ? *choice.stream : here.shared_stream();
}
void choose_stream(Stream* stream) { choice.stream = stream; }

ThreadChoice thread_choice() { return choice; }
void set_thread_choice(const ThreadChoice& to) { choice = to; }

ContextScope::ContextScope(Device& device, Stream* stream) : before_(choice) {
  check(driver().context_push(device.context()), "cuCtxPushCurrent");
  choice = {&device, stream, nullptr};
}
ContextScope::~ContextScope() {
  Handle context = nullptr;
  driver().context_pop(&context);
  choice = before_;
}

void use_buffer(const void* address) {
  // One device and one stream: everything is in order already.
  if ((!many_streams.load(std::memory_order_relaxed) && device_count() == 1) || address == nullptr || is_recording() ||
      DryRun::current() != nullptr)
    return;
  current_device().allocator().use(reinterpret_cast<Address>(address), current_stream());
}

Handle launch_handle() { return choice.recording != nullptr ? choice.recording : current_stream().handle; }
void set_recording_handle(Handle recording) { choice.recording = recording; }
bool is_recording() { return choice.recording != nullptr; }

std::source_location run_location() { return run_site != nullptr ? run_site->where : std::source_location{}; }

void note_started(std::string_view function) {
  Stream& stream = current_stream();
  {
    const std::lock_guard lock(stream.mutex);
    StartedWork& entry = stream.started[stream.count++ % stream.started.size()];
    entry.function.assign(function);
    entry.step.assign(run_site != nullptr ? run_site->step : std::string_view());
    entry.where = run_location();
  }
  if (waits_for_each() && !is_recording()) synchronize(stream);
}

constinit std::atomic<void (*)()> before_synchronizing{nullptr};

void synchronize(Stream& stream) {
  if (DryRun::current() != nullptr) return;
  if (const auto wait = before_synchronizing.load(std::memory_order_acquire)) [[unlikely]]
    wait();
  const Result r = driver().stream_synchronize(stream.handle);
  std::vector<StartedWork> started;
  {
    const std::lock_guard lock(stream.mutex);
    const std::size_t size = stream.started.size(), count = std::exchange(stream.count, 0);
    if (r != kSuccess)  // what was started last comes first
      for (std::size_t i = 0; i < std::min(count, size); ++i) started.push_back(stream.started[(count - 1 - i) % size]);
  }
  if (r == kSuccess) return throw_failed_checks();
  const std::string detail = on_host_executor() ? take_host_error() : std::string();
  std::source_location where{};
  std::vector<ErrorOperand> operands;
  for (const StartedWork& work : started) {
    const bool named = !detail.empty() && detail.find(work.function) != std::string::npos;
    if (!detail.empty() && !named) continue;
    if (operands.size() == 6) break;
    operands.push_back({"step", work.step.empty() ? work.function : work.step,
                        work.where.line() == 0 ? "" : "at " + short_location(work.where)});
    if (operands.size() == 1) where = work.where;
    if (named) break;
  }
  if (detail.empty() && operands.size() > 1) where = {};  // one of several
  throw_failed(r, "cuStreamSynchronize", detail, operands, where);
}

void check(Result result, const char* call) {
  if (result == kSuccess) [[likely]]
    return;
  throw_failed(result, call, on_host_executor() ? take_host_error() : std::string(), {}, run_location());
}

const DriverFunctions& driver() { return DryRun::current() != nullptr ? dry_driver() : *driver_library(); }

}  // namespace fermata::gpu
