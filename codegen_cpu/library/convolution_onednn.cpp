// Convolutions through oneDNN; see onednn_product.h for caching of primitives and for threads.
//
// A convolution computes on images whose channels lie innermost, whichever way they lie: eager and compiled calls give
// the same bits. Of gradients the library picks the layouts. Operands are brought there and back one part at a time, so
// that what is reordered is still in the cache when it is used. Large images are cut into bands of rows, for an
// epilogue that finds them in the cache and for the threads; where there are few images and many weights, filters are
// split.
#include "codegen_cpu/library/convolution.h"

#include "codegen_cpu/library/matmul.h"
#include "dispatch/kernel_files.h"

#if FERMATA_ONEDNN

#include <algorithm>
#include <list>
#include <vector>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/library/convolution_problem.h"
#include "codegen_cpu/library/onednn_convolution.h"
#include "codegen_cpu/library/onednn_product.h"
#include "codegen_cpu/library/product_rates.h"
#include "ir/error.h"
#include "ir/shape.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

using onednn::ConvolutionKey;
using onednn::Dims;
using onednn::Layout;
using onednn::layout_of;

/// Images from which on only they are split, and the least and the multiple of filters of a part where they are too.
constexpr std::int64_t kEnoughImages = 8, kFilterGranule = 16;
/// Parts of few images, at least; and of a part of an image the bytes that are read and written, which stay in the
/// second-level cache with what an epilogue reads and writes.
constexpr std::int64_t kPartsOfFew = 4, kPartBytes = 384 << 10;
/// Filters of a part are a multiple of what tiles of an epilogue are.
constexpr std::int64_t kTileColumns = 64;

/// True if no two elements share memory and no axis runs backwards: what a memory descriptor can say.
bool is_regular(const TensorView& view) {
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride, size
  for (unsigned i = 0; i < view.rank; ++i)
    if (view.sizes[i] > 1) axes.emplace_back(view.strides[i], view.sizes[i]);
  std::sort(axes.begin(), axes.end());
  std::int64_t reach = 1;
  for (const auto& [stride, size] : axes) {
    if (stride < reach) return false;
    reach = stride * size;
  }
  return true;
}

/// Whether every window along an axis sees some of the image.
bool has_padding_below_reach(const ConvolutionProblem& p, std::size_t axis) {
  const ConvolutionAttributes& a = p.attributes;
  const std::int64_t reach = (p.weight.sizes[axis + 2] - 1) * a.dilation[axis];
  const std::int64_t end = (p.y.sizes[axis + 2] - 1) * a.strides[axis] - a.padding[axis];
  return a.padding[axis] <= reach && end < p.x.sizes[axis + 2];
}

/// A problem whose operands oneDNN can read as they lie, or as dense copies.
class Prepared {
 public:
  explicit Prepared(const CallArgs& args) : problem(args) {
    for (TensorView* view : {&problem.x, &problem.weight, &problem.y}) {
      if (is_regular(*view)) continue;
      copies_.emplace_back(*view);
      strides_.push_back(dense_strides({view->sizes, view->rank}));
      view->data = const_cast<void*>(copies_.back().data());
      view->strides = strides_.back().data(), view->buffer = nullptr;
    }
  }
  ConvolutionProblem problem;

 private:
  std::list<DenseElements> copies_;
  std::list<Shape> strides_;
};

/// A part of the work: some images; some filters, or channels of a data gradient; and rows of the result.
struct Part {
  std::int64_t image, images, block, blocks, row, rows;
};

