// A run that makes kernels ask for the code that they get once they are used much.
#pragma once

namespace fermata {

/// Whether the kernels that the thread launches are to be compiled for speed, however little they have been used.
inline constinit thread_local bool is_warming_up = false;

}  // namespace fermata
