// See positions.h.
#include "codegen_cuda/irregular/positions.h"

#include <fmt/format.h>

#include <memory>
#include <utility>

#include "codegen_cuda/emit/primitives.h"
#include "codegen_cuda/runtime/deferred_check.h"
#include "codegen_cuda/runtime/dry_run.h"
#include "ir/infer.h"
#include "ir/op_traits.h"
#include "ir/position_error.h"
#include "ir/shape.h"

namespace fermata::gpu {

void read_position(CallSource& source, const CallArgs& args, const std::string& variable, const std::string& which) {
  std::vector<TensorType> types;
  for (const TensorView& v : args.inputs) types.push_back({v.dtype, Shape(std::span(v.sizes, v.rank))});
  const std::int64_t axis = axis_of(args.op, args.attributes), size = args.inputs[0].sizes[axis];
  const Address slot = deferred_check([op = args.op, types, axis, where = args.where](const Found& found) {
    throw_position_error(op, axis, types, fmt::format("{}", found.value), found.place, where);
  });
  const TensorView& index = args.inputs[1];
  const std::string_view type = value_type(index.dtype);
  source.offset("at_" + variable, which, index, 0, index.rank);
  const std::string limit = source.number(size);
  source.line(
      fmt::format("const {0} given_{1} = fm_load({2} + at_{1});", type, variable, source.pointer(type, index.data)));
  source.line(fmt::format("i64 {0} = (i64)given_{0};", variable));
  if (is_signed(index.dtype)) source.line(fmt::format("if ({0} < 0) {0} += {1};", variable, limit));
  const std::string shown =
      byte_size(index.dtype) == 8 && !is_signed(index.dtype)
          ? fmt::format("(given_{0} > 0x7fffffffull ? 0x7fffffffll : (i64)given_{0})", variable)
          : fmt::format(
                "((i64)given_{0} > 0x7fffffffll ? 0x7fffffffll : (i64)given_{0} < -0x80000000ll ? -0x80000000ll : (i64)given_{0})",
                variable);
  source.line(fmt::format(
      "if ({0} < 0 || {0} >= {1}) {{ fm_lowest({2}, (u64)(({3}) > 0xfffffffell ? 0xfffffffell : ({3})) << 32 | (u32){4}); {0} = 0; }}",
      variable, limit, source.pointer("u64", reinterpret_cast<const void*>(slot)), which, shown));
}

GatherSizes gather_sizes(const CallArgs& args) {
  const TensorView& x = args.inputs[0];
  const auto axis = static_cast<unsigned>(axis_of(args.op, args.attributes));
  GatherSizes g{axis, 1, x.sizes[axis], 1, args.inputs[1].element_count()};
  for (unsigned i = 0; i < g.axis; ++i) g.outer *= x.sizes[i];
  for (unsigned i = g.axis + 1; i < x.rank; ++i) g.inner *= x.sizes[i];
  return g;
}

namespace {

/// Pairs that a thread block sorts in shared memory.
constexpr std::int64_t kTilePairs = 1024;

/// Sorts tiles of each line: runs of twice the width each time, as below, but in shared memory.
void sort_tiles(const std::int64_t* from, std::int64_t* to, std::int64_t count, std::int64_t size) {
  const std::int64_t tiles = (size + kTilePairs - 1) / kTilePairs, all = count / size * tiles;
  CallSource s("sort_tiles");
  s.line("FM_SHARED(shared);");
  s.line("i64* const pairs = (i64*)shared;");
  s.line(fmt::format("const i64 size = {}, tiles = {}, all = {}, count = {};", s.number(size), s.number(tiles),
                     s.number(all), s.number(count)));
  s.line(fmt::format("const i64* const from = {}; i64* const to = {};", s.pointer("const i64", from),
                     s.pointer("i64", to)));
  s.line("const int tile_pairs = " + std::to_string(kTilePairs) + ";");
  s.add(R"cuda(  for (i64 tile = blockIdx.x; tile < all; tile += gridDim.x) {
  const i64 inside = tile % tiles * tile_pairs, first = tile / tiles * size + inside;
  const int n = size - inside < tile_pairs ? (int)(size - inside) : tile_pairs;
  for (int k = threadIdx.x; k < n; k += 256) {
    fm_shared_store(pairs + k, fm_load(from + first + k));
    fm_shared_store(pairs + tile_pairs + k, fm_load(from + count + first + k));
  }
  fm_barrier();
  i64 *now = pairs, *next = pairs + 2 * tile_pairs;
  for (int width = 1; width < n; width *= 2) {
    for (int k = threadIdx.x; k < n; k += 256) {
      const i64 key = fm_shared_load(now + k);
      const int start = k & ~(2 * width - 1);
      const bool left = k - start < width;
      int low = left ? start + width : start, high = left ? start + 2 * width : start + width;
      if (low > n) low = n;
      if (high > n) high = n;
      const int other = low;
      while (low < high) {
        const int middle = low + (high - low) / 2;
        const i64 there = fm_shared_load(now + middle);
        if (left ? there < key : there <= key) low = middle + 1; else high = middle;
      }
      const int place = start + (left ? k - start : k - start - width) + (low - other);
      fm_shared_store(next + place, key);
      fm_shared_store(next + tile_pairs + place, fm_shared_load(now + tile_pairs + k));
    }
    fm_barrier();
    i64* const other = now;
    now = next, next = other;
  }
  for (int k = threadIdx.x; k < n; k += 256) {
    fm_store(to + first + k, fm_shared_load(now + k));
    fm_store(to + count + first + k, fm_shared_load(now + tile_pairs + k));
  }
  fm_barrier();
  }
)cuda");
  s.launch_blocks(all, 256, 4 * kTilePairs * 8);
}

/// Runs of twice the width: a pair's place is its own in its run, plus how many of the other run come before it.
void merge_runs(const std::int64_t* from, std::int64_t* to, std::int64_t count, std::int64_t size, std::int64_t width) {
  CallSource s("merge");
  s.for_each("i", count);
  s.line(fmt::format("const i64 width = {}, size = {}; const i64* const keys = {}; i64* const to = {};",
                     s.number(width), s.number(size), s.pointer("const i64", from), s.pointer("i64", to)));
  s.add(
      R"cuda(  const i64 line = (i64)((index)i / (index)size) * size, end = line + size, start = line + ((i - line) & ~(2 * width - 1));
  const i64 key = fm_load(keys + i);
  const bool left = i - start < width;
  i64 low = left ? start + width : start, high = left ? start + 2 * width : start + width;
  if (low > end) low = end;
  if (high > end) high = end;
  const i64 other = low;
  while (low < high) {
    const i64 middle = low + (high - low) / 2, there = fm_load(keys + middle);
    if (left ? there < key : there <= key) low = middle + 1; else high = middle;
  }
  const i64 place = start + (left ? i - start : i - start - width) + (low - other);
  fm_store(to + place, key);
  fm_store(to + count + place, fm_load(keys + count + i));
)cuda");
  s.launch(count);
}

}  // namespace

std::int64_t* sort_lines(std::int64_t* buffer, std::int64_t count, std::int64_t size) {
  std::int64_t *from = buffer, *to = buffer + 2 * count;
  std::int64_t width = 1;
  // Short lines would leave most of a thread block idle. A dry run wants the kernels of all lengths.
  constexpr std::int64_t kLeastForTiles = 128;
  const bool is_dry = DryRun::current() != nullptr;
  if (size >= kLeastForTiles || is_dry) {
    sort_tiles(from, to, count, size);
    std::swap(from, to), width = kTilePairs;
  }
  if (is_dry) width = 1;
  for (; width < size; width *= 2) {
    merge_runs(from, to, count, size, width);
    std::swap(from, to);
  }
  return from;
}

}  // namespace fermata::gpu
