// The shallow-water equations on a periodic grid, in flux form: depth h and momenta p = h u, q = h v.
//
//   h_t + p_x + q_y = 0
//   p_t + (p^2 / h + g h^2 / 2)_x + (p q / h)_y = 0
//   q_t + (p q / h)_x + (q^2 / h + g h^2 / 2)_y = 0
//
// Fourth-order central differences in space and the classical Runge-Kutta method in time. The flux out of a cell enters
// its neighbor, so the total depth is conserved up to rounding. The energy of waves that the grid resolves is conserved
// up to the order of the method.
#pragma once

#include <fermata/distributed.h>
#include <fermata/fermata.h>

#include <tuple>

namespace waves {

using fermata::Tensor;

struct State {
  Tensor depth, p, q;  // f64[n, n]
};

struct Grid {
  std::int64_t n = 128;
  double gravity = 9.81;
  double spacing = 1;       // of cells, in meters
  double time_step = 0.03;  // in seconds; a wave of speed sqrt(g h) crosses less than a third of a cell per step
};

/// Water at rest, 10 m deep, with a smooth hill of 0.5 m.
State hill(const Grid& grid, fermata::Device device = fermata::cpu());
/// One time step.
State step(const Grid& grid, const State& state);
/// One time step of the rows of this process, at least eight: `rows` are the processes in the order of their rows.
/// Computes the same bits as step() on the whole.
State step_of_rows(const Grid& grid, const State& state, const fermata::distributed::Group& rows);
/// `count` time steps as one loop, which is one step of a plan in compiled mode.
State run(const Grid& grid, const State& state, std::int64_t count);

/// The volume of water, in cubic meters.
Tensor volume(const Grid& grid, const State& state);
/// Kinetic energy plus potential energy relative to a flat surface, divided by the density.
Tensor energy(const Grid& grid, const State& state);

}  // namespace waves
