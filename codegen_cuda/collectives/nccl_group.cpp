// See nccl_group.h.
#include "codegen_cuda/collectives/nccl_group.h"

#include <fmt/format.h>

#include <chrono>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

#include "codegen_cuda/runtime/device.h"
#include "ir/error.h"
#include "ir/keep_forever.h"
#include "runtime/collective_timeout.h"

namespace fermata::gpu {
namespace {

struct Groups {
  std::mutex mutex;
  std::map<std::int64_t, std::unique_ptr<NcclGroup>> all;  // by number; null if there is none
};
Groups& groups() {
  static Groups& known = *keep_forever<Groups>();
  return known;
}

void wait_for_all_groups() {
  std::vector<NcclGroup*> started;
  {
    const std::lock_guard lock(groups().mutex);
    for (const auto& [number, group] : groups().all)
      if (group != nullptr) started.push_back(group.get());
  }
  for (NcclGroup* const group : started) group->wait();
}

/// A call of the transport that all ranks make before NCCL knows them.
void exchange(const RankGroup& group, const CollectiveCall& of, CollectiveKind kind, DType dtype, std::int64_t count,
              void* values) {
  group.transport->run({.kind = kind,
                        .dtype = dtype,
                        .count = count,
                        .from = values,
                        .to = values,
                        .reduction = CollectiveReduction::min,
                        .name = of.name,
                        .where = of.where});
}

}  // namespace

NcclGroup* NcclGroup::of(const RankGroup& group, const CollectiveCall& call) {
  if (!group.transport->spans_processes()) return nullptr;
  {
    const std::lock_guard lock(groups().mutex);
    if (const auto found = groups().all.find(group.number); found != groups().all.end()) return found->second.get();
  }
  std::uint8_t has_nccl = nccl_library() != nullptr ? 1 : 0;
  exchange(group, call, CollectiveKind::all_reduce, DType::u8, 1, &has_nccl);
  std::unique_ptr<NcclGroup> made;
  if (has_nccl != 0) made.reset(new NcclGroup(group, call));
  before_synchronizing = &wait_for_all_groups;
  const std::lock_guard lock(groups().mutex);
  return groups().all.emplace(group.number, std::move(made)).first->second.get();
}

NcclGroup::NcclGroup(const RankGroup& group, const CollectiveCall& call) : group_(group) {
  const NcclFunctions& nccl = *nccl_library();
  device_ = current_device().number();
  NcclId id{};
  if (group.rank == 0) settle(nccl.unique_id(&id), call.name, call.where);
  exchange(group, call, CollectiveKind::broadcast, DType::u8, sizeof id.bytes, id.bytes);
  NcclConfig config;
  const Result r = nccl.start(&handle_, static_cast<int>(group.size()), id, static_cast<int>(group.rank), &config);
  settle(r, call.name, call.where);
  check(driver().stream_create(&stream_, kStreamNonBlocking), "cuStreamCreate");
  check(driver().event_create(&ready_, kEventDisableTiming), "cuEventCreate");
  check(driver().event_create(&done_, kEventDisableTiming), "cuEventCreate");
}

void NcclGroup::fail(const std::string& what, std::string_view name, std::source_location where) {
  if (failure_.empty() && handle_ != nullptr) nccl_library()->abort(std::exchange(handle_, nullptr));
  failure_ = what;
  throw CollectiveError(7006, format_error(7006, "CollectiveError", fmt::format("{}: {}", name, what), {}, where));
}

void NcclGroup::settle(Result result, std::string_view name, std::source_location where) {
  CollectiveTimeout timeout;
  while (result == kNcclInProgress && handle_ != nullptr) {
    if (timeout.is_over())
      fail(fmt::format("other ranks did not arrive within {} s", CollectiveTimeout::limit().count()), name, where);
    std::this_thread::sleep_for(std::chrono::microseconds(20));
    if (const Result r = nccl_library()->state(handle_, &result); r != kSuccess) result = r;
  }
  if (result == kSuccess) [[likely]]
    return;
  static constexpr std::string_view kWhat[] = {"success",
                                               "a CUDA error",
                                               "a system error",
                                               "an internal error",
                                               "an invalid argument",
                                               "an invalid usage",
                                               "another rank has failed or exited"};
  const auto number = static_cast<std::size_t>(result);
  fail(fmt::format("NCCL reports {}; set NCCL_DEBUG=WARN for details",
                   number < std::size(kWhat) ? std::string(kWhat[number]) : fmt::format("error {}", result)),
       name, where);
}

void NcclGroup::begin(const CollectiveCall& call) {
  if (!failure_.empty())
    throw CollectiveError(
        7008, format_error(7008, "CollectiveError",
                           fmt::format("{}: this group is unusable because a call failed: {}", call.name, failure_), {},
                           call.where));
  if (current_device().number() != device_)
    throw DeviceError(1407,
                      format_error(1407, "DeviceError",
                                   fmt::format("{}: the operand is on cuda:{}, but the group uses cuda:{}", call.name,
                                               current_device().number(), device_),
                                   {}, call.where, "all collectives of a group must use the same device in a process"));
  group_.transport->expect(call);
  check(driver().event_record(ready_, current_stream().handle), "cuEventRecord");
  check(driver().stream_wait_event(stream_, ready_, 0), "cuStreamWaitEvent");
}

void NcclGroup::end(const CollectiveCall& call) {
  check(driver().event_record(done_, stream_), "cuEventRecord");
  is_started_ = true, last_name_ = call.name, last_where_ = call.where;
}

void NcclGroup::join() { check(driver().stream_wait_event(current_stream().handle, done_, 0), "cuStreamWaitEvent"); }

bool NcclGroup::has_ended() const { return driver().event_query(done_) == kSuccess; }

void NcclGroup::wait() {
  if (!is_started_ || !failure_.empty()) return;
  CollectiveTimeout timeout;
  for (int looks = 0; driver().event_query(done_) == kNotReady; ++looks) {
    Result state = kSuccess;
    if (const Result r = nccl_library()->state(handle_, &state); r != kSuccess) state = r;
    if (state != kNcclInProgress) settle(state, last_name_, last_where_);
    if (timeout.is_over())
      fail(fmt::format("other ranks did not arrive within {} s", CollectiveTimeout::limit().count()), last_name_,
           last_where_);
    if (looks > 1000) std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  is_started_ = false;
  Result state = kSuccess;
  if (const Result r = nccl_library()->state(handle_, &state); r != kSuccess) state = r;
  settle(state, last_name_, last_where_);
}

}  // namespace fermata::gpu
