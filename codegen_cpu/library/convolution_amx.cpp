// Convolutions and their data gradients by AMX tiles, where windows move by one place at a time: a sum over taps of
// products of filters with places that lie next to each other. Numbers are split as in
// docs/adr/017-f32-products-through-bf16.md.
#include <algorithm>
#include <cstring>
#include <vector>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/row_major_result.h"
#include "codegen_cpu/library/convolution.h"
#include "codegen_cpu/library/convolution_amx_kernels.h"
#include "codegen_cpu/library/convolution_problem.h"
#include "codegen_cpu/library/matmul_amx.h"
#include "codegen_cpu/library/matmul_amx_kernels.h"
#include "codegen_cpu/library/product_rates.h"
#include "dispatch/kernel_files.h"
#include "runtime/prepacked_weights.h"
#include "runtime/thread_pool.h"

namespace fermata {

#if defined(__x86_64__)
namespace {

constexpr std::int64_t kStepBytes = amx_step_bytes(AmxKind::f32), kParts = amx_parts(AmxKind::f32);

std::int64_t parts(std::int64_t size, std::int64_t part) { return (size + part - 1) / part; }

/// out[f, place] = sum over channels c and taps t of in[c, place + t] weight[f, c, t], for every image and group. The
/// two last spatial axes are rows and columns; in the data gradient `in` is the gradient, and filters and channels
/// change places.
struct Windows {
  explicit Windows(const ConvolutionProblem& p)
      : is_gradient(p.op == Op::convolution_data_gradient),
        in(is_gradient ? p.y : p.x),
        out(p.result()),
        images(p.images()),
        groups(p.groups()),
        filters(is_gradient ? p.channels() : p.filters()),
        channels(is_gradient ? p.filters() : p.channels()),
        window(p.window()),
        filter_stride(is_gradient ? window : channels * window),
        channel_stride(is_gradient ? filters * window : window) {
    const std::size_t axes = p.attributes.axes();
    for (std::size_t axis = 0; axis < 2; ++axis) {
      Axis& a = axis == 0 ? rows : columns;
      if (axis + axes < 2) continue;  // one spatial axis: columns
      const std::size_t i = axis + axes - 2;
      a = {in.sizes[i + 2], out.sizes[i + 2], p.weight.sizes[i + 2], p.attributes.dilation[i], p.attributes.padding[i]};
      if (is_gradient) a.before = a.reach() - a.before;
    }
  }
  struct Axis {
    std::int64_t in = 1, out = 1, taps = 1, dilation = 1, before = 0;  // before: padding, at least 0 where this fits
    std::int64_t reach() const { return (taps - 1) * dilation; }
    /// What windows see of it.
    std::int64_t padded() const { return out + reach(); }
    std::int64_t after() const { return padded() - before - in; }
  };

  const bool is_gradient;
  const TensorView in, out;
  std::int64_t images, groups, filters, channels, window, filter_stride, channel_stride;
  Axis rows, columns;

