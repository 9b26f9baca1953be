// Limits that no run comes near, so that what a profile advises does not depend on the machine.
#pragma once

#include "frontend/tools/profile/profile_data.h"

namespace fermata::test {

inline const machine::Limits kFastMachine{.copy = {{1, 1e13}}, .f32 = 1e15, .bf16 = 1e15, .int8 = 1e15};

}  // namespace fermata::test
