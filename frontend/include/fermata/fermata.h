// The API that most programs need, in one header.
//
// Code reads as if every call ran immediately. A thread starts in compiled mode: calls are recorded, and run as a few
// compiled kernels when a value is needed. See fermata/modes.h.
//
// Headers that are included separately:
//   modules.h        layers, initializers, optimizers        schedules.h        learning-rate schedules
//   data_loader.h    shuffled batches with prefetch          training_file.h    checkpoints of training runs
//   onnx.h           models in ONNX files                    export.h           programs that run without a compiler
//   mesh.h           tensors sharded over processes          profile.h          profiles and reports
//   scope.h          names for parts of a program            callers.h          call stacks in errors
//   cancel.h         cancellation from another thread        checks.h           checks of values
//   retained.h       memory of pending calls                 custom_function.h  your own backward pass
//   library.h        custom operators                        backend.h          custom devices
#pragma once

#include "fermata/autocast.h"
#include "fermata/autograd.h"
#include "fermata/checkpoint.h"
#include "fermata/compare.h"
#include "fermata/compile.h"
#include "fermata/complex.h"
#include "fermata/control_flow.h"
#include "fermata/creation.h"
#include "fermata/cuda.h"
#include "fermata/derivatives.h"
#include "fermata/device.h"
#include "fermata/distributed.h"
#include "fermata/dlpack.h"
#include "fermata/dtypes.h"
#include "fermata/fft.h"
#include "fermata/host_view.h"
#include "fermata/inspect.h"
#include "fermata/io.h"
#include "fermata/linalg.h"
#include "fermata/low_precision.h"
#include "fermata/manipulation.h"
#include "fermata/modes.h"
#include "fermata/names.h"
#include "fermata/nn.h"
#include "fermata/ops.h"
#include "fermata/ordering.h"
#include "fermata/print.h"
#include "fermata/products.h"
#include "fermata/quantized.h"
#include "fermata/random.h"
#include "fermata/random_key.h"
#include "fermata/reductions.h"
#include "fermata/safetensors.h"
#include "fermata/setting.h"
#include "fermata/signal.h"
#include "fermata/solvers.h"
#include "fermata/sparse.h"
#include "fermata/special.h"
#include "fermata/statistics.h"
#include "fermata/subscript.h"
#include "fermata/sync.h"
#include "fermata/tensor_tree.h"
#include "fermata/trace.h"
#include "fermata/values.h"
#include "fermata/views.h"
#include "fermata/vmap.h"
#include "ir/error.h"
