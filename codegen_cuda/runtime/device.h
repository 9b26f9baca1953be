// CUDA devices: contexts, streams, and what the calling thread has chosen of both.
//
// Work is enqueued and not waited for. A stream remembers what was started on it since it was last waited for, so that
// an error that surfaces then can say which op, and which line of the program, it may belong to.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "codegen_cuda/api/libraries.h"
#include "codegen_cuda/runtime/allocator.h"

namespace fermata::gpu {

struct DeviceInfo {
  std::string name;
  int major = 0, minor = 0, multiprocessors = 0, shared_bytes = 0, shared_bytes_optin = 0;
  std::size_t memory = 0;
};

/// What was started: a function, for which step of a plan, for which line.
struct StartedWork {
  std::string function, step;
  std::source_location where;
};

struct Stream {
  Handle handle = nullptr;
  int device = 0;
  std::mutex mutex;
  std::array<StartedWork, 32> started;  // the last ones, as a ring
  std::size_t count = 0;
};

class Device {
 public:
  explicit Device(int number);
  const DeviceInfo& info() const { return info_; }
  int number() const { return number_; }
  Handle context() const { return context_; }
  Allocator& allocator() { return *allocator_; }
  Stream& shared_stream() { return *shared_stream_; }
  Stream* new_stream();
  void end_stream(Stream* stream);
  /// A stream of somebody else's, which outlives what is lent.
  Stream* lent_stream(Handle handle);
  void return_stream(Stream* stream);

 private:
  int number_;
  DeviceInfo info_;
  Handle context_ = nullptr;
  std::unique_ptr<Stream> shared_stream_;
  std::unique_ptr<Allocator> allocator_;
};

/// Whether CUDA can be used here; `failure_reason` says what is missing and what to do.
bool usable(std::string* failure_reason = nullptr);
/// DeviceError FM1405 where it cannot.
void require_usable(std::string_view function, std::source_location where);
int device_count();
/// DeviceError FM1406 where there is no such device.
void check_number(int number);
Device& device(int number);

/// What the thread has chosen. The first call makes the device's context current.
Device& current_device();
void choose_device(int number);
Stream& current_stream();
void choose_stream(Stream* stream);  // null: the one that all threads share

/// Both, to be put back later.
struct ThreadChoice {
  Device* device = nullptr;
  Stream* stream = nullptr;
  Handle recording = nullptr;
};
ThreadChoice thread_choice();
void set_thread_choice(const ThreadChoice& choice);
/// A device and a stream of it (null: the one that threads share) for a scope, in which the device's context is on top
/// of the thread's: whoever else uses CUDA in the process finds their own again.
class ContextScope {
 public:
  ContextScope(Device& device, Stream* stream);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const ThreadChoice before_;
};

/// Before work is started on a buffer: waits, on the current stream, for another stream that used it last. DeviceError
/// FM1407 where it lies on another device.
void use_buffer(const void* address);

/// Where launches of the thread go: the current stream, or what records it.
Handle launch_handle();
void set_recording_handle(Handle recording);
bool is_recording();

/// The line of the step that this thread is starting, if it is known.
std::source_location run_location();
/// Remembers what is being started.
void note_started(std::string_view function);
/// Throws what has gone wrong on the stream since it was last waited for.
void synchronize(Stream& stream);
/// Called before the host waits for a stream, where work may wait for other processes: it waits with a limit.
extern constinit std::atomic<void (*)()> before_synchronizing;

/// Throws for a failed call of the driver.
void check(Result result, const char* call);
const DriverFunctions& driver();

}  // namespace fermata::gpu
