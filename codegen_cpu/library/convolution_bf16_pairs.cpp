// Convolutions of bf16 and their data gradients by pairs (bf16_pairs.h): for every place of the result the sum over
// taps of products with the filters, of channels that lie innermost. Images that are seen beyond their edges, or do not
// lie so, are copied one at a time into memory whose padding is zero.
//
// Few channels do not fill pairs: windows along the last axis are written down then, and a tap is all of one.
#include <algorithm>
#include <array>
#include <vector>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/library/bf16_pairs.h"
#include "codegen_cpu/library/convolution.h"
#include "codegen_cpu/library/convolution_problem.h"
#include "codegen_cpu/library/product_rates.h"
#include "dispatch/kernel_files.h"
#include "ir/shape.h"
#include "runtime/prepacked_weights.h"
#include "runtime/thread_pool.h"

namespace fermata {

#if defined(__x86_64__)
namespace {

constexpr std::size_t kMostAxes = 3;
/// Channels up to which windows are written down, and elements of one and of an image's at most.
constexpr std::int64_t kFewChannels = 16, kMostOfWindow = 128, kMostOfWindows = 1 << 24;
/// What a task reads and writes of images stays in the second-level cache while panels pass by.
constexpr std::int64_t kBlockBytes = 384 << 10;

std::int64_t parts(std::int64_t size, std::int64_t part) { return (size + part - 1) / part; }
std::int64_t even(std::int64_t size) { return (size + 1) / 2 * 2; }

/// out[place, f] = sum over channels c and taps t of in[place + t, c] weight[f, c, t], for every image and group. In
/// the data gradient `in` is the gradient, and filters and channels change places.
struct Windows {
  explicit Windows(const ConvolutionProblem& p)
      : is_gradient(p.op == Op::convolution_data_gradient),
        in(is_gradient ? p.y : p.x),
        out(p.result()),
        weight(p.weight),
        images(p.images()),
        groups(p.groups()),
        filters(is_gradient ? p.channels() : p.filters()),
        channels(is_gradient ? p.filters() : p.channels()),
        axis_count(p.attributes.axes()) {
    for (std::size_t i = 0; i < axis_count; ++i) {
      const ConvolutionAttributes& a = p.attributes;
      Axis& axis = axes[kMostAxes - axis_count + i];
      axis = {in.sizes[i + 2], out.sizes[i + 2], weight.sizes[i + 2], a.strides[i], a.dilation[i], a.padding[i]};
      if (is_gradient) axis.before = axis.reach() - axis.before;
    }
    const Axis& last = axes[kMostAxes - 1];
    const std::int64_t each = last.taps * channels;
    writes_windows = groups == 1 && channels < kFewChannels && last.taps > 1 && each <= kMostOfWindow &&
                     axes[0].seen() * axes[1].seen() * last.out * each <= kMostOfWindows;
  }
  struct Axis {
    std::int64_t in = 1, out = 1, taps = 1, stride = 1, dilation = 1, before = 0;
    std::int64_t reach() const { return (taps - 1) * dilation; }
    /// What windows see of it, from the first one's start on.
    std::int64_t seen() const { return (out - 1) * stride + reach() + 1; }
  };

  bool is_gradient;
  TensorView in, out, weight;
  std::int64_t images, groups, filters, channels;
  std::size_t axis_count;
  std::array<Axis, kMostAxes> axes;  // those that are missing come first and have one element
  bool writes_windows;

