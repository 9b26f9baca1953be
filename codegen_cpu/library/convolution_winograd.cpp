// Convolutions with filters of 3x3 by Winograd's algorithm F(2x2, 3x3), and their data gradients, as `call` kernels:
// 16 multiplications for a tile of 2x2 results instead of 36.
//
// Tiles lie on a grid of each image, and each sum over channels is one chain, so bits depend neither on the number of
// threads nor on how images lie. Groups of tiles stay in the second-level cache from their transform to the results and
// what follows them. A tile mixes all 4x4 numbers that it reads: where a result is not finite, the four results of the
// tile are computed once more as plain sums, so that infinities and NaNs spread no further than their windows.
// docs/numerics.md has the bound of errors.
#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <vector>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "codegen_cpu/library/convolution.h"
#include "codegen_cpu/library/convolution_problem.h"
#include "codegen_cpu/library/convolution_winograd_kernels.h"
#include "codegen_cpu/library/matmul_portable_kernels.h"
#include "codegen_cpu/library/product_rates.h"
#include "dispatch/kernel_files.h"
#include "ir/channels_last.h"
#include "ir/shape.h"
#include "runtime/environment.h"
#include "runtime/prepacked_weights.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

constexpr std::int64_t kTaps = 9;
/// Filters whose sums are made together: bounds of an epilogue's tiles, and so few columns that products read
/// transformed tiles in place.
constexpr std::int64_t kBlock = 64;
/// Bytes of transformed tiles and of sums that a group has; and tiles that products are worth it for.
constexpr std::int64_t kGroupBytes = 1150 << 10, kFewestTiles = 28, kMostTiles = 112;

const WinogradKernels& kernels() { return FERMATA_TABLE(kWinograd); }

std::int64_t parts(std::int64_t size, std::int64_t part) { return (size + part - 1) / part; }

/// The convolution, or a data gradient as the convolution of y with filters turned around.
struct Problem {
  explicit Problem(const ConvolutionProblem& p)
      : in(p.op == Op::convolution ? p.x : p.y), out(p.result()), weight(p.weight) {
    const bool is_gradient = p.op == Op::convolution_data_gradient;
    std::copy_n(weight.sizes, 4, sizes.begin()), std::copy_n(weight.strides, 4, strides.begin());
    for (std::size_t i = 0; i < 2; ++i)
      padding[i] = is_gradient ? 2 - p.attributes.padding[i] : p.attributes.padding[i];
    if (is_gradient) {
      std::swap(sizes[0], sizes[1]), std::swap(strides[0], strides[1]);
      weight.data = static_cast<float*>(weight.data) + 2 * (strides[2] + strides[3]);
      strides[2] = -strides[2], strides[3] = -strides[3];
    }
    weight.sizes = sizes.data(), weight.strides = strides.data();
  }
  Problem(const Problem&) = delete;

  TensorView in, out, weight;  // weight: [filters, channels, 3, 3]
  std::array<std::int64_t, 4> sizes, strides;
  std::array<std::int64_t, 2> padding;

  std::int64_t images() const { return out.sizes[0]; }
  std::int64_t filters() const { return sizes[0]; }
  std::int64_t channels() const { return sizes[1]; }
  std::int64_t rows() const { return out.sizes[2]; }
  std::int64_t columns() const { return out.sizes[3]; }
  std::int64_t tiles_down() const { return parts(rows(), kWinogradResults); }
  std::int64_t tiles_across() const { return parts(columns(), kWinogradResults); }
  std::int64_t tiles() const { return images() * tiles_down() * tiles_across(); }
  std::int64_t blocks() const { return parts(filters(), kBlock); }
};

/// Filters as the 16 products read them: for each block and position panels of a right side. Kept with the filters if
/// they come again.
class TransformedFilters {
 public:
  explicit TransformedFilters(const Problem& p)
      : width_(kernels().width), panel_(width_ * panel_rows(p.channels())), panels_(kBlock / width_) {
    static constexpr std::byte kLayout{};
    const std::int64_t count = p.blocks() * kWinogradPositions * panels_ * panel_;
    PackedKey key{&kLayout, p.weight.data, {p.sizes.begin(), p.sizes.end()}};
    key.numbers.insert(key.numbers.end(), p.strides.begin(), p.strides.end());
    const auto pack = [&](std::byte* to) { transform(p, reinterpret_cast<float*>(to)); };
    held_ = PrepackedWeights::find(p.weight.buffer, key, static_cast<std::size_t>(count) * sizeof(float), pack);
    if (held_ != nullptr) {
      panels_of_all_ = static_cast<const float*>(held_->data);
    } else {
      panels_of_all_ = own_.emplace(count).data();
      transform(p, own_->data());
    }
  }
  const float* at(std::int64_t block, std::int64_t position) const {
    return panels_of_all_ + (block * kWinogradPositions + position) * panels_ * panel_;
  }
  /// Columns of a block's products: whole panels.
  std::int64_t columns(const Problem& p, std::int64_t block) const {
    return std::min(kBlock, parts(p.filters() - block * kBlock, width_) * width_);
  }

