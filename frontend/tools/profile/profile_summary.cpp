// Sums over the events of a profile: where the time went, and what could be saved.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

#include "frontend/tools/profile/profile_data.h"
#include "ir/scope.h"
#include "runtime/machine_limits.h"

namespace fermata {
namespace {

double microseconds(std::int64_t ns) { return static_cast<double>(ns) / 1000; }

/// A line, in one scope.
using Site = std::tuple<std::string, std::uint32_t, std::string>;
Site site_of(std::source_location where) { return {where.file_name(), where.line(), std::string(scope_of(where))}; }

/// What was met at one line that computes values.
struct SyncSite {
  std::source_location where;
  std::string_view reason;
  std::uint64_t syncs = 0, recorded = 0, misses = 0;
  double us = 0, self_us = 0, compile_us = 0, miss_us = 0;
  double work_us = 0;  // of its steps at the limits of the machine
  std::string difference;
};

class Summary {
 public:
  Summary(const ProfileData& data, const machine::Limits& limits) : data_(data), limits_(limits) {}

  ProfileSummary make() {
    sum_.total_us = microseconds(data_.end() - data_.begin_ns);
    for (const ThreadEvents& thread : data_.threads)
      if (thread.is_device) add_device(thread);
    for (const ThreadEvents& thread : data_.threads)
      if (!thread.is_device) add_thread(thread);
    for (const auto& [info, step] : steps_) sum_.steps.push_back(step);
    std::ranges::sort(sum_.steps, [](const auto& a, const auto& b) { return a.us > b.us; });
    advise_on_syncs();
    advise_on_structures();
    advise_on_steps();
    // What the program can change comes before what merely takes long.
    const auto order = [](const ProfileAdvice& a, const ProfileAdvice& b) { return a.us > b.us; };
    std::ranges::sort(sum_.advice, order), std::ranges::sort(far_from_limit_, order);
    sum_.advice.insert(sum_.advice.end(), far_from_limit_.begin(), far_from_limit_.end());
    return std::move(sum_);
  }

 private:
  /// An event that contains those which follow and began before its end.
  struct Open {
    const Event* event;
    std::int64_t inside_ns = 0;  // in events within
    SyncSite* site;              // of the innermost sync
    bool missed = false;
  };

  /// What the host has of these steps is how long it took to launch them.
  void add_device(const ThreadEvents& device) {
    sum_.events += device.events.size(), sum_.dropped += device.dropped;
    for (const Event& e : device.events) {
      timed_on_device_.insert(e.info);
      const double us = microseconds(e.end_ns - e.begin_ns);
      sum_.device_us += us, step_of(*e.info).us += us;
    }
  }

  /// The step of an event, which is counted as a run.
  ProfileStep& step_of(const EventInfo& info) {
    ProfileStep& step = steps_[&info];
    if (step.runs++ == 0) {
      step.name = info.name, step.detail = info.detail, step.where = info.where;
      step.is_kernel = info.kind == EventKind::kernel;
      step.bytes = info.bytes, step.operations = info.operations;
    }
    return step;
  }

  void add_thread(const ThreadEvents& thread) {
    std::vector<const Event*> events;
    for (const Event& e : thread.events) events.push_back(&e);
    std::ranges::sort(events, [](const Event* a, const Event* b) {
      return a->begin_ns != b->begin_ns ? a->begin_ns < b->begin_ns : a->end_ns > b->end_ns;
    });
    sum_.events += events.size(), sum_.dropped += thread.dropped;
    std::int64_t top_ns = 0, first_ns = 0, recording_ns = 0, sampled = 0;
    const bool calls = std::ranges::any_of(events, [](const Event* e) {
      return e->info->kind == EventKind::sync || e->info->kind == EventKind::replay ||
             e->info->kind == EventKind::eager || e->info->kind == EventKind::recorded;
    });
    if (!events.empty()) first_ns = std::max(events.front()->begin_ns, data_.begin_ns);
    std::uint64_t recorded = 0;
    for (const Event* e : events) {
      while (!open_.empty() && open_.back().event->end_ns <= e->begin_ns) close(calls);
      sum_.peak_bytes = std::max(sum_.peak_bytes, e->memory);
      switch (e->info->kind) {
        case EventKind::chunk:
        case EventKind::transfer:
        case EventKind::allocation:
        case EventKind::release: continue;
        case EventKind::recorded:
          if (open_.empty()) recording_ns += e->end_ns - e->begin_ns, ++sampled;
          continue;
        case EventKind::plan_miss:
          ++sum_.plan_misses;
          if (!open_.empty() && open_.back().site != nullptr)
            open_.back().missed = true, ++open_.back().site->misses, open_.back().site->difference = e->info->detail;
          continue;
        case EventKind::sync: recorded += e->value; break;
        default: break;
      }
      if (open_.empty()) top_ns += e->end_ns - e->begin_ns;
      open_.push_back({e, 0, open_.empty() ? nullptr : open_.back().site});
      begin(*e);
    }
    while (!open_.empty()) close(calls);
    if (!calls) return;
    sum_.recorded_calls += recorded;
    const double per_call = sampled == 0 ? 0 : microseconds(recording_ns) / static_cast<double>(sampled);
    const double outside = std::max(0.0, microseconds(data_.end() - first_ns - top_ns));
    const double recording = std::min(outside, per_call * static_cast<double>(recorded));
    sum_.recording_us += recording, sum_.own_us += outside - recording;
  }