  const Axis& last() const { return axes[kMostAxes - 1]; }
  std::int64_t window() const { return axes[0].taps * axes[1].taps * last().taps; }
  /// Channels of all groups as they are copied.
  std::int64_t channels_copied() const { return writes_windows ? channels : even(groups * channels); }
  std::int64_t stretches() const { return writes_windows ? axes[0].taps * axes[1].taps : window(); }
  std::int64_t depth() const { return writes_windows ? last().taps * channels : channels; }
  bool is_read_in_place() const {
    const auto inside = [](const Axis& a) { return a.before == 0 && a.seen() <= a.in; };
    return !writes_windows && channels % 2 == 0 && in.strides[1] == 1 && std::ranges::all_of(axes, inside);
  }
  std::int64_t lines() const { return axes[0].out * axes[1].out; }
  double multiply_adds() const {
    return static_cast<double>(images * groups * filters * lines() * last().out) * static_cast<double>(window()) *
           static_cast<double>(channels);
  }
};

/// The filters as panels, group after group; kept with them if they come again.
class PackedFilters {
 public:
  explicit PackedFilters(const Windows& w) : layout(w.filters, w.stretches(), w.depth()) {
    static constexpr std::byte kLayout{};
    PackedKey key{&kLayout, w.weight.data, {w.groups, w.is_gradient ? 1 : 0}};
    key.numbers.insert(key.numbers.end(), w.weight.sizes, w.weight.sizes + w.weight.rank);
    key.numbers.insert(key.numbers.end(), w.weight.strides, w.weight.strides + w.weight.rank);
    const auto bytes = static_cast<std::size_t>(w.groups * layout.bytes());
    held_ = PrepackedWeights::find(w.weight.buffer, key, bytes, [&](std::byte* to) { pack(w, to); });
    if (held_ != nullptr) return;
    held_.reset(Storage::allocate(bytes));
    pack(w, static_cast<std::byte*>(held_->data));
  }
  const std::byte* at(std::int64_t group, std::int64_t filter) const {
    return static_cast<const std::byte*>(held_->data) + group * layout.bytes() +
           filter / kPairColumns * layout.panel_bytes;
  }
  const PairPanels layout;

 private:
  /// By way of a copy whose channels lie innermost: [groups, filters, taps .., channels].
  void pack(const Windows& w, std::byte* to) const {
    Shape sizes{w.groups, w.filters}, from;
    const std::int64_t *strides = w.weight.strides, first = strides[0], second = strides[1];
    from.push_back((w.is_gradient ? w.channels : w.filters) * first);
    from.push_back(w.is_gradient ? second : first);
    std::int64_t start = 0;
    for (std::size_t i = 2; i < w.weight.rank; ++i) {
      sizes.push_back(w.weight.sizes[i]), from.push_back(w.is_gradient ? -strides[i] : strides[i]);
      if (w.is_gradient) start += (w.weight.sizes[i] - 1) * strides[i];
    }
    sizes.push_back(w.channels), from.push_back(w.is_gradient ? first : second);
    const Shape dense = dense_strides(sizes);
    const Scratch<std::uint16_t> copy(element_count(sizes));
    const auto rank = static_cast<std::uint8_t>(sizes.rank());
    std::uint16_t* const weight = static_cast<std::uint16_t*>(w.weight.data) + start;
    copy_elements({copy.data(), DType::bf16, rank, sizes.data(), dense.data()},
                  {weight, DType::bf16, rank, sizes.data(), from.data()});
    const std::int64_t filter = w.window() * w.channels;
    constexpr std::int64_t kTogether = 4 * kPairColumns;
    const std::int64_t blocks = parts(w.filters, kTogether);
    parallel_for(0, w.groups * blocks, static_cast<double>(kTogether * filter) * 0.1,
                 [&](std::int64_t begin, std::int64_t end) {
                   for (std::int64_t task = begin; task < end; ++task) {
                     const std::int64_t group = task / blocks, at = task % blocks * kTogether;
                     layout.pack({.from = reinterpret_cast<const std::byte*>(copy.data() + group * w.filters * filter),
                                  .column_stride = filter,
                                  .k_stride = 1,
                                  .stretch_stride = w.depth()},
                                 at, std::min(at + kTogether, w.filters),
                                 to + group * layout.bytes() + at / kPairColumns * layout.panel_bytes);
                   }
                 });
  }
  StoragePtr held_;
};

/// One image as the kernel reads it: where it lies, or a copy whose padding stays zero from image to image.
class Image {
 public:
  explicit Image(const Windows& w)
      : w_(w),
        is_in_place_(w.is_read_in_place()),
        seen_{w.axes[0].seen(), w.axes[1].seen(), w.last().seen()},
        window_(w.writes_windows ? even(w.depth()) : 0),
        copy_(is_in_place_ ? 0 : seen_[0] * seen_[1] * seen_[2] * w.channels_copied()),
        windows_(w.writes_windows ? seen_[0] * seen_[1] * w.last().out * window_ : 0) {
    std::fill_n(copy_.data(), copy_.size(), std::uint16_t{0});
    if (w.writes_windows) std::fill_n(windows_.data(), windows_.size(), std::uint16_t{0});
    if (is_in_place_) {
      for (std::size_t i = 0; i < kMostAxes; ++i) {
        const std::size_t missing = kMostAxes - w.axis_count;
        strides_[i] = i < missing ? 0 : 2 * w.in.strides[i - missing + 2];
      }
    } else {
      strides_[2] = 2 * (w.writes_windows ? window_ : w.channels_copied());
      strides_[1] = strides_[2] * (w.writes_windows ? w.last().out : seen_[2]);
      strides_[0] = strides_[1] * seen_[1];
    }
    for (std::int64_t a = 0; a < w.axes[0].taps; ++a)
      for (std::int64_t b = 0; b < w.axes[1].taps; ++b)
        for (std::int64_t c = 0; c < (w.writes_windows ? 1 : w.last().taps); ++c)
          stretches_.push_back(a * w.axes[0].dilation * strides_[0] + b * w.axes[1].dilation * strides_[1] +
                               c * w.last().dilation * strides_[2]);
  }
  Image(const Image&) = delete;

