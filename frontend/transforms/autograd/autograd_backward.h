// The backward pass over the tape.
#pragma once

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

/// What can be reached from a node of the tape.
struct TapeScan {
  /// Every node from which one of the targets is reached, targets included.
  std::vector<const GradNode*> needed;  // sorted by address
  bool reaches_others = false;          // is there an end of the tape that is no target?
  bool needs(const GradNode* node) const;
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
