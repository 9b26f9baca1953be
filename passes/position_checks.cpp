// See position_checks.h.
#include "passes/position_checks.h"

#include <array>
#include <optional>
#include <string>
#include <utility>

#include "ir/error.h"
#include "ir/op_traits.h"
#include "ir/position_error.h"

namespace fermata {
namespace {

/// The kernel is interpreted to find the first position that is out of range. It wrote over none of its operands: a
/// step that may fail never does.
class InterpretedChecks final : public PositionChecks {
 public:
  /// `positions`: those of the nodes, as values of the kernel's program.
  InterpretedChecks(Kernel kernel, std::vector<Node> nodes, std::vector<ValueId> positions)
      : PositionChecks(std::move(nodes)), kernel_(std::move(kernel)), positions_(std::move(positions)) {}

  void check_empty(const KernelLaunch& launch) const override { interpret_positions(kernel_, launch); }

  [[noreturn]] void throw_error(const KernelLaunch& launch, std::span<const BoundNode> bound) const override {
    LaunchFailure& found = *launch.failure;
    if (found.value == kNoValue) interpret(kernel_, launch);
    for (std::size_t i = 0; i < positions_.size(); ++i) {
      if (positions_[i] != found.value) continue;
      const Node& n = nodes()[i];
      const std::array operands{TensorType{n.x.dtype, bound[i].x}, TensorType{n.index.dtype, bound[i].index}};
      throw_position_error(n.op, n.axis, operands, std::to_string(found.position), found.number, bound[i].where);
    }
    throw_internal("a position was out of range, and is no more");
  }

  std::optional<std::int64_t> reach(std::uint16_t access, const KernelLaunch& launch) const override {
    return gathered_reach(kernel_, access, launch);
  }

 private:
  const Kernel kernel_;
  const std::vector<ValueId> positions_;
};

}  // namespace

std::shared_ptr<const PositionChecks> position_checks(const Graph& graph, const BuiltKernel& built) {
  if (built.checked.empty()) return nullptr;
  std::vector<PositionChecks::Node> nodes;
  std::vector<ValueId> positions;
  for (const auto& [position, v] : built.checked) {
    const GraphNode& n = graph.nodes[v];
    const auto operand = [&](std::size_t k) -> PositionChecks::Operand {
      const GraphNode& x = graph.nodes[n.operands[k].value];
      return {x.record, x.dtype};
    };
    nodes.push_back({n.record, operand(0), operand(1), n.op, axis_of(n.op, n.attributes)});
    positions.push_back(position);
  }
  return std::make_shared<InterpretedChecks>(built.kernel, std::move(nodes), std::move(positions));
}

}  // namespace fermata
