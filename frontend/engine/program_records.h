// Nodes for a recorded program, whose own nodes are gone: what a bind reads of records.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "frontend/engine/recorded_program.h"
#include "runtime/node.h"

namespace fermata {

/// They have types, layouts, attributes and scalars, and neither operands nor values.
class ProgramRecords {
 public:
  explicit ProgramRecords(const Program& program);
  std::span<const Node* const> all() const { return records_; }

 private:
  NodeExtra& extra_of(Node& n);

  std::unique_ptr<Node[]> nodes_;
  std::deque<NodeExtra> extras_;
  std::vector<const Node*> records_;
};

}  // namespace fermata
