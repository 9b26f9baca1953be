// Where the CPU backend puts its routines for matrices.
#include "dispatch/matrix_routines.h"

namespace fermata {

constinit MatrixRoutines matrix_routines;

}  // namespace fermata
