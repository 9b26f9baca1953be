// See plan_trial.h.
#include "runtime/plan_trial.h"

#include <algorithm>

namespace fermata {
namespace {

constexpr auto kRelaxed = std::memory_order_relaxed;

}  // namespace

PlanTrial::Turn PlanTrial::next(bool has_plan, bool is_sampled, std::uint64_t use_ns) {
  const Choice choice = choice_.load(kRelaxed);
  const Stage stage = stage_.load(kRelaxed);
  if (choice == Choice::open) {
    const unsigned plays = plays_.load(kRelaxed), runs = runs_.load(kRelaxed);
    if (!has_plan) return {false, plays < kMostPlays};
    return {plays >= std::min(kTimes, std::max(kFew, runs)), true};
  }
  const bool is_timed = is_sampled && stage != Stage::last;
  if (choice == Choice::plan || !has_plan) return {has_plan, is_timed};
  const bool warms_up = is_timed && stage == Stage::to_warm_up && is_used(use_ns);
  return {warms_up, is_timed, warms_up};
}

void PlanTrial::begin_with_plan() {
  stage_.store(Stage::to_repeat, kRelaxed);
  choice_.store(Choice::plan, kRelaxed);
}

void PlanTrial::choose_plan() {
  stage_.store(Stage::last, kRelaxed);
  choice_.store(Choice::plan, kRelaxed);
}

void PlanTrial::note(const Turn& turn, std::uint64_t ns, std::uint64_t use_ns) {
  if (turn.warms_up) {
    used_ns_.store(0, kRelaxed);
    stage_.store(Stage::to_repeat, kRelaxed);
    return;
  }
  if (choice_.load(kRelaxed) != Choice::open) {
    if (turn.runs_plan) plan_ns_.store(static_cast<std::uint32_t>(std::min<std::uint64_t>(ns, ~0u)), kRelaxed);
    used_ns_.store(used_ns_.load(kRelaxed) + ns * kOneIn, kRelaxed);
    if (stage_.load(kRelaxed) != Stage::to_repeat || !is_used(use_ns)) return;
    plays_.store(0, kRelaxed), runs_.store(0, kRelaxed);
    play_ns_.store(~0u, kRelaxed), run_ns_.store(~0u, kRelaxed);
    choice_.store(Choice::open, kRelaxed);
    return;
  }
  std::atomic<std::uint32_t>& shortest = turn.runs_plan ? run_ns_ : play_ns_;
  shortest.store(static_cast<std::uint32_t>(std::min<std::uint64_t>(ns, shortest.load(kRelaxed))), kRelaxed);
  std::atomic<std::uint8_t>& times = turn.runs_plan ? runs_ : plays_;
  if (times.load(kRelaxed) < kMostPlays) times.store(times.load(kRelaxed) + 1, kRelaxed);
  choose();
}

void PlanTrial::choose() {
  const unsigned times = std::min(plays_.load(kRelaxed), runs_.load(kRelaxed));
  const double play = play_ns_.load(kRelaxed), run = run_ns_.load(kRelaxed);
  const bool is_clear = play > kClear * run || run > kClear * play;
  if (times < (is_clear ? kFew : kTimes)) return;
  const bool is_plan = run <= play;
  const bool is_last = stage_.load(kRelaxed) != Stage::first || (is_plan ? is_clear : run > kHopeless * play);
  // The kernels of a plan that is used much are compiled for speed without being asked.
  stage_.store(is_last ? Stage::last : is_plan ? Stage::to_repeat : Stage::to_warm_up, kRelaxed);
  used_ns_.store(0, kRelaxed);
  choice_.store(is_plan ? Choice::plan : Choice::calls, kRelaxed);
}

}  // namespace fermata