  void begin(const Event& e) {
    if (e.info->kind != EventKind::sync && e.info->kind != EventKind::replay) return;
    (e.info->kind == EventKind::sync ? sum_.syncs : sum_.replays) += 1;
    SyncSite& site = sites_[site_of(e.info->where)];
    site.where = e.info->where, site.reason = e.info->name;
    ++site.syncs, site.recorded += e.value;
    open_.back().site = &site;
  }

  void close(bool calls) {
    const Open done = open_.back();
    open_.pop_back();
    const Event& e = *done.event;
    const std::int64_t ns = e.end_ns - e.begin_ns;
    const double us = microseconds(ns), self = microseconds(std::max<std::int64_t>(0, ns - done.inside_ns));
    if (!open_.empty()) open_.back().inside_ns += ns;
    if (timed_on_device_.contains(e.info)) {
      sum_.syncs_us += self;
      return;
    }
    switch (e.info->kind) {
      case EventKind::kernel: sum_.kernels_us += self; break;
      case EventKind::call:
      case EventKind::eager: sum_.calls_us += self; break;
      case EventKind::sync:
      case EventKind::replay:
        sum_.syncs_us += self;
        done.site->us += us, done.site->self_us += self;
        if (done.missed) done.site->miss_us += us;
        return;
      case EventKind::compile:
        ++sum_.plans_compiled;
        (calls ? sum_.compiling_us : sum_.background_us) += us;
        if (done.site != nullptr) done.site->compile_us += us;
        return;
      default:
        if (e.info->kind == EventKind::code && open_.empty()) sum_.background_us += us;
        return;
    }
    ProfileStep& step = step_of(*e.info);
    step.us += us;
    const bool is_known = e.info->bytes > 0;
    const double limit_us = is_known ? limits_.least_ns(e.info->bytes, e.info->operations, e.info->dtype) / 1000 : 0;
    step.limit_us += limit_us;
    if (done.site == nullptr) return;
    step_us_[done.site] += us;
    done.site->work_us += is_known ? limit_us : us;
  }

  /// Lines that compute values again and again, a few calls each time.
  void advise_on_syncs() {
    constexpr std::uint64_t kOften = 10, kFewCalls = 64;
    constexpr double kLongUs = 2000;
    for (const auto& [line, site] : sites_) {
      if (site.syncs < kOften || site.where.line() == 0 || site.recorded == 0) continue;
      if (2 * site.misses > site.syncs) continue;  // there it is the structures that cost
      const auto n = static_cast<double>(site.syncs);
      const double compiled = site.compile_us;
      if (site.work_us / n > kLongUs) continue;
      // Of few calls much of the work is stores that a larger kernel would not have; of many, the sync itself.
      const bool few = site.recorded <= kFewCalls * site.syncs;
      const double cost = site.self_us + (few ? 0.5 * step_us_[&site] : 0);
      sum_.advice.push_back(
          {fmt::format("a value is computed here {} times ({}), after {:.0f} recorded calls and {:.1f} us of work each "
                       "time: calls before a sync are not fused with calls after it. Read values less often, for many "
                       "iterations at once, or make the decision in tensors (where, while_loop)",
                       site.syncs, site.reason, static_cast<double>(site.recorded) / n, (site.us - compiled) / n),
           site.where, cost});
    }
  }

  void advise_on_structures() {
    constexpr std::uint64_t kOften = 4;
    for (const auto& [line, site] : sites_) {
      if (site.misses < kOften) continue;
      const double background = sum_.background_us * static_cast<double>(site.misses) /
                                static_cast<double>(std::max<std::uint64_t>(sum_.plan_misses, 1));
      sum_.advice.push_back(
          {fmt::format(
               "{} of {} syncs here have a new program structure ({}), and each structure is compiled. Sizes and "
               "numbers do not change the structure; dtypes, ranks, sizes of 1, strides and the number of calls do",
               site.misses, site.syncs, site.difference.empty() ? "no similar one" : site.difference),
           site.where, site.miss_us + background});
    }
  }