  void take(std::int64_t image) {
    const auto* const from = static_cast<const std::uint16_t*>(w_.in.data) + image * w_.in.strides[0];
    data_ = reinterpret_cast<const std::byte*>(from);
    if (is_in_place_) return;
    copy_inside(from);
    data_ = reinterpret_cast<const std::byte*>(copy_.data());
    if (!w_.writes_windows) return;
    write_windows();
    data_ = reinterpret_cast<const std::byte*>(windows_.data());
  }
  const std::byte* data() const { return data_; }
  std::span<const std::int64_t> stretches() const { return stretches_; }
  /// Bytes from a place of the result to the next along the last axis, and to a line's first place.
  std::int64_t step() const { return strides_[2] * (w_.writes_windows ? 1 : w_.last().stride); }
  std::int64_t line(std::int64_t number) const {
    const std::int64_t a = number / w_.axes[1].out, b = number % w_.axes[1].out;
    return a * w_.axes[0].stride * strides_[0] + b * w_.axes[1].stride * strides_[1];
  }
  /// Whether all places of all lines are equally far apart.
  bool is_even() const {
    const std::int64_t next = w_.axes[1].stride * strides_[1], outer = w_.axes[0].stride * strides_[0];
    return (w_.axes[1].out == 1 || next == w_.last().out * step()) &&
           (w_.axes[0].out == 1 || outer == w_.axes[1].out * w_.last().out * step());
  }
  /// Of a line of the result what is read of the image, in bytes, roughly.
  std::int64_t line_bytes() const {
    const std::int64_t each = 2 * w_.groups * w_.channels * w_.last().seen() * w_.axes[1].stride;
    return w_.writes_windows ? 2 * w_.last().out * window_ * w_.axes[1].stride : each;
  }