  std::int64_t blocks() const { return parts(channels, kAmxChannels); }
  std::int64_t steps() const { return window * blocks(); }
  std::int64_t panels() const { return parts(filters, kAmxFilters); }
  /// Places from the first to the last, those between rows included.
  std::int64_t places() const { return rows.out * columns.padded() - columns.reach(); }
  /// Lanes of a plane: tiles read up to a whole group of places further.
  std::int64_t plane() const { return rows.padded() * columns.padded() + kAmxPlaces; }
  std::int64_t part() const { return blocks() * kAmxChannels / 2 * plane(); }
  double multiply_adds() const {
    return static_cast<double>(images * groups * panels() * kAmxFilters * parts(places(), kAmxPlaces)) *
           static_cast<double>(kAmxPlaces * steps() * kAmxChannels);
  }
};

/// The filters as panels, for every tap the channels; kept with them if they come again.
class PackedFilters {
 public:
  PackedFilters(const Windows& w, const TensorView& weight)
      : panel_bytes_(w.steps() * kStepBytes), group_bytes_(w.panels() * panel_bytes_) {
    static constexpr std::byte kLayout{};
    PackedKey key{&kLayout, weight.data, {w.groups, w.is_gradient ? 1 : 0}};
    key.numbers.insert(key.numbers.end(), weight.sizes, weight.sizes + weight.rank);
    key.numbers.insert(key.numbers.end(), weight.strides, weight.strides + weight.rank);
    const auto bytes = static_cast<std::size_t>(kHeader + w.groups * group_bytes_);
    held_ = PrepackedWeights::find(weight.buffer, key, bytes, [&](std::byte* to) { pack(w, weight, to); });
    if (held_ != nullptr) return;
    held_.reset(Storage::allocate(bytes));
    pack(w, weight, static_cast<std::byte*>(held_->data));
  }
  const std::byte* at(std::int64_t group, std::int64_t panel) const {
    return static_cast<const std::byte*>(held_->data) + kHeader + group * group_bytes_ + panel * panel_bytes_;
  }
  /// The bits of the largest magnitude.
  std::uint32_t largest() const { return *static_cast<const std::uint32_t*>(held_->data); }

 private:
  void pack(const Windows& w, const TensorView& weight, std::byte* to) const {
    const DenseElements dense(weight);
    const std::int64_t each = w.panels(), group = w.filters * w.channels * w.window;
    const Scratch<std::uint32_t> largest(w.groups * each);
    const double ns = static_cast<double>(kAmxFilters * w.channels * w.window) * 0.5;
    parallel_for(0, w.groups * each, ns, [&](std::int64_t b, std::int64_t e) {
      for (std::int64_t task = b; task < e; ++task) {
        const std::int64_t first = task % each * kAmxFilters;
        largest[task] = kAmxConvolutionKernels.pack(
            {.from = static_cast<const float*>(dense.data()) + task / each * group + first * w.filter_stride,
             .filter_stride = w.filter_stride,
             .channel_stride = w.channel_stride,
             .filters = std::min(kAmxFilters, w.filters - first),
             .channels = w.channels,
             .taps = w.window,
             .reversed = w.is_gradient,
             .panel = to + kHeader + task * panel_bytes_});
      }
    });
    *reinterpret_cast<std::uint32_t*>(to) = *std::max_element(largest.data(), largest.data() + largest.size());
  }

  static constexpr std::int64_t kHeader = 64;  // of the copy: the largest magnitude, then panels
  std::int64_t panel_bytes_, group_bytes_;
  StoragePtr held_;
};

/// The planes of one image and group, whose padding stays zero from image to image.
class Planes {
 public:
  explicit Planes(const Windows& w) : w_(w), lanes_(kParts * w.part() + kAmxPlaces), largest_(w.blocks()) {
    std::memset(lanes_.data(), 0, static_cast<std::size_t>(lanes_.size()) * sizeof(std::uint32_t));
  }
  /// Gives the bits of the largest magnitude.
  std::uint32_t fill(std::int64_t image, std::int64_t group) const {
    const TensorView& in = w_.in;
    const auto* const from =
        static_cast<const float*>(in.data) + image * in.strides[0] + group * w_.channels * in.strides[1];
    const std::int64_t first = w_.rows.before * w_.columns.padded() + w_.columns.before;
    parallel_for(0, w_.blocks(), static_cast<double>(kAmxChannels * w_.rows.in * w_.columns.in) * 0.4,
                 [&](std::int64_t b, std::int64_t e) {
                   for (std::int64_t block = b; block < e; ++block)
                     largest_[block] = kAmxConvolutionKernels.split(
                         {.from = from + block * kAmxChannels * in.strides[1],
                          .channel_stride = in.strides[1],
                          .row_stride = in.rank < 4 ? 0 : in.strides[2],
                          .channels = std::min(kAmxChannels, w_.channels - block * kAmxChannels),
                          .rows = w_.rows.in,
                          .columns = w_.columns.in,
                          .to = lanes_.data() + block * (kAmxChannels / 2) * w_.plane() + first,
                          .to_row = w_.columns.padded(),
                          .to_plane = w_.plane(),
                          .to_part = w_.part()});
                 });
    return *std::max_element(largest_.data(), largest_.data() + largest_.size());
  }
  const std::byte* at(std::int64_t place) const { return reinterpret_cast<const std::byte*>(lanes_.data() + place); }