 private:
  void transform(const Problem& p, float* to) const {
    const std::int64_t channels = p.channels(), all = parts(p.filters(), width_);
    parallel_for(0, all, static_cast<double>(channels * width_ * kTaps) * 0.5, [&](std::int64_t b, std::int64_t e) {
      const Scratch<float> taps(channels * kTaps * width_);
      for (std::int64_t panel = b; panel < e; ++panel) {
        const std::int64_t first = panel * width_, count = std::min(width_, p.filters() - first);
        if (count < width_) std::fill_n(taps.data(), taps.size(), 0.0f);
        const std::int64_t sizes[] = {channels, 3, 3, count};
        const std::int64_t to_strides[] = {kTaps * width_, 3 * width_, width_, 1};
        const std::int64_t from_strides[] = {p.strides[1], p.strides[2], p.strides[3], p.strides[0]};
        float* const from = static_cast<float*>(p.weight.data) + first * p.strides[0];
        strided_copy({taps.data(), to_strides}, {from, from_strides}, sizes, sizeof(float));
        kernels().transform_filters(
            {.from = taps.data(),
             .channels = channels,
             .to = to + (panel / panels_ * kWinogradPositions * panels_ + panel % panels_) * panel_,
             .to_position = panels_ * panel_});
      }
    });
  }
  const std::int64_t width_, panel_, panels_;
  StoragePtr held_;
  std::optional<Scratch<float>> own_;
  const float* panels_of_all_ = nullptr;
};

/// Rows of tiles of all images, one after another; or, of one row, some tiles.
struct Group {
  std::int64_t row, rows, tile, tiles;  // tiles: of each row
  std::int64_t count() const { return rows * tiles; }
};

/// Some images, dense and with their channels innermost, and results of the same kind.
class Images {
 public:
  Images(const Problem& problem, const TransformedFilters& filters, const TensorView& in, float* out,
         const Epilogue* epilogue)
      : p_(problem),
        filters_(filters),
        in_(in),
        out_(out),
        epilogue_(epilogue),
        tiles_per_row_(problem.tiles_across()),
        tile_(parts(problem.channels(), 16) * 16 + 16) {
    const std::int64_t bytes_of_tile = kWinogradPositions * 4 * (tile_ + kBlock);
    const std::int64_t most = std::clamp(kGroupBytes / bytes_of_tile, kFewestTiles, kMostTiles);
    const std::int64_t rows = in.sizes[0] * p_.tiles_down();
    across_ = parts(tiles_per_row_, most);
    const std::int64_t together = across_ > 1 ? 1 : std::min(rows, std::max<std::int64_t>(1, most / tiles_per_row_));
    down_ = parts(rows, together);
    // An even share for every thread where groups of fewer rows are still worth it.
    const std::int64_t threads = thread_count(), even = parts(down_, threads) * threads;
    if (down_ < 4 * threads && even <= rows && rows / even * tiles_per_row_ >= kFewestTiles) down_ = even;
    rows_ = rows;
  }

