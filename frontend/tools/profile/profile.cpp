// See fermata/profile.h.
#include "fermata/profile.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <functional>
#include <iterator>
#include <map>
#include <set>
#include <string_view>

#include "dispatch/profile.h"
#include "frontend/engine/startup.h"
#include "frontend/tools/io/file.h"
#include "frontend/tools/profile/profile_data.h"
#include "frontend/tools/profile/report_page.h"
#include "runtime/device_times.h"
#include "runtime/environment.h"

namespace fermata {

Profile::Profile() : data_(std::make_unique<ProfileData>()) {
  watch_call_events(true);
  begin_events(), start_device_times();
  data_->begin_ns = event_clock();
}
Profile::~Profile() { stop(); }

void Profile::stop() {
  if (!is_running_) return;
  is_running_ = false;
  data_->end_ns = event_clock();
  std::vector<ThreadEvents> devices = finish_device_times(data_->begin_ns);
  data_->threads = end_events(data_->begin_ns);
  std::ranges::move(devices, std::back_inserter(data_->threads));
  watch_call_events(false);
  std::set<std::uint64_t> ran;
  for (const ThreadEvents& thread : data_->threads)
    for (const Event& event : thread.events) ran.insert(event.plan), ran.insert(event.info->plan);
  data_->plans = profiled_plans();
  std::erase_if(data_->plans, [&](const auto& plan) { return !ran.contains(plan.first); });
}

const ProfileData& Profile::data() {
  stop();
  return *data_;
}
ProfileSummary Profile::summary() { return summarize(data()); }

void save(Profile& profile, const std::string& path, Location where) {
  const std::string text = trace_json(profile.data());
  write_file("save", path, {text}, where);
}

void report(const std::string& path, Profile& profile, Location where) {
  constexpr std::size_t kMostEvents = 3500;
  const ProfileData& data = profile.data();
  ReportContents contents{.title = "Fermata report"};
  contents.trace = trace_json(data, kMostEvents, contents.left_out);
  std::map<std::uint64_t, std::int64_t> spent;
  for (const ThreadEvents& thread : data.threads)
    for (const Event& event : thread.events) spent[event.info->plan] += event.end_ns - event.begin_ns;
  for (const auto& [number, plan] : data.plans)
    contents.programs.push_back({number, plan.graph, plan.backend, plan.form});
  std::ranges::stable_sort(contents.programs, std::greater<>(), [&](const ReportProgram& p) { return spent[p.plan]; });
  write_file("report", path, {report_page(contents)}, where);
}

namespace {

/// The profile of the process, and the file that it is written to when that ends: by this process, not by others that
/// were forked from it.
struct ProcessProfile {
  Profile profile;
  std::string path;
  pid_t process = getpid();
};
ProcessProfile* process_profile = nullptr;

void write_process_profile() {
  if (process_profile->process != getpid()) return;
  try {
    const std::string& path = process_profile->path;
    if (path.ends_with(".html"))
      report(path, process_profile->profile);
    else
      save(process_profile->profile, path);
  } catch (const std::exception& error) { std::fprintf(stderr, "fermata: %s\n", error.what()); }
}

}  // namespace

void profile_process() {
  const char* const path = environment_variable("FERMATA_PROFILE");
  if (path == nullptr || *path == '\0') return;
  process_profile = new ProcessProfile{{}, path};
  std::atexit(&write_process_profile);
}

}  // namespace fermata
