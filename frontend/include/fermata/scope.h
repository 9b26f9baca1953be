// Names for parts of a program: fm::Scope scope("encoder.3").
#pragma once

#include "ir/scope.h"