  void run() const {
    const std::int64_t groups = down_ * across_, threads = thread_count();
    const double ns = group_ns(group(0));
    if (threads == 1 || groups % threads == 0 || groups >= 4 * threads) {
      parallel_for(0, groups, ns, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t i = begin; i < end; ++i) {
          const Tiles tiles(*this, group(i));
          for (std::int64_t row = 0; row < tiles.group.rows; ++row) transform(tiles, row);
          for (std::int64_t block = 0; block < p_.blocks(); ++block) multiply(tiles, block);
        }
      });
      return;
    }
    for (std::int64_t i = 0; i < groups; ++i) {  // together
      const Tiles tiles(*this, group(i));
      parallel_for(0, tiles.group.rows, ns * 0.1 / static_cast<double>(tiles.group.rows),
                   [&](std::int64_t begin, std::int64_t end) {
                     for (std::int64_t row = begin; row < end; ++row) transform(tiles, row);
                   });
      parallel_for(0, p_.blocks(), ns / static_cast<double>(p_.blocks()), [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t block = begin; block < end; ++block) multiply(tiles, block);
      });
    }
  }

 private:
  /// A group's transformed tiles. Positions are not a power of two apart, which would put them into the same sets of a
  /// cache.
  struct Tiles {
    Tiles(const Images& images, const Group& g)
        : group(g),
          position(g.count() * images.tile_ + 16 * (g.count() * (images.tile_ / 16) % 2 == 0)),
          numbers(kWinogradPositions * position) {}
    const Group group;
    const std::int64_t position;
    const Scratch<float> numbers;
  };

  Group group(std::int64_t number) const {
    const std::int64_t down = number / across_, across = number % across_;
    const std::int64_t row = rows_ * down / down_, tile = tiles_per_row_ * across / across_;
    return {row, rows_ * (down + 1) / down_ - row, tile, tiles_per_row_ * (across + 1) / across_ - tile};
  }
  double group_ns(const Group& g) const {
    return static_cast<double>(g.count() * kWinogradPositions * p_.channels() * p_.filters()) * 0.011;
  }

  /// Where row `row` of an image begins; null outside of it.
  const float* row_of(std::int64_t image, std::int64_t row) const {
    if (row < 0 || row >= in_.sizes[2]) return nullptr;
    return static_cast<const float*>(in_.data) + image * in_.strides[0] + row * in_.strides[2];
  }
  void transform(const Tiles& t, std::int64_t number) const {
    const std::int64_t at = t.group.row + number, image = at / p_.tiles_down(), row = at % p_.tiles_down();
    const Scratch<float> room(kWinogradPositions * p_.channels());
    WinogradTiles tiles{.rows = {},
                        .place = in_.strides[3],
                        .width = in_.sizes[3],
                        .column = t.group.tile * kWinogradResults - p_.padding[1],
                        .tiles = t.group.tiles,
                        .channels = p_.channels(),
                        .to = t.numbers.data() + number * t.group.tiles * tile_,
                        .to_tile = tile_,
                        .to_position = t.position,
                        .room = room.data()};
    for (std::int64_t i = 0; i < kWinogradTile; ++i)
      tiles.rows[i] = row_of(image, row * kWinogradResults - p_.padding[0] + i);
    kernels().transform(tiles);
  }

  /// The results of a block of filters, and what follows them.
  void multiply(const Tiles& t, std::int64_t block) const {
    const std::int64_t count = t.group.count(), first = block * kBlock, position = count * kBlock + 16;
    const std::int64_t columns = filters_.columns(p_, block), filters = std::min(kBlock, p_.filters() - first);
    const Scratch<float> sums(kWinogradPositions * position);
    const Scratch<std::byte> room(
        static_cast<std::int64_t>(portable_scratch_bytes(MatmulStorage::f32, count, columns)));
    for (std::int64_t i = 0; i < kWinogradPositions; ++i)
      multiply_f32_tile({.lhs = t.numbers.data() + i * t.position,
                         .lhs_row = tile_,
                         .lhs_k = 1,
                         .rhs = nullptr,
                         .rhs_k = 0,
                         .rhs_column = 0,
                         .rhs_panels = filters_.at(block, i),
                         .out = sums.data() + i * position,
                         .out_row = kBlock,
                         .rows = count,
                         .columns = columns,
                         .k = p_.channels(),
                         .scratch = room.data()});
    const Scratch<unsigned char> is_finite(t.group.tiles);
    for (std::int64_t i = 0; i < t.group.rows; ++i) {
      const Row r = row(t.group, i);
      kernels().finish({.sums = sums.data() + i * t.group.tiles * kBlock,
                        .sums_tile = kBlock,
                        .sums_position = position,
                        .tiles = t.group.tiles,
                        .filters = filters,
                        .to = out_ + r.place * p_.filters() + first,
                        .row = p_.columns() * p_.filters(),
                        .place = p_.filters(),
                        .rows = r.rows,
                        .columns = p_.columns() - r.column,
                        .is_finite = is_finite.data()});
      if (std::find(is_finite.data(), is_finite.data() + t.group.tiles, 0) != is_finite.data() + t.group.tiles)
        compute_plainly(r, is_finite.data(), t.group.tiles, first, filters);
    }
    if (epilogue_ != nullptr) finish(t.group, first, first + filters);
  }

  /// Results of a row of tiles: where they begin, counted over all places; and how many rows there are, 1 or 2.
  struct Row {
    std::int64_t image, row, column, rows, place;
  };
  Row row(const Group& g, std::int64_t number) const {
    const std::int64_t at = g.row + number, image = at / p_.tiles_down();
    const std::int64_t row = at % p_.tiles_down() * kWinogradResults, column = g.tile * kWinogradResults;
    return {image, row, column, std::min(kWinogradResults, p_.rows() - row),
            (image * p_.rows() + row) * p_.columns() + column};
  }

  void finish(const Group& g, std::int64_t first, std::int64_t end) const {
    if (g.tiles != tiles_per_row_) {
      const Row r = row(g, 0);
      const std::int64_t width = std::min(g.tiles * kWinogradResults, p_.columns() - r.column);
      for (std::int64_t i = 0; i < r.rows; ++i)
        epilogue_->on_tile({r.place + i * p_.columns(), r.place + i * p_.columns() + width, first, end});
      return;
    }
    for (std::int64_t i = 0; i < g.rows;) {  // all rows of an image at once
      const Row begin = row(g, i);
      const std::int64_t left = p_.tiles_down() - begin.row / kWinogradResults, rows = std::min(g.rows - i, left);
      const Row last = row(g, i + rows - 1);
      epilogue_->on_tile({begin.place, last.place + last.rows * p_.columns(), first, end});
      i += rows;
    }
  }

  /// The results of tiles that are not finite, as products of their windows with the filters.
  void compute_plainly(const Row& r, const unsigned char* is_finite, std::int64_t tiles, std::int64_t first,
                       std::int64_t filters) const {
    std::vector<std::array<std::int64_t, 2>> places;  // row and column of the result
    for (std::int64_t tile = 0; tile < tiles; ++tile)
      for (std::int64_t i = 0; i < kWinogradResults * kWinogradResults && is_finite[tile] == 0; ++i) {
        const std::int64_t row = i / kWinogradResults,
                           column = r.column + tile * kWinogradResults + i % kWinogradResults;
        if (row < r.rows && column < p_.columns()) places.push_back({r.row + row, column});
      }
    const auto count = static_cast<std::int64_t>(places.size());
    const std::int64_t channels = p_.channels(), depth = channels * kTaps;
    const Scratch<float> windows(count * depth), results(count * kBlock);
    for (std::int64_t i = 0; i < count; ++i)
      for (std::int64_t tap = 0; tap < kTaps; ++tap) {
        const auto& at = places[static_cast<std::size_t>(i)];
        const float* const from = row_of(r.image, at[0] - p_.padding[0] + tap / 3);
        const std::int64_t column = at[1] - p_.padding[1] + tap % 3;
        const bool is_there = from != nullptr && column >= 0 && column < in_.sizes[3];
        for (std::int64_t c = 0; c < channels; ++c)
          windows[i * depth + c * kTaps + tap] = is_there ? from[column * in_.strides[3] + c] : 0.0f;
      }
    TensorView some = p_.weight;
    const std::int64_t sizes[] = {filters, channels, 3, 3};
    some.data = static_cast<float*>(some.data) + first * p_.strides[0], some.sizes = sizes;
    const DenseElements weight(some);
    multiply_f32_tile({.lhs = windows.data(),
                       .lhs_row = depth,
                       .lhs_k = 1,
                       .rhs = weight.data(),
                       .rhs_k = 1,
                       .rhs_column = depth,
                       .rhs_panels = nullptr,
                       .out = results.data(),
                       .out_row = kBlock,
                       .rows = count,
                       .columns = filters,
                       .k = depth,
                       .scratch = nullptr});
    for (std::int64_t i = 0; i < count; ++i) {
      const auto& at = places[static_cast<std::size_t>(i)];
      const std::int64_t place = (r.image * p_.rows() + at[0]) * p_.columns() + at[1];
      std::copy_n(results.data() + i * kBlock, filters, out_ + place * p_.filters() + first);
    }
  }

  const Problem& p_;
  const TransformedFilters& filters_;
  const TensorView in_;
  float* const out_;
  const Epilogue* const epilogue_;
  const std::int64_t tiles_per_row_, tile_;  // tile_: from one transformed tile to the next
  std::int64_t rows_, down_, across_;        // rows of tiles, and groups
};

