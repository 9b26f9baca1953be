// From the messages of a file to what runs: names become places, operators rows of the table.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "frontend/onnx/graph.h"
#include "frontend/onnx/plugin.h"
#include "frontend/onnx/tensor_proto.h"

namespace fermata::onnx {

struct Prepared {
  Body body;
  std::vector<Value> initial;  // of the frame: constants in their places
  /// Places of the tensors that a caller may exchange.
  std::vector<std::pair<std::string, Place>> parameters, buffers;
};

/// Fills in inputs, outputs, parameters and buffers of the program, too.
Prepared prepare(::onnx::ModelProto& model, TensorReader& reader, detail::Program& program);

}  // namespace fermata::onnx
