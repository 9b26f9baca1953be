// A hill of water spreads over a periodic sea. Runs in both modes, checks the conserved quantities, and differentiates
// through the simulation. The exit status is nonzero if a quantity was not conserved.
//   shallow_water [CELLS [STEPS]] [--cuda]
//   mpirun -n 4 shallow_water [CELLS [STEPS]] --mesh rows=4
//   shallow_water [CELLS [STEPS]] --mesh rows=4 --simulate
//
// On a mesh each process owns some rows, and fetches the adjacent rows from its neighbors at each step. The depth is
// compared with that of one process.
#include <device_argument.h>
#include <mesh_argument.h>

#include "shallow_water/waves.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>

namespace fm = fermata;
using waves::State;

namespace {

/// Plots the depth of every eighth cell: deeper water as darker characters.
void draw(const fm::Tensor& depth) {
  constexpr std::string_view shades = " .:-=+*#%@";
  const std::int64_t n = depth.size(0);
  const std::vector<double> h = depth.to_vector<double>();
  for (std::int64_t row = 0; row < n; row += n / 16) {
    std::string line = "  ";
    for (std::int64_t column = 0; column < n; column += n / 32) {
      const double above = (h[static_cast<std::size_t>(row * n + column)] - 9.9) / 0.25;
      line += shades[static_cast<std::size_t>(std::clamp(above, 0.0, 0.999) * static_cast<double>(shades.size()))];
    }
    std::puts(line.c_str());
  }
}

double seconds_of(auto&& run) {
  const auto start = std::chrono::steady_clock::now();
  run();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

State synced(State s) {
  fm::sync({s.depth, s.p, s.q});
  return s;
}

/// Simulates by rows on a mesh of one axis; returns whether the depth has the same bits as with one process.
bool is_the_same_on(const examples::MeshArgument& argument, const waves::Grid& grid, std::int64_t steps) {
  State alone = synced(waves::hill(grid));
  for (std::int64_t i = 0; i < steps; ++i) alone = synced(waves::step(grid, alone));
  const std::vector<double> expected = alone.depth.to_vector<double>();
  bool same = true;
  examples::on_mesh(argument, [&](const fm::Mesh& mesh) {
    const char* const rows = mesh.axes()[0].c_str();
    const State whole = synced(waves::hill(grid));
    const auto own = [&](const fm::Tensor& x) { return fm::own_block(fm::shard(x, mesh, {rows})); };
    State block{own(whole.depth), own(whole.p), own(whole.q)};
    const double seconds = seconds_of([&] {
      for (std::int64_t i = 0; i < steps; ++i) block = synced(waves::step_of_rows(grid, block, mesh.group(rows)));
    });
    const std::vector<double> depth = fm::from_blocks(block.depth, mesh, {rows}).to_vector<double>();
    if (mesh.rank() != 0) return;
    double difference = 0;
    for (std::size_t i = 0; i < depth.size(); ++i) difference = std::max(difference, std::abs(depth[i] - expected[i]));
    std::printf("%lld steps by %lld processes in %.3f s: the depth differs by %.1e from that of one process\n",
                static_cast<long long>(steps), static_cast<long long>(mesh.processes()), seconds, difference);
    same = difference == 0;
  });
  return same;
}

}  // namespace

int main(int argc, char** argv) try {
  const fm::Device device = examples::take_device(argc, argv);
  const examples::MeshArgument mesh = examples::take_mesh(argc, argv);
  waves::Grid grid;
  if (argc > 1) grid.n = std::atoi(argv[1]);
  const std::int64_t steps = argc > 2 ? std::max(std::atoi(argv[2]), 1) : 200,
                     at_a_time = std::gcd(steps, std::int64_t{20});  // a call of `compiled` takes so many steps
  if (mesh.processes() > 1) return is_the_same_on(mesh, grid, steps) ? 0 : 1;
  const State start = synced(waves::hill(grid, device));
  auto compiled = fm::compile([grid, at_a_time](const fm::Tensor& depth, const fm::Tensor& p, const fm::Tensor& q) {
    const State s = waves::run(grid, {depth, p, q}, at_a_time);
    return std::tuple(s.depth, s.p, s.q);
  });

  State at_once = start, op_by_op = start;
  const double first = seconds_of([&] { compiled(start.depth, start.p, start.q); });
  const double fused = seconds_of([&] {
    for (std::int64_t i = 0; i < steps; i += at_a_time) {
      const auto [depth, p, q] = compiled(at_once.depth, at_once.p, at_once.q);
      at_once = {depth, p, q};
    }
  });
  const double eager = seconds_of([&] {
    const fm::ModeGuard mode(fm::Mode::eager);
    for (std::int64_t i = 0; i < steps; ++i) op_by_op = waves::step(grid, op_by_op);
  });
  draw(at_once.depth);
  std::printf("%lld steps of a %lld x %lld grid: compiled %.3f s (the first call %.3f s), eager %.3f s, %.1f times\n",
              static_cast<long long>(steps), static_cast<long long>(grid.n), static_cast<long long>(grid.n), fused,
              first, eager, eager / fused);

  const auto relative = [](const fm::Tensor& after, const fm::Tensor& before) {
    return std::abs(after.item<double>() / before.item<double>() - 1);
  };
  const double mass = relative(waves::volume(grid, at_once), waves::volume(grid, start)),
               energy = relative(waves::energy(grid, at_once), waves::energy(grid, start)),
               modes = fm::max(fm::abs(at_once.depth - op_by_op.depth)).item<double>();
  std::printf("volume changed by %.1e, energy by %.1e, the modes differ by %.1e\n", mass, energy, modes);

  // The derivative of the depth at one point with respect to the initial depth: forward mode along one direction, and
  // reverse mode for all cells at once.
  waves::Grid coarse = grid;
  coarse.n = 32;
  const State calm = synced(waves::hill(coarse, device));
  const std::int64_t later = std::min<std::int64_t>(steps, 30);
  const auto depth_there = [coarse, calm, later](const fm::Tensor& depth) {
    return waves::run(coarse, {depth, calm.p, calm.q}, later).depth[4][4];
  };
  const fm::Tensor direction = calm.depth - 10, zero = fm::zeros_like(direction);
  const double forward = fm::jvp(depth_there, calm.depth, direction).second.item<double>(),
               reverse = fm::sum(fm::grad(depth_there)(calm.depth) * direction).item<double>(),
               difference =
                   ((depth_there(calm.depth + direction * 1e-4) - depth_there(calm.depth - direction * 1e-4)) / 2e-4)
                       .item<double>();
  std::printf("a higher hill: jvp %.10f, gradient %.10f, finite difference %.10f\n", forward, reverse, difference);

  const bool good = mass < 1e-13 && energy < 1e-3 && modes < 1e-10 && std::abs(forward - reverse) < 1e-12 &&
                    std::abs(forward - difference) < 1e-6;
  std::puts(good ? "conserved" : "NOT conserved");
  return good ? 0 : 1;
} catch (const fm::Error& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
