// See fermata/compile.h.
//
// The captures of a function are a list under a lock that is held for a few instructions: to find one and take a
// replayer of it, and to give that back. Neither recordings nor runs hold it, so that threads replay side by side and
// kernels may call anything.
#include "fermata/compile.h"

#include <algorithm>
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
  mutable SpinLock lock;
  using List = std::vector<std::unique_ptr<CapturedCall>>;
  List captured;
  std::uint64_t clock = 0;

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
    CapturedCall* call = nullptr;
    std::unique_ptr<Replayer> replayer{};
    bool is_checked = true;
  };

  void find(Taken& taken, std::span<const Tensor> args, std::span<const std::uint64_t> numbers,
            const CaptureContext& context);
  void keep(Taken& taken, std::unique_ptr<CapturedCall> call);
  void give_back(Taken& taken);
  void set_checked(CapturedCall& call);
  List::iterator drop(List::iterator at, List& dropped);
};

void CompiledCore::State::find(Taken& taken, std::span<const Tensor> args, std::span<const std::uint64_t> numbers,
                               const CaptureContext& context) {
  for (std::uint64_t after = 0;;) {
    {
      const std::lock_guard held(lock);
      for (const auto& c : captured) {
        if (c->number <= after || !c->matches(args, numbers, context)) continue;
        c->used = ++clock, ++c->users;
        taken.call = c.get(), taken.is_checked = c->is_checked;
        taken.replayer = c->idle.take();
        break;
      }
    }
    if (taken.call == nullptr || taken.call->conditions_hold(args)) [[likely]]
      return;
    after = taken.call->number;
    taken.give_back();
  }
}

void CompiledCore::State::keep(Taken& taken, std::unique_ptr<CapturedCall> call) {
  List dropped;  // after the lock
  dropped.reserve(kMaxCaptures + 1);
  const std::lock_guard held(lock);
  for (auto at = captured.begin(); at != captured.end();) {  // none is for a kernel table that is no more
    if ((*at)->is_of_table_like(*call))
      ++at;
    else
      at = drop(at, dropped);
  }
  if (captured.size() >= kMaxCaptures)
    drop(std::ranges::min_element(captured, {}, [](const auto& c) { return c->used; }), dropped);
  taken.call = call.get();
  call->number = call->used = ++clock, call->users = 1;
  captured.push_back(std::move(call));
}

/// One that somebody replays is freed when that is done.
CompiledCore::State::List::iterator CompiledCore::State::drop(List::iterator at, List& dropped) {
  if ((*at)->users == 0) {
    dropped.push_back(std::move(*at));
  } else {
    (*at)->is_forgotten = true;
    static_cast<void>(at->release());
  }
  return captured.erase(at);
}

void CompiledCore::State::give_back(Taken& taken) {
  std::unique_ptr<CapturedCall> forgotten;  // after the lock
  const std::lock_guard held(lock);
  CapturedCall& c = *std::exchange(taken.call, nullptr);
  if (--c.users == 0 && c.is_forgotten)
    forgotten.reset(&c);
  else
    c.idle.give_back(taken.replayer);
}

void CompiledCore::State::set_checked(CapturedCall& call) {
  const std::lock_guard held(lock);
  call.is_checked = true;
}

CompiledCore::CompiledCore() : state_(std::make_unique<State>()) {}
CompiledCore::~CompiledCore() = default;
CompiledCore::CompiledCore(CompiledCore&&) noexcept = default;
CompiledCore& CompiledCore::operator=(CompiledCore&&) noexcept = default;

std::size_t CompiledCore::captures() const {
  const std::lock_guard held(state_->lock);
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
