// See fermata/compile.h.
//
// The captures of a function are a list under locks that are held for a few instructions: to find one and take a
// replayer of it, and to give that back. Neither recordings nor runs hold them, so that threads replay side by side and
// kernels may call anything. A thread that replays locks its lane only, and writes nothing else, so that threads do not
// write one cache line in turns; who changes the list locks all lanes.
#include "fermata/compile.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <mutex>
#include <string_view>
#include <utility>

#include "fermata/modes.h"
#include "frontend/engine/captured_call.h"
#include "frontend/engine/no_memory.h"
#include "frontend/engine/spin_lock.h"
#include "frontend/engine/value_checks.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/trace/tracer.h"
#include "frontend/transforms/vmap/batched.h"
#include "runtime/environment.h"
#include "runtime/stats.h"

namespace fermata {
namespace {

/// Signatures kept per function; the least recently used goes.
constexpr std::size_t kMaxCaptures = 64;

std::atomic<bool> check_replay{[] {
#ifdef NDEBUG
  const char* value = environment_variable("FERMATA_CHECK_REPLAY");
  return value != nullptr && std::string_view(value) != "0";
#else
  return true;
#endif
}()};

}  // namespace

bool set_check_replay(bool on) { return check_replay.exchange(on); }

struct CompiledCore::State {
  using List = std::vector<std::unique_ptr<CapturedCall>>;
  struct alignas(64) Lane {
    SpinLock lock;
    std::uint64_t clock = 0;
  };
  static std::size_t lane_of_thread() {
    static std::atomic<std::size_t> threads{0};
    static constinit thread_local std::size_t number = 0;  // from 1 on
    if (number == 0) [[unlikely]]
      number = threads.fetch_add(1, std::memory_order_relaxed) % CapturedCall::kLanes + 1;
    return number - 1;
  }
  /// The locks of all lanes.
  class AllLanes {
   public:
    explicit AllLanes(State& s) : lanes_(s.lanes) {
      for (Lane& lane : lanes_) lane.lock.lock();
    }
    ~AllLanes() {
      for (Lane& lane : lanes_) lane.lock.unlock();
    }
    AllLanes(const AllLanes&) = delete;
    AllLanes& operator=(const AllLanes&) = delete;

   private:
    std::array<Lane, CapturedCall::kLanes>& lanes_;
  };

  std::array<Lane, CapturedCall::kLanes> lanes;
  // Read under the lock of a lane, written under those of all.
  List captured;
  List forgotten;  // that somebody replays still
  std::uint64_t numbers = 0;

  /// A capture in use, and what to replay it with.
  struct Taken {
    explicit Taken(State& s) : state(s) {}
    ~Taken() { give_back(); }
    Taken(const Taken&) = delete;
    Taken& operator=(const Taken&) = delete;
    void give_back() {
      if (call != nullptr) state.give_back(*this);
    }
    State& state;
    const std::size_t lane = lane_of_thread();
    CapturedCall* call = nullptr;
    std::unique_ptr<Replayer> replayer{};
    bool is_checked = true;
  };

  void find(Taken& taken, std::span<const Tensor> args, std::span<const std::uint64_t> numbers,
            const CaptureContext& context);
  void keep(Taken& taken, std::unique_ptr<CapturedCall> call);
  void give_back(Taken& taken);
  void set_checked(CapturedCall& call);

