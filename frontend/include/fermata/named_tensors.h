// Tensors by name: the type of state dicts and of the contents of tensor files.
#pragma once

#include <map>
#include <string>

#include "runtime/tensor.h"

namespace fermata {

using NamedTensors = std::map<std::string, Tensor>;

}  // namespace fermata
