// Subgraphs: functions that a node owns and calls, as cond, while_loop and scan do.
//
// A subgraph is a separate program whose inputs are its arguments. It reads only the operands of the node and refers to
// no outer value. Plans hold no subgraphs: a run takes them from its recording, like scalars.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "ir/infer.h"

namespace fermata {

struct Graph;

class Subgraph {
 public:
  Subgraph() = default;
  virtual ~Subgraph() = default;
  Subgraph(const Subgraph&) = delete;
  Subgraph& operator=(const Subgraph&) = delete;

  std::span<const TensorType> arguments() const { return arguments_; }
  std::span<const TensorType> results() const { return results_; }
  /// The program. Its inputs are the arguments, in order.
  virtual Graph graph() const = 0;

 protected:
  std::vector<TensorType> arguments_, results_;
};

/// The functions of one node, in the order of the fields of its op's struct.
class Subgraphs : public std::enable_shared_from_this<Subgraphs> {
 public:
  explicit Subgraphs(std::vector<std::unique_ptr<const Subgraph>> functions) : functions_(std::move(functions)) {}
  std::size_t size() const { return functions_.size(); }
  const Subgraph& operator[](std::size_t i) const { return *functions_[i]; }

 private:
  std::vector<std::unique_ptr<const Subgraph>> functions_;
};

/// A function that is only a program, as parsed from text. Calling it requires a recording of it.
std::unique_ptr<const Subgraph> make_subgraph(Graph graph);

}  // namespace fermata
