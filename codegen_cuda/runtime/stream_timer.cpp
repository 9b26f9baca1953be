// See stream_timer.h. An event before what a step launches and one after it; a first event of the stream, which is
// waited for, places them all on the clock of the host. The driver gives times between events as floats of
// milliseconds, so long profiles measure from a later event every now and then.
#include "codegen_cuda/runtime/stream_timer.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <mutex>
#include <utility>

#include "codegen_cuda/runtime/device.h"

namespace fermata::gpu {
namespace {

constexpr std::size_t kMostSteps = 200'000, kStepsPerReference = 1024;
/// Numbers of tracks, behind those of threads.
constexpr std::uint64_t kFirstTrack = 1'000'000;

struct Step {
  Handle begin, end;
  const EventInfo* info;  // null until it has ended
};
struct Track {
  Handle base = nullptr;
  std::int64_t base_ns = 0;
  std::vector<Step> steps;
  std::uint64_t dropped = 0;
};

/// What this thread is timing.
struct Open {
  Track* track = nullptr;
  std::size_t at = 0;
  std::uint64_t session = 0;
  Handle stream = nullptr;
};
constinit thread_local Open open_step;

/// Both exist, or none of them.
bool make_events(Handle& first, Handle& second) {
  if (driver().event_create(&first, 0) != kSuccess) return false;
  if (driver().event_create(&second, 0) == kSuccess) return true;
  driver().event_destroy(first);
  return false;
}

bool place(Track& track, const Stream& stream) {
  if (driver().event_create(&track.base, 0) != kSuccess) return track.base = nullptr, false;
  if (driver().event_record(track.base, stream.handle) != kSuccess ||
      driver().event_synchronize(track.base) != kSuccess) {
    driver().event_destroy(std::exchange(track.base, nullptr));
    return false;
  }
  // What was started earlier has been waited for as well: the event was reached shortly before the wait ended.
  const std::int64_t reached = event_clock();
  driver().event_record(track.base, stream.handle), driver().event_synchronize(track.base);
  const std::int64_t after = event_clock();
  track.base_ns = reached + (after - reached) / 2;
  return true;
}

class StreamTimer final : public DeviceTimer {
 public:
  void start() override {
    const std::lock_guard lock(mutex_);
    ++profiles_;
  }

  bool begin() override {
    if (is_recording()) return false;
    const int number = current_device().number();
    Stream& stream = current_stream();
    const std::lock_guard lock(mutex_);
    if (profiles_ == 0) return false;
    if (open_step.track != nullptr && open_step.session == session_)
      return false;  // part of a step that is being timed
    Track& track = tracks_[{number, &stream}];
    if (track.base == nullptr && !place(track, stream)) return false;
    if (track.steps.size() == kMostSteps) return ++track.dropped, false;
    Step step{};
    if (!make_events(step.begin, step.end)) return false;
    track.steps.push_back(step);
    if (driver().event_record(step.begin, stream.handle) != kSuccess) return take_back(track), false;
    open_step = {&track, track.steps.size() - 1, session_, stream.handle};
    return true;
  }

  void end(const EventInfo* info) override {
    const std::lock_guard lock(mutex_);
    const Open open = std::exchange(open_step, {});
    if (open.session != session_) return;  // the profile has ended meanwhile
    Step& step = open.track->steps[open.at];
    if (driver().event_record(step.end, open.stream) == kSuccess) step.info = info;
  }

  std::vector<ThreadEvents> finish(std::int64_t since) override {
    const std::lock_guard lock(mutex_);
    std::vector<ThreadEvents> all;
    std::map<int, int> queues;  // of each device, beside the one that threads share
    for (const auto& [place, track] : tracks_) {
      const auto& [number, stream] = place;
      const int queue = stream == &device(number).shared_stream() ? 0 : ++queues[number];
      driver().context_set(device(number).context());
      ThreadEvents events = read(track, since);
      events.thread = kFirstTrack + all.size(), events.is_device = true;
      events.name = queue == 0 ? fmt::format("cuda:{}", number) : fmt::format("cuda:{} queue {}", number, queue);
      if (!events.events.empty() || events.dropped != 0) all.push_back(std::move(events));
    }
    if (!tracks_.empty()) driver().context_set(current_device().context());
    if (profiles_ > 0 && --profiles_ == 0) clear();  // none where the backend came after a profile had begun
    return all;
  }

 private:
  static void take_back(Track& track) {
    driver().event_destroy(track.steps.back().begin), driver().event_destroy(track.steps.back().end);
    track.steps.pop_back();
  }

  /// Steps of a stream follow each other, but for what rounding makes of their times.
  static ThreadEvents read(const Track& track, std::int64_t since) {
    ThreadEvents read{.dropped = track.dropped};
    Handle reference = track.base;
    double reference_ns = 0;  // after the base
    std::int64_t last_end = 0;
    std::size_t count = 0;
    for (const Step& step : track.steps) {
      float until_ms = 0, took_ms = 0;
      if (step.info == nullptr || driver().event_synchronize(step.end) != kSuccess ||
          driver().event_elapsed(&until_ms, reference, step.begin) != kSuccess ||
          driver().event_elapsed(&took_ms, step.begin, step.end) != kSuccess)
        continue;
      const double begin = reference_ns + static_cast<double>(until_ms) * 1e6;
      if (++count % kStepsPerReference == 0) reference = step.begin, reference_ns = begin;
      const std::int64_t begin_ns = std::max(track.base_ns + static_cast<std::int64_t>(begin), last_end);
      last_end = begin_ns + static_cast<std::int64_t>(static_cast<double>(took_ms) * 1e6);
      if (begin_ns >= since) read.events.push_back({begin_ns, last_end, step.info, 0});
    }
    return read;
  }

  void clear() {
    for (auto& [place, track] : tracks_) {
      for (const Step& step : track.steps) driver().event_destroy(step.begin), driver().event_destroy(step.end);
      if (track.base != nullptr) driver().event_destroy(track.base);
    }
    tracks_.clear(), ++session_;
  }

  std::mutex mutex_;
  int profiles_ = 0;
  std::uint64_t session_ = 1;
  std::map<std::pair<int, Stream*>, Track> tracks_;
};

}  // namespace

DeviceTimer* stream_timer() {
  static auto* const timer = new StreamTimer;
  return timer;
}

}  // namespace fermata::gpu
