// Whole networks at the sizes that people know, with random weights: a training step and one step of decoding of a
// model shaped like GPT-2 small, and inference of some shaped like ResNet-50 and MobileNetV2. Their inputs are the data
// and then all weights.
#pragma once

#include "bench/cases.h"

namespace bench {

const std::vector<Case>& models();

}  // namespace bench
