// Integer list arguments; see runtime/integer_list.h.
#pragma once

#include "runtime/integer_list.h"
