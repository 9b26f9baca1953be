// Learning rate schedules.
//
//   const auto rate = fm::optim::schedule::warmup(100, fm::optim::schedule::cosine(3e-3, 2000));
//   adam.options.learning_rate = rate(step);
//
// A schedule is a function of the number of steps taken, from 0, so a resumed run needs only that number. Values match
// torch.optim.lr_scheduler. Errors: ValueError FM1377 for step counts that are not positive.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>
#include <vector>

#include "runtime/tensor.h"

namespace fermata::optim {

using Schedule = std::function<double(std::int64_t step)>;

namespace schedule {

Schedule constant(double rate);
/// Multiplies the rate by `factor` every `every` steps.
Schedule step_decay(double rate, std::int64_t every, double factor = 0.1, Location where = Location::current());
/// Multiplies the rate by `factor` at each of the given steps.
Schedule multi_step(double rate, std::vector<std::int64_t> milestones, double factor = 0.1);
Schedule exponential(double rate, double factor);
/// Linear from `first` to `last`, then constant.
Schedule linear(double first, double last, std::int64_t steps, Location where = Location::current());
/// rate * (1 - step / steps) ^ power, then 0.
Schedule polynomial(double rate, std::int64_t steps, double power = 1, Location where = Location::current());
/// Half a cosine from the rate to `lowest`, then constant.
Schedule cosine(double rate, std::int64_t steps, double lowest = 0, Location where = Location::current());
/// Repeated cosines; each period has `growth` times as many steps as the one before.
///
/// Source   Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017.
Schedule warm_restarts(double rate, std::int64_t steps, std::int64_t growth = 1, double lowest = 0,
                       Location where = Location::current());

struct OneCycleOptions {
  double rising = 0.3;         // fraction of the steps
  double start_divisor = 25;   // initial rate = highest / start_divisor
  double final_divisor = 1e4;  // final rate = initial rate / final_divisor
};
/// Rises to the highest rate and falls far below the initial one, along cosines.
///
/// Source   Smith and Topin, "Super-convergence", 2018.
Schedule one_cycle(double highest, std::int64_t steps, const OneCycleOptions& options = {},
                   Location where = Location::current());
/// Schedules in sequence, each counting its steps from 0: {{100, first}, {900, second}}. The last one continues
/// indefinitely.
Schedule sequence(std::vector<std::pair<std::int64_t, Schedule>> parts, Location where = Location::current());
/// Linear warmup from `start` times the first rate of a schedule up to that rate, followed by the schedule.
Schedule warmup(std::int64_t steps, Schedule then, double start = 0.1, Location where = Location::current());

}  // namespace schedule

struct PlateauOptions {
  double factor = 0.1;         // multiplies the rate at every reduction
  std::int64_t patience = 10;  // updates without improvement before a reduction
  double threshold = 1e-4;     // the relative improvement that counts
  std::int64_t cooldown = 0;   // updates ignored after a reduction
  double lowest = 0;
  bool maximize = false;
};
/// Reduces the rate when a loss stops improving. It depends on past losses, so a resumed run must restore `state`.
class ReduceOnPlateau {
 public:
  explicit ReduceOnPlateau(double rate, const PlateauOptions& options = {});
  /// Records a loss and returns the new rate.
  double update(double loss);
  struct State {
    double rate = 0, best = 0;
    std::int64_t bad = 0, cooling = 0;
    bool any = false;  // whether a loss has been recorded
  };
  State state;

 private:
  PlateauOptions options_;
};

}  // namespace fermata::optim
