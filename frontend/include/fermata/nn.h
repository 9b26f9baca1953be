// All neural network functions in one header; part of fermata/fermata.h.
#pragma once

#include "fermata/activations.h"
#include "fermata/composites.h"
#include "fermata/convolution.h"
#include "fermata/indexing.h"
#include "fermata/layers.h"
#include "fermata/losses.h"
#include "fermata/normalization.h"
#include "fermata/optimizers.h"
#include "fermata/pooling.h"
#include "fermata/resampling.h"
#include "fermata/sampling.h"
