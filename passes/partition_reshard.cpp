// Between shardings: the collectives that bring a value from one into another (see partition.h), and what they send.
#include <bit>

#include "passes/partition.h"

namespace fermata {

double wire_bytes(ExchangeKind kind, double bytes, std::int64_t processes) {
  const auto n = static_cast<double>(processes), share = (n - 1) / n;
  switch (kind) {
    case ExchangeKind::all_reduce: return 2 * share * bytes;
    case ExchangeKind::all_gather: return (n - 1) * bytes;
    default: return share * bytes;
  }
}

/// Own blocks are taken first, and before gathers, so that less is moved.
std::vector<ReshardStep> plan_reshard(const Sharding& from, const Sharding& to, unsigned rank, const MeshAxes& mesh) {
  std::vector<ReshardStep> steps;
  Sharding now = from;
  const auto bit = [](std::size_t m) { return static_cast<std::uint8_t>(1u << m); };
  // Blocks of `a` are made of blocks of `b`: b divides by all axes of a, and further ones that are faster.
  const auto is_prefix = [](unsigned a, unsigned b) {
    return (a & ~b) == 0 && ((b & ~a) == 0 || a < ((b & ~a) & -(b & ~a)));
  };
  const auto take_blocks = [&] {
    for (unsigned i = 0; i < rank; ++i)
      for (std::size_t m = 0; m < mesh.count(); ++m)
        if ((to.axes[i] & bit(m)) != 0 && (now.used() & bit(m)) == 0 && is_prefix(now.axes[i], to.axes[i]) &&
            now.axes[i] < bit(m) && ((to.axes[i] & (bit(m) - 1)) == now.axes[i])) {
          now.axes[i] |= bit(m);
          steps.push_back({{}, static_cast<std::uint8_t>(m), static_cast<std::uint8_t>(i)});
        }
  };
  take_blocks();
  for (unsigned i = 0; i < rank; ++i)
    for (unsigned k = 0; k < rank; ++k) {
      const unsigned last = now.axes[i] == 0 ? 0 : std::bit_floor(static_cast<unsigned>(now.axes[i]));
      if (i == k || last == 0 || (to.axes[k] & last) == 0 || !is_prefix(now.axes[i] & ~last, to.axes[i]) ||
          (to.axes[k] & (last - 1)) != now.axes[k] || now.axes[k] >= last)
        continue;
      const auto m = static_cast<std::uint8_t>(std::countr_zero(last));
      now.axes[i] = static_cast<std::uint8_t>(now.axes[i] & ~last),
      now.axes[k] = static_cast<std::uint8_t>(now.axes[k] | last);
      steps.push_back({Exchange{.kind = ExchangeKind::all_to_all,
                                .mesh_axis = m,
                                .axis = static_cast<std::uint8_t>(i),
                                .to_axis = static_cast<std::uint8_t>(k)},
                       m, static_cast<std::uint8_t>(i)});
    }
  for (unsigned i = 0; i < rank; ++i)
    while (!is_prefix(now.axes[i], to.axes[i])) {
      const unsigned last = std::bit_floor(static_cast<unsigned>(now.axes[i]));
      const auto m = static_cast<std::uint8_t>(std::countr_zero(last));
      now.axes[i] = static_cast<std::uint8_t>(now.axes[i] & ~last);
      steps.push_back({Exchange{.kind = ExchangeKind::all_gather, .mesh_axis = m, .axis = static_cast<std::uint8_t>(i)},
                       m, static_cast<std::uint8_t>(i)});
    }
  take_blocks();
  return steps;
}

Sharding after(const ReshardStep& step, Sharding now) {
  const auto bit = static_cast<std::uint8_t>(1u << step.mesh_axis);
  if (!step.collective) {
    now.axes[step.axis] |= bit;
    return now;
  }
  now.axes[step.axis] &= static_cast<std::uint8_t>(~bit);
  if (step.collective->kind == ExchangeKind::all_to_all) now.axes[step.collective->to_axis] |= bit;
  return now;
}

ExchangeShapes exchange_shapes(const Exchange& what, const Shape& whole, const Sharding& before, const Sharding& after,
                               const MeshAxes& mesh) {
  ExchangeShapes shapes{largest_block(whole, before, mesh), largest_block(whole, after, mesh)};
  const std::int64_t n = mesh.sizes[what.mesh_axis];
  const auto join = [&] { shapes.result[what.axis] = shapes.operand[what.axis] * n; };
  const auto split = [&](unsigned axis) { shapes.operand[axis] = shapes.result[axis] * n; };
  switch (what.kind) {
    case ExchangeKind::all_reduce: break;
    case ExchangeKind::all_gather: join(); break;
    case ExchangeKind::reduce_scatter: split(what.axis); break;
    case ExchangeKind::all_to_all: join(), split(what.to_axis); break;
  }
  return shapes;
}

}  // namespace fermata