/// How the work is cut: by sizes only.
struct Cut {
  explicit Cut(const ConvolutionProblem& p) : images(p.images()), rows(p.y.sizes[2]) {
    total = block = p.op == Op::convolution_data_gradient ? p.channels() : p.filters();
    const bool few = p.images() < kEnoughImages;
    if (p.op != Op::convolution) {
      if (few) split_filters(p, kFilterGranule);
    } else if (few && p.groups() == 1 && bytes(p.weight) > bytes_of_image(p) && total >= 2 * kTileColumns) {
      split_filters(p, kTileColumns);
    } else if (images.size == 1 && has_padding_below_reach(p, 0)) {
      bands = (bytes_of_image(p) + kPartBytes - 1) / kPartBytes;
      if (few) bands = (bands + kPartsOfFew - 1) / kPartsOfFew * kPartsOfFew;
      bands = std::clamp<std::int64_t>(bands, 1, rows);
    }
    blocks = (total + block - 1) / block;
  }
  std::int64_t count() const { return images.count * bands * blocks; }
  Part part(std::int64_t task, std::int64_t all_images) const {
    const std::int64_t first = task % blocks * block, band = task / blocks % bands;
    const std::int64_t image = task / blocks / bands * images.size, row = rows * band / bands;
    return {image, std::min(images.size, all_images - image),
            first, std::min(block, total - first),
            row,   rows * (band + 1) / bands - row};
  }
  ImageParts images;
  std::int64_t rows, block, total, blocks = 1, bands = 1;

 private:
  static std::int64_t bytes(const TensorView& view) {
    return view.element_count() * static_cast<std::int64_t>(byte_size(view.dtype));
  }
  static std::int64_t bytes_of_image(const ConvolutionProblem& p) { return (bytes(p.x) + bytes(p.y)) / p.images(); }
  void split_filters(const ConvolutionProblem& p, std::int64_t granule) {
    if (p.groups() != 1 || total < 2 * granule) return;
    const std::int64_t wanted = std::min<std::int64_t>(kPartsOfFew, total / granule);
    block = (total / wanted + granule - 1) / granule * granule;
  }
};

/// The key of a part, and where its operands begin, in elements.
struct PartCall {
  PartCall(const ConvolutionProblem& p, const Part& part)
      : key{p.op, p.dtype, layout_of(p.x), layout_of(p.weight), layout_of(p.y), {}, {}, {}, {}} {
    key.x.sizes[0] = key.y.sizes[0] = part.images;
    x = part.image * p.x.strides[0], y = part.image * p.y.strides[0], weight = 0;
    if (p.groups() == 1 && p.op == Op::convolution_data_gradient) {
      key.x.sizes[1] = key.weight.sizes[1] = part.blocks;
      x += part.block * p.x.strides[1], weight = part.block * p.weight.strides[1];
    } else if (p.groups() == 1) {
      key.y.sizes[1] = key.weight.sizes[0] = part.blocks;
      y += part.block * p.y.strides[1], weight = part.block * p.weight.strides[0];
    } else {
      Layout& w = key.weight;
      w.sizes[0] = p.filters(), w.sizes.insert(w.sizes.begin(), p.groups());
      w.strides.insert(w.strides.begin(), p.filters() * w.strides[0]);
    }
    const ConvolutionAttributes& a = p.attributes;
    for (std::size_t i = 0; i < a.axes(); ++i) {
      key.strides.push_back(a.strides[i]), key.dilation.push_back(a.dilation[i] - 1);
      key.padding.push_back(a.padding[i]);
    }
    if (part.rows != p.y.sizes[2]) take_rows(p, part);
    for (std::size_t i = 0; i < a.axes(); ++i) {
      // What the last window does not reach counts as less padding.
      const std::int64_t reach =
          (p.weight.sizes[i + 2] - 1) * a.dilation[i] + (key.y.sizes[i + 2] - 1) * a.strides[i] + 1;
      key.padding_end.push_back(reach - key.padding[i] - key.x.sizes[i + 2]);
    }
  }
  ConvolutionKey key;
  std::int64_t x, weight, y;

 private:
  /// Some rows of the result of one image, and the rows that they see.
  void take_rows(const ConvolutionProblem& p, const Part& part) {
    const ConvolutionAttributes& a = p.attributes;
    const std::int64_t start = part.row * a.strides[0] - a.padding[0], first = std::max<std::int64_t>(start, 0);
    const std::int64_t end = start + (part.rows - 1) * a.strides[0] + (p.weight.sizes[2] - 1) * a.dilation[0] + 1;
    x += first * p.x.strides[2], y += part.row * p.y.strides[2];
    const auto cut = [](Layout& layout, std::int64_t rows) {
      layout.sizes[2] = rows;
      layout.strides[0] = layout.strides[2] * rows;  // of one image any stride is right: the one that a whole one has
    };
    cut(key.x, std::min(end, p.x.sizes[2]) - first), cut(key.y, part.rows);
    key.padding[0] = first - start;
  }
};