 private:
  const Windows& w_;
  Scratch<std::uint32_t> lanes_, largest_;
};

/// From the start of a plane to the place of every step: taps, and for each its blocks of channels.
std::vector<std::int64_t> step_offsets(const Windows& w) {
  std::vector<std::int64_t> offsets;
  for (std::int64_t row = 0; row < w.rows.taps; ++row)
    for (std::int64_t column = 0; column < w.columns.taps; ++column)
      for (std::int64_t block = 0; block < w.blocks(); ++block)
        offsets.push_back(4 * (block * (kAmxChannels / 2) * w.plane() + row * w.rows.dilation * w.columns.padded() +
                               column * w.columns.dilation));
  return offsets;
}

/// Writes 32 filters at 32 places, without those between rows.
void write_places(const Windows& w, const float* sums, std::int64_t filter, std::int64_t place, float* out) {
  const std::int64_t width = w.columns.padded(), end = std::min(place + kAmxPlaces, w.places()),
                     plane = w.rows.out * w.columns.out;
  const std::int64_t filters = std::min(kAmxFilters, w.filters - filter);
  for (std::int64_t at = place; at < end;) {
    const std::int64_t row = at / width, column = at % width, left = w.columns.out - column,
                       count = std::min(end - at, left);
    for (std::int64_t f = 0; f < filters && count > 0; ++f)
      std::memcpy(out + (filter + f) * plane + row * w.columns.out + column, sums + f * kAmxPlaces + at - place,
                  static_cast<std::size_t>(count) * sizeof(float));
    at = count == left ? (row + 1) * width : end;
  }
}

void multiply(const Windows& w, const PackedFilters& filters, const Planes& planes,
              const std::vector<std::int64_t>& offsets, std::int64_t group, float* out) {
  const std::int64_t blocks = parts(w.places(), kAmxPlaces), panels = w.panels();
  const double ns = static_cast<double>(kAmxFilters * kAmxPlaces * kAmxChannels * w.steps()) / 100;
  // The larger side passes through the second-level cache once.
  const bool by_panels = panels * w.steps() * kStepBytes > kParts * w.part() * 4;
  parallel_for(0, blocks * panels, ns, [&](std::int64_t begin, std::int64_t end) {
    alignas(64) float sums[kAmxFilters * kAmxPlaces];
    kAmxKernels.configure();
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t place = (by_panels ? task % blocks : task / panels) * kAmxPlaces,
                         panel = by_panels ? task / blocks : task % panels;
      kAmxConvolutionKernels.multiply({.weights = filters.at(group, panel),
                                       .planes = planes.at(place),
                                       .step_offsets = offsets.data(),
                                       .steps = w.steps(),
                                       .plane_bytes = w.plane() * 4,
                                       .part_bytes = w.part() * 4,
                                       .sums = sums});
      write_places(w, sums, panel * kAmxFilters, place, out);
    }
    kAmxKernels.release();
  });
}

/// One image by our other kernel: numbers that do not split.
void run_unsplit(const CallArgs& args, std::int64_t image) {
  TensorView inputs[] = {args.inputs[0], args.inputs[1]}, out = args.outputs[0];
  std::vector<std::int64_t> sizes[2];
  TensorView* const views[] = {&inputs[0], &out};
  for (int i = 0; i < 2; ++i) {
    TensorView& v = *views[i];
    sizes[i].assign(v.sizes, v.sizes + v.rank);
    v.data = static_cast<float*>(v.data) + image * v.strides[0];
    sizes[i][0] = 1, v.sizes = sizes[i].data();
  }
  CallArgs one = args;
  one.inputs = inputs, one.outputs = {&out, 1}, one.epilogue = nullptr;
  convolution_portable(one);
}

bool fits(const ConvolutionProblem& p) {
  const ConvolutionAttributes& a = p.attributes;
  if (!splits_f32() || p.dtype != DType::f32 || a.axes() > 2 || p.is_empty()) return false;
  if (p.op == Op::convolution_weight_gradient) return false;
  for (const std::int64_t stride : a.strides)
    if (stride != 1) return false;
  const Windows w(p);
  for (const Windows::Axis& axis : {w.rows, w.columns})
    if (axis.before < 0 || axis.after() < 0) return false;
  return w.in.strides[w.in.rank - 1u] == 1 || w.columns.in == 1;
}

}  // namespace

