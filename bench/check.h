// Whether what is about to be timed is right.
#pragma once

#include <fermata/fermata.h>

#include <string>
#include <vector>

namespace bench {

/// Empty where the tensors agree to 1e-5 of the largest value, else what differs.
std::string difference(const std::vector<fermata::Tensor>& got, const std::vector<fermata::Tensor>& wanted);

}  // namespace bench