  void advise_on_steps() {
    constexpr double kLeastUs = 20, kLargeBytes = 1 << 20, kFar = 2;
    for (const auto& [info, step] : steps_) {
      const double over = step.us - step.limit_us;
      if (step.name == "copy" && info->bytes >= kLargeBytes)
        sum_.advice.push_back({fmt::format("{} copies of {:.1f} MiB: a view is needed in another layout", step.runs,
                                           info->bytes / 2 / 1048576),
                               step.where, step.us});
      else if (info->strided_bytes > 0.25 * info->bytes && info->bytes >= kLargeBytes / 8 && over > kLeastUs)
        sum_.advice.push_back(
            {fmt::format(
                 "{} reads {:.1f} of {:.1f} MiB across their memory order (a transposed operand): copy() that operand "
                 "once into the order in which it is read",
                 step.name, info->strided_bytes / 1048576, info->bytes / 1048576),
             step.where, over});
      else if (step.limit_us > 0 && step.us > kFar * step.limit_us && over > 0.2 * sum_.total_us)
        far_from_limit_.push_back(
            {fmt::format("{} takes {:.1f} times as long as the limit for its bytes and operations", step.name,
                         step.us / step.limit_us),
             step.where, over / 2});
    }
  }

  const ProfileData& data_;
  const machine::Limits& limits_;
  ProfileSummary sum_;
  std::vector<Open> open_;
  std::map<const EventInfo*, ProfileStep> steps_;
  std::set<const EventInfo*> timed_on_device_;
  std::map<Site, SyncSite> sites_;
  std::map<const SyncSite*, double> step_us_;
  std::vector<ProfileAdvice> far_from_limit_;
};

}  // namespace

ProfileSummary summarize(const ProfileData& data, const machine::Limits& limits) {
  return Summary(data, limits).make();
}

std::string to_string(const ProfileSummary& s) {
  const auto line = [&](std::string_view what, double us) {
    return fmt::format("  {:<34} {:>12.3f} ms {:>5.1f}%\n", what, us / 1000,
                       s.total_us > 0 ? 100 * us / s.total_us : 0);
  };
  std::string text = fmt::format("profile of {:.3f} ms, {} events\n", s.total_us / 1000, s.events);
  text += line("compiled kernels", s.kernels_us) + line("function and library calls", s.calls_us) +
          line("foreground compilation", s.compiling_us) + line("plan lookup and binding, waiting", s.syncs_us) +
          line("recording", s.recording_us) + line("the program's own code", s.own_us);
  if (s.background_us > 0) text += line("background compilation", s.background_us);
  if (s.device_us > 0) text += line("steps on devices, in addition", s.device_us);
  text += fmt::format(
      "{} syncs, {} replays, {} recorded calls; {} new structures, {} plans compiled; peak {:.1f} MiB\n", s.syncs,
      s.replays, s.recorded_calls, s.plan_misses, s.plans_compiled, static_cast<double>(s.peak_bytes) / 1048576);
  if (s.dropped != 0) text += fmt::format("{} events were dropped\n", s.dropped);
  if (!s.steps.empty()) text += "\n      runs           ms  of limit  step\n";
  constexpr std::size_t kMost = 10;
  for (std::size_t i = 0; i < std::min(kMost, s.steps.size()); ++i) {
    const ProfileStep& step = s.steps[i];
    text += fmt::format("{:>10} {:>12.3f} {:>9}  {}{}\n", step.runs, step.us / 1000,
                        step.limit_us > 0 ? fmt::format("{:.0f}%", 100 * step.limit_us / step.us) : "",
                        step.detail.empty() ? step.name : step.detail,
                        step.where.line() != 0 ? "  " + scoped_location(step.where) : "");
    text += each_caller(callers_of(step.where), "                                   from ");
  }
  if (s.steps.size() > kMost) text += fmt::format("{:>10} more\n", s.steps.size() - kMost);
  if (!s.advice.empty()) text += "\nwhere time could be saved\n";
  for (std::size_t i = 0; i < std::min(kMost, s.advice.size()); ++i)
    text += fmt::format("  {:>10.3f} ms  {}: {}\n", s.advice[i].us / 1000, scoped_location(s.advice[i].where),
                        s.advice[i].text);
  return text;
}

}  // namespace fermata
