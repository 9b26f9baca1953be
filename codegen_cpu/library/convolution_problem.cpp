// See convolution_problem.h.
#include "codegen_cpu/library/convolution_problem.h"

#include <algorithm>
#include <cstring>

#include "codegen_cpu/irregular/dense_elements.h"
#include "ir/channels_last.h"
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

bool has_channels_last(const TensorView& result) {
  const std::span<const std::int64_t> sizes(result.sizes, result.rank), strides(result.strides, result.rank);
  return result.rank > 2 && std::ranges::equal(strides, std::span<const std::int64_t>(channels_last_strides(sizes))) &&
         !std::ranges::equal(strides, std::span<const std::int64_t>(dense_strides(sizes)));
}

void run_on_rows(const Epilogue& epilogue, const TensorView& result, const ResultRows& r) {
  const std::int64_t places = element_count({result.sizes + 3, result.rank - 3u});  // of a row
  for (std::int64_t image = r.image; image < r.image + r.images; ++image) {
    const std::int64_t first = (image * result.sizes[2] + r.row) * places;
    epilogue.on_tile({first, first + r.rows * places, r.channel, r.channel + r.channels, r.data});
  }
}

void run_channels_last(const CallArgs& args, FunctionRef<void(const TensorView&, Epilogue*)> run) {
  const TensorView& out = args.outputs[0];
  if (has_channels_last(out)) return run(out, args.epilogue);
  const Scratch<std::byte> beside(out.element_count() * static_cast<std::int64_t>(byte_size(out.dtype)));
  const Shape strides = channels_last_strides({out.sizes, out.rank});
  TensorView result = out;
  result.data = beside.data(), result.strides = strides.data();
  run(result, nullptr);
  copy_elements(out, result);
  if (args.epilogue == nullptr) return;
  const std::int64_t planes = out.sizes[0] * out.sizes[1];
  parallel_for(0, planes, static_cast<double>(out.element_count() / planes),
               [&](std::int64_t b, std::int64_t e) { run_on_planes(args.epilogue, out, b, e - b); });
}

ImageParts::ImageParts(std::int64_t images)
    : size(std::max<std::int64_t>(1, images / kParts)), count((images + size - 1) / size) {}

namespace {

/// f16 or bf16 in f32: in the same order where channels lie innermost, else row-major.
struct Widened {
  explicit Widened(const TensorView& given)
      : view(given),
        keeps_order(is_channels_last({given.sizes, given.rank}, {given.strides, given.rank})),
        elements(keeps_order ? Scratch<float>(given.element_count()) : widened_elements(given)),
        strides(keeps_order ? channels_last_strides({given.sizes, given.rank})
                            : dense_strides({given.sizes, given.rank})) {
    if (keeps_order) widen(given.dtype, given.data, elements.data(), elements.size());
    view.data = elements.data(), view.dtype = DType::f32, view.strides = strides.data(), view.buffer = nullptr;
  }
  TensorView view;

 private:
  const bool keeps_order;
  const Scratch<float> elements;
  const Shape strides;
};

}  // namespace

void run_widened(const CallArgs& args, FunctionRef<void(const CallArgs&)> run) {
  const Widened a(args.inputs[0]), b(args.inputs[1]);
  const TensorView wide[]{a.view, b.view}, &out = args.outputs[0];
  const Scratch<float> result(out.element_count());
  TensorView wide_out = out;
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
