// See waves.h.
#include "shallow_water/waves.h"

namespace waves {

namespace fm = fermata;

namespace {

/// Shifts x along an axis, with periodic boundaries: element i is element i + by of x.
Tensor shifted(const Tensor& x, std::int64_t axis, std::int64_t by) {
  const std::int64_t n = x.size(axis), cut = (by % n + n) % n;
  return fm::concat({fm::slice(x, axis, cut, n), fm::slice(x, axis, 0, cut)}, axis);
}

/// The derivative along an axis: axis 1 is x, axis 0 is y.
Tensor slope(const Tensor& x, std::int64_t axis, double spacing) {
  const Tensor near = shifted(x, axis, 1) - shifted(x, axis, -1), far = shifted(x, axis, 2) - shifted(x, axis, -2);
  return (near * 8 - far) / (12 * spacing);
}

State change(const Grid& grid, const State& s) {
  const Tensor pressure = s.depth * s.depth * (0.5 * grid.gravity), u = s.p / s.depth, v = s.q / s.depth,
               cross = s.p * v;
  return {-(slope(s.p, 1, grid.spacing) + slope(s.q, 0, grid.spacing)),
          -(slope(s.p * u + pressure, 1, grid.spacing) + slope(cross, 0, grid.spacing)),
          -(slope(cross, 1, grid.spacing) + slope(s.q * v + pressure, 0, grid.spacing))};
}

State along(const State& s, const State& direction, double by) {
  return {s.depth + direction.depth * by, s.p + direction.p * by, s.q + direction.q * by};
}

}  // namespace

State hill(const Grid& grid, fm::Device device) {
  const Tensor x = fm::astype(fm::iota({grid.n, grid.n}, 1, device), fm::DType::f64) -
                   0.5 * static_cast<double>(grid.n),
               y = fm::astype(fm::iota({grid.n, grid.n}, 0, device), fm::DType::f64) -
                   0.4 * static_cast<double>(grid.n);
  const double width = static_cast<double>(grid.n) / 12;
  const Tensor depth = fm::exp((x * x + y * y) * (-0.5 / (width * width))) * 0.5 + 10;
  return {depth, fm::zeros_like(depth), fm::zeros_like(depth)};
}

State step(const Grid& grid, const State& s) {
  const double dt = grid.time_step;
  const State a = change(grid, s), b = change(grid, along(s, a, dt / 2)), c = change(grid, along(s, b, dt / 2)),
              d = change(grid, along(s, c, dt));
  const auto sum = [dt](const Tensor& x, const Tensor& k1, const Tensor& k2, const Tensor& k3, const Tensor& k4) {
    return x + (k1 + (k2 + k3) * 2 + k4) * (dt / 6);
  };
  return {sum(s.depth, a.depth, b.depth, c.depth, d.depth), sum(s.p, a.p, b.p, c.p, d.p), sum(s.q, a.q, b.q, c.q, d.q)};
}

State step_of_rows(const Grid& grid, const State& s, const fm::distributed::Group& rows) {
  // Each of the four stages reads two more rows on both sides. These rows of the neighbors are fetched once, in one
  // message per side. The periodic step computes wrong values in them from the outside inward, which are discarded.
  constexpr std::int64_t kHalo = 8;
  const Tensor own = fm::stack({s.depth, s.p, s.q});  // [3, rows, n]
  const std::int64_t count = own.size(1);
  const Tensor before = fm::distributed::shift(own.slice(1, count - kHalo, count), 1, true, rows),
               after = fm::distributed::shift(own.slice(1, 0, kHalo), -1, true, rows);
  const Tensor wide = fm::concat({before, own, after}, 1);
  const State next = step(grid, {wide[0], wide[1], wide[2]});
  const auto inside = [&](const Tensor& x) { return x.slice(0, kHalo, kHalo + count); };
  return {inside(next.depth), inside(next.p), inside(next.q)};
}

State run(const Grid& grid, const State& state, std::int64_t count) {
  const auto body = [grid](const Tensor&, const Tensor& depth, const Tensor& p, const Tensor& q) {
    const State next = step(grid, {depth, p, q});
    return std::tuple(next.depth, next.p, next.q);
  };
  const auto [depth, p, q] = fm::fori_loop(0, count, body, std::tuple(state.depth, state.p, state.q));
  return {depth, p, q};
}

Tensor volume(const Grid& grid, const State& state) { return fm::sum(state.depth) * (grid.spacing * grid.spacing); }

Tensor energy(const Grid& grid, const State& state) {
  const Tensor above = state.depth - fm::mean(state.depth);
  const Tensor density =
      (state.p * state.p + state.q * state.q) / state.depth * 0.5 + above * above * (0.5 * grid.gravity);
  return fm::sum(density) * (grid.spacing * grid.spacing);
}

}  // namespace waves