 private:
  /// The part of the image that windows see.
  void copy_inside(const std::uint16_t* from) const {
    std::uint16_t* to = copy_.data();
    const std::int64_t channels = w_.channels_copied();
    const std::int64_t strides[] = {seen_[1] * seen_[2] * channels, seen_[2] * channels, channels};
    Shape sizes, to_strides, from_strides;
    const std::size_t missing = kMostAxes - w_.axis_count;
    for (std::size_t i = 0; i < kMostAxes; ++i) {
      const Windows::Axis& a = w_.axes[i];
      const std::int64_t first = std::max<std::int64_t>(-a.before, 0), end = std::min(a.in, seen_[i] - a.before);
      if (end <= first) return;  // padding only
      to += (first + a.before) * strides[i];
      if (i < missing) continue;
      const std::int64_t stride = w_.in.strides[i - missing + 2];
      from += first * stride;
      sizes.push_back(end - first), to_strides.push_back(strides[i]), from_strides.push_back(stride);
    }
    sizes.push_back(w_.groups * w_.channels), to_strides.push_back(1), from_strides.push_back(w_.in.strides[1]);
    const auto rank = static_cast<std::uint8_t>(sizes.rank());
    copy_elements({to, DType::bf16, rank, sizes.data(), to_strides.data()},
                  {const_cast<std::uint16_t*>(from), DType::bf16, rank, sizes.data(), from_strides.data()});
  }
  void write_windows() const {
    const Windows::Axis& last = w_.last();
    const std::int64_t lines = seen_[0] * seen_[1], line = seen_[2] * w_.channels, written = last.out * window_;
    // Taps that are apart are copied one by one.
    const std::int64_t pieces = last.dilation == 1 ? 1 : last.taps, each = w_.depth() / pieces;
    parallel_for(0, lines, static_cast<double>(last.out * pieces) * 2, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t l = begin; l < end; ++l)
        for (std::int64_t piece = 0; piece < pieces; ++piece) {
          const std::uint16_t* const from = copy_.data() + l * line + piece * last.dilation * w_.channels;
          kBf16PairsKernels.copy({.to = reinterpret_cast<std::byte*>(windows_.data() + l * written + piece * each),
                                  .from = reinterpret_cast<const std::byte*>(from),
                                  .to_step = 2 * window_,
                                  .from_step = 2 * last.stride * w_.channels,
                                  .bytes = 2 * each,
                                  .count = last.out});
        }
    });
  }

  const Windows& w_;
  const bool is_in_place_;
  const std::array<std::int64_t, kMostAxes> seen_;
  const std::int64_t window_;  // elements of one that is written down
  const Scratch<std::uint16_t> copy_, windows_;
  std::array<std::int64_t, kMostAxes> strides_{};  // bytes
  std::vector<std::int64_t> stretches_;
  const std::byte* data_ = nullptr;
};

/// The result with channels innermost, where it is or beside it.
struct Result {
  std::byte* data;
  std::int64_t channels;  // of all groups
  const Epilogue* epilogue;
};

/// Rows of the result's first spatial axis, and filters, that are one task.
struct Cut {
  std::int64_t rows, row_count, filters, filter_count;
};

class Multiplication {
 public:
  Multiplication(const Windows& w, const PackedFilters& filters, const Result& result)
      : w_(w), filters_(filters), result_(result), rows_(w.out.sizes[2]), places_(w.lines() * w.last().out / rows_) {}

  void run(const Image& image, std::int64_t number) const {
    const Cut cut = cut_of(image);
    const std::int64_t tasks = parts(rows_, cut.rows) * cut.filter_count;
    const double ns = w_.multiply_adds() / static_cast<double>(w_.images * tasks) / product_rates().pairs_bf16;
    const bool is_elsewhere = result_.epilogue != nullptr && result_.epilogue->takes_tiles_elsewhere;
    parallel_for(0, tasks, ns, [&](std::int64_t begin, std::int64_t end) {
      std::vector<PairRows> runs;
      const Scratch<std::byte> tile(is_elsewhere ? cut.rows * places_ * 2 * result_.channels : 0);
      for (std::int64_t task = begin; task < end; ++task) {
        const std::int64_t row = task / cut.filter_count * cut.rows, rows = std::min(cut.rows, rows_ - row);
        const std::int64_t first = task % cut.filter_count * cut.filters;
        runs.clear();
        add_places(image, row, row + rows, runs);
        std::byte* const place =
            is_elsewhere ? tile.data() : result_.data + 2 * (number * rows_ + row) * places_ * result_.channels;
        const std::span<const std::byte> next = read_next(number, row, rows, cut.filter_count == 1);
        for (std::int64_t group = 0; group < w_.groups; ++group)
          multiply_group(image, group, first, cut, runs, place + 2 * (group * w_.filters + first), next);
        if (result_.epilogue == nullptr) continue;
        const std::int64_t channels = w_.groups > 1 ? result_.channels : std::min(cut.filters, w_.filters - first);
        run_on_rows(*result_.epilogue, w_.out,
                    {number, 1, first, channels, row, rows, is_elsewhere ? tile.data() : nullptr});
      }
    });
  }

