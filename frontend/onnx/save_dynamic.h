// Models of functions whose sizes differ from call to call.
#pragma once

#include <span>

#include "frontend/onnx/save.h"
#include "frontend/onnx/schema.h"

namespace fermata::onnx {

/// Takes models of one function, written for other sizes of its dynamic axes each, and makes the first one a model for
/// all sizes: every number that differs becomes nodes that compute it from the sizes of the inputs.
///
/// Errors   UnsupportedError FM5746 where the models have other nodes, or a number that is no expression of the sizes.
void make_sizes_dynamic(std::span<::onnx::ModelProto> models, std::span<const Trace> traces, const SaveOptions& options,
                        Location where);

}  // namespace fermata::onnx
