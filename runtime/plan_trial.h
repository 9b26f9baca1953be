// Whether a structure runs faster as a plan or op by op, by measured times.
#pragma once

#include <atomic>
#include <cstdint>

namespace fermata {

/// The choice for sizes that are alike. Calls are op by op in a sync, and a plan of calls in a compiled function. Once
/// both times are known, the faster way is used. Both are measured again after some use, unless calls take kClear times
/// as long as the plan: something else may have disturbed the times, and by then the plan's kernels have been compiled
/// for speed, which short rows gain several times of. A plan that takes kHopeless times as long as calls is not tried
/// again.
class PlanTrial {
 public:
  /// Times of each that are measured: in turn, so that both meet the same disturbance. The first run binds the plan,
  /// and counts for nothing. Few are enough where the choice is clear.
  static constexpr unsigned kTimes = 8, kFew = 3, kMostPlays = 16;
  static constexpr double kClear = 2, kHopeless = 8;
  /// The use after which a choice is tried again: what compiling kernels for speed costs, about; more where one thread
  /// has to wait for it.
  static constexpr std::uint64_t kUseNs = 30'000'000, kUseOfOneThreadNs = 200'000'000;
  /// One in so many executions is timed once there is a choice: threads with one plan do not write one cache line in
  /// turns.
  static constexpr unsigned kOneIn = 32;

  struct Turn {
    bool runs_plan, is_timed;
    bool warms_up = false;  // its kernels are to be compiled for speed
  };
  /// The next execution. `is_sampled`: it may be one of those that are timed after a choice.
  Turn next(bool has_plan, bool is_sampled, std::uint64_t use_ns);
  bool is_open() const { return choice_.load(std::memory_order_relaxed) == Choice::open; }
  /// Whether it will never be anything else than the plan.
  bool is_settled_on_plan() const {
    return choice_.load(std::memory_order_relaxed) == Choice::plan &&
           stage_.load(std::memory_order_relaxed) == Stage::last;
  }
  /// The plan is used first, and compared with calls after some use.
  void begin_with_plan();
  /// The last time of the plan that was measured between two trials; ~0 if there is none.
  std::uint32_t plan_ns() const { return plan_ns_.load(std::memory_order_relaxed); }
  /// Ends the trial: the plan is used.
  void choose_plan();
  /// After a successful execution that is timed.
  void note(const Turn& turn, std::uint64_t ns, std::uint64_t use_ns);

 private:
  enum class Choice : std::uint8_t { open, plan, calls };
  enum class Stage : std::uint8_t { first, to_warm_up, to_repeat, last };
  bool is_used(std::uint64_t use_ns) const { return used_ns_.load(std::memory_order_relaxed) >= use_ns; }
  void choose();

  // Written without care for other threads: a time or a count that is lost does no harm.
  std::atomic<Choice> choice_{Choice::open};
  std::atomic<Stage> stage_{Stage::first};
  std::atomic<std::uint8_t> plays_{0}, runs_{0};           // measured times of calls and of the plan
  std::atomic<std::uint32_t> play_ns_{~0u}, run_ns_{~0u};  // the shortest of each
  std::atomic<std::uint32_t> plan_ns_{~0u};
  std::atomic<std::uint64_t> used_ns_{0};  // about what executions have taken since the choice
};

}  // namespace fermata
