// Kernels whose code is to be short: for compilers that take their time, and where branches cost more than they save.
#pragma once

#include "ir/kernel.h"

namespace fermata {

/// The same kernel with general values only where there are quick ones for usual elements (kGeneral). Bits are the
/// same.
Kernel short_form(const Kernel& kernel);

/// The number of values of a formula that are computed for usual elements.
std::size_t usual_size(const Formula& formula);

}  // namespace fermata
