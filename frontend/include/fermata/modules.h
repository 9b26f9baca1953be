// Modules, initializers and optimizers in one header. Not part of fermata/fermata.h.
#pragma once

#include "fermata/nn/attention.h"
#include "fermata/nn/convolution.h"
#include "fermata/nn/initializers.h"
#include "fermata/nn/layers.h"
#include "fermata/nn/module.h"
#include "fermata/nn/normalization.h"
#include "fermata/nn/quantized.h"
#include "fermata/nn/recurrent.h"
#include "fermata/optimizers.h"
