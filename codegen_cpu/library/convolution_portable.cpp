// Convolutions as matrix products: the windows of an image are the columns of a matrix [channels * window, places],
// written down for one group of one image at a time.
#include <algorithm>
#include <array>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/row_major_result.h"
#include "codegen_cpu/library/convolution.h"
#include "codegen_cpu/library/convolution_problem.h"
#include "codegen_cpu/library/matmul.h"
#include "codegen_cpu/library/product_rates.h"
#include "dispatch/kernel_files.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// A matrix as matmul takes it.
struct Matrix {
  Matrix(void* data, DType dtype, std::array<std::int64_t, 2> sizes, std::array<std::int64_t, 2> strides)
      : sizes_(sizes), strides_(strides), view{data, dtype, 2, sizes_.data(), strides_.data()} {}
  Matrix(const Matrix&) = delete;

 private:
  std::array<std::int64_t, 2> sizes_, strides_;

 public:
  TensorView view;
};

void multiply(const Matrix& lhs, const Matrix& rhs, const Matrix& out) {
  const TensorView inputs[] = {lhs.view, rhs.view};
  matmul_portable({Op::matmul, inputs, {&out.view, 1}, {}, {}});
}

/// Calls f(offset in x of the first element, step in x, first and end of the places in x's bounds, row, place) for
/// every run of columns: the places along the last spatial axis, for one element of a window.
template <class F> void for_runs(const ConvolutionProblem& p, F&& f) {
  const auto axes = static_cast<unsigned>(p.attributes.axes()), last = axes - 1;
  const ConvolutionAttributes& a = p.attributes;
  const std::int64_t run = p.y.sizes[axes + 1], rows = p.channels() * p.window(), runs = p.places() / run;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::int64_t tap[kMaxRank], rest = row;
    for (unsigned i = axes; i-- > 0;) tap[i] = rest % p.weight.sizes[i + 2], rest /= p.weight.sizes[i + 2];
    // Places along the last axis whose element lies in x: those in [first, end).
    const std::int64_t shift = tap[last] * a.dilation[last] - a.padding[last], step = a.strides[last];
    const std::int64_t length = p.x.sizes[axes + 1];
    const std::int64_t first = std::clamp<std::int64_t>(shift >= 0 ? 0 : (-shift - 1) / step + 1, 0, run);
    const std::int64_t end =
        std::clamp<std::int64_t>(length <= shift ? 0 : (length - shift - 1) / step + 1, first, run);
    for (std::int64_t r = 0; r < runs; ++r) {
      std::int64_t offset = rest * p.x.strides[1] + shift * p.x.strides[axes + 1], left = r;
      bool inside = true;
      for (unsigned i = last; i-- > 0;) {
        const std::int64_t at = left % p.y.sizes[i + 2] * a.strides[i] + tap[i] * a.dilation[i] - a.padding[i];
        left /= p.y.sizes[i + 2];
        inside = inside && at >= 0 && at < p.x.sizes[i + 2];
        offset += at * p.x.strides[i + 2];
      }
      f(offset, step * p.x.strides[axes + 1], inside ? first : run, inside ? end : run, row, r * run, run);
    }
  }
}

