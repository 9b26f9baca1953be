// Convolutions whose filters each read one channel, and their data gradients, as `call` kernels.
//
// A data gradient is the convolution of y with the filter turned around; it has to move by one place. Planes are
// independent, so results do not depend on the number of threads. Images whose channels lie innermost give the same
// bits.
#include <algorithm>
#include <optional>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/row_major_result.h"
#include "codegen_cpu/library/convolution.h"
#include "codegen_cpu/library/convolution_depthwise_images.h"
#include "codegen_cpu/library/convolution_problem.h"
#include "codegen_cpu/library/product_rates.h"
#include "dispatch/kernel_files.h"
#include "ir/channels_last.h"
#include "ir/shape.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Of vectors that rows of the result fill.
template <class T> DepthwiseKernel<T> kernel_for(std::int64_t columns) {
  const auto of = [](const DepthwiseKernels& kernels) {
    if constexpr (sizeof(T) == sizeof(float))
      return kernels.f32;
    else
      return kernels.f64;
  };
#if defined(__x86_64__)
  const auto bytes = columns * static_cast<std::int64_t>(sizeof(T));
  if (eager::instruction_set() == "avx512" && bytes > 32) return of(kDepthwiseAvx512);
  if (eager::instruction_set() != "baseline" && bytes > 16) return of(kDepthwiseAvx2);
#else
  static_cast<void>(columns);
#endif
  return of(kDepthwiseBaseline);
}

template <class T> class Depthwise {
 public:
  Depthwise(const ConvolutionProblem& problem, const Epilogue* epilogue)
      : p_(problem),
        epilogue_(epilogue),
        forward_(problem.op == Op::convolution),
        from_(forward_ ? problem.x : problem.y),
        to_(problem.result()),
        taps_(problem.weight.element_count()) {
    const unsigned axes = p_.x.rank - 2u;
    for (unsigned i = 0; i < axes; ++i) {
      const unsigned at = 2 - axes + i;
      const std::int64_t dilation = p_.attributes.dilation[i], padding = p_.attributes.padding[i];
      shape_.window[at] = p_.weight.sizes[i + 2], shape_.dilation[at] = dilation;
      shape_.step[at] = forward_ ? p_.attributes.strides[i] : 1;
      shape_.padding[at] = forward_ ? padding : (shape_.window[at] - 1) * dilation - padding;
    }
    const DenseElements weight(p_.weight);
    const auto* const w = static_cast<const T*>(weight.data());
    std::copy_n(w, taps_.size(), taps_.data());
    if (!forward_)
      for (std::int64_t plane = 0; plane < p_.weight.sizes[0]; ++plane)
        std::reverse(taps_.data() + plane * p_.window(), taps_.data() + (plane + 1) * p_.window());
  }

  void run() const {
    const DepthwisePlane<T> any = plane(0);
    const DepthwiseBlock block(any);
    const Scratch<std::int64_t> offsets(p_.window());
    for (std::int64_t i = 0, tap = 0; i < any.window[0]; ++i)
      for (std::int64_t j = 0; j < any.window[1]; ++j) offsets[tap++] = block.offset(any, i, j);
    const DepthwiseKernel<T> run_plane = kernel_for<T>(any.columns);
    const std::int64_t planes = to_.sizes[0] * to_.sizes[1];
    parallel_for(0, planes, 50 + static_cast<double>(any.rows * any.columns) * depthwise_ns(p_.window()),
                 [&](std::int64_t begin, std::int64_t end) {
                   const Scratch<T> room(block.room());
                   for (std::int64_t i = begin; i < end; ++i) {
                     run_plane(plane(i), block, offsets.data(), room.data());
                     run_on_planes(epilogue_, to_, i, 1);
                   }
                 });
  }

 private:
  static std::int64_t rows_of(const TensorView& v) { return v.rank == 4 ? v.sizes[2] : 1; }
  DepthwisePlane<T> plane(std::int64_t number) const {
    const std::int64_t image = number / to_.sizes[1], channel = number % to_.sizes[1];
    const std::int64_t source = channel / p_.filters(), last = from_.rank - 1;
    DepthwisePlane<T> plane = shape_;
    plane.from = static_cast<const T*>(from_.data) + image * from_.strides[0] + source * from_.strides[1];
    plane.from_row = from_.rank == 4 ? from_.strides[2] : 0;
    plane.height = rows_of(from_), plane.width = from_.sizes[last];
    plane.rows = rows_of(to_), plane.columns = to_.sizes[last];
    plane.to = static_cast<T*>(to_.data) + number * plane.rows * plane.columns;
    plane.taps = taps_.data() + channel * p_.window();
    return plane;
  }

  const ConvolutionProblem& p_;
  const Epilogue* const epilogue_;
  const bool forward_;
  const TensorView &from_, &to_;
  const Scratch<T> taps_;
  DepthwisePlane<T> shape_{nullptr, 0, 0, 0, nullptr, 0, 0, nullptr, {1, 1}, {1, 1}, {1, 1}, {0, 0}};
};

