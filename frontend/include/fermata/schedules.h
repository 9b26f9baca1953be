// Learning rates that change from step to step.
//
//   const auto rate = fm::optim::schedule::warmup(100, fm::optim::schedule::cosine(3e-3, 2000));
//   adam.options.learning_rate = rate(step);
//
// A schedule is a function of the number of steps taken, from 0, so a run that is resumed needs to know that number
// alone. Values are those of the schedulers of torch.optim.lr_scheduler. Errors: ValueError FM1377 for numbers of steps
// that are not positive.
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
/// The rate times `factor` after every `every` steps.
Schedule step_decay(double rate, std::int64_t every, double factor = 0.1, Location where = Location::current());
/// The rate times `factor` from each of these steps on.
Schedule multi_step(double rate, std::vector<std::int64_t> milestones, double factor = 0.1);
Schedule exponential(double rate, double factor);
/// Straight from one rate to another, where it stays.
Schedule linear(double first, double last, std::int64_t steps, Location where = Location::current());
/// rate * (1 - step / steps) ^ power, then 0.
Schedule polynomial(double rate, std::int64_t steps, double power = 1, Location where = Location::current());
/// Half a cosine from the rate to `lowest`, where it stays.
Schedule cosine(double rate, std::int64_t steps, double lowest = 0, Location where = Location::current());
/// The same again and again, each time over `growth` times as many steps.
///
/// Source   Loshchilov and Hutter, "SGDR: stochastic gradient descent with warm restarts", ICLR 2017.
Schedule warm_restarts(double rate, std::int64_t steps, std::int64_t growth = 1, double lowest = 0,
                       Location where = Location::current());

struct OneCycleOptions {
  double rising = 0.3;         // share of the steps
  double start_divisor = 25;   // of the highest rate
  double final_divisor = 1e4;  // of the rate at the start
};
/// Up to the highest rate and down far below the first one, along cosines.
///
/// Source   Smith and Topin, "Super-convergence", 2018.
Schedule one_cycle(double highest, std::int64_t steps, const OneCycleOptions& options = {},
                   Location where = Location::current());
/// Schedules one after the other, each counting its steps from 0: {{100, first}, {900, second}}. The last one goes on.
Schedule sequence(std::vector<std::pair<std::int64_t, Schedule>> parts, Location where = Location::current());
/// Straight up to the first rate of a schedule, from `start` times that, and then the schedule.
Schedule warmup(std::int64_t steps, Schedule then, double start = 0.1, Location where = Location::current());

}  // namespace schedule

struct PlateauOptions {
  double factor = 0.1;         // of the rate, at every reduction
  std::int64_t patience = 10;  // updates without a better loss that change nothing
  double threshold = 1e-4;     // what counts as better: by this share of the best
  std::int64_t cooldown = 0;   // updates after a reduction that do not count
  double lowest = 0;
  bool maximize = false;
};
/// A rate that falls when a loss no longer does. It depends on the losses, so a run that is resumed restores `state`.
class ReduceOnPlateau {
 public:
  explicit ReduceOnPlateau(double rate, const PlateauOptions& options = {});
  /// The rate after a loss was seen.
  double update(double loss);
  struct State {
    double rate = 0, best = 0;
    std::int64_t bad = 0, cooling = 0;
    bool any = false;  // whether there was a loss
  };
  State state;

 private:
  PlateauOptions options_;
};

}  // namespace fermata::optim
