// See executor.h: the driver's functions. One lock over all of them. Work of all streams is one queue, done when
// somebody waits: until then kernels gather that are compiled together. Errors wait for whoever waits for the stream,
// as on a device.
#include "codegen_cuda/host/executor.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "codegen_cuda/host/executor_queue.h"
#include "codegen_cuda/host/fibers.h"
#include "codegen_cuda/host/host_compiler.h"
#include "codegen_cuda/host/memory.h"
#include "codegen_cuda/host/prelude.h"
#include "ir/fault_points.h"

namespace fermata::gpu {
namespace {

/// Two, so that code that differs between devices meets both.
constexpr int kDevices = 2;
/// How often a kernel is run in both orders.
constexpr unsigned kReversedRuns = 2;

std::recursive_mutex mutex;
using Lock = std::lock_guard<std::recursive_mutex>;

using Work = std::function<Result()>;
struct HostGraph {
  std::vector<Work> work;
};
struct HostStream {
  HostGraph* recording = nullptr;
};
/// Outlives its event where that is destroyed before the queue has reached it.
struct HostEventState {
  bool is_timed, is_recorded = false, is_reached = false;
  std::chrono::steady_clock::time_point reached{};
};
struct HostEvent {
  std::shared_ptr<HostEventState> state;
};

HostCounts counts;
Result pending_error = kSuccess;
std::string& error_text = *new std::string;
HostStream default_stream;
constinit thread_local int current_device = 0;  // a context is current for a thread
int contexts[kDevices];

HostStream& stream_of(Handle stream) { return stream == nullptr ? default_stream : *static_cast<HostStream*>(stream); }

void note(Result error, std::string text) {
  if (pending_error != kSuccess) return;  // the first one is the cause
  pending_error = error, error_text = std::move(text);
}

/// Work that has been started and not been done; buffers that it has let go of are freed as part of it.
std::deque<Work>& queue = *new std::deque<Work>;
constexpr std::size_t kMostQueued = 8192;

void do_queued() {
  while (!queue.empty()) {
    const Work work = std::move(queue.front());
    queue.pop_front();
    if (const Result r = work(); r != kSuccess) note(r, "work on a stream failed");
  }
}

/// Starts it, or records it.
Result enqueue(Handle stream, Work work) {
  const Lock lock(mutex);
  if (HostGraph* const graph = stream_of(stream).recording) {
    graph->work.push_back(std::move(work));
    return kSuccess;
  }
  queue.push_back(std::move(work));
  if (queue.size() > kMostQueued) do_queued();
  return kSuccess;
}

// ---- Kernels --------------------------------------------------------------------------------------------------------

struct Launch {
  HostFunction* function;
  unsigned grid[3], block[3];
  std::size_t shared_bytes;
  std::vector<std::uint64_t> parameters;
};

const Launch* running = nullptr;
HostContext context;

struct Written {
  std::uint64_t offset;
  unsigned bytes;
  unsigned char before[16], marks[16], after[16];
};
std::vector<Written>& written = *new std::vector<Written>;

void log_store(std::uint64_t offset, unsigned bytes) {
  Written w{offset, bytes, {}, {}, {}};
  std::memcpy(w.before, context.backing + offset, bytes);
  std::memcpy(w.marks, context.shadow + offset, bytes);
  written.push_back(w);
}

std::string place() {
  const auto& c = context;
  return fmt::format("kernel {}, block ({}, {}, {}), thread ({}, {}, {})", running->function->name, c.block[0],
                     c.block[1], c.block[2], c.thread[0], c.thread[1], c.thread[2]);
}

void bad_access(std::uint64_t address, unsigned bytes, int kind) {
  if (pending_error != kSuccess) return;
  const auto at = [&] { return HostMemory::instance().describe(address); };
  std::string what;
  switch (kind) {
    case kReadOutside: what = fmt::format("reads {} bytes out of bounds: {}", bytes, at()); break;
    case kReadUnwritten: what = fmt::format("reads {} uninitialized bytes: {}", bytes, at()); break;
    case kWriteOutside: what = fmt::format("writes {} bytes out of bounds: {}", bytes, at()); break;
    case kMisaligned: what = fmt::format("accesses {} bytes at a misaligned address", bytes); break;
    case kSharedOutside:
      what = fmt::format("accesses shared memory out of bounds: byte {} of {}", address, context.shared_size);
      break;
    default: what = fmt::format("reads uninitialized shared memory: byte {} of {}", address, context.shared_size);
  }
  note(kIllegalAddress, place() + " " + what);
}

void run_flat(const Launch& launch, void** parameters) {
  HostContext& c = context;
  for (c.thread[2] = 0; c.thread[2] < c.block_size[2]; ++c.thread[2])
    for (c.thread[1] = 0; c.thread[1] < c.block_size[1]; ++c.thread[1])
      for (c.thread[0] = 0; c.thread[0] < c.block_size[0]; ++c.thread[0]) launch.function->entry(parameters);
}

/// All blocks, one after another.
void run_blocks(const Launch& launch, Turns turns) {
  HostContext& c = context;
  const HostMemory& memory = HostMemory::instance();
  c.backing = memory.backing(), c.shadow = memory.shadow(), c.base = memory.base(), c.size = HostMemory::kWindow;
  std::vector<unsigned char> shared(launch.shared_bytes + 64), marks(launch.shared_bytes);
  c.shared = shared.data() + (64 - reinterpret_cast<std::uintptr_t>(shared.data()) % 64) % 64;
  c.shared_shadow = marks.data(), c.shared_size = launch.shared_bytes;
  c.log = &log_store, c.bad = &bad_access, c.barrier = &fiber_barrier, c.exchange = &fiber_exchange;
  std::memcpy(c.block_size, launch.block, sizeof c.block_size), std::memcpy(c.grid, launch.grid, sizeof c.grid);
  *launch.function->context = &c;
  void* parameters[] = {const_cast<std::uint64_t*>(launch.parameters.data())};
  const unsigned blocks = launch.grid[0] * launch.grid[1] * launch.grid[2];
  for (unsigned k = 0; k < blocks && pending_error == kSuccess; ++k) {
    const unsigned number = turns == Turns::forward ? k : blocks - 1 - k;
    c.block[0] = number % c.grid[0], c.block[1] = number / c.grid[0] % c.grid[1],
    c.block[2] = number / c.grid[0] / c.grid[1];
    if (!launch.function->module->has_turns && turns == Turns::forward) {
      run_flat(launch, parameters);
      continue;
    }
    std::fill(marks.begin(), marks.end(), 0);
    std::memset(c.shared, 0xff, launch.shared_bytes);
    if (!run_block(c, launch.function->entry, parameters, turns))
      note(kLaunchFailed, place() + ": divergent barrier: threads of the block wait at different barriers");
  }
}

/// Once more in the reversed order, from the same memory; what is written must be the same.
void run_reversed(const Launch& launch) {
  for (Written& w : written) std::memcpy(w.after, context.backing + w.offset, w.bytes);
  for (auto w = written.rbegin(); w != written.rend(); ++w) {
    std::memcpy(context.backing + w->offset, w->before, w->bytes);
    std::memcpy(context.shadow + w->offset, w->marks, w->bytes);
  }
  context.logging = 0;
  ++counts.reversed_launches;
  run_blocks(launch, Turns::reversed);
  for (const Written& w : written)
    if (pending_error == kSuccess && std::memcmp(w.after, context.backing + w.offset, w.bytes) != 0) {
      const HostMemory& memory = HostMemory::instance();
      note(kLaunchFailed, fmt::format("kernel {}: the result depends on the order of threads (a missing barrier?): {}",
                                      launch.function->name, memory.describe(memory.base() + w.offset)));
    }
}

Result run_kernel(const Launch& launch) {
  ++counts.launches;
  if (pending_error != kSuccess) return kSuccess;  // as on a device: nothing runs after an error
  if (!look_up(*launch.function)) {
    note(kInvalidImage, fmt::format("kernel {} could not be compiled for the host executor:\n{}", launch.function->name,
                                    launch.function->module->failure_reason));
    return kSuccess;
  }
  running = &launch;
  const bool twice = launch.function->runs++ < kReversedRuns && launch.function->module->has_turns;
  written.clear();
  context.logging = twice ? 1 : 0;
  run_blocks(launch, Turns::forward);
  if (twice && pending_error == kSuccess) run_reversed(launch);
  written.clear();
  running = nullptr;
  return kSuccess;
}

Result host_launch(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                   unsigned shared_bytes, Handle stream, void** parameters, void**) {
  const Lock lock(mutex);
  auto* const f = static_cast<HostFunction*>(function);
  const unsigned threads = bx * by * bz;
  if (threads == 0 || threads > 1024 || gx == 0 || gy > 65535 || gz > 65535 || gy * gz == 0)
    return 1;  // CUDA_ERROR_INVALID_VALUE
  Launch launch{f, {gx, gy, gz}, {bx, by, bz}, shared_bytes, std::vector<std::uint64_t>(f->parameter_bytes / 8)};
  std::memcpy(launch.parameters.data(), parameters[0], f->parameter_bytes);
  return enqueue(stream, [launch = std::move(launch)] { return run_kernel(launch); });
}

// ---- Everything else ------------------------------------------------------------------------------------------------

Result host_init(unsigned) { return kSuccess; }
Result host_driver_version(int* version) { return *version = 13000, kSuccess; }
Result host_error_name(Result error, const char** name) {
  *name = error == kOutOfMemory      ? "CUDA_ERROR_OUT_OF_MEMORY"
          : error == kIllegalAddress ? "CUDA_ERROR_ILLEGAL_ADDRESS"
          : error == kLaunchFailed   ? "CUDA_ERROR_LAUNCH_FAILED"
          : error == kInvalidImage   ? "CUDA_ERROR_INVALID_IMAGE"
                                     : "CUDA_ERROR_UNKNOWN";
  return kSuccess;
}
Result host_error_string(Result error, const char** text) { return host_error_name(error, text); }
Result host_device_count(int* count) { return *count = kDevices, kSuccess; }
Result host_device_get(int* device, int ordinal) { return *device = ordinal, kSuccess; }
Result host_device_name(char* name, int length, int) {
  return std::snprintf(name, static_cast<std::size_t>(length), "host executor"), kSuccess;
}
Result host_device_attribute(int* value, int attribute, int) {
  switch (attribute) {
    case kMultiprocessorCount: *value = 4; break;
    case kComputeCapabilityMajor: *value = 8; break;
    case kComputeCapabilityMinor: *value = 0; break;
    case kMaxSharedMemoryPerBlock: *value = 48 << 10; break;
    case kMaxSharedMemoryPerBlockOptin: *value = 96 << 10; break;
    default: return 1;
  }
  return kSuccess;
}
Result host_device_memory(std::size_t* bytes, int) { return *bytes = HostMemory::instance().limit(), kSuccess; }
Result host_context_retain(Handle* made, int device) { return *made = &contexts[device], kSuccess; }
Result host_context_set(Handle to) {
  return current_device = static_cast<int>(static_cast<int*>(to) - contexts), kSuccess;
}
Result host_context_push(Handle to) { return host_context_set(to); }
Result host_context_pop(Handle* from) { return *from = &contexts[current_device], kSuccess; }
Result host_memory_info(std::size_t* free, std::size_t* total) {
  const Lock lock(mutex);
  do_queued();
  *total = HostMemory::instance().limit(), *free = *total - HostMemory::instance().live();
  return kSuccess;
}
Result host_memory_allocate(Address* address, std::size_t bytes) {
  const Lock lock(mutex);
  *address = HostMemory::instance().allocate(bytes);
  if (*address == 0) do_queued(), *address = HostMemory::instance().allocate(bytes);
  return *address == 0 ? kOutOfMemory : kSuccess;
}
Result host_memory_free(Address address) {
  const Lock lock(mutex);
  queue.push_back([address] { return HostMemory::instance().release(address) ? kSuccess : 1; });
  return kSuccess;
}

/// Where a copy reads or writes; notes what is wrong with it.
unsigned char* copy_end(Address address, std::size_t bytes, const char* what) {
  unsigned char* const at = HostMemory::instance().at(address, bytes);
  if (at == nullptr)
    note(kIllegalAddress,
         fmt::format("a copy {} {} bytes out of bounds: {}", what, bytes, HostMemory::instance().describe(address)));
  return at;
}
Result host_copy_to_device(Address to, const void* from, std::size_t bytes, Handle stream) {
  // The caller may change its bytes as soon as this returns.
  const auto* const first = static_cast<const unsigned char*>(from);
  return enqueue(stream, [to, taken = std::vector<unsigned char>(first, first + bytes)] {
    if (unsigned char* const at = copy_end(to, taken.size(), "writes"))
      std::memcpy(at, taken.data(), taken.size()), HostMemory::instance().mark_written(to, taken.size());
    return kSuccess;
  });
}
Result host_copy_to_host(void* to, Address from, std::size_t bytes, Handle stream) {
  const Lock lock(mutex);
  const Result started = enqueue(stream, [=] {
    if (const unsigned char* const at = copy_end(from, bytes, "reads")) {
      // Gaps between the elements of a view are not checked; whole buffers that were never written are an error.
      std::memcpy(to, at, bytes);
      if (bytes <= 64 && pending_error == kSuccess && !HostMemory::instance().is_written(from, bytes))
        note(kIllegalAddress, fmt::format("a copy to the host reads {} uninitialized bytes: {}", bytes,
                                          HostMemory::instance().describe(from)));
    }
    return kSuccess;
  });
  do_queued();  // to memory that is not pinned, as on a device
  return started;
}
Result host_copy_on_device(Address to, Address from, std::size_t bytes, Handle stream) {
  return enqueue(stream, [=] {
    const unsigned char* const source = copy_end(from, bytes, "reads");
    unsigned char* const target = copy_end(to, bytes, "writes");
    if (source != nullptr && target != nullptr)
      std::memmove(target, source, bytes), HostMemory::instance().mark_written(to, bytes);
    return kSuccess;
  });
}
Result host_pointer_attribute(void* value, int attribute, Address pointer) {
  const Lock lock(mutex);
  if (attribute != kPointerMemoryType || HostMemory::instance().at(pointer, 1) == nullptr)
    return 1;  // CUDA_ERROR_INVALID_VALUE
  const int kind = kMemoryOfDevice;
  return std::memcpy(value, &kind, sizeof kind), kSuccess;
}
Result host_fill_bytes(Address to, unsigned char value, std::size_t count, Handle stream) {
  return enqueue(stream, [=] {
    if (unsigned char* const at = copy_end(to, count, "writes"))
      std::memset(at, value, count), HostMemory::instance().mark_written(to, count);
    return kSuccess;
  });
}
Result host_stream_create(Handle* stream, unsigned) { return *stream = new HostStream, kSuccess; }
Result host_stream_destroy(Handle stream) { return delete static_cast<HostStream*>(stream), kSuccess; }
/// The error of what was done is reported here, once: a device that is made up can be used again.
Result host_stream_synchronize(Handle) {
  const Lock lock(mutex);
  do_queued();
  return std::exchange(pending_error, kSuccess);
}
Result host_stream_wait_event(Handle, Handle, unsigned) { return kSuccess; }
Result host_capture_begin(Handle stream, int) {
  const Lock lock(mutex);
  HostStream& s = stream_of(stream);
  if (s.recording != nullptr) return 900;  // CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED
  s.recording = new HostGraph;
  return kSuccess;
}
Result host_capture_end(Handle stream, Handle* graph) {
  const Lock lock(mutex);
  *graph = std::exchange(stream_of(stream).recording, nullptr);
  return *graph == nullptr ? 901 : kSuccess;
}
Result host_event_create(Handle* event, unsigned flags) {
  *event = new HostEvent{std::make_shared<HostEventState>(HostEventState{(flags & kEventDisableTiming) == 0})};
  return kSuccess;
}
Result host_event_destroy(Handle event) { return delete static_cast<HostEvent*>(event), kSuccess; }
Result host_event_record(Handle event, Handle stream) {
  const Lock lock(mutex);
  const std::shared_ptr<HostEventState> state = static_cast<HostEvent*>(event)->state;
  state->is_recorded = true, state->is_reached = false;
  return enqueue(stream, [state] {
    state->is_reached = true, state->reached = std::chrono::steady_clock::now();
    return kSuccess;
  });
}
/// As the driver documents it: both events have been recorded with their times, and have been reached.
Result host_event_elapsed(float* milliseconds, Handle start, Handle end) {
  const Lock lock(mutex);
  const HostEventState &from = *static_cast<HostEvent*>(start)->state, &to = *static_cast<HostEvent*>(end)->state;
  if (!from.is_timed || !to.is_timed || !from.is_recorded || !to.is_recorded) return kInvalidHandle;
  if (!from.is_reached || !to.is_reached) return kNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(to.reached - from.reached).count();
  return kSuccess;
}
Result host_event_synchronize(Handle) {
  const Lock lock(mutex);
  return do_queued(), kSuccess;
}
Result host_event_query(Handle event) { return host_event_synchronize(event); }
Result host_module_load(Handle* module, const void* image) {
  const Lock lock(mutex);
  *module = new std::shared_ptr<HostModule>(add_host_module(static_cast<const char*>(image)));
  return kSuccess;
}
Result host_module_unload(Handle module) { return delete static_cast<std::shared_ptr<HostModule>*>(module), kSuccess; }
Result host_module_function(Handle* function, Handle module, const char* name) {
  // Functions live as long as the process, as recorded graphs may name them.
  auto* const made = new HostFunction;
  made->module = *static_cast<std::shared_ptr<HostModule>*>(module), made->name = name;
  made->parameter_bytes = parameter_bytes(*made);
  *function = made;
  return kSuccess;
}
Result host_function_set_attribute(Handle, int, int) { return kSuccess; }
Result host_graph_instantiate(Handle* executable, Handle graph, unsigned long long) {
  return *executable = new HostGraph(*static_cast<HostGraph*>(graph)), kSuccess;
}
Result host_graph_launch(Handle executable, Handle stream) {
  const Lock lock(mutex);
  ++counts.graph_launches;
  for (const Work& work : static_cast<HostGraph*>(executable)->work)
    if (const Result r = enqueue(stream, work); r != kSuccess) return r;
  return kSuccess;
}
Result host_graph_executable_destroy(Handle graph) { return delete static_cast<HostGraph*>(graph), kSuccess; }
Result host_graph_destroy(Handle graph) { return delete static_cast<HostGraph*>(graph), kSuccess; }

// NVRTC: a "cubin" is the source, to be compiled with others when one of them is wanted.
Result host_version(int* major, int* minor) { return *major = 0, *minor = 1, kSuccess; }
Result host_create(Handle* program, const char* source, const char*, int, const char* const*, const char* const*) {
  return *program = new std::string(source), kSuccess;
}
Result host_destroy(Handle* program) {
  return delete static_cast<std::string*>(*program), *program = nullptr, kSuccess;
}
Result host_compile(Handle, int, const char* const*) { return kSuccess; }
Result host_text_size(Handle program, std::size_t* bytes) {
  return *bytes = static_cast<std::string*>(program)->size() + 1, kSuccess;
}
Result host_text(Handle program, char* text) {
  const auto* const source = static_cast<std::string*>(program);
  return std::memcpy(text, source->c_str(), source->size() + 1), kSuccess;
}
Result host_log_size(Handle, std::size_t* bytes) { return *bytes = 1, kSuccess; }
Result host_log(Handle, char* log) { return *log = '\0', kSuccess; }

/// A function of the driver, where tests may inject faults.
template <auto function> struct OrFault;
template <class... Parameters, Result (*function)(Parameters...)> struct OrFault<function> {
  static Result call(Parameters... parameters) {
    if (fails_here(FaultKind::cuda)) return kOutOfMemory;
    const WithoutFaults on_the_device;
    return function(parameters...);
  }
};

}  // namespace

const DriverFunctions& host_driver() {
  static const DriverFunctions functions = [] {
    DriverFunctions f;
#define FERMATA_DRIVER(name, symbol, parameters) f.name = &OrFault<&host_##name>::call;
#include "codegen_cuda/api/functions.def"
    return f;
  }();
  return functions;
}

const CompilerFunctions& host_compiler() {
  static const CompilerFunctions functions = [] {
    CompilerFunctions f;
    f.version = &host_version, f.create = &host_create, f.destroy = &host_destroy, f.compile = &host_compile;
    f.code_size = f.ptx_size = &host_text_size, f.code = f.ptx = &host_text;
    f.log_size = &host_log_size, f.log = &host_log;
    return f;
  }();
  return functions;
}

Result host_enqueue(Handle stream, std::function<Result()> work) { return enqueue(stream, std::move(work)); }

void host_count_nccl_call() {
  const Lock lock(mutex);
  ++counts.nccl_calls;
}

void host_do_queued() {
  const Lock lock(mutex);
  do_queued();
}

std::string take_host_error() {
  const Lock lock(mutex);
  return std::exchange(error_text, {});
}

HostCounts host_counts() {
  const Lock lock(mutex);
  do_queued();
  HostCounts c = counts;
  const CompileCounts compiled = host_compile_counts();
  c.kernels_compiled = compiled.kernels, c.compiler_runs = compiled.runs;
  return c;
}

}  // namespace fermata::gpu