/// One image whose operand or result does not lie so, and its planes' epilogue.
void run_image(const Problem& p, const TransformedFilters& filters, std::int64_t image, const Epilogue* epilogue) {
  std::array<std::int64_t, 4> in_sizes, out_sizes;
  std::copy_n(p.in.sizes, 4, in_sizes.begin()), std::copy_n(p.out.sizes, 4, out_sizes.begin());
  in_sizes[0] = out_sizes[0] = 1;
  TensorView in = p.in, out = p.out;
  in.sizes = in_sizes.data(), out.sizes = out_sizes.data();
  in.data = static_cast<float*>(in.data) + image * in.strides[0];
  out.data = static_cast<float*>(out.data) + image * out.strides[0];
  const Shape in_strides = channels_last_strides(in_sizes), out_strides = channels_last_strides(out_sizes);
  const bool is_adjacent = in.strides[1] == 1;
  const Scratch<float> brought(is_adjacent ? 0 : in.element_count()), results(out.element_count());
  if (!is_adjacent) {
    TensorView to = in;
    to.data = brought.data(), to.strides = in_strides.data();
    copy_elements(to, in);
    in = to;
  }
  Images(p, filters, in, results.data(), nullptr).run();
  TensorView from = out;
  from.data = results.data(), from.strides = out_strides.data();
  copy_elements(out, from);
  if (epilogue == nullptr) return;
  const std::int64_t planes = p.filters();
  parallel_for(0, planes, static_cast<double>(p.rows() * p.columns()),
               [&](std::int64_t b, std::int64_t e) { run_on_planes(epilogue, p.out, image * planes + b, e - b); });
}

