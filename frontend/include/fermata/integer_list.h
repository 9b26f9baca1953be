// Lists of integers as arguments, for users and for members of Tensor alike: see runtime/integer_list.h.
#pragma once

#include "runtime/integer_list.h"
