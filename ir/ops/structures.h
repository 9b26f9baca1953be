// Maps each irregular op to its struct, for tables generated from the rows of ir/ops.def.
#pragma once

#include "ir/ops/collectives.h"
#include "ir/ops/control.h"
#include "ir/ops/convolution.h"
#include "ir/ops/indexing.h"
#include "ir/ops/leaves.h"
#include "ir/ops/linalg.h"
#include "ir/ops/moves.h"
#include "ir/ops/ordering.h"
#include "ir/ops/products.h"
#include "ir/ops/reduce.h"
#include "ir/ops/views.h"

namespace fermata {
namespace detail {

template <Op op> struct OpStructOf;  // of irregular ops and reductions
#define FERMATA_IRREGULAR(name, structure, doc) \
  template <> struct OpStructOf<Op::name> { using type = ops::structure; };
#define FERMATA_REDUCE(name, rule, vjp, doc) \
  template <> struct OpStructOf<Op::name> { using type = ops::Reduction; };
#include "ir/ops.def"

}  // namespace detail

/// The struct of an op: OpStruct<Op::sort> is ops::Sort.
template <Op op> using OpStruct = typename detail::OpStructOf<op>::type;

}  // namespace fermata
