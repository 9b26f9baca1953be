// Functions as models: see fermata/onnx.h.
#pragma once

#include <string>

#include "fermata/onnx.h"

namespace fermata::onnx {

void save_model(const Trace& trace, const std::string& path, const SaveOptions& options, Location where);

}  // namespace fermata::onnx
