// The random programs of bench/peers/compare.py, each a text file with one step a line:
//   input NAME FILE dense|transposed|alternate    a .npy file, and how it is looked at: floats, bytes or positions
//   OP NAME OPERAND ...                           operands are names, numbers, and for reductions an axis
//   output NAME
#pragma once

#include <istream>
#include <string>

#include "bench/cases.h"

namespace bench {

/// Input files are in `folder`. std::invalid_argument for what is no program.
Case random_program(const std::string& name, std::istream& text, const std::string& folder);

}  // namespace bench
