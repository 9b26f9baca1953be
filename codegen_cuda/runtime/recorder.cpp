// See recorder.h. A thread records on a stream of its own, so that what others launch meanwhile is not caught.
#include "codegen_cuda/runtime/recorder.h"

#include <map>
#include <mutex>
#include <vector>

#include "codegen_cuda/runtime/deferred_check.h"
#include "codegen_cuda/runtime/device.h"
#include "runtime/device_times.h"

namespace fermata::gpu {
namespace {

const EventInfo* event_of_replays() {
  static const EventInfo* const info = event_info(EventKind::call, "recorded steps of a device", {});
  return info;
}

class Graph final : public RecordedRun {
 public:
  Graph(Device& device, Handle executable, std::vector<Block*> kept, bool checks)
      : device_(device), executable_(executable), kept_(std::move(kept)), checks_(checks) {}
  ~Graph() override {
    driver().stream_synchronize(device_.shared_stream().handle);
    driver().graph_executable_destroy(executable_);
    for (Block* const block : kept_) block->recording = nullptr, device_.allocator().release(block);
  }
  void replay() const override {
    if (checks_) expect_checks();
    const DeviceTimeScope time(BackendKey::cuda, wants_events() ? event_of_replays() : nullptr);
    check(driver().graph_launch(executable_, current_stream().handle), "cuGraphLaunch");
    note_started("a recorded plan");
  }

 private:
  Device& device_;
  Handle executable_;
  std::vector<Block*> kept_;  // allocated and released while it was recorded: its kernels still use them
  bool checks_;
};

class GraphRecorder final : public RunRecorder {
 public:
  bool begin() override {
    if (is_recording()) return false;
    Device& here = current_device();
    mutex_.lock();  // one recording at a time, as the allocator tells blocks of recordings apart
    checks_before_ = checks_made();
    Handle& handle = handles_[here.number()];
    if (handle == nullptr && driver().stream_create(&handle, kStreamNonBlocking) != kSuccess) handle = nullptr;
    if (handle == nullptr || driver().capture_begin(handle, kCaptureRelaxed) != kSuccess) {
      mutex_.unlock();
      return false;
    }
    here.allocator().begin_recording(this);
    set_recording_handle(handle);
    return true;
  }

  std::unique_ptr<const RecordedRun> end() override {
    Device& here = current_device();
    const Handle handle = launch_handle();
    set_recording_handle(nullptr);
    std::vector<Block*> kept = here.allocator().end_recording();
    const bool checks = checks_made() != checks_before_;
    mutex_.unlock();
    Handle graph = nullptr, executable = nullptr;
    Result r = driver().capture_end(handle, &graph);
    if (r == kSuccess && graph != nullptr) {
      r = driver().graph_instantiate(&executable, graph, 0);
      driver().graph_destroy(graph);
    }
    if (r != kSuccess || executable == nullptr) {
      for (Block* const block : kept) block->recording = nullptr, here.allocator().release(block);
      return nullptr;
    }
    return std::make_unique<const Graph>(here, executable, std::move(kept), checks);
  }

 private:
  std::mutex mutex_;
  std::map<int, Handle> handles_;  // per device
  std::uint64_t checks_before_ = 0;
};

}  // namespace

RunRecorder* graph_recorder() {
  static auto* const recorder = new GraphRecorder;
  return recorder;
}

}  // namespace fermata::gpu
