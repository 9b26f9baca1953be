// Convolutions whose windows are single elements, and their data gradients, as one product of matrices: the places of
// all images, with their channels innermost, times the filters.
//
// Elements are those of the product of such matrices whichever way images lie, so eager and compiled calls give the
// same bits.
#include <algorithm>
#include <cmath>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/library/convolution.h"
#include "codegen_cpu/library/convolution_problem.h"
#include "codegen_cpu/library/matmul.h"
#include "codegen_cpu/library/matmul_amx.h"
#include "codegen_cpu/library/product_rates.h"
#include "dispatch/kernel_files.h"
#include "ir/channels_last.h"
#include "ir/shape.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// [places, k] times [k, columns].
struct Product {
  explicit Product(const ConvolutionProblem& p)
      : is_gradient(p.op == Op::convolution_data_gradient),
        in(is_gradient ? p.y : p.x),
        out(p.result()),
        sizes({out.sizes, out.rank}),
        strides({in.strides, in.rank}),
        k(is_gradient ? p.filters() : p.channels()),
        columns(is_gradient ? p.channels() : p.filters()) {
    sizes[1] = k;
    for (std::size_t i = 0; i < p.attributes.axes(); ++i) strides[i + 2] *= p.attributes.strides[i];
    in.sizes = sizes.data(), in.strides = strides.data();
    const std::int64_t to_filter = p.weight.strides[0], to_channel = p.weight.strides[1];
    weight_strides[0] = is_gradient ? to_filter : to_channel, weight_strides[1] = is_gradient ? to_channel : to_filter;
    weight = {p.weight.data, p.weight.dtype, 2, weight_sizes, weight_strides, p.weight.buffer};
    weight_sizes[0] = k, weight_sizes[1] = columns;
  }
  Product(const Product&) = delete;

  std::int64_t places() const { return out.element_count() / columns; }
  /// From a place to the next where all of them are equally far apart, and channels adjacent; else 0.
  std::int64_t step() const {
    const std::size_t last = in.rank - 1u;
    std::int64_t reach = strides[last];
    for (std::size_t i = last;; i = i == 2 ? 0 : i - 1) {
      if (sizes[i] != 1 && strides[i] != reach) return 0;
      reach *= sizes[i];
      if (i == 0) break;
    }
    return strides[1] == 1 && strides[last] >= k ? strides[last] : 0;
  }

  const bool is_gradient;
  TensorView in, out;  // in: the places that are seen
  Shape sizes, strides;
  const std::int64_t k, columns;
  std::int64_t weight_sizes[2], weight_strides[2];
  TensorView weight;
};

/// Which kernel computes the product, and ns on one core. Weights are taken for constants that come from memory. Fitted
/// to layers of networks on Sapphire Rapids.
struct Choice {
  CallKernel kernel;
  double ns;
};
Choice choose(const Product& p) {
  const ProductRates& rates = product_rates();
  const auto whole = [](std::int64_t size) { return static_cast<double>((size + 31) / 32 * 32); };
  const bool wide = eager::instruction_set() == "avx512";
  const auto m = static_cast<double>(p.places()), k = static_cast<double>(p.k), n = static_cast<double>(p.columns);
  const double fma = 2000 + m * k * n / (wide ? 1.2 * rates.portable_avx512 : 1.05 * rates.portable_avx2) +
                     m * k * 0.03 + m * n * 0.08 + k * n * 0.06;
  const double padded = whole(p.places()) * whole(p.k) * whole(p.columns);
  if (p.in.dtype == DType::bf16)
    return {&matmul_amx, 5000 + padded / rates.amx_bf16 + m * k * 0.07 + m * n * 0.05 + k * n * 0.12};
  if (!has_amx() || !splits_f32()) return {[](const CallArgs& args) { matmul_portable(args); }, fma};
  const double tiles = 5000 + padded / rates.amx_f32 + m * k * 0.18 + m * n * 0.06 + k * n * 0.28;
  if (tiles >= fma) return {[](const CallArgs& args) { matmul_portable(args); }, fma};
  return {&matmul_amx, tiles};
}

}  // namespace

void convolution_product(const CallArgs& args) {
  const ConvolutionProblem problem(args);
  const Product p(problem);
  std::int64_t step = p.step();
  const DType dtype = p.out.dtype;
  const Scratch<std::byte> brought(step != 0 ? 0 : p.in.element_count() * static_cast<std::int64_t>(byte_size(dtype)));
  TensorView in = p.in;
  if (step == 0) {
    const Shape strides = channels_last_strides(p.sizes);
    TensorView to = in;
    to.data = brought.data(), to.strides = strides.data();
    copy_elements(to, in);
    in.data = to.data, step = p.k;
  }
  const std::int64_t lhs_sizes[] = {p.places(), p.k}, lhs_strides[] = {step, 1};
  const std::int64_t out_sizes[] = {p.places(), p.columns}, out_strides[] = {p.columns, 1};
  const TensorView sides[] = {{in.data, dtype, 2, lhs_sizes, lhs_strides}, p.weight};
  run_channels_last(args, [&](const TensorView& result, Epilogue* epilogue) {
    const TensorView out{result.data, dtype, 2, out_sizes, out_strides};
    CallArgs product{Op::matmul, sides, {&out, 1}, {}, {}};
    product.epilogue = epilogue;
    choose(p).kernel(product);
  });
}

bool convolution_product_fits(const CallArgs& args) {
  const ConvolutionProblem p(args);
  const ConvolutionAttributes& a = p.attributes;
  constexpr std::int64_t kFewest = 16;  // channels, or filters
  if (p.dtype == DType::bf16 && !has_amx()) return false;
  if (a.groups != 1 || p.window() != 1 || p.is_empty() || p.channels() < kFewest || p.filters() < kFewest) return false;
  for (std::size_t i = 0; i < a.axes(); ++i)
    if (a.padding[i] != 0 || a.padding_end[i] != 0 || (a.strides[i] != 1 && p.op != Op::convolution)) return false;
  return true;
}

double convolution_product_cost(const CallArgs& args) {
  const ConvolutionProblem problem(args);
  const Product p(problem);
  const bool is_strided = std::ranges::any_of(problem.attributes.strides, [](std::int64_t s) { return s != 1; });
  return choose(p).ns + (is_strided ? static_cast<double>(p.in.element_count()) * 0.1 : 0);
}

FERMATA_KERNELS(cpu) {
  for (const Op op : {Op::convolution, Op::convolution_data_gradient})
    add_variant(op, BackendKey::cpu,
                {.name = "product",
                 .form = KernelForm::library,
                 .dtypes = DTypeSet(DType::f32) | DType::bf16,
                 .call = &convolution_product,
                 .fits = &convolution_product_fits,
                 .cost = &convolution_product_cost,
                 .fits_text = kConvolutionProductFits,
                 .epilogue = EpilogueForm::planes});
}

}  // namespace fermata
