// Scans, gather, the scatters and fold. See irregular.h.
//
// A lane is what shares its place along all other axes. One thread works a lane through in order (scans: a block of
// one; gather and fold: one element; scatters of few long lanes: what goes to one place), so results have the bits that
// the CPU's kernels give and do not depend on how threads are scheduled.
#include <fmt/format.h>

#include "codegen_cuda/emit/primitives.h"
#include "codegen_cuda/irregular/element_text.h"
#include "codegen_cuda/irregular/irregular.h"
#include "codegen_cuda/irregular/positions.h"
#include "codegen_cuda/runtime/device.h"
#include "codegen_cuda/runtime/dry_run.h"
#include "ir/error.h"
#include "ir/op_traits.h"
#include "ir/ops/convolution.h"
#include "runtime/call_attributes.h"

namespace fermata::gpu {
namespace {

/// Axes before and behind one: lanes are numbered row-major over them.
struct LaneSizes {
  std::int64_t outer = 1, size, inner = 1;
  std::int64_t lanes() const { return outer * inner; }
};
LaneSizes lane_sizes(const TensorView& v, unsigned axis) {
  LaneSizes l{1, v.sizes[axis], 1};
  for (unsigned i = 0; i < v.rank; ++i)
    if (i != axis) (i < axis ? l.outer : l.inner) *= v.sizes[i];
  return l;
}
/// Declares `name`: where lane `outer`, `inner` of a view starts.
void lane_start(CallSource& s, const std::string& variable, const TensorView& v, unsigned axis) {
  s.offset(variable + "_before", "outer", v, 0, axis);
  s.offset(variable + "_behind", "inner", v, axis + 1, v.rank);
  s.line(fmt::format("const i64 {0} = {0}_before + {0}_behind;", variable));
}

/// The step of a scan, of `l` (what came before) and `r`.
std::string step_text(std::string_view monoid, const ElementText& t) {
  if (monoid == "sum") return fmt::format("({})(l + r)", t.sum);
  if (monoid == "prod") return fmt::format("({0})(({1})l * ({1})r)", t.sum, t.product);
  return monoid == "max" ? "l != l ? l : l > r ? l : r" : "l != l ? l : l < r ? l : r";
}

/// The step of a scatter, of the element `l` there is and `r` that comes.
std::string scatter_text(Op op, const ElementText& t) {
  switch (op) {
    case Op::scatter_add: return fmt::format("({})(l + r)", t.sum);
    case Op::scatter_multiply: return fmt::format("({0})(({1})l * ({1})r)", t.sum, t.product);
    case Op::scatter_maximum: return "l != l || l > r ? l : r";
    case Op::scatter_minimum: return "l != l || l < r ? l : r";
    default: return "r";
  }
}

/// As on the CPU: elements are combined within blocks of so many, and with what the blocks before came to.
constexpr std::int64_t kScanBlock = 512;

/// A scan taken apart.
struct Scan {
  const TensorView &x, &out;
  unsigned axis;
  LaneSizes lanes;
  std::int64_t blocks;  // of a lane
  ElementText text;
  std::string step;  // of l and r
};

/// Opens a loop over the blocks of all lanes: `begin` to `end` of lane `outer`, `inner`, and what they start at.
void for_each_block(CallSource& s, const Scan& scan) {
  s.for_each("i", scan.lanes.lanes() * scan.blocks);
  s.line(fmt::format(
      "const i64 blocks = {}, size = {}, wide = {}, lane = i / blocks, outer = lane / wide, inner = lane % wide;",
      s.number(scan.blocks), s.number(scan.lanes.size), s.number(scan.lanes.inner)));
  s.line(fmt::format("const i64 begin = i % blocks * {0}, end = begin + {0} < size ? begin + {0} : size;", kScanBlock));
  lane_start(s, "from", scan.x, scan.axis);
}

/// Loops over a block: `inside` is the scan of its elements up to the one at k.
void open_block(CallSource& s, const Scan& scan) {
  s.line(fmt::format("{} inside = 0;", scan.text.sum));
  s.line("for (i64 k = begin; k < end; ++k) {");
  s.line(fmt::format("const {} next = {};", scan.text.sum,
                     scan.text.load(fmt::format("{} + from + k * {}", s.pointer(scan.text.memory, scan.x.data),
                                                s.number(scan.x.strides[scan.axis])))));
  s.line(fmt::format("if (k == begin) inside = next; else {{ const {0} l = inside, r = next; inside = {1}; }}",
                     scan.text.sum, scan.step));
}

/// Rows of a tile, which are blocks of a scan, a thread each; and its columns. So that neighbors read and write side by
/// side, elements of lanes that lie so pass through shared memory.
constexpr int kTileRows = 128, kTileColumns = 32, kTilePitch = kTileColumns + 1;

/// A scan by tiles. `each`: what follows the scan of each element, `last`: what follows a block; both may use `inside`.
struct TileText {
  std::string first, each, last;
  bool stores = false;  // the tile, to the result
};

/// Opens and closes a loop over tiles: what a thread block does at a time.
void scan_tiles(CallSource& s, const Scan& scan, const TileText& text) {
  constexpr int kWarps = kTileRows / 32, kReads = 8;
  const std::string t = scan.text.sum, from = s.pointer(scan.text.memory, scan.x.data);
  s.line("FM_SHARED(shared);");
  s.line(fmt::format(
      "i64* const row_from = (i64*)shared; i64* const row_to = row_from + {0}; i64* const row_size = row_to + {0};",
      kTileRows));
  s.line(fmt::format("{0}* const tile = ({0}*)(row_size + {1}); {0}* const row = tile + threadIdx.x * {2};", t,
                     kTileRows, kTilePitch));
  s.line("const int across = threadIdx.x % 32, warp = threadIdx.x / 32;");
  s.line(fmt::format("const i64 count = {}, blocks = {}, size = {}, inner = 0, limit = size < {} ? size : {};",
                     s.number(scan.lanes.lanes() * scan.blocks), s.number(scan.blocks), s.number(scan.lanes.size),
                     kScanBlock, kScanBlock));
  s.line(fmt::format("for (i64 group = blockIdx.x; group * {0} < count; group += gridDim.x) {{", kTileRows));
  s.line(fmt::format("const i64 i = group * {} + threadIdx.x; const bool is_row = i < count;", kTileRows));
  s.line(
      fmt::format("const i64 outer = (is_row ? i : 0) / blocks, begin = (is_row ? i : 0) % blocks * {};", kScanBlock));
  s.line(fmt::format("const i64 n = !is_row ? 0 : size - begin < {0} ? size - begin : {0};", kScanBlock));
  lane_start(s, "from", scan.x, scan.axis);
  lane_start(s, "to", scan.out, scan.axis);
  s.line("fm_shared_store(row_from + threadIdx.x, from + begin); fm_shared_store(row_to + threadIdx.x, to + begin);");
  s.line("fm_shared_store(row_size + threadIdx.x, n);");
  s.line(text.first);
  s.line(fmt::format("{} inside = 0;", t));
  s.line("fm_barrier();");
  s.line(fmt::format("for (i64 column = 0; column < limit; column += {}) {{", kTileColumns));
  const std::string inside = "column + across < fm_shared_load(row_size + r + {})";
  s.line(fmt::format("for (int r = warp; r < {}; r += {}) {{  // several reads at once", kTileRows, kReads * kWarps));
  std::string reads, writes;
  for (int i = 0; i < kReads; ++i) {
    reads += fmt::format(
        "const {} v{} = {} ? {} : ({})0; ", t, i, fmt::format(fmt::runtime(inside), i * kWarps),
        scan.text.load(fmt::format("{} + fm_shared_load(row_from + r + {}) + column + across", from, i * kWarps)), t);
    writes += fmt::format("fm_shared_store(tile + (r + {}) * {} + across, v{}); ", i * kWarps, kTilePitch, i);
  }
  s.line(reads), s.line(writes);
  s.line("}");
  s.line("fm_barrier();");
  s.line(fmt::format("for (int k = 0; k < {} && column + k < n; ++k) {{", kTileColumns));
  s.line(fmt::format("const {} next = fm_shared_load(row + k);", t));
  s.line(fmt::format("if (column + k == 0) inside = next; else {{ const {0} l = inside, r = next; inside = {1}; }}", t,
                     scan.step));
  s.line(text.each);
  s.line("}");
  s.line("fm_barrier();");
  if (text.stores) {
    s.line(fmt::format(
        "for (int r = warp; r < {}; r += {}) if (column + across < fm_shared_load(row_size + r)) fm_store({} + fm_shared_load(row_to + r) + column + across, {});",
        kTileRows, kWarps, s.pointer(scan.text.memory, scan.out.data),
        scan.text.stored(fmt::format("fm_shared_load(tile + r * {} + across)", kTilePitch))));
    s.line("fm_barrier();");
  }
  s.line("}");
  s.line(text.last);
  s.line("fm_barrier();");
  s.line("}");
  const std::int64_t element = t.ends_with("64") ? 8 : 4;
  s.launch_blocks((scan.lanes.lanes() * scan.blocks + kTileRows - 1) / kTileRows, kTileRows,
                  static_cast<unsigned>(3 * 8 * kTileRows + element * kTileRows * kTilePitch));
}

/// The total of each block.
void scan_blocks(const Scan& scan, void* totals, bool by_tiles) {
  CallSource s(by_tiles ? "scan_tile_blocks" : "scan_blocks");
  if (by_tiles) {
    const std::string to = s.pointer(scan.text.sum, totals);
    return scan_tiles(s, scan, {"", "", fmt::format("if (is_row) fm_store({} + i, inside);", to)});
  }
  for_each_block(s, scan);
  open_block(s, scan);
  s.line("}");
  s.line(fmt::format("fm_store({} + i, inside);", s.pointer(scan.text.sum, totals)));
  s.launch(scan.lanes.lanes() * scan.blocks);
}

/// In place, the totals of all blocks before each. A thread block has a lane. One thread adds the totals up, in order,
/// in a part in shared memory, while the others fetch the next part and store the one before.
void scan_totals(const Scan& scan, void* totals) {
  constexpr int kPart = 1024, kAhead = 8, kOthers = 256 - 32;
  const std::string& t = scan.text.sum;
  const auto reads = [&](const char* prefix, const char* at, const char* type) {
    std::string text = type;
    for (int i = 0; i < kAhead; ++i)
      text += fmt::format("{}{}{} = fm_shared_load(part + {} + {})", i == 0 ? "" : ", ", prefix, i, at, i);
    return text + ";";
  };
  std::string steps, moves;
  for (int i = 0; i < kAhead; ++i) {
    steps += fmt::format("{{ const {0} l = before, r = r{1}; fm_shared_store(part + k + {1}, l); before = {2}; }} ", t,
                         i, scan.step);
    moves += fmt::format("r{0} = next{0}; ", i);
  }
  CallSource s("scan_totals");
  s.line("FM_SHARED(shared);");
  s.line(fmt::format("{0}* const parts = ({0}*)shared;", t));
  s.line(fmt::format("const i64 lanes = {}, blocks = {}, count = (blocks + {}) / {};", s.number(scan.lanes.lanes()),
                     s.number(scan.blocks), kPart - 1, kPart));
  s.line("for (i64 lane = blockIdx.x; lane < lanes; lane += gridDim.x) {");
  s.line(fmt::format("{0}* const totals = {1} + lane * blocks; {0} before = 0;", t, s.pointer(t, totals)));
  s.line("for (i64 now = -1; now <= count; ++now) {");
  s.line("if (threadIdx.x >= 32) {");
  s.line(fmt::format("const i64 fetched = (now + 1) * {0}, done = (now - 1) * {0};", kPart));
  s.line(fmt::format("for (int k = (int)threadIdx.x - 32; k < {}; k += {}) {{", kPart, kOthers));
  s.line(fmt::format(
      "if (fetched + k < blocks) fm_shared_store(parts + (now + 1) % 3 * {} + k, fm_load(totals + fetched + k));",
      kPart));
  s.line(fmt::format(
      "if (done >= 0 && done + k < blocks) fm_store(totals + done + k, fm_shared_load(parts + (now + 2) % 3 * {} + k));",
      kPart));
  s.line("}");
  s.line("} else if (threadIdx.x == 0 && now >= 0 && now < count) {");
  s.line(fmt::format("{0}* const part = parts + now % 3 * {1};", t, kPart));
  s.line(fmt::format("const int some = (int)(blocks - now * {0} < {0} ? blocks - now * {0} : {0});", kPart));
  s.line("int k = 0;");
  s.line(fmt::format("if (now == 0) {{ before = fm_shared_load(part); fm_shared_store(part, ({})0); k = 1; }}", t));
  s.line(fmt::format("if (k + {} <= some) {{", kAhead));
  s.line(reads("r", "k", (t + " ").c_str()));
  s.line(fmt::format("for (; k + {} <= some; k += {}) {{", 2 * kAhead, kAhead));
  s.line(reads("next", fmt::format("k + {}", kAhead).c_str(), fmt::format("const {} ", t).c_str()));
  s.line(steps), s.line(moves);
  s.line("}");
  s.line(steps);
  s.line(fmt::format("k += {};", kAhead));
  s.line("}");
  s.line(fmt::format(
      "for (; k < some; ++k) {{ const {0} l = before, r = fm_shared_load(part + k); fm_shared_store(part + k, l); before = {1}; }}",
      t, scan.step));
  s.line("}");
  s.line("fm_barrier();");
  s.line("}");
  s.line("}");
  s.launch_blocks(scan.lanes.lanes(), 256, 3 * kPart * (t.ends_with("64") ? 8 : 4));
}

/// The scan of each block, after what the blocks before it came to.
void scan_elements(const Scan& scan, void* totals, bool by_tiles) {
  const std::string& t = scan.text.sum;
  const bool continues = scan.blocks > 1;
  CallSource s(by_tiles ? "scan_tiles" : "scan");
  const std::string before = continues ? s.pointer(t, totals) : "";
  const std::string load =
      continues ? fmt::format("const {0} before = begin == 0 ? ({0})0 : fm_load({1} + i);", t, before) : "";
  const std::string result =
      fmt::format("{} result = inside;", t) +
      (continues ? fmt::format(" if (begin != 0) {{ const {0} l = before, r = inside; result = {1}; }}", t, scan.step)
                 : "");
  if (by_tiles) {
    const std::string first =
        continues ? fmt::format("const {0} before = begin == 0 ? ({0})0 : fm_load({1} + (is_row ? i : 0));", t, before)
                  : "";
    return scan_tiles(s, scan, {first, result + " fm_shared_store(row + k, result);", "", true});
  }
  for_each_block(s, scan);
  lane_start(s, "to", scan.out, scan.axis);
  s.line(load);
  open_block(s, scan);
  s.line(result);
  s.line(fmt::format("fm_store({} + to + k * {}, {});", s.pointer(scan.text.memory, scan.out.data),
                     s.number(scan.out.strides[scan.axis]), scan.text.stored("result")));
  s.line("}");
  s.launch(scan.lanes.lanes() * scan.blocks);
}

void scan(const CallArgs& args, std::string_view monoid) {
  use_operands(args);
  const auto axis = static_cast<unsigned>(axis_of(args.op, args.attributes));
  const TensorView &x = args.inputs[0], &out = args.outputs[0];
  const ElementText text = element_text(out.dtype, monoid == "max" || monoid == "min");
  const LaneSizes lanes = lane_sizes(out, axis);
  const Scan scan{x, out, axis, lanes, (lanes.size + kScanBlock - 1) / kScanBlock, text, step_text(monoid, text)};
  const std::int64_t count = lanes.lanes() * scan.blocks;
  if (count == 0) return;
  // Shorter lanes would leave most of a warp idle.
  constexpr std::int64_t kLeastForTiles = 2 * kTileColumns;
  const bool prefers_tiles =
      lanes.inner == 1 && x.strides[axis] == 1 && out.strides[axis] == 1 && lanes.size >= kLeastForTiles;
  const Workspace totals(scan.blocks > 1 ? count * 8 : 0);
  for (const bool by_tiles : {false, true}) {
    if (by_tiles != prefers_tiles && DryRun::current() == nullptr) continue;  // which wants both
    if (scan.blocks > 1) scan_blocks(scan, totals.data(), by_tiles), scan_totals(scan, totals.data());
    scan_elements(scan, totals.data(), by_tiles);
  }
}

void gather_call(const CallArgs& args) {
  use_operands(args);
  const TensorView &x = args.inputs[0], &out = args.outputs[0];
  const auto axis = static_cast<unsigned>(axis_of(args.op, args.attributes));
  const std::int64_t count = out.element_count();
  if (count == 0) return;
  const LaneSizes l = lane_sizes(out, axis);
  const std::string_view type = bits_text(x.dtype);
  CallSource s("gather");
  s.for_each("i", count);
  s.line(fmt::format("const i64 wide = {}, high = {}, inner = i % wide, outer = i / wide / high;", s.number(l.inner),
                     s.number(l.size)));
  read_position(s, args, "position", "i");
  TensorView addressed = x;
  addressed.sizes = args.inputs[1].sizes;  // lanes of x are those of the index, which may be fewer
  lane_start(s, "from", addressed, axis);
  s.line(fmt::format("fm_store({} + i, fm_load({} + from + position * {}));", s.pointer(type, out.data),
                     s.pointer(type, x.data), s.number(x.strides[axis])));
  s.launch(count);
}

/// Fewer lanes than this for each multiprocessor leave a device idle, where lanes are longer than that.
constexpr std::int64_t kFewLanes = 32, kShortLane = 32;

/// The positions that each lane scatters to, sorted, with the numbers of the sources, in order where positions are
/// equal.
const std::int64_t* sorted_targets(const CallArgs& args, const LaneSizes& l, std::int64_t* pairs) {
  const std::int64_t count = l.lanes() * l.size;
  CallSource s("targets");
  s.for_each("i", count);
  s.line(fmt::format(
      "const i64 wide = {}, high = {}, lane = i / high, k = i % high, which = (lane / wide * high + k) * wide + lane % wide;",
      s.number(l.inner), s.number(l.size)));
  read_position(s, args, "position", "which");
  s.line(fmt::format("i64* const to = {}; fm_store(to + i, position); fm_store(to + count + i, k);",
                     s.pointer("i64", pairs)));
  s.launch(count);
  return sort_lines(pairs, count, l.size);
}

void scatter_call(const CallArgs& args) {
  use_operands(args);
  const TensorView &index = args.inputs[1], &source = args.inputs[2], &out = args.outputs[0];
  const auto axis = static_cast<unsigned>(axis_of(args.op, args.attributes));
  copy_elements(args.inputs[0], out);
  const LaneSizes l = lane_sizes(index, axis);
  if (l.lanes() * l.size == 0) return;
  const bool ordered = args.op == Op::scatter_maximum || args.op == Op::scatter_minimum;
  const ElementText t = element_text(out.dtype, ordered);
  const bool half = t.memory == "u16" && t.sum == "f32" && args.op != Op::scatter;
  // Sums of half floats are kept in f32 and rounded once, at the end of the lane.
  const std::int64_t elements = out.element_count();
  const Workspace wide(half ? elements * 4 : 0);
  if (half) {
    CallSource s("widen");
    s.for_each("i", elements);
    s.line(fmt::format("fm_store({} + i, {});", s.pointer("f32", wide.data()),
                       t.load(fmt::format("{} + i", s.pointer("u16", out.data)))));
    s.launch(elements);
  }
  const std::string_view kept = half ? "f32" : std::string_view(t.memory);
  const bool sorts = l.size > kShortLane && l.lanes() < kFewLanes * current_device().info().multiprocessors;
  const std::int64_t count = l.lanes() * l.size;
  const Workspace pairs(sorts ? count * 4 * 8 : 0);
  const std::int64_t* const sorted =
      sorts ? sorted_targets(args, l, static_cast<std::int64_t*>(pairs.data())) : nullptr;
  CallSource s("scatter");
  s.for_each("i", sorts ? count : l.lanes());
  s.line(fmt::format("const i64 wide = {}, high = {}, lane = i{}, outer = lane / wide, inner = lane % wide;",
                     s.number(l.inner), s.number(l.size), sorts ? " / high" : ""));
  if (sorts) {
    s.line(fmt::format("const i64* const keys = {}; const i64 first = i % high, position = fm_load(keys + i);",
                       s.pointer("const i64", sorted)));
    s.line(
        "if (first > 0 && fm_load(keys + i - 1) == position) continue;  // of the thread of the target's first source");
  }
  TensorView addressed = out, given = source;
  addressed.sizes = index.sizes, given.sizes = index.sizes;
  lane_start(s, "to", addressed, axis), lane_start(s, "from", given, axis);
  s.line(fmt::format("{0}* const out = {1};", kept, s.pointer(kept, half ? wide.data() : out.data)));
  if (sorts) {
    s.line("for (i64 at = i; at < i - first + high && fm_load(keys + at) == position; ++at) {");
    s.line("const i64 k = fm_load(keys + count + at);");
  } else {
    s.line("for (i64 k = 0; k < high; ++k) {");
    s.line("const i64 which = (outer * high + k) * wide + inner;");
    read_position(s, args, "position", "which");
  }
  s.line(fmt::format("{}* const place = out + to + position * {};", kept, s.number(out.strides[axis])));
  const std::string incoming =
      t.load(fmt::format("{} + from + k * {}", s.pointer(t.memory, source.data), s.number(source.strides[axis])));
  const std::string present = half ? "fm_load(place)" : t.load("place");
  if (args.op == Op::scatter)
    s.line(fmt::format("fm_store(place, fm_load({} + from + k * {}));", s.pointer(t.memory, source.data),
                       s.number(source.strides[axis])));
  else
    s.line(fmt::format("const {0} l = {1}, r = {2}; const {0} result = {3}; fm_store(place, {4});", t.sum, present,
                       incoming, scatter_text(args.op, t), half ? "result" : t.stored("result")));
  s.line("}");
  s.launch(sorts ? count : l.lanes());
  if (!half) return;
  CallSource narrow("narrow");
  narrow.for_each("i", elements);
  narrow.line(fmt::format("const f32 x = fm_load({} + i); fm_store({} + i, {});", narrow.pointer("f32", wide.data()),
                          narrow.pointer("u16", out.data), t.stored("x")));
  narrow.launch(elements);
}

void fold_call(const CallArgs& args) {
  use_operands(args);
  const TensorView &in = args.inputs[0], &out = args.outputs[0];
  const auto fold = attributes_of<ops::Fold>(args);
  const auto axis = static_cast<unsigned>(fold.axis.value);
  const std::int64_t step = fold.step.value, dilation = fold.dilation.value, count = out.element_count();
  if (count == 0) return;
  const LaneSizes l = lane_sizes(out, axis);
  const ElementText t = element_text(out.dtype, false);
  CallSource s("fold");
  s.for_each("i", count);
  s.line(
      fmt::format("const i64 wide = {}, high = {}, inner = i % wide, place = i / wide % high, outer = i / wide / high;",
                  s.number(l.inner), s.number(l.size)));
  TensorView windows = in;
  windows.rank = static_cast<std::uint8_t>(in.rank - 1);
  lane_start(s, "from", windows, axis);
  s.line(fmt::format("{} sum = 0;", t.sum));
  s.line(fmt::format("const i64 step = {}, windows = {};", s.number(step), s.number(in.sizes[axis])));
  s.line(fmt::format("for (i64 k = 0; k < {}; ++k) {{", s.number(in.sizes[in.rank - 1u])));
  s.line(fmt::format("const i64 start = place - k * {};", s.number(dilation)));
  s.line("if (start < 0 || start % step != 0 || start / step >= windows) continue;");
  s.line(fmt::format("sum = ({})(sum + {});", t.sum,
                     t.load(fmt::format("{} + from + start / step * {} + k * {}", s.pointer(t.memory, in.data),
                                        s.number(in.strides[axis]), s.number(in.strides[in.rank - 1u])))));
  s.line("}");
  s.line(fmt::format("fm_store({} + i, {});", s.pointer(t.memory, out.data), t.stored("sum")));
  s.launch(count);
}

}  // namespace

FERMATA_KERNELS(cuda) {
#define FERMATA_SCAN(name, monoid, ...) \
  add_nvrtc_kernel(                     \
      Op::name, +[](const CallArgs& args) { scan(args, #monoid); });
#include "ir/ops.def"
  add_nvrtc_kernel(Op::gather, &gather_call);
  for (const Op op : {Op::scatter, Op::scatter_add, Op::scatter_multiply, Op::scatter_maximum, Op::scatter_minimum})
    add_nvrtc_kernel(op, &scatter_call);
  add_nvrtc_kernel(Op::fold, &fold_call);
}

}  // namespace fermata::gpu
