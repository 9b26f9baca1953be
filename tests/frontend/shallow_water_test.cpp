// The shallow-water example: what the equations conserve, in both modes, and derivatives through its loop.
#include "examples/shallow_water/waves.h"

#include <gtest/gtest.h>

#include "tests/frontend/gradient_check.h"
#include "tests/frontend/vmap_check.h"

namespace fermata {
namespace {

using namespace testing;

class ShallowWater : public InBothModes {};
INSTANTIATE_TEST_SUITE_P(Modes, ShallowWater, ::testing::Values(Mode::eager, Mode::compiled), mode_name);

TEST_P(ShallowWater, ConservesVolumeAndEnergy) {
  waves::Grid grid;
  grid.n = 48;
  const waves::State start = waves::hill(grid), end = waves::run(grid, start, 60);
  const double volume = waves::volume(grid, start).item<double>(), energy = waves::energy(grid, start).item<double>();
  EXPECT_NEAR(waves::volume(grid, end).item<double>() / volume, 1, 1e-13);
  EXPECT_NEAR(waves::energy(grid, end).item<double>() / energy, 1, 1e-4);
  EXPECT_GT(max(abs(end.p)).item<double>(), 0.1);  // something has happened
}

TEST_P(ShallowWater, LoopIsStepsOneByOne) {
  waves::Grid grid;
  grid.n = 16;
  waves::State one_by_one = waves::hill(grid);
  for (int i = 0; i < 5; ++i) one_by_one = waves::step(grid, one_by_one);
  expect_close(waves::run(grid, waves::hill(grid), 5).depth, one_by_one.depth, 0);
}

TEST_P(ShallowWater, IsDifferentiable) {
  waves::Grid grid;
  grid.n = 6;
  const waves::State start = waves::hill(grid);
  const Function f = [&](const Inputs& in) { return waves::run(grid, {in[0], start.p, start.q}, 3).depth[1]; };
  check_gradients("shallow water", f, {start.depth}, 1e-6);
  check_pushforward("shallow water", f, {start.depth}, 1e-6);
}

}  // namespace
}  // namespace fermata