bool is_allowed() {
  static const bool is = [] {
    const char* const wanted = environment_variable("FERMATA_WINOGRAD");
    return wanted == nullptr || std::string_view(wanted) != "0";
  }();
  return is;
}

}  // namespace

void convolution_winograd(const CallArgs& args) {
  const ConvolutionProblem problem(args);
  const Problem p(problem);
  const TransformedFilters filters(p);
  const bool by_rows = has_channels_last(p.out);
  if (by_rows && p.in.strides[1] == 1)
    return Images(p, filters, p.in, static_cast<float*>(p.out.data), args.epilogue).run();
  if (by_rows) {
    const Shape strides = channels_last_strides({p.in.sizes, p.in.rank});
    const Scratch<float> brought(p.in.element_count());
    TensorView in = p.in;
    in.data = brought.data(), in.strides = strides.data();
    copy_elements(in, p.in);
    return Images(p, filters, in, static_cast<float*>(p.out.data), args.epilogue).run();
  }
  const double ns = problem.multiply_adds() / static_cast<double>(p.images()) * 0.006;
  // Each image by one thread where there are enough of them; else threads share an image.
  if (p.images() < thread_count()) {
    for (std::int64_t image = 0; image < p.images(); ++image) run_image(p, filters, image, args.epilogue);
    return;
  }
  parallel_for(0, p.images(), ns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t image = begin; image < end; ++image) run_image(p, filters, image, args.epilogue);
  });
}

bool convolution_winograd_fits(const CallArgs& args) {
  const ConvolutionProblem p(args);
  const ConvolutionAttributes& a = p.attributes;
  constexpr std::int64_t kFewest = 16;  // channels, or filters
  if (!is_allowed() || a.axes() != 2 || a.groups != 1 || p.is_empty()) return false;
  if (p.op == Op::convolution_weight_gradient || p.channels() < kFewest || p.filters() < kFewest) return false;
  for (std::size_t i = 0; i < 2; ++i)
    if (p.weight.sizes[i + 2] != 3 || a.strides[i] != 1 || a.dilation[i] != 1) return false;
  return true;
}

double convolution_winograd_cost(const CallArgs& args) {
  const Problem p{ConvolutionProblem(args)};
  const ProductRates& rates = product_rates();
  const bool wide = eager::instruction_set() == "avx512";
  const auto tiles = static_cast<double>(kWinogradPositions * p.tiles());
  const auto channels = static_cast<double>(p.channels()), filters = static_cast<double>(p.filters());
  const double products = tiles * channels * filters / (wide ? rates.portable_avx512 : rates.portable_avx2);
  return 5000 + products * rates.convolution_winograd + tiles * (channels + filters) * (wide ? 0.04 : 0.08) +
         channels * filters * kWinogradPositions * 0.1;
}

FERMATA_KERNELS(cpu) {
  for (const Op op : {Op::convolution, Op::convolution_data_gradient})
    add_variant(op, BackendKey::cpu,
                {.name = "winograd",
                 .form = KernelForm::library,
                 .dtypes = DType::f32,
                 .call = &convolution_winograd,
                 .fits = &convolution_winograd_fits,
                 .cost = &convolution_winograd_cost,
                 .fits_text = kConvolutionWinogradFits,
                 .epilogue = EpilogueForm::planes});
}

}  // namespace fermata