void convolution_amx(const CallArgs& args) {
  if (has_channels_last(args.outputs[0])) return run_row_major(args, &convolution_amx);
  const ConvolutionProblem p(args);
  const Windows w(p);
  const PackedFilters filters(w, p.weight);
  const std::vector<std::int64_t> offsets = step_offsets(w);
  const std::int64_t planes_each = w.groups * w.filters, plane = w.rows.out * w.columns.out;
  parallel_for(
      0, w.images, w.multiply_adds() / static_cast<double>(w.images) / 100, [&](std::int64_t begin, std::int64_t end) {
        const Planes planes(w);
        for (std::int64_t image = begin; image < end; ++image) {
          for (std::int64_t group = 0; group < w.groups; ++group) {
            if (!can_be_split(planes.fill(image, group)) || !can_be_split(filters.largest())) {
              run_unsplit(args, image);
              break;
            }
            float* const out = static_cast<float*>(w.out.data) + (image * w.groups + group) * w.filters * plane;
            multiply(w, filters, planes, offsets, group, out);
          }
          if (args.epilogue == nullptr) continue;
          parallel_for(0, planes_each, static_cast<double>(plane), [&](std::int64_t b, std::int64_t e) {
            run_on_planes(args.epilogue, w.out, image * planes_each + b, e - b);
          });
        }
      });
}

bool convolution_amx_fits(const CallArgs& args) { return has_amx() && fits(ConvolutionProblem(args)); }

/// Counted as oneDNN's is, which is on the safe side, most of all about filters. Measured on Sapphire Rapids: 95
/// multiply-adds per ns, 0.4 ns to split a number of an image and 0.5 for one of a filter.
double convolution_amx_cost(const CallArgs& args) {
  const Windows w((ConvolutionProblem(args)));
  const auto images = static_cast<double>(w.images),
             in = static_cast<double>(w.images * w.groups * w.blocks() * kAmxChannels * w.rows.in * w.columns.in);
  const double sums = images * static_cast<double>(w.groups * w.panels() * parts(w.places(), kAmxPlaces)) *
                      kAmxFilters * kAmxPlaces * static_cast<double>(parts(w.steps(), kAmxStepsTogether) + 1) * 0.1;
  return 5000 + w.multiply_adds() / product_rates().convolution_amx + sums + in * 0.5 +
         static_cast<double>(w.groups * w.filters * w.channels * w.window) * 1.6;
}

#else

void convolution_amx(const CallArgs&) {}
bool convolution_amx_fits(const CallArgs&) { return false; }
double convolution_amx_cost(const CallArgs&) { return 0; }

#endif

FERMATA_KERNELS(cpu) {
  if (!has_amx()) return;
  for (const Op op : {Op::convolution, Op::convolution_data_gradient})
    add_variant(op, BackendKey::cpu,
                {.name = "amx",
                 .form = KernelForm::library,
                 .dtypes = DType::f32,
                 .call = &convolution_amx,
                 .fits = &convolution_amx_fits,
                 .cost = &convolution_amx_cost,
                 .fits_text = kConvolutionAmxFits,
                 .epilogue = EpilogueForm::planes});
}

}  // namespace fermata
