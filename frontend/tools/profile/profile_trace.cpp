// A profile as a trace in Chrome's JSON format: threads as tracks, flows from a recorded call to the step that computes
// it, counters of memory. https://docs.google.com/document/d/1CvAClvFfyA5R-PhYUmn5OOQtYMH4h6I0nSsKchNAySU
#include <algorithm>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "frontend/tools/profile/json_text.h"
#include "frontend/tools/profile/profile_data.h"
#include "ir/error.h"
#include "ir/scope.h"
#include "runtime/machine_limits.h"

namespace fermata {
namespace {

class TraceWriter {
 public:
  TraceWriter(const ProfileData& data, std::size_t most_events, bool with_programs)
      : data_(data), with_programs_(with_programs) {
    std::vector<std::int64_t> weights;
    for (const ThreadEvents& thread : data.threads)
      for (const Event& e : thread.events) weights.push_back(weight(e));
    if (weights.size() <= most_events) return;
    const auto nth = weights.begin() + static_cast<std::ptrdiff_t>(most_events);
    std::ranges::nth_element(weights, nth, std::greater<>());
    least_weight_ = *nth + 1;
  }

  std::uint64_t left_out() const { return left_out_; }

  std::string text() {
    json_.begin_object().key("traceEvents").begin_array();
    metadata("process_name", 0, "fermata");
    find_steps();
    for (const ThreadEvents& thread : data_.threads) {
      metadata("thread_name", thread.thread,
               thread.name.empty() ? fmt::format("thread {}", thread.thread) : thread.name);
      for (const Event& e : thread.events)
        if (weight(e) >= least_weight_)
          add(e, thread.thread, thread.is_device);
        else
          ++left_out_;
    }
    json_.end_array().member("displayTimeUnit", "ns");
    json_.key("fermata").begin_object();
    add_summary(summarize(data_));
    if (with_programs_) add_programs();
    json_.end_object().end_object();
    return json_.take();
  }

 private:
  /// Long events and large buffers tell most.
  static std::int64_t weight(const Event& e) {
    const bool is_buffer = e.info->kind == EventKind::allocation || e.info->kind == EventKind::release;
    return is_buffer ? static_cast<std::int64_t>(e.value >> 10) : e.end_ns - e.begin_ns;
  }

  using Site = std::pair<std::string_view, std::uint32_t>;
  static Site site_of(std::source_location where) { return {where.file_name(), where.line()}; }

  double at(std::int64_t ns) const { return static_cast<double>(ns - data_.begin_ns) / 1000; }

  void find_steps() {
    for (const ThreadEvents& thread : data_.threads)
      for (const Event& e : thread.events)
        for (const std::source_location where : e.info->calls)
          steps_[site_of(where)].push_back({e.begin_ns, thread.thread});
    for (auto& [site, begins] : steps_) std::ranges::sort(begins);
  }

  void metadata(std::string_view what, std::uint64_t thread, std::string_view name) {
    json_.new_line().begin_object().member("name", what).member("ph", "M").member("pid", 1).member("tid", thread);
    json_.key("args").begin_object().member("name", name).end_object().end_object();
  }

  JsonText& head(std::string_view name, std::string_view phase, std::int64_t ns, std::uint64_t thread) {
    return json_.new_line()
        .begin_object()
        .member("name", name)
        .member("ph", phase)
        .member("ts", at(ns))
        .member("pid", 1)
        .member("tid", thread);
  }

  void add(const Event& e, std::uint64_t thread, bool is_device) {
    const EventInfo& info = *e.info;
    if (info.kind == EventKind::allocation || info.kind == EventKind::release) return add_memory(e, thread);
    if (info.kind == EventKind::transfer) return add_transfer(e, thread);
    const bool is_instant = info.kind == EventKind::plan_miss;
    head(info.name, is_instant ? "i" : "X", e.begin_ns, thread)
        .member("cat", kEventKindNames[static_cast<std::size_t>(info.kind)]);
    if (is_instant)
      json_.member("s", "t");
    else
      json_.member("dur", static_cast<double>(e.end_ns - e.begin_ns) / 1000);
    json_.key("args").begin_object();
    if (!info.detail.empty()) json_.member("detail", info.detail);
    if (info.where.line() != 0) json_.member("line", short_location(info.where));
    if (const std::string_view scope = scope_of(info.where); !scope.empty()) json_.member("scope", scope);
    if (const std::string_view callers = callers_of(info.where); !callers.empty()) json_.member("callers", callers);
    if (info.bytes > 0 && is_device) {  // the limits are those of the host
      json_.member("bytes", info.bytes).member("operations", info.operations);
    } else if (info.bytes > 0) {
      const double limit_us = machine::limits().least_ns(info.bytes, info.operations, info.dtype) / 1000;
      const double us = static_cast<double>(e.end_ns - e.begin_ns) / 1000;
      json_.member("bytes", info.bytes).member("operations", info.operations).member("limit_us", limit_us);
      json_.member("percent_of_limit", us > 0 ? 100 * limit_us / us : 0.0);
    }
    if (info.kind == EventKind::sync) {
      json_.member("recorded_calls", e.value);
      if (e.plan == 0) json_.member("ran", "call by call");
    }
    if (const std::uint64_t plan = e.plan != 0 ? e.plan : info.plan; plan != 0) json_.member("plan", plan);
    json_.end_object().end_object();
    if (e.memory != 0) add_counter(e.end_ns, thread, e.memory);
    if (info.kind == EventKind::recorded && with_programs_) add_flow(e, thread);  // pages show none
  }

