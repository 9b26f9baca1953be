// grid_sample: blocks of places are shared by threads. The taps of a block are found once for all channels.
#include "codegen_cpu/irregular/grid_sample.h"

#include <algorithm>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "ir/ops/indexing.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

const GridSampleKernels& kernels() { return FERMATA_TABLE(kGridSample); }

template <class T> void sample(const CallArgs& args, void (*run)(const SampledImage&, std::int64_t, std::int64_t)) {
  constexpr std::int64_t kBlock = 1024;
  const TensorView &x = args.inputs[0], &grid = args.inputs[1];
  const DenseElements elements(x), coordinates(grid);
  const auto op = attributes_of<ops::GridSample>(args);
  SampledImage first{.x = elements.data(),
                     .grid = coordinates.data(),
                     .out = args.outputs[0].data,
                     .channels = x.sizes[1],
                     .places = grid.sizes[1],
                     .axes = static_cast<unsigned>(grid.sizes[2]),
                     .sizes = {},
                     .mode = static_cast<int>(op.mode.value),
                     .padding = static_cast<int>(op.padding.value),
                     .align_corners = op.align_corners.value};
  std::int64_t in_image = first.channels;
  double taps = 1;
  for (unsigned k = 0; k < first.axes; ++k) {
    first.sizes[k] = x.sizes[k + 2], in_image *= x.sizes[k + 2];
    taps *= first.mode == 0 ? 1 : 2 * first.mode;
  }
  const std::int64_t blocks = (first.places + kBlock - 1) / kBlock;
  const double ns = static_cast<double>(kBlock) * (5 + 0.4 * taps * static_cast<double>(first.channels));
  parallel_for(0, x.sizes[0] * blocks, ns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t b = begin; b < end; ++b) {
      const std::int64_t n = b / blocks, from = b % blocks * kBlock;
      SampledImage image = first;
      image.x = static_cast<const T*>(first.x) + n * in_image;
      image.grid = static_cast<const T*>(first.grid) + n * first.places * first.axes;
      image.out = static_cast<T*>(first.out) + n * first.channels * first.places;
      run(image, from, std::min(from + kBlock, first.places));
    }
  });
}

void grid_sample_call(const CallArgs& args) {
  if (args.outputs[0].element_count() == 0) return;
  if (args.inputs[0].dtype == DType::f64)
    sample<double>(args, kernels().f64);
  else
    sample<float>(args, kernels().f32);
}

}  // namespace

FERMATA_KERNELS(cpu) { add_native_kernel(Op::grid_sample, &grid_sample_call, Ships::with_math); }

}  // namespace fermata
