// The structs of all irregular ops, for the tables that are made from the rows of ir/ops.def.
#pragma once

#include "ir/ops/control.h"
#include "ir/ops/convolution.h"
#include "ir/ops/indexing.h"
#include "ir/ops/leaves.h"
#include "ir/ops/linalg.h"
#include "ir/ops/moves.h"
#include "ir/ops/ordering.h"
#include "ir/ops/products.h"
#include "ir/ops/views.h"
