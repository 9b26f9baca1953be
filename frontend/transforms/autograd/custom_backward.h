// Calls on the tape whose backward pass is a function of the engine or of the user, not a rule of the table.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "fermata/custom_function.h"
#include "frontend/transforms/autograd/autograd_tape.h"
#include "frontend/transforms/vmap/batched.h"

namespace fermata {

struct CustomBackwardCall {
  std::string name;
  std::vector<Tensor> arguments;
  std::vector<GradEdge> others;  // histories that the backward pass has gradients for after those of the arguments
  FunctionCall::Backward backward;
  Location where;
};

/// The results as those of the call, on the tape of a level. What has been given to the context is saved.
std::vector<Tensor> record_custom_backward(CustomBackwardCall call, std::shared_ptr<FunctionContext> context,
                                           const VmapLevel& level, std::vector<Tensor> results);

/// In a backward pass: is it recorded itself?
bool is_recorded_with_graph(const FunctionContext& context);

}  // namespace fermata
