// CUDA devices: contexts, streams, and the calling thread's current device and stream.
//
// Work is asynchronous. A stream records the work started since the last wait, so that an error reported by the next
// wait can name the op and the source line that may have caused it.
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

/// A started function, with its plan step and source line.
struct StartedWork {
  std::string function, step;
  std::source_location where;
};

struct Stream {
  Handle handle = nullptr;
  int device = 0;
  std::mutex mutex;
  std::array<StartedWork, 32> started;  // ring buffer of the most recent ones
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

/// Whether CUDA can be used; otherwise `failure_reason` says what is missing and how to fix it.
bool usable(std::string* failure_reason = nullptr);
/// Throws DeviceError FM1405 if CUDA cannot be used.
void require_usable(std::string_view function, std::source_location where);
int device_count();
/// Throws DeviceError FM1406 if there is no such device.
void check_number(int number);
Device& device(int number);

/// The thread's current device. The first call makes its context current.
Device& current_device();
void choose_device(int number);
Stream& current_stream();
void choose_stream(Stream* stream);  // null: the stream shared by all threads

/// A thread's device and stream, to be restored later.
struct ThreadChoice {
  Device* device = nullptr;
  Stream* stream = nullptr;
  Handle recording = nullptr;
};
ThreadChoice thread_choice();
void set_thread_choice(const ThreadChoice& choice);
/// A device and a stream of it (null: the one that threads share) for a scope, in which the device's context is on top
/// of the thread's: other users of CUDA in the process keep their own.
class ContextScope {
 public:
  ContextScope(Device& device, Stream* stream);
  ~ContextScope();
  ContextScope(const ContextScope&) = delete;
  ContextScope& operator=(const ContextScope&) = delete;

 private:
  const ThreadChoice before_;
};

/// Call before launching work on a buffer: makes the current stream wait for the stream that last used it. DeviceError
/// FM1407 if the buffer is on another device.
void use_buffer(const void* address);

/// The handle for launches of this thread: the current stream, or the one that records.
Handle launch_handle();
void set_recording_handle(Handle recording);
bool is_recording();

/// The source line of the step that this thread is launching, if known.
std::source_location run_location();
/// Records a launch for error messages.
void note_started(std::string_view function);
/// Waits for the stream and throws its errors.
void synchronize(Stream& stream);
/// Called before the host waits for a stream whose work may wait for other processes; waits with a timeout.
extern constinit std::atomic<void (*)()> before_synchronizing;

/// Throws if a driver call failed.
void check(Result result, const char* call);
const DriverFunctions& driver();

}  // namespace fermata::gpu