 private:
  void multiply_group(const Image& image, std::int64_t group, std::int64_t first, const Cut& cut,
                      const std::vector<PairRows>& runs, std::byte* out, std::span<const std::byte> next) const {
    multiply(filters_.layout, {.x = image.data() + 2 * group * w_.channels,
                               .x_row = image.step(),
                               .stretches = image.stretches(),
                               .rows = runs,
                               .panels = filters_.at(group, first),
                               .out = out,
                               .out_row = 2 * result_.channels,
                               .columns = std::min(cut.filters, w_.filters - first),
                               .is_wide = false,
                               .wanted_next = next});
  }

  /// What the epilogue reads beside rows of the result.
  std::span<const std::byte> read_next(std::int64_t number, std::int64_t row, std::int64_t rows, bool is_whole) const {
    if (!is_whole || result_.epilogue == nullptr || result_.epilogue->reads == nullptr || w_.groups > 1) return {};
    const std::int64_t row_bytes = places_ * result_.channels * result_.epilogue->read_bytes;
    return {result_.epilogue->reads + (number * rows_ + row) * row_bytes, static_cast<std::size_t>(rows * row_bytes)};
  }

  /// The places of rows [row, end), where the result begins with the first: all in one where they are equally far
  /// apart; else line by line, or two short lines at a time.
  void add_places(const Image& image, std::int64_t row, std::int64_t end, std::vector<PairRows>& runs) const {
    const std::int64_t out_row = 2 * result_.channels, step = image.step(), width = w_.last().out;
    const auto place = [&](std::int64_t number) { return image.line(number / width) + number % width * step; };
    if (w_.axis_count == 1 || image.is_even()) {
      const std::int64_t from = row * places_;
      return add_runs({place(from), step, 0, out_row, (end - row) * places_}, runs);
    }
    const std::int64_t first = row * places_ / width, last = end * places_ / width;
    std::int64_t line = first;
    const auto out = [&](std::int64_t number) { return (number - first) * width * out_row; };
    for (; 2 * width <= kPairRows && line + 2 <= last; line += 2)
      runs.push_back({{image.line(line), image.line(line + 1)}, {out(line), out(line + 1)}, 2 * width});
    for (; line < last; ++line) add_runs({image.line(line), step, out(line), out_row, width}, runs);
  }

  Cut cut_of(const Image& image) const {
    const std::int64_t bytes = image.line_bytes() * places_ / w_.last().out + 2 * places_ * result_.channels;
    const std::int64_t threads = thread_count();
    const auto enough = static_cast<std::int64_t>(w_.multiply_adds() / static_cast<double>(w_.images) / 1e6);
    const std::int64_t wanted = w_.images >= threads ? 1 : std::clamp<std::int64_t>(enough, 1, 2 * threads);
    std::int64_t row_parts = std::clamp(parts(rows_ * bytes, kBlockBytes), std::int64_t{1}, rows_);
    std::int64_t filter_parts = 1;
    if (row_parts < wanted) {
      // Rows are cut as long as a task has places for some runs; then filters, unless their groups are to be together.
      const std::int64_t most = std::clamp(rows_ * places_ / (4 * kPairRows), row_parts, rows_);
      row_parts = std::min(wanted, most);
      if (w_.groups == 1) filter_parts = std::min(parts(wanted, row_parts), parts(w_.filters, 2 * kPairColumns));
    }
    const std::int64_t rows = parts(rows_, row_parts);
    const std::int64_t filters =
        filter_parts == 1 ? w_.filters : parts(parts(w_.filters, filter_parts), 2 * kPairColumns) * 2 * kPairColumns;
    return {rows, parts(rows_, rows), filters, parts(w_.filters, filters)};
  }