  /// It is on its way while steps of the thread run: a bar of its own.
  void add_transfer(const Event& e, std::uint64_t thread) {
    ++transfers_;
    for (const bool is_end : {false, true}) {
      head(e.info->name, is_end ? "e" : "b", is_end ? e.end_ns : e.begin_ns, thread)
          .member("cat", "transfer")
          .member("id", transfers_);
      json_.key("args").begin_object();
      if (e.info->where.line() != 0) json_.member("line", short_location(e.info->where));
      json_.end_object().end_object();
    }
  }

  void add_memory(const Event& e, std::uint64_t thread) {
    const bool is_release = e.info->kind == EventKind::release;
    head(fmt::format("{} {:.1f} MiB", e.info->name, static_cast<double>(e.value) / 1048576), "i", e.begin_ns, thread)
        .member("cat", is_release ? "release" : "allocation")
        .member("s", "t");
    json_.key("args").begin_object().member("bytes", e.value).end_object().end_object();
    add_counter(e.end_ns, thread, e.memory);
  }

  void add_counter(std::int64_t ns, std::uint64_t thread, std::uint64_t bytes) {
    head("memory in use", "C", ns, thread);
    json_.key("args").begin_object().member("bytes", bytes).end_object().end_object();
  }

  /// From a recorded call to the first step afterwards that computes calls of its line.
  void add_flow(const Event& call, std::uint64_t thread) {
    const auto found = steps_.find(site_of(call.info->where));
    if (found == steps_.end()) return;
    const auto step = std::ranges::lower_bound(found->second, std::pair(call.end_ns, std::uint64_t{0}));
    if (step == found->second.end()) return;
    ++flows_;
    head("computes", "s", call.begin_ns, thread).member("cat", "flow").member("id", flows_).end_object();
    head("computes", "f", step->first, step->second)
        .member("cat", "flow")
        .member("id", flows_)
        .member("bp", "e")
        .end_object();
  }

  void add_summary(const ProfileSummary& s) {
    json_.key("summary").begin_object();
    json_.member("total_us", s.total_us).member("kernels_us", s.kernels_us).member("calls_us", s.calls_us);
    json_.member("compiling_us", s.compiling_us).member("syncs_us", s.syncs_us).member("recording_us", s.recording_us);
    json_.member("own_us", s.own_us)
        .member("background_us", s.background_us)
        .member("device_us", s.device_us)
        .member("syncs", s.syncs);
    json_.member("replays", s.replays).member("plan_misses", s.plan_misses).member("plans_compiled", s.plans_compiled);
    json_.member("recorded_calls", s.recorded_calls).member("events", s.events).member("dropped", s.dropped);
    json_.member("peak_bytes", s.peak_bytes).end_object();
    json_.new_line().key("steps").begin_array();
    for (const ProfileStep& step : s.steps) {
      json_.new_line().begin_object().member("name", step.name).member("detail", step.detail);
      json_.member("line", step.where.line() == 0 ? std::string() : scoped_location(step.where));
      json_.member("kernel", step.is_kernel).member("runs", step.runs).member("us", step.us);
      json_.member("bytes", step.bytes).member("operations", step.operations).member("limit_us", step.limit_us);
      json_.end_object();
    }
    json_.end_array().new_line().key("advice").begin_array();
    for (const ProfileAdvice& advice : s.advice) {
      json_.new_line().begin_object().member("text", advice.text).member("line", scoped_location(advice.where));
      json_.member("us", advice.us).end_object();
    }
    json_.end_array();
  }

  void add_programs() {
    json_.new_line().key("programs").begin_array();
    for (const auto& [number, plan] : data_.plans) {
      json_.new_line().begin_object().member("plan", number);
      json_.member("device", kBackendNames[static_cast<std::size_t>(plan.backend)]);
      if (plan.form == PlanForm::calls) json_.member("calls", true);
      json_.member("ir", to_string(plan.graph, true)).end_object();
    }
    json_.end_array();
  }

  const ProfileData& data_;
  const bool with_programs_;
  std::int64_t least_weight_ = 0;
  std::uint64_t left_out_ = 0, transfers_ = 0;
  JsonText json_;
  std::map<Site, std::vector<std::pair<std::int64_t, std::uint64_t>>> steps_;  // when they began, and where
  std::uint64_t flows_ = 0;
};

}  // namespace

std::string trace_json(const ProfileData& data) {
  return TraceWriter(data, std::numeric_limits<std::size_t>::max(), true).text();
}

std::string trace_json(const ProfileData& data, std::size_t most_events, std::uint64_t& left_out) {
  TraceWriter writer(data, most_events, false);
  std::string text = writer.text();
  left_out = writer.left_out();
  return text;
}

}  // namespace fermata
