// Functions as models: see fermata/onnx.h.
#pragma once

#include <span>
#include <string>

#include "fermata/onnx.h"

namespace fermata::onnx {

void save_model(std::span<const Trace> traces, const std::string& path, const SaveOptions& options, Location where);

}  // namespace fermata::onnx
