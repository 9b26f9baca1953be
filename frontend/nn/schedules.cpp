// See fermata/schedules.h.
#include "fermata/schedules.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>

#include "frontend/nn/parameter.h"
#include "frontend/ops/neural/floating_scope.h"

namespace fermata::optim {
namespace {

/// Half a cosine from one number to another while t goes from 0 to 1.
double along_cosine(double from, double to, double t) {
  return to + (from - to) * (1 + std::cos(std::numbers::pi * t)) / 2;
}
double share(std::int64_t step, std::int64_t steps) {
  return static_cast<double>(std::clamp(step, std::int64_t{0}, steps)) / static_cast<double>(steps);
}
void require_steps(std::string_view schedule, std::int64_t steps, Location where) {
  nn::require_positive(schedule, {{"steps", steps}}, where);
}

}  // namespace

namespace schedule {

Schedule constant(double rate) {
  return [=](std::int64_t) { return rate; };
}

Schedule step_decay(double rate, std::int64_t every, double factor, Location where) {
  require_steps("step_decay", every, where);
  return [=](std::int64_t step) { return rate * std::pow(factor, static_cast<double>(step / every)); };
}

Schedule multi_step(double rate, std::vector<std::int64_t> milestones, double factor) {
  return [=, at = std::move(milestones)](std::int64_t step) {
    return rate * std::pow(factor, std::count_if(at.begin(), at.end(), [&](std::int64_t m) { return m <= step; }));
  };
}

Schedule exponential(double rate, double factor) {
  return [=](std::int64_t step) { return rate * std::pow(factor, static_cast<double>(step)); };
}

Schedule linear(double first, double last, std::int64_t steps, Location where) {
  require_steps("linear", steps, where);
  return [=](std::int64_t step) { return first + (last - first) * share(step, steps); };
}

Schedule polynomial(double rate, std::int64_t steps, double power, Location where) {
  require_steps("polynomial", steps, where);
  return [=](std::int64_t step) { return rate * std::pow(1 - share(step, steps), power); };
}

Schedule cosine(double rate, std::int64_t steps, double lowest, Location where) {
  require_steps("cosine", steps, where);
  return [=](std::int64_t step) { return along_cosine(rate, lowest, share(step, steps)); };
}

Schedule warm_restarts(double rate, std::int64_t steps, std::int64_t growth, double lowest, Location where) {
  require_steps("warm_restarts", steps, where);
  nn::require_positive("warm_restarts", {{"growth", growth}}, where);
  return [=](std::int64_t step) {
    std::int64_t at = std::max(step, std::int64_t{0}), period = steps;
    if (growth == 1) at %= period;
    while (at >= period) at -= period, period *= growth;
    return along_cosine(rate, lowest, share(at, period));
  };
}

Schedule one_cycle(double highest, std::int64_t steps, const OneCycleOptions& o, Location where) {
  require_steps("one_cycle", steps, where);
  const double first = highest / o.start_divisor, last = first / o.final_divisor;
  const double top = o.rising * static_cast<double>(steps) - 1, end = static_cast<double>(steps) - 1;
  return [=](std::int64_t step) {
    const double at = std::clamp(static_cast<double>(step), 0.0, end);
    if (at <= top) return along_cosine(first, highest, at / top);
    return end <= top ? highest : along_cosine(highest, last, (at - top) / (end - top));
  };
}

Schedule sequence(std::vector<std::pair<std::int64_t, Schedule>> parts, Location where) {
  if (parts.empty()) fail_parameter("sequence", "the list of schedules is empty", where);
  for (const auto& part : parts) require_steps("sequence", part.first, where);
  return [parts = std::move(parts)](std::int64_t step) {
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      if (step < parts[i].first) return parts[i].second(step);
      step -= parts[i].first;
    }
    return parts.back().second(step);
  };
}

Schedule warmup(std::int64_t steps, Schedule then, double start, Location where) {
  const double target = then(0);
  return sequence({{steps, linear(start * target, target, steps, where)}, {steps, std::move(then)}}, where);
}

}  // namespace schedule

ReduceOnPlateau::ReduceOnPlateau(double rate, const PlateauOptions& options) : options_(options) { state.rate = rate; }

double ReduceOnPlateau::update(double loss) {
  State& s = state;
  const double margin = options_.threshold * std::abs(s.best);
  const bool better = !s.any || (options_.maximize ? loss > s.best + margin : loss < s.best - margin);
  if (better) s.best = loss, s.any = true, s.bad = 0;
  if (!better) ++s.bad;
  if (s.cooling > 0) --s.cooling, s.bad = 0;
  if (s.bad > options_.patience) {
    s.rate = std::max(s.rate * options_.factor, options_.lowest);
    s.cooling = options_.cooldown, s.bad = 0;
  }
  return s.rate;
}

}  // namespace fermata::optim
