// Convolutions and their gradients as matrix products by cuBLASLt. The elements of x under each place of the filter,
// the patches, are gathered into a workspace: a matrix of channels and filter places by places of y. A bounded number
// of images is worked on at a time. Filters that touch each element of x once need no patches.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "codegen_cuda/api/libraries.h"
#include "codegen_cuda/irregular/call_source.h"
#include "codegen_cuda/irregular/element_text.h"
#include "codegen_cuda/library/convolution.h"
#include "codegen_cuda/library/matmul.h"
#include "codegen_cuda/runtime/device.h"
#include "codegen_cuda/runtime/kernels.h"
#include "dispatch/kernel_files.h"
#include "ir/shape.h"

namespace fermata::gpu {
namespace {

/// Patches of at most so many bytes at a time.
std::int64_t patch_limit() { return on_host_executor() ? 1 << 20 : 128 << 20; }

/// A view that owns its sizes and strides.
struct Matrix {
  Shape sizes, strides;
  void* data;
  DType dtype;
  Matrix(void* at, DType t, Shape s) : sizes(s), strides(dense_strides(s)), data(at), dtype(t) {}
  Matrix(void* at, DType t, Shape s, Shape steps) : sizes(s), strides(steps), data(at), dtype(t) {}
  TensorView view() const {
    return {data, dtype, static_cast<std::uint8_t>(sizes.rank()), sizes.data(), strides.data()};
  }
  void* at(std::int64_t element) const {
    return static_cast<std::byte*>(data) + element * static_cast<std::int64_t>(byte_size(dtype));
  }
};

void multiply(const Matrix& lhs, const Matrix& rhs, const Matrix& out) {
  const TensorView inputs[] = {lhs.view(), rhs.view()}, outputs[] = {out.view()};
  const Op op = lhs.dtype == out.dtype ? Op::matmul : Op::matmul_f32;
  matmul_with({op, inputs, outputs, {}, {}}, MatmulEpilogue::none, nullptr);
}

std::int64_t product_of(const std::int64_t* sizes, unsigned begin, unsigned end) {
  std::int64_t product = 1;
  for (unsigned i = begin; i < end; ++i) product *= sizes[i];
  return product;
}

/// A view of a tensor as it lies in memory, or of a dense copy.
class Dense {
 public:
  explicit Dense(const TensorView& v)
      : copy_(is_dense(v) ? 0 : v.element_count() * static_cast<std::int64_t>(byte_size(v.dtype))),
        data_(is_dense(v) ? v.data : copy_.data()) {
    if (is_dense(v)) return;
    Shape sizes;
    for (unsigned i = 0; i < v.rank; ++i) sizes.push_back(v.sizes[i]);
    const Shape strides = dense_strides(sizes);
    copy_elements(v, {data_, v.dtype, v.rank, sizes.data(), strides.data()});
  }
  void* data() const { return data_; }

 private:
  static bool is_dense(const TensorView& v) {
    std::int64_t step = 1;
    for (unsigned i = v.rank; i-- > 0; step *= v.sizes[i])
      if (v.sizes[i] != 1 && v.strides[i] != step) return false;
    return true;
  }
  Workspace copy_;
  void* data_;
};

/// A convolution in numbers, and the kernels between its products.
class Products {
 public:
  explicit Products(const CallArgs& args)
      : c_(tensors_of(args)),
        a_(convolution_attributes(args)),
        axes_(static_cast<unsigned>(a_.axes())),
        images_(c_.x.sizes[0]),
        filters_(c_.weight.sizes[0] / a_.groups),
        depth_(product_of(c_.weight.sizes, 1, axes_ + 2)),
        places_(product_of(c_.y.sizes, 2, axes_ + 2)),
        dtype_(c_.x.dtype),
        sum_(dtype_ == DType::f16 || dtype_ == DType::bf16 ? DType::f32 : dtype_) {}

