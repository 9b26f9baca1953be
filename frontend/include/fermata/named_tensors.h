// Tensors by name: what a state dict is, and what files of tensors hold.
#pragma once

#include <map>
#include <string>

#include "runtime/tensor.h"

namespace fermata {

using NamedTensors = std::map<std::string, Tensor>;

}  // namespace fermata
