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

/// The total of each block, and then, in place, the totals of all blocks before it.
void scan_totals(const Scan& scan, void* totals) {
  CallSource each("scan_blocks");
  for_each_block(each, scan);
  open_block(each, scan);
  each.line("}");
  each.line(fmt::format("fm_store({} + i, inside);", each.pointer(scan.text.sum, totals)));
  each.launch(scan.lanes.lanes() * scan.blocks);
  CallSource all("scan_totals");
  all.for_each("i", scan.lanes.lanes());
  all.line(fmt::format("const i64 blocks = {0}; {1}* const totals = {2} + i * blocks; {1} before = fm_load(totals);",
                       all.number(scan.blocks), scan.text.sum, all.pointer(scan.text.sum, totals)));
  all.line(fmt::format(
      "for (i64 b = 1; b < blocks; ++b) {{ const {0} l = before, r = fm_load(totals + b); fm_store(totals + b, l); before = {1}; }}",
      scan.text.sum, scan.step));
  all.launch(scan.lanes.lanes());
}

void scan(const CallArgs& args, std::string_view monoid) {
  use_operands(args);
  const auto axis = static_cast<unsigned>(axis_of(args.op, args.attributes));
  const TensorView& out = args.outputs[0];
  const ElementText text = element_text(out.dtype, monoid == "max" || monoid == "min");
  const LaneSizes lanes = lane_sizes(out, axis);
  const Scan scan{args.inputs[0],         out, axis, lanes, (lanes.size + kScanBlock - 1) / kScanBlock, text,
                  step_text(monoid, text)};
  const std::int64_t count = lanes.lanes() * scan.blocks;
  if (count == 0) return;
  const Workspace totals(scan.blocks > 1 ? count * 8 : 0);
  if (scan.blocks > 1) scan_totals(scan, totals.data());
  CallSource s("scan");
  for_each_block(s, scan);
  lane_start(s, "to", out, axis);
  if (scan.blocks > 1)
    s.line(fmt::format("const {0} before = begin == 0 ? ({0})0 : fm_load({1} + i);", text.sum,
                       s.pointer(text.sum, totals.data())));
  open_block(s, scan);
  s.line(fmt::format("{} result = inside;", text.sum));
  if (scan.blocks > 1)
    s.line(fmt::format("if (begin != 0) {{ const {0} l = before, r = inside; result = {1}; }}", text.sum, scan.step));
  s.line(fmt::format("fm_store({} + to + k * {}, {});", s.pointer(text.memory, out.data), s.number(out.strides[axis]),
                     text.stored("result")));
  s.line("}");
  s.launch(count);
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