  const Windows& w_;
  const PackedFilters& filters_;
  const Result result_;
  const std::int64_t rows_, places_;  // along the first spatial axis, and of each
};

void multiply(const Windows& w, const Result& result) {
  const PackedFilters filters(w);
  const Multiplication multiplication(w, filters, result);
  const double ns = w.multiply_adds() / static_cast<double>(w.images) / product_rates().pairs_bf16;
  parallel_for(0, w.images, ns, [&](std::int64_t begin, std::int64_t end) {
    Image image(w);
    for (std::int64_t i = begin; i < end; ++i) image.take(i), multiplication.run(image, i);
  });
}

}  // namespace

void convolution_bf16_pairs(const CallArgs& args) {
  const ConvolutionProblem problem(args);
  Windows w(problem);
  run_channels_last(args, [&](const TensorView& result, Epilogue* epilogue) {
    w.out = result;
    multiply(w, {static_cast<std::byte*>(result.data), result.sizes[1], epilogue});
  });
}

bool convolution_bf16_pairs_fits(const CallArgs& args) {
  if (!has_bf16_pairs() || args.outputs[0].dtype != DType::bf16) return false;
  const ConvolutionProblem p(args);
  if (p.is_empty() || p.attributes.axes() > kMostAxes) return false;
  const Windows w(p);
  const auto is_even_step = [](std::int64_t stride) { return stride == 1; };
  if (w.is_gradient && !std::ranges::all_of(p.attributes.strides, is_even_step)) return false;
  if (std::ranges::any_of(w.axes, [](const Windows::Axis& a) { return a.before < 0; })) return false;
  constexpr std::int64_t kFewestFilters = 8;
  return w.filters >= kFewestFilters && (w.groups == 1 || w.channels % 2 == 0);
}

/// Images are taken to have their channels innermost: eager and compiled calls choose alike.
double convolution_bf16_pairs_cost(const CallArgs& args) {
  const Windows w((ConvolutionProblem(args)));
  constexpr std::int64_t kHalf = kPairColumns / 2, kEnoughRows = 7;
  const std::int64_t rest = w.filters % kPairColumns, rounded = parts(w.filters, kHalf) * kHalf;
  // Half a panel waits for loads.
  const auto columns = static_cast<double>(rounded + (rest != 0 && rest <= kHalf ? kHalf / 2 : 0));
  const std::int64_t width = w.last().out, rows = std::min(width > kEnoughRows ? width : 2 * width, kPairRows);
  const double few =
      w.window() > 1 && rows < kEnoughRows ? static_cast<double>(kEnoughRows) / static_cast<double>(rows) : 1;
  const auto depth = static_cast<double>(even(w.depth()) * w.stretches());
  const double work =
      static_cast<double>(w.images * w.groups * w.lines() * width) * columns * depth * few / product_rates().pairs_bf16;
  const double copied = w.is_read_in_place() || w.window() == 1 ? 0 : 0.1;
  return 1500 + work + static_cast<double>(w.in.element_count()) * copied +
         static_cast<double>(w.weight.element_count()) * 0.04 + static_cast<double>(w.out.element_count()) * 0.01;
}

#else

void convolution_bf16_pairs(const CallArgs&) {}
bool convolution_bf16_pairs_fits(const CallArgs&) { return false; }
double convolution_bf16_pairs_cost(const CallArgs&) { return 0; }

#endif

FERMATA_KERNELS(cpu) {
  if (!has_bf16_pairs()) return;
  for (const Op op : {Op::convolution, Op::convolution_data_gradient})
    add_variant(op, BackendKey::cpu,
                {.name = "pairs",
                 .form = KernelForm::library,
                 .dtypes = DType::bf16,
                 .call = &convolution_bf16_pairs,
                 .fits = &convolution_bf16_pairs_fits,
                 .cost = &convolution_bf16_pairs_cost,
                 .fits_text = kConvolutionBf16PairsFits,
                 .epilogue = EpilogueForm::planes,
                 .ships = Ships::nowhere});
}

}  // namespace fermata
