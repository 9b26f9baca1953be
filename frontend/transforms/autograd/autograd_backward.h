// The backward pass over the tape.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "frontend/transforms/autograd/autograd_tape.h"
#include "frontend/transforms/vmap/batched.h"

namespace fermata {

struct BackwardOptions {
  bool retain_graph = false;  // keep saved values
  bool create_graph = false;  // record the pass itself
  VmapLevel level = {};       // that the tape belongs to
  bool bounded = false;       // targets pass nothing on: what is below them is another tape's business
};

/// Nodes of the tape, in a table with open addresses: a pass asks several times for each of its operands.
class GradNodes {
 public:
  /// False if it was there.
  bool insert(const GradNode* node);
  bool has(const GradNode* node) const { return !slots_.empty() && slots_[slot_of(node)] != nullptr; }

 private:
  /// Of the node, or the empty one where it belongs.
  std::size_t slot_of(const GradNode* node) const {
    constexpr std::uint64_t kGolden = 0x9e3779b97f4a7c15;
    std::size_t slot = (reinterpret_cast<std::uintptr_t>(node) * kGolden) >> 32;
    while (slots_[slot &= slots_.size() - 1] != nullptr && slots_[slot] != node) ++slot;
    return slot;
  }
  std::vector<const GradNode*> slots_;  // a power of two, at most half of them used
  std::size_t count_ = 0;
};

/// What can be reached from a node of the tape.
struct TapeScan {
  GradNodes needed;             // those from which one of the targets is reached, targets included
  bool reaches_others = false;  // is there an end of the tape that is no target?
  bool needs(const GradNode* node) const { return needed.has(node); }
};
TapeScan scan_tape(std::span<const GradEdge> roots, std::span<const GradEdge> targets, bool bounded = false);
inline TapeScan scan_tape(const GradEdge& root, std::span<const GradEdge> targets) {
  return scan_tape({&root, 1}, targets);
}

/// Carries `seed`, the gradient of the root, down the tape. Without a scan every leaf adds what reaches it to its
/// gradient, and nothing is returned; with one, the result is what reaches each target, undefined for nothing.
std::vector<Tensor> run_backward(const GradEdge& root, Tensor seed, const TapeScan* scan,
                                 std::span<const GradEdge> targets, BackwardOptions options, Location where);
/// The same from several roots, each with its seed.
std::vector<Tensor> run_backward(std::span<const GradEdge> roots, std::span<const Tensor> seeds, const TapeScan* scan,
                                 std::span<const GradEdge> targets, BackwardOptions options, Location where);

/// The gradient to start from: `seed` checked and cast, or ones.
Tensor seed_gradient(const Tensor& y, const Tensor& seed, Location where);

}  // namespace fermata