  void forward() const {
    const Dense weight(c_.weight);
    const Matrix w(weight.data(), dtype_, {a_.groups, filters_, depth_});
    const std::int64_t outs = a_.groups * filters_ * places_;
    const auto product = [&](std::int64_t first, std::int64_t images, void* patches) {
      multiply(w, Matrix(patches, dtype_, {images, a_.groups, depth_, places_}),
               Matrix(Matrix(c_.y.data, dtype_, {1}).at(first * outs), dtype_, {images, a_.groups, filters_, places_}));
    };
    if (is_pointwise()) {
      const Dense x(c_.x);
      return product(0, images_, x.data());
    }
    const std::int64_t step = images_at_once(dtype_);
    const Workspace patches(std::min(step, images_) * patch_bytes(dtype_));
    for (std::int64_t first = 0; first < images_; first += step) {
      const std::int64_t images = std::min(step, images_ - first);
      gather_patches(first, images, patches.data(), false);
      product(first, images, patches.data());
    }
  }

  /// Products of weights and y are sums to be: each element of x adds up those of its patches, in order.
  void data_gradient() const {
    const Dense weight(c_.weight), y(c_.y);
    // Transposed: depth by filters.
    const Matrix w(weight.data(), dtype_, {a_.groups, depth_, filters_}, {filters_ * depth_, 1, depth_});
    const Matrix all(y.data(), dtype_, {1});
    const std::int64_t ins = a_.groups * filters_ * places_;
    if (is_pointwise() && sum_ == dtype_)
      return multiply(w, Matrix(all.data, dtype_, {images_, a_.groups, filters_, places_}),
                      Matrix(c_.x.data, dtype_, {images_, a_.groups, depth_, places_}));
    const std::int64_t step = images_at_once(sum_);
    const Workspace patches(std::min(step, images_) * patch_bytes(sum_));
    for (std::int64_t first = 0; first < images_; first += step) {
      const std::int64_t images = std::min(step, images_ - first);
      multiply(w, Matrix(all.at(first * ins), dtype_, {images, a_.groups, filters_, places_}),
               Matrix(patches.data(), sum_, {images, a_.groups, depth_, places_}));
      add_patches(first, images, patches.data());
    }
  }

  /// One product over all places of the images at hand; what several of them come to is added up in order.
  void weight_gradient() const {
    const Dense y(c_.y);
    const std::int64_t weights = a_.groups * filters_ * depth_, bytes = static_cast<std::int64_t>(byte_size(sum_));
    const std::int64_t step = images_at_once(dtype_), at_once = std::min(step, images_);
    const bool adds = step < images_ || sum_ != dtype_;
    const Workspace patches(at_once * patch_bytes(dtype_)),
        turned(at_once * a_.groups * filters_ * places_ * static_cast<std::int64_t>(byte_size(dtype_))),
        part(adds ? weights * bytes : 0), total(adds ? weights * bytes : 0);
    const Matrix all(y.data(), dtype_, {1});
    for (std::int64_t first = 0; first < images_; first += step) {
      const std::int64_t images = std::min(step, images_ - first), columns = images * places_,
                         rows = a_.groups * filters_;
      gather_patches(first, images, patches.data(), true);
      const Matrix from(all.at(first * rows * places_), dtype_, {rows, images, places_}, {places_, rows * places_, 1}),
          to(turned.data(), dtype_, {rows, images, places_});
      copy_elements(from.view(), to.view());
      multiply(Matrix(turned.data(), dtype_, {a_.groups, filters_, columns}),
               Matrix(patches.data(), dtype_, {a_.groups, columns, depth_}, {depth_ * columns, 1, columns}),
               Matrix(adds ? part.data() : c_.weight.data, sum_, {a_.groups, filters_, depth_}));
      if (adds) add_part(part.data(), total.data(), weights, first == 0, first + step >= images_);
    }
  }

 private:
  std::int64_t patch_bytes(DType t) const {
    return a_.groups * depth_ * places_ * static_cast<std::int64_t>(byte_size(t));
  }
  std::int64_t images_at_once(DType t) const { return std::max<std::int64_t>(patch_limit() / patch_bytes(t), 1); }
  /// Whether the patches are x.
  bool is_pointwise() const {
    for (unsigned i = 0; i < axes_; ++i)
      if (c_.weight.sizes[i + 2] != 1 || a_.strides[i] != 1 || a_.padding[i] != 0 || a_.padding_end[i] != 0)
        return false;
    return true;
  }

