// Programs of kinds that bench/cases.cpp leaves out.
#pragma once

#include "bench/cases.h"

namespace bench {

std::vector<Case> kinds();
std::vector<Case> loop_kinds();
std::vector<Case> user_kinds();

}  // namespace bench