const void* at(const TensorView& view, std::int64_t element) {
  return static_cast<const std::byte*>(view.data) + element * static_cast<std::int64_t>(byte_size(view.dtype));
}

/// The convolution of one part after another, and what follows it.
class Parts {
 public:
  Parts(const ConvolutionProblem& problem, const Epilogue* epilogue)
      : p_(problem),
        cut_(problem),
        epilogue_(epilogue),
        sums_weights_(problem.op == Op::convolution_weight_gradient),
        count_(problem.weight.element_count()),
        sums_(sums_weights_ ? cut_.images.count * count_ : 0) {}

  void run() const {
    // Of many images each is done by one thread, so that planes are finished in its cache.
    const std::int64_t together = p_.images() < kEnoughImages ? 1 : cut_.bands, tasks = cut_.count() / together;
    const double ns = 2000 + p_.multiply_adds() / static_cast<double>(tasks) / onednn::per_ns(p_.dtype) * 1.5;
    parallel_for(0, tasks, ns, [&](std::int64_t begin, std::int64_t end) {
      const onednn::SingleThreadedOpenMp single;
      for (std::int64_t task = begin; task < end; ++task) {
        for (std::int64_t i = task * together; i < (task + 1) * together; ++i) run(i);
        if (epilogue_ != nullptr && by_planes() && together == cut_.bands)
          finish_planes(cut_.part(task * together, p_.images()));
      }
    });
    if (epilogue_ != nullptr && by_planes() && together != cut_.bands) finish_all_planes();
    if (sums_weights_) add_up();
  }

 private:
  bool by_planes() const { return !has_channels_last(p_.result()); }

  void run(std::int64_t number) const {
    const Part part = cut_.part(number, p_.images());
    const PartCall c(p_, part);
    const void* const weight =
        sums_weights_ ? sums_.data() + number / cut_.blocks * count_ + c.weight : at(p_.weight, c.weight);
    onednn::convolution_for(c.key).run(at(p_.x, c.x), weight, at(p_.y, c.y), p_.weight.buffer);
    if (epilogue_ == nullptr || by_planes()) return;
    const std::int64_t channels = cut_.blocks == 1 ? p_.result().sizes[1] : part.blocks;  // of all groups
    run_on_rows(*epilogue_, p_.result(), {part.image, part.images, part.block, channels, part.row, part.rows});
  }

  /// On all planes at once where a part has whole images, else image by image.
  void finish_planes(const Part& part) const {
    const TensorView& result = p_.result();
    const std::int64_t planes = result.sizes[1];
    if (cut_.blocks == 1) return run_on_planes(epilogue_, result, part.image * planes, part.images * planes);
    for (std::int64_t i = part.image; i < part.image + part.images; ++i)
      run_on_planes(epilogue_, result, i * planes + part.block, part.blocks);
  }
  void finish_all_planes() const {
    const TensorView& result = p_.result();
    const std::int64_t planes = result.sizes[0] * result.sizes[1];
    parallel_for(0, planes, static_cast<double>(result.element_count() / planes),
                 [&](std::int64_t b, std::int64_t e) { run_on_planes(epilogue_, result, b, e - b); });
  }

  void add_up() const {
    if (p_.dtype == DType::f32)
      return add_parts(sums_.data(), cut_.images.count, count_, static_cast<float*>(p_.weight.data));
    const Scratch<float> total(count_);
    add_parts(sums_.data(), cut_.images.count, count_, total.data());
    narrow(p_.dtype, total.data(), p_.weight.data, count_);
  }

  const ConvolutionProblem& p_;
  const Cut cut_;
  const Epilogue* const epilogue_;
  const bool sums_weights_;
  const std::int64_t count_;
  const Scratch<float> sums_;
};

