// See convolution_problem.h.
#include "codegen_cpu/library/convolution_problem.h"

#include <algorithm>
#include <cstring>

#include "codegen_cpu/irregular/dense_elements.h"
#include "ir/ops/convolution.h"
#include "ir/shape.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Parts that images are cut into, at most: enough for the processors of a large machine, few enough that sums of
/// partial results cost nothing.
constexpr std::int64_t kParts = 16;

}  // namespace

ConvolutionProblem::ConvolutionProblem(const CallArgs& args)
    : op(args.op), dtype(args.outputs[0].dtype), attributes(attributes_of<ops::Convolution>(args)) {
  const TensorView &a = args.inputs[0], &b = args.inputs[1], &out = args.outputs[0];
  switch (op) {
    case Op::convolution: x = a, weight = b, y = out; break;
    case Op::convolution_data_gradient: y = a, weight = b, x = out; break;
    default: x = a, y = b, weight = out; break;
  }
}

const TensorView& ConvolutionProblem::result() const {
  return op == Op::convolution ? y : op == Op::convolution_data_gradient ? x : weight;
}

double ConvolutionProblem::multiply_adds() const {
  return static_cast<double>(y.element_count()) * static_cast<double>(channels() * window());
}

std::int64_t ConvolutionProblem::spatial(const TensorView& view) {
  return element_count({view.sizes + 2, view.rank - 2u});
}

void fill_zero(const ConvolutionProblem& problem) {
  const TensorView& out = problem.result();
  const auto bytes = static_cast<std::size_t>(out.element_count()) * byte_size(out.dtype);
  if (bytes != 0) std::memset(out.data, 0, bytes);
}

void run_on_planes(const Epilogue* epilogue, const TensorView& result, std::int64_t first, std::int64_t count) {
  if (epilogue == nullptr) return;
  const std::int64_t columns = result.sizes[result.rank - 1u];
  const std::int64_t rows = element_count({result.sizes + 2, result.rank - 2u}) / columns;
  epilogue->on_tile({first * rows, (first + count) * rows, 0, columns});
}

ImageParts::ImageParts(std::int64_t images)
    : size(std::max<std::int64_t>(1, images / kParts)), count((images + size - 1) / size) {}

void run_widened(const CallArgs& args, FunctionRef<void(const CallArgs&)> run) {
  const TensorView& out = args.outputs[0];
  const Scratch<float> a = widened_elements(args.inputs[0]), b = widened_elements(args.inputs[1]);
  const Scratch<float> result(out.element_count());
  Shape strides[2];
  TensorView wide[2]{args.inputs[0], args.inputs[1]}, wide_out = out;
  for (unsigned i = 0; i < 2; ++i) {
    strides[i] = dense_strides({wide[i].sizes, wide[i].rank});
    wide[i].data = i == 0 ? a.data() : b.data();
    wide[i].dtype = DType::f32, wide[i].strides = strides[i].data();
  }
  wide_out.data = result.data(), wide_out.dtype = DType::f32;
  CallArgs widened = args;
  widened.inputs = wide, widened.outputs = {&wide_out, 1};
  widened.epilogue = nullptr;  // nothing is finished before it is rounded
  run(widened);
  narrow(out.dtype, result.data(), out.data, result.size());
}

template <class T> void add_parts(const T* parts, std::int64_t number, std::int64_t count, T* out) {
  parallel_for(0, count, 0.3 * static_cast<double>(number), [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t i = b; i < e; ++i) out[i] = parts[i];
    for (std::int64_t p = 1; p < number; ++p)
      for (std::int64_t i = b; i < e; ++i) out[i] += parts[p * count + i];
  });
}
template void add_parts<float>(const float*, std::int64_t, std::int64_t, float*);
template void add_parts<double>(const double*, std::int64_t, std::int64_t, double*);

}  // namespace fermata
