// What follows a product, or anything else that is made in tiles, runs on each part of it while that part is in a
// cache.
//
// Needs the steps of the plan. Marks kernel steps that come right after a call which makes its result in tiles, read
// that result element by element, and reduce at most its last axis: activations, biases, a softmax of the rows. Whether
// the sizes agree is found when the plan is bound to some; if not the step runs by itself.
#pragma once

#include "passes/program.h"

namespace fermata {

bool finish_tiles(Program& program);

}  // namespace fermata