 private:
  std::uint64_t set_clocks();
  List::iterator drop(List::iterator at, List& dropped);
  void free_forgotten();
};

void CompiledCore::State::find(Taken& taken, std::span<const Tensor> args, std::span<const std::uint64_t> numbers,
                               const CaptureContext& context) {
  Lane& lane = lanes[taken.lane];
  for (std::uint64_t after = 0;;) {
    {
      const std::lock_guard held(lane.lock);
      for (const auto& c : captured) {
        if (c->number <= after || !c->matches(args, numbers, context)) continue;
        CapturedCall::LaneUse& use = c->lanes[taken.lane];
        use.used = ++lane.clock, ++use.users;
        taken.call = c.get(), taken.is_checked = c->is_checked;
        taken.replayer = use.idle.take();
        break;
      }
    }
    if (taken.call == nullptr || taken.call->conditions_hold(args)) [[likely]]
      return;
    after = taken.call->number;
    taken.give_back();
  }
}

/// To the latest one, which it returns: uses of different lanes can be compared from then on.
std::uint64_t CompiledCore::State::set_clocks() {
  const std::uint64_t latest = std::ranges::max_element(lanes, {}, &Lane::clock)->clock + 1;
  for (Lane& lane : lanes) lane.clock = latest;
  return latest;
}

void CompiledCore::State::keep(Taken& taken, std::unique_ptr<CapturedCall> call) {
  List dropped;  // after the lock
  dropped.reserve(kMaxCaptures + 1);
  const AllLanes held(*this);
  captured.reserve(captured.size() + 1), forgotten.reserve(forgotten.size() + captured.size());
  for (auto at = captured.begin(); at != captured.end();) {  // none is for a kernel table that is no more
    if ((*at)->is_of_table_like(*call))
      ++at;
    else
      at = drop(at, dropped);
  }
  if (captured.size() >= kMaxCaptures)
    drop(std::ranges::min_element(captured, {}, [](const auto& c) { return c->last_used(); }), dropped);
  taken.call = call.get();
  call->number = ++numbers;
  call->lanes[taken.lane].used = set_clocks(), call->lanes[taken.lane].users = 1;
  captured.push_back(std::move(call));
}

/// One that somebody replays is freed when that is done.
CompiledCore::State::List::iterator CompiledCore::State::drop(List::iterator at, List& dropped) {
  (*at)->is_forgotten = (*at)->has_users();
  ((*at)->is_forgotten ? forgotten : dropped).push_back(std::move(*at));
  return captured.erase(at);
}

void CompiledCore::State::give_back(Taken& taken) {
  CapturedCall& c = *std::exchange(taken.call, nullptr);
  bool is_forgotten;
  {
    const std::lock_guard held(lanes[taken.lane].lock);
    CapturedCall::LaneUse& use = c.lanes[taken.lane];
    is_forgotten = c.is_forgotten;
    --use.users;
    use.idle.give_back(taken.replayer);
  }
  if (is_forgotten) [[unlikely]]
    free_forgotten();
}

void CompiledCore::State::free_forgotten() {
  for (;;) {
    std::unique_ptr<CapturedCall> unused;  // after the lock
    const AllLanes held(*this);
    const auto at = std::ranges::find_if(forgotten, [](const auto& c) { return !c->has_users(); });
    if (at == forgotten.end()) return;
    unused = std::move(*at);
    forgotten.erase(at);
  }
}

void CompiledCore::State::set_checked(CapturedCall& call) {
  const AllLanes held(*this);
  call.is_checked = true;
}

CompiledCore::CompiledCore() : state_(std::make_unique<State>()) {}
CompiledCore::~CompiledCore() = default;
CompiledCore::CompiledCore(CompiledCore&&) noexcept = default;
CompiledCore& CompiledCore::operator=(CompiledCore&&) noexcept = default;

std::size_t CompiledCore::captures() const {
  const std::lock_guard held(state_->lanes[State::lane_of_thread()].lock);
  return state_->captured.size();
}

void CompiledCore::call(std::span<const Tensor> args, std::span<const std::uint64_t> numbers, Body body,
                        Deliver deliver, Location where) try {
  const auto run_body = [&] {
    Results results = body(args);
    for (const Tensor& t : results.tensors) require_defined("compile", t, where);
    deliver(results.tensors, results.form.get());
  };
  for (const Tensor& t : args) require_defined("compile", t, where);
  if (value_checks() != 0) [[unlikely]]
    return run_body();
  if (mode() == Mode::eager || in_capture_scope() || tracing()) return run_body();  // it is part of another one
  // A wrapper tensor has no buffer to bind: the function is run, and what it does to the parts is recorded.
  if (std::ranges::any_of(args, [](const Tensor& t) { return t.impl()->payload != nullptr; })) return run_body();
  // Inside vmap it is part of what is batched, and so of what that is compiled as.
  if (vmap_frame != nullptr) return run_body();
  for (const Tensor& t : args)
    if (t.node()->pending()) tensor_hooks.materialize(t.node(), "an argument of a compiled function", where);
  const CaptureContext context = CaptureContext::current();
  State::Taken taken(*state_);
  state_->find(taken, args, numbers, context);
  if (taken.call == nullptr) {
    std::unique_ptr<CapturedCall> call;
    try {
      CallRecording recording(args, body, where);
      call = std::make_unique<CapturedCall>(args, numbers, recording, context, where);
    } catch (const NotRecordable&) { call = std::make_unique<CapturedCall>(args, numbers, context); }
    state_->keep(taken, std::move(call));
  } else if (!taken.call->must_run()) {
    if (!taken.is_checked || check_replay.load(std::memory_order_relaxed)) [[unlikely]] {
      taken.call->require_same(CallRecording(args, body, where), where);
      state_->set_checked(*taken.call);
    }
    ThreadCounts::add_one(ThreadCounts::mine().replays);
  }
  if (taken.call->must_run()) return run_body();
  if (taken.replayer == nullptr) taken.replayer = taken.call->make_replayer();
  taken.call->replay(*taken.replayer, args, deliver, where);
} catch (const std::bad_alloc&) { throw_no_memory("compile", where); }

}  // namespace fermata
