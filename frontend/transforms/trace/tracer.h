// The recorder behind the Tracer key: maps values of the running program to nodes of the traced one.
//
// Values are identified by their Node, which both modes make anew for every result and which an in-place write
// transfers. A value that was not recorded is a captured constant.
#pragma once

#include <unordered_map>
#include <vector>

#include "dispatch/operator.h"
#include "fermata/trace.h"
#include "frontend/transforms/autograd/autograd_tape.h"

namespace fermata {

class Tracer {
 public:
  Tracer(std::span<const Tensor> arguments, Location where);

  /// The node of a value; a new constant if nothing recorded it.
  ValueId id_of(const Tensor& tensor, Location where);
  /// A call that has run. A result that is an operand, or the result of a call inside this one, is known already.
  void record(GraphNode node, const Tensor& result);
  /// The elements of a tensor are about to be read.
  void note_read(const Tensor& tensor, const char* reason, Location where);
  /// A call that no node stands for has run: results that no recorded call has made are values that were fixed.
  void note_results(std::string_view op, std::span<const Tensor> operands, std::span<const Tensor> results,
                    Location where);
  /// An identity is about to be written in place.
  void note_write(const Tensor& cell, Location where);
  /// `tensor` has been given the elements of `value` in a buffer that is not its own.
  void same_value(const Tensor& tensor, const Tensor& value, Location where);

  Trace finish(std::vector<Tensor> results, Location where);

 private:
  struct Written {
    Tensor cell;
    bool inside;  // its value was one that the function computed
  };
  ValueId add(GraphNode node, const Tensor& value, bool depends);
  ValueId constant(const Tensor& tensor, Location where);
  /// The written identities that somebody outside can see, as outputs.
  void add_written(Trace& trace, Location where);
  /// Only what the outputs need, and the arguments.
  void prune(Trace& trace) const;

  Graph graph_;
  std::unordered_map<const Node*, ValueId> ids_;
  std::vector<SavedValue> held_;  // so that no address is used again; weak, so that nothing is computed for it
  std::vector<bool> depends_;     // by node: on an argument
  std::vector<Tensor> arguments_, before_;
  struct Constant {
    Tensor identity, value;
    ValueId node;
  };
  std::vector<Constant> constants_;  // numbers included
  std::vector<Written> written_;
  std::vector<std::string> frozen_;
};

extern constinit thread_local Tracer* tracer;
/// Is this thread running a function that is being traced?
inline bool tracing() { return tracer != nullptr; }

/// Fills the Tracer cells: every call is passed on and recorded. Composite ops fall through; their parts are recorded.
void register_tracer_kernels();

}  // namespace fermata
