// Machine code of kernels as bytes (dispatch/object_compiler.h) from the LLVM plugin.
#pragma once

#include "dispatch/object_compiler.h"

namespace fermata {

const ObjectCompiler& cpu_object_compiler();

}  // namespace fermata