  /// Declares the coordinates of number `rest` along the spatial axes of a view, as <prefix>2, ...; what is left is in
  /// `rest`.
  void spatial(CallSource& s, const char* prefix, const TensorView& v) const {
    for (unsigned i = axes_ + 2; i-- > 2;)
      s.line(
          fmt::format("const index {0}{1} = rest % (index){2}; rest /= (index){2};", prefix, i, s.number(v.sizes[i])));
  }
  static void open(CallSource& s, std::int64_t count) {
    s.for_each("i", count);
    s.line("index rest = (index)i;");
  }

  /// [images, channels, filter places, places of y], or with the images beside the places. A thread writes what one
  /// place of y and one channel see: its coordinates are the same for all places of the filter.
  void gather_patches(std::int64_t first, std::int64_t images, void* patches, bool images_inside) const {
    const std::int64_t channels = c_.x.sizes[1], filter_places = product_of(c_.weight.sizes, 2, axes_ + 2),
                       count = images * channels * places_, step = (images_inside ? images : 1) * places_;
    CallSource s("patches");
    open(s, count);
    const std::string_view t = bits_text(dtype_);
    s.line(fmt::format("const i64 place_count = {}, step = {}; const index place = rest % (index)place_count;",
                       s.number(places_), s.number(step)));
    spatial(s, "p", c_.y);
    const std::string many = s.number(images_inside ? images : channels);
    s.line(fmt::format("const index {0} = rest % (index){2}, {1} = rest / (index){2};", images_inside ? "n" : "c",
                       images_inside ? "c" : "n", many));
    s.line(fmt::format("{0}* to = {1} + {2} + place;", t, s.pointer(t, patches),
                       images_inside ? fmt::format("(i64)c * {} * step + n * place_count", s.number(filter_places))
                                     : fmt::format("((i64)n * {} + c) * {} * step", many, s.number(filter_places))));
    s.line(fmt::format("const {0}* const from = {1} + ((i64)n + {2}) * {3} + c * {4};", t, s.pointer(t, c_.x.data),
                       s.number(first), s.number(c_.x.strides[0]), s.number(c_.x.strides[1])));
    std::string at, is_inside = "true";
    for (unsigned i = 2; i < axes_ + 2; ++i) {
      s.line(fmt::format(
          "const i64 size{0} = {1}, stride{0} = {2}, dilation{0} = {3}, high{0} = {4}, q{0} = (i64)p{0} * {5} - {6};",
          i, s.number(c_.x.sizes[i]), s.number(c_.x.strides[i]), s.number(a_.dilation[i - 2]),
          s.number(c_.weight.sizes[i]), s.number(a_.strides[i - 2]), s.number(a_.padding[i - 2])));
    }
    for (unsigned i = 2; i < axes_ + 2; ++i) {
      s.line(fmt::format(
          "for (i64 k{0} = 0; k{0} < high{0}; ++k{0}) {{ const i64 x{0} = q{0} + k{0} * dilation{0}; const bool is{0} = {1} && x{0} >= 0 && x{0} < size{0};",
          i, is_inside));
      is_inside = fmt::format("is{}", i);
      at += fmt::format(" + x{0} * stride{0}", i);
    }
    s.line(fmt::format("fm_store(to, {} ? fm_load(from{}) : ({})0); to += step;", is_inside, at, t));
    s.line(std::string(axes_, '}'));
    s.launch(count);
  }

