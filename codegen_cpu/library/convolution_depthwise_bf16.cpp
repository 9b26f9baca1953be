// Depthwise convolutions of bf16, whose sums are f32 and rounded once: of images whose channels lie innermost, which
// others are brought to. Not in libfermata_run.
#include "codegen_cpu/library/convolution.h"
#include "codegen_cpu/library/convolution_depthwise_images.h"
#include "codegen_cpu/library/product_rates.h"
#include "dispatch/kernel_files.h"

namespace fermata {

void convolution_depthwise_bf16(const CallArgs& args) {
  ConvolutionProblem problem(args);
  run_channels_last(args, [&](const TensorView& result, Epilogue* epilogue) {
    problem.y = result;
    DepthwiseImages<std::uint16_t>(problem, epilogue).run();
  });
}

bool convolution_depthwise_bf16_fits(const CallArgs& args) {
  const ConvolutionProblem p(args);
  const std::size_t axes = p.attributes.axes();
  return args.outputs[0].dtype == DType::bf16 && axes >= 1 && axes <= 2 && !p.is_empty() && p.channels() == 1 &&
         p.filters() == 1;
}

double convolution_depthwise_bf16_cost(const CallArgs& args) {
  const ConvolutionProblem p(args);
  constexpr double kRead = 0.06;  // ns for an element
  return 500 + (static_cast<double>(p.result().element_count()) * depthwise_ns(p.window()) +
                static_cast<double>(p.x.element_count()) * kRead) *
                   product_rates().convolution_depthwise;
}

FERMATA_KERNELS(cpu) {
  add_variant(Op::convolution, BackendKey::cpu,
              {.name = "depthwise_bf16",
               .form = KernelForm::library,
               .dtypes = DType::bf16,
               .call = &convolution_depthwise_bf16,
               .fits = &convolution_depthwise_bf16_fits,
               .cost = &convolution_depthwise_bf16_cost,
               .fits_text = kConvolutionDepthwiseBf16Fits,
               .epilogue = EpilogueForm::planes,
               .ships = Ships::nowhere});
}

}  // namespace fermata