/// By planes, of which columns have to be adjacent.
void run_planes(const CallArgs& args) {
  ConvolutionProblem problem(args);
  TensorView& from = problem.op == Op::convolution ? problem.x : problem.y;
  const bool is_adjacent = from.strides[from.rank - 1] == 1;
  const Shape strides = is_adjacent ? Shape() : dense_strides({from.sizes, from.rank});
  std::optional<DenseElements> dense;
  if (!is_adjacent)
    from.data = const_cast<void*>(dense.emplace(from).data()), from.strides = strides.data(), from.buffer = nullptr;
  if (problem.dtype == DType::f32)
    Depthwise<float>(problem, args.epilogue).run();
  else
    Depthwise<double>(problem, args.epilogue).run();
}

}  // namespace

void convolution_depthwise(const CallArgs& args) {
  if (!has_channels_last(args.outputs[0])) return run_planes(args);
  const ConvolutionProblem problem(args);
  if (problem.dtype != DType::f32 || problem.filters() != 1 || problem.op != Op::convolution)
    return run_row_major(args, &run_planes);
  DepthwiseImages<float>(problem, args.epilogue).run();
}

bool convolution_depthwise_fits(const CallArgs& args) {
  const ConvolutionProblem p(args);
  const TensorView& from = p.op == Op::convolution ? p.x : p.y;
  const std::size_t axes = p.attributes.axes();
  if (axes < 1 || axes > 2 || p.is_empty() || p.channels() != 1) return false;
  if (from.strides[from.rank - 1] != 1 && !has_adjacent_channels(from)) return false;
  if (p.op == Op::convolution) return true;
  return p.filters() == 1 && std::ranges::all_of(p.attributes.strides, [](std::int64_t s) { return s == 1; });
}

double convolution_depthwise_cost(const CallArgs& args) {
  const ConvolutionProblem p(args);
  const TensorView& from = p.op == Op::convolution ? p.x : p.y;
  constexpr double kRead = 0.1;  // ns for an element
  return 500 + (static_cast<double>(p.result().element_count()) * depthwise_ns(p.window()) +
                static_cast<double>(from.element_count()) * kRead) *
                   product_rates().convolution_depthwise;
}

FERMATA_KERNELS(cpu) {
  for (const Op op : {Op::convolution, Op::convolution_data_gradient})
    add_variant(op, BackendKey::cpu,
                {.name = "depthwise",
                 .form = KernelForm::library,
                 .dtypes = DTypeSet(DType::f32) | DType::f64,
                 .call = &convolution_depthwise,
                 .fits = &convolution_depthwise_fits,
                 .cost = &convolution_depthwise_cost,
                 .fits_text = kConvolutionDepthwiseFits,
                 .epilogue = EpilogueForm::planes});
}

}  // namespace fermata