/// The work on one dtype.
template <class T> class Columns {
 public:
  Columns(const ConvolutionProblem& problem, const Epilogue* epilogue) : p_(problem), epilogue_(epilogue) {}

  void run() const {
    const double ns = 200 + p_.multiply_adds() / static_cast<double>(p_.images() * p_.groups()) * 0.05;
    if (p_.op == Op::convolution_weight_gradient) return add_up_images(ns);
    parallel_for(0, p_.images() * p_.groups(), ns, [&](std::int64_t begin, std::int64_t end) {
      const Scratch<T> columns(rows() * p_.places());
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t image = task / p_.groups(), group = task % p_.groups();
        p_.op == Op::convolution ? forward(image, group, columns.data()) : data_gradient(image, group, columns.data());
        const std::int64_t planes = p_.op == Op::convolution ? p_.filters() : p_.channels();
        run_on_planes(epilogue_, p_.result(), task * planes, planes);
      }
    });
  }

 private:
  static constexpr DType kDType = sizeof(T) == 4 ? DType::f32 : DType::f64;
  std::int64_t rows() const { return p_.channels() * p_.window(); }

  T* x_of(std::int64_t image, std::int64_t group) const {
    return static_cast<T*>(p_.x.data) + image * p_.x.strides[0] + group * p_.channels() * p_.x.strides[1];
  }
  /// The filters of a group as [filters, channels * window]; y of one image and group as [filters, places].
  Matrix weight_of(std::int64_t group) const {
    return {
        static_cast<T*>(p_.weight.data) + group * p_.filters() * rows(), kDType, {p_.filters(), rows()}, {rows(), 1}};
  }
  Matrix y_of(std::int64_t image, std::int64_t group) const {
    return {static_cast<T*>(p_.y.data) + (image * p_.groups() + group) * p_.filters() * p_.places(),
            kDType,
            {p_.filters(), p_.places()},
            {p_.places(), 1}};
  }
  Matrix matrix(T* columns) const { return {columns, kDType, {rows(), p_.places()}, {p_.places(), 1}}; }
  static Matrix transposed(const Matrix& m) {
    return {m.view.data, kDType, {m.view.sizes[1], m.view.sizes[0]}, {m.view.strides[1], m.view.strides[0]}};
  }

  void write_columns(const T* x, T* columns) const {
    for_runs(p_, [&](std::int64_t offset, std::int64_t step, std::int64_t first, std::int64_t end, std::int64_t row,
                     std::int64_t place, std::int64_t run) {
      T* const to = columns + row * p_.places() + place;
      std::fill(to, to + first, T{}), std::fill(to + end, to + run, T{});
      for (std::int64_t i = first; i < end; ++i) to[i] = x[offset + i * step];
    });
  }
  void forward(std::int64_t image, std::int64_t group, T* columns) const {
    write_columns(x_of(image, group), columns);
    multiply(weight_of(group), matrix(columns), y_of(image, group));
  }
  void data_gradient(std::int64_t image, std::int64_t group, T* columns) const {
    multiply(transposed(weight_of(group)), y_of(image, group), matrix(columns));
    T* const x = x_of(image, group);  // dense: the result
    std::fill(x, x + p_.channels() * p_.x.strides[1], T{});
    for_runs(p_, [&](std::int64_t offset, std::int64_t step, std::int64_t first, std::int64_t end, std::int64_t row,
                     std::int64_t place, std::int64_t) {
      const T* const from = columns + row * p_.places() + place;
      for (std::int64_t i = first; i < end; ++i) x[offset + i * step] += from[i];
    });
  }
  /// A sum for each part of the images, and then their sum.
  void add_up_images(double ns) const {
    const ImageParts parts(p_.images());
    const std::int64_t count = p_.weight.element_count(), group_count = p_.filters() * rows();
    const Scratch<T> sums(parts.count * count);
    parallel_for(0, parts.count * p_.groups(), ns * static_cast<double>(parts.size),
                 [&](std::int64_t b, std::int64_t e) {
                   const Scratch<T> columns(rows() * p_.places()), product(group_count);
                   for (std::int64_t task = b; task < e; ++task) {
                     const std::int64_t part = task / p_.groups(), group = task % p_.groups();
                     T* const sum = sums.data() + part * count + group * group_count;
                     const std::int64_t end = std::min(p_.images(), (part + 1) * parts.size);
                     for (std::int64_t image = part * parts.size; image < end; ++image) {
                       const bool is_first = image == part * parts.size;
                       T* const to = is_first ? sum : product.data();
                       write_columns(x_of(image, group), columns.data());
                       multiply(y_of(image, group), transposed(matrix(columns.data())),
                                {to, kDType, {p_.filters(), rows()}, {rows(), 1}});
                       for (std::int64_t i = 0; i < group_count && !is_first; ++i) sum[i] += to[i];
                     }
                   }
                 });
    add_parts(sums.data(), parts.count, count, static_cast<T*>(p_.weight.data));
  }

  const ConvolutionProblem& p_;
  const Epilogue* epilogue_;
};

void run_wide(const CallArgs& args) {
  ConvolutionProblem problem(args);
  if (problem.is_empty()) return fill_zero(problem);
  // Matrix products take filters and y as they lie; x is read element by element anyway.
  TensorView &weight = problem.weight, &y = problem.y;
  const DenseElements dense_weight(weight), dense_y(y);
  weight.data = const_cast<void*>(dense_weight.data()), y.data = const_cast<void*>(dense_y.data());
  problem.dtype == DType::f32 ? Columns<float>(problem, args.epilogue).run()
                              : Columns<double>(problem, args.epilogue).run();
}

}  // namespace

void convolution_portable(const CallArgs& args) {
  if (has_channels_last(args.outputs[0])) return run_row_major(args, &convolution_portable);
  if (byte_size(args.outputs[0].dtype) == 2) return run_widened(args, [](const CallArgs& wide) { run_wide(wide); });
  run_wide(args);
}

double convolution_portable_cost(const CallArgs& args) {
  const ConvolutionProblem p(args);
  // Windows of one element are the image as it lies: a product alone.
  const bool is_product = p.window() == 1;
  const double columns =
      is_product ? 0 : p.multiply_adds() / static_cast<double>(p.filters());  // elements that are copied
  const double rate = product_rates().convolution_portable * (is_product ? 2.6 : 1);
  return 500 + (p.multiply_adds() / rate + columns * 0.3) * (byte_size(p.dtype) == 8 ? 2 : 1);
}

FERMATA_KERNELS(cpu) {
  for (const Op op : {Op::convolution, Op::convolution_data_gradient, Op::convolution_weight_gradient})
    add_variant(op, BackendKey::cpu,
                {.name = "portable",
                 .form = KernelForm::library,
                 .dtypes = kFloating,
                 .call = &convolution_portable,
                 .cost = &convolution_portable_cost,
                 .epilogue = op != Op::convolution_weight_gradient ? EpilogueForm::planes : EpilogueForm::none});
}

}  // namespace fermata