  void add_patches(std::int64_t first, std::int64_t images, const void* patches) const {
    const std::int64_t inside = product_of(c_.x.sizes, 2, axes_ + 2), channels = c_.x.sizes[1],
                       count = images * channels * inside;
    if (count == 0) return;
    const ElementText t = element_text(dtype_, false);
    CallSource s("add_patches");
    open(s, count);
    spatial(s, "q", c_.x);
    s.line(fmt::format("{} sum = 0; const i64 place_count = {}; const i64 from = (i64)rest * {};", t.sum,
                       s.number(places_), s.number(product_of(c_.weight.sizes, 2, axes_ + 2) * places_)));
    s.line("i64 filter_place = 0;");
    for (unsigned i = 2; i < axes_ + 2; ++i)
      s.line(fmt::format("for (i64 k{0} = 0; k{0} < {1}; ++k{0}) {{", i, s.number(c_.weight.sizes[i])));
    s.line("const i64 here = from + filter_place++ * place_count; i64 place = 0; bool is_inside = true;");
    for (unsigned i = 2; i < axes_ + 2; ++i)
      s.line(
          fmt::format("{{ const int step = (int){0}; const i64 u = q{1} + {2} - k{1} * {3}, high = {4}; is_inside = "
                      "is_inside && u >= 0 && u % step == 0 && u / step < high; place = place * high + u / step; }}",
                      s.number(a_.strides[i - 2]), i, s.number(a_.padding[i - 2]), s.number(a_.dilation[i - 2]),
                      s.number(c_.y.sizes[i])));
    s.line(fmt::format("if (is_inside) sum = sum + fm_load({} + here + place);", s.pointer(t.sum, patches)));
    s.line(std::string(axes_, '}'));
    s.line(fmt::format("fm_store({} + {} + i, {});", s.pointer(t.memory, c_.x.data),
                       s.number(first * channels * inside), t.stored("sum")));
    s.launch(count);
  }

  void add_part(const void* part, void* total, std::int64_t count, bool is_first, bool is_last) const {
    const ElementText t = element_text(dtype_, false);
    CallSource s("add_part");
    s.for_each("i", count);
    s.line(fmt::format("{} sum = fm_load({} + i);", t.sum, s.pointer(t.sum, part)));
    if (!is_first) s.line(fmt::format("sum = fm_load({} + i) + sum;", s.pointer(t.sum, total)));
    if (is_last)
      s.line(fmt::format("fm_store({} + i, {});", s.pointer(t.memory, c_.weight.data), t.stored("sum")));
    else
      s.line(fmt::format("fm_store({} + i, sum);", s.pointer(t.sum, total)));
    s.launch(count);
  }

  const Convolution c_;
  const ConvolutionAttributes a_;
  const unsigned axes_;
  const std::int64_t images_, filters_, depth_,
      places_;  // filters of a group; channels of one times places of a filter
  const DType dtype_, sum_;
};

void convolution_products(const CallArgs& args) {
  use_operands(args);
  const Products products(args);
  if (args.op == Op::convolution) return products.forward();
  if (args.op == Op::convolution_data_gradient) return products.data_gradient();
  products.weight_gradient();
}

/// Multiply-adds, and elements of patches.
std::array<double, 2> work_of(const CallArgs& args) {
  const Convolution c = tensors_of(args);
  const double patches = static_cast<double>(c.y.element_count()) / static_cast<double>(c.y.sizes[1]) *
                         static_cast<double>(convolution_attributes(args).groups) *
                         static_cast<double>(c.weight.element_count()) / static_cast<double>(c.weight.sizes[0]);
  return {static_cast<double>(c.y.element_count()) * static_cast<double>(c.weight.element_count()) /
              static_cast<double>(c.weight.sizes[0]),
          patches};
}

/// Results without elements, sums of nothing and programs that run without the library are for the other kernel.
bool convolution_products_fit(const CallArgs& args) {
  const Convolution c = tensors_of(args);
  return c.x.element_count() != 0 && c.weight.element_count() != 0 && c.y.element_count() != 0 && !has_image_source() &&
         usable() && matmul_library() != nullptr;
}

}  // namespace

/// Measured on an H200: 0.25 multiply-adds in a picosecond by the kernel of one thread for each element.
double convolution_direct_cost(const CallArgs& args) { return 5000 + work_of(args)[0] / 250; }

/// Patches are written and read once; the product is predicted as that of matrices is.
double convolution_products_cost(const CallArgs& args) {
  const auto [products, patches] = work_of(args);
  const auto bytes = static_cast<double>(byte_size(args.inputs[0].dtype));
  return 15000 + patches * bytes * 2 / 2000 + products / 20000;
}

FERMATA_KERNELS(cuda) {
  for (const Op op : {Op::convolution, Op::convolution_data_gradient, Op::convolution_weight_gradient})
    add_variant(op, BackendKey::cuda,
                {.name = "products",
                 .form = KernelForm::library,
                 .dtypes = kFloating,
                 .call = &convolution_products,
                 .fits = &convolution_products_fit,
                 .cost = &convolution_products_cost,
                 .fits_text = kMatmulCublasltFits});
}

}  // namespace fermata::gpu
