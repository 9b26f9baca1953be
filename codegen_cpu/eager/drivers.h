// The `call` kernels of this folder, one per family: what eager_kernel() hands out.
#pragma once

#include "codegen_cpu/eager/loop_tables.h"

namespace fermata::eager {

void run_pointwise(const CallArgs& args);
void run_reduction(const CallArgs& args);
void run_random(const CallArgs& args);
void run_cast(const CallArgs& args);
void run_copy(const CallArgs& args);
void run_full(const CallArgs& args);
void run_iota(const CallArgs& args);

}  // namespace fermata::eager
