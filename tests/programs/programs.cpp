// See programs.h.
#include "tests/programs/programs.h"

#include <bit>
#include <cmath>

#include "tests/programs/sources.h"

namespace fermata::programs {

void Results::add(const Tensor& x) {
  for (const double value : x.to_vector<double>()) add(value);
}

void Results::add(double x) { bits_.push_back(std::bit_cast<std::uint64_t>(x)); }

void Results::add(const Results& others) { bits_.insert(bits_.end(), others.bits_.begin(), others.bits_.end()); }

bool Results::is_close(const Results& other) const {
  if (size() != other.size()) return false;
  for (std::size_t i = 0; i < size(); ++i) {
    const double a = std::bit_cast<double>(bits_[i]), b = std::bit_cast<double>(other.bits_[i]);
    if (bits_[i] != other.bits_[i] && !(std::abs(a - b) <= 1e-4 * (1 + std::abs(a)))) return false;
  }
  return true;
}

std::span<const Program> all() {
#define FERMATA_PROGRAM(name) \
  { #name, name }
  static constexpr Program programs[] = {
      FERMATA_PROGRAM(digits_step),
      FERMATA_PROGRAM(compiled_training),
      FERMATA_PROGRAM(data_loading),
      FERMATA_PROGRAM(training_files),
      FERMATA_PROGRAM(compiled_function),
      FERMATA_PROGRAM(control_flow),
      FERMATA_PROGRAM(control_flow_in_compiled_function),
      FERMATA_PROGRAM(nested_control_flow),
      FERMATA_PROGRAM(while_loops),
      FERMATA_PROGRAM(vmap_of_gradients),
      FERMATA_PROGRAM(higher_derivatives),
      FERMATA_PROGRAM(pointwise_and_reductions),
      FERMATA_PROGRAM(products),
      FERMATA_PROGRAM(convolutions),
      FERMATA_PROGRAM(linear_algebra),
      FERMATA_PROGRAM(selections),
      FERMATA_PROGRAM(writes_in_place),
      FERMATA_PROGRAM(views_and_writes),
      FERMATA_PROGRAM(layouts),
      FERMATA_PROGRAM(errors),
      FERMATA_PROGRAM(array_files),
      FERMATA_PROGRAM(model_files),
      FERMATA_PROGRAM(trace_files),
      FERMATA_PROGRAM(exported_programs),
      FERMATA_PROGRAM(world_of_one),
      FERMATA_PROGRAM(disk_cache),
      FERMATA_PROGRAM(threads),
      FERMATA_PROGRAM(exchange),
      FERMATA_PROGRAM(texts),
      {"few_calls", few_calls, true},
      {"device_work", device_work, false, true},
  };
#undef FERMATA_PROGRAM
  return programs;
}

}  // namespace fermata::programs