void run_native(const CallArgs& args) try {
  if (onednn::has_ended()) [[unlikely]]
    return convolution_portable(args);
  const Prepared prepared(args);
  Parts(prepared.problem, args.epilogue).run();
} catch (const dnnl::error& e) {
  if (e.status == dnnl_unimplemented) return convolution_portable(args);
  onednn::throw_error(e);
}

}  // namespace

void convolution_onednn(const CallArgs& args) {
  if (onednn::convolves_natively(args.outputs[0].dtype)) return run_native(args);
  run_widened(args, [](const CallArgs& wide) { run_native(wide); });
}

bool convolution_onednn_fits(const CallArgs& args) {
  const ConvolutionProblem p(args);
  if (p.attributes.axes() > 3 || p.is_empty()) return false;
  // The library unrolls padding: a million zeros before a row of seven took two seconds and gigabytes.
  for (std::size_t axis = 0; axis < p.attributes.axes(); ++axis)
    if (!has_padding_below_reach(p, axis)) return false;
  return true;
}

double convolution_onednn_cost(const CallArgs& args) {
  const ConvolutionProblem p(args);
  const auto images = static_cast<double>((p.x.element_count() + p.y.element_count()) * 4),
             weight = static_cast<double>(p.weight.element_count() * 4);
  // Of channels-last images: eager and compiled calls choose alike, so converting others hardly counts.
  const bool is_gradient = args.op != Op::convolution;
  // Filters that read one channel share no loads. For them and for those of one element, images in rows are converted
  // in as much time as they are computed.
  const bool has_one_channel = p.channels() == 1, is_depthwise = has_one_channel && p.attributes.groups > 1,
             is_short = is_depthwise || p.window() == 1;
  const bool skips = p.window() == 1 && std::ranges::any_of(p.attributes.strides, [](std::int64_t s) { return s > 1; });
  const double slower = (is_gradient ? 1.5 : product_rates().convolution_onednn) * (has_one_channel ? 4
                                                                                    : skips         ? 1.8
                                                                                                    : 1);
  // Filters are computed by the vector, also if there are fewer of them.
  const std::int64_t lanes = eager::instruction_set() == "avx512" ? 16 : 8;
  const auto computed = static_cast<double>((p.filters() + lanes - 1) / lanes * lanes);
  const double unused = is_gradient || is_depthwise ? 1 : computed / static_cast<double>(p.filters());
  const double image = is_gradient ? 0.2 : is_short ? 0.04 : 0.01;
  const double filter = is_gradient ? 0.2 : p.dtype == DType::f32 ? 0.05 : 0.07;
  return 3000 +
         p.multiply_adds() / onednn::per_ns(onednn::convolves_natively(p.dtype) ? p.dtype : DType::f32) * slower *
             unused +
         images * image + weight * filter;
}

}  // namespace fermata

#else

#include "ir/error.h"

namespace fermata {

void convolution_onednn(const CallArgs&) { throw_internal("convolution_onednn: built without oneDNN"); }
bool convolution_onednn_fits(const CallArgs&) { return false; }
double convolution_onednn_cost(const CallArgs&) { return 0; }

}  // namespace fermata

#endif

namespace fermata {
FERMATA_KERNELS(cpu) {
  if (!has_onednn()) return;
  for (const Op op : {Op::convolution, Op::convolution_data_gradient, Op::convolution_weight_gradient})
    add_variant(op, BackendKey::cpu,
                {.name = "onednn",
                 .form = KernelForm::library,
                 .dtypes = DTypeSet(DType::f32) | DType::f16 | DType::bf16,
                 .call = &convolution_onednn,
                 .fits = &convolution_onednn_fits,
                 .cost = &convolution_onednn_cost,
                 .fits_text = kConvolutionOnednnFits,
                 .epilogue = op != Op::convolution_weight_gradient ? EpilogueForm::planes : EpilogueForm::none,
                 .ships = Ships::nowhere});
}
}  // namespace fermata
