// All of Fermata's interface in one header.
//
// Code reads as if every call ran at once. A thread starts in compiled mode: calls are recorded, and played as a few
// compiled kernels when a value is needed. See fermata/modes.h.
#pragma once

#include "fermata/autocast.h"
#include "fermata/autograd.h"
#include "fermata/compile.h"
#include "fermata/composites.h"
#include "fermata/creation.h"
#include "fermata/cuda.h"
#include "fermata/device.h"
#include "fermata/inspect.h"
#include "fermata/io.h"
#include "fermata/modes.h"
#include "fermata/ops.h"
#include "fermata/print.h"
#include "fermata/quantized.h"
#include "fermata/random.h"
#include "fermata/reductions.h"
#include "fermata/sparse.h"
#include "fermata/sync.h"
#include "fermata/trace.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "fermata/vmap.h"
#include "ir/error.h"
