// Scans, gather, the scatters and fold. See irregular.h.
//
// A lane is what shares its place along all other axes. One thread works a lane through in order (gather and fold: one
// element), so results have the bits that the CPU's kernels give and do not depend on how threads are scheduled.
#include <fmt/format.h>

#include "codegen_cuda/emit/primitives.h"
#include "codegen_cuda/irregular/element_text.h"
#include "codegen_cuda/irregular/irregular.h"
#include "codegen_cuda/irregular/positions.h"
#include "ir/error.h"

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
std::string_view monoid_of(Op op) {
  switch (op) {
#define FERMATA_SCAN(name, monoid, rule, doc) \
  case Op::name: return #monoid;
#include "ir/ops.def"
    default: throw_internal("not a scan");
  }
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

}  // namespace

void scan_call(const CallArgs& args) {
  use_operands(args);
  const TensorView &x = args.inputs[0], &out = args.outputs[0];
  const auto axis = static_cast<unsigned>(args.attributes[0]);
  const LaneSizes l = lane_sizes(out, axis);
  if (l.lanes() * l.size == 0) return;
  const std::string_view monoid = monoid_of(args.op);
  const bool ordered = monoid == "max" || monoid == "min";
  const ElementText t = element_text(out.dtype, ordered);
  CallSource s("scan");
  s.for_each("i", l.lanes());
  s.line(fmt::format("const i64 outer = i / {0}, inner = i % {0};", s.number(l.inner)));
  lane_start(s, "from", x, axis), lane_start(s, "to", out, axis);
  s.line(fmt::format("{0} before = 0, inside = 0;", t.sum));
  // Blocks of 512, as on the CPU: combined within the block, and with what the blocks before came to.
  s.line(fmt::format("for (i64 k = 0; k < {}; ++k) {{", s.number(l.size)));
  s.line(fmt::format("const {} next = {};", t.sum, t.load(fmt::format("{} + from + k * {}", s.pointer(t.memory, x.data), s.number(x.strides[axis])))));
  const std::string step = step_text(monoid, t);
  s.line(fmt::format("if (k % 512 == 0) {{ if (k > 512) {{ const {0} l = before, r = inside; before = {1}; }} else if (k == 512) before = inside; inside = next; }}", t.sum, step));
  s.line(fmt::format("else {{ const {0} l = inside, r = next; inside = {1}; }}", t.sum, step));
  s.line(fmt::format("{0} result = inside; if (k >= 512) {{ const {0} l = before, r = inside; result = {1}; }}", t.sum, step));
  s.line(fmt::format("fm_store({} + to + k * {}, {});", s.pointer(t.memory, out.data), s.number(out.strides[axis]), t.stored("result")));
  s.line("}");
  s.launch(l.lanes());
}

void gather_call(const CallArgs& args) {
  use_operands(args);
  const TensorView &x = args.inputs[0], &out = args.outputs[0];
  const auto axis = static_cast<unsigned>(args.attributes[0]);
  const std::int64_t count = out.element_count();
  if (count == 0) return;
  const LaneSizes l = lane_sizes(out, axis);
  const std::string_view type = bits_text(x.dtype);
  CallSource s("gather");
  s.for_each("i", count);
  s.line(fmt::format("const i64 wide = {}, high = {}, inner = i % wide, outer = i / wide / high;", s.number(l.inner), s.number(l.size)));
  read_position(s, args, "position", "i");
  TensorView addressed = x;
  addressed.sizes = args.inputs[1].sizes;  // lanes of x are those of the index, which may be fewer
  lane_start(s, "from", addressed, axis);
  s.line(fmt::format("fm_store({} + i, fm_load({} + from + position * {}));", s.pointer(type, out.data), s.pointer(type, x.data),
                     s.number(x.strides[axis])));
  s.launch(count);
}

void scatter_call(const CallArgs& args) {
  use_operands(args);
  const TensorView &index = args.inputs[1], &source = args.inputs[2], &out = args.outputs[0];
  const auto axis = static_cast<unsigned>(args.attributes[0]);
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
    s.line(fmt::format("fm_store({} + i, {});", s.pointer("f32", wide.data()), t.load(fmt::format("{} + i", s.pointer("u16", out.data)))));
    s.launch(elements);
  }
  const std::string_view kept = half ? "f32" : std::string_view(t.memory);
  CallSource s("scatter");
  s.for_each("i", l.lanes());
  s.line(fmt::format("const i64 wide = {}, high = {}, outer = i / wide, inner = i % wide;", s.number(l.inner), s.number(l.size)));
  TensorView addressed = out, given = source;
  addressed.sizes = index.sizes, given.sizes = index.sizes;
  lane_start(s, "to", addressed, axis), lane_start(s, "from", given, axis);
  s.line(fmt::format("{0}* const out = {1};", kept, s.pointer(kept, half ? wide.data() : out.data)));
  s.line("for (i64 k = 0; k < high; ++k) {");
  s.line("const i64 which = (outer * high + k) * wide + inner;");
  read_position(s, args, "position", "which");
  s.line(fmt::format("{}* const place = out + to + position * {};", kept, s.number(out.strides[axis])));
  const std::string incoming = t.load(fmt::format("{} + from + k * {}", s.pointer(t.memory, source.data), s.number(source.strides[axis])));
  const std::string present = half ? "fm_load(place)" : t.load("place");
  if (args.op == Op::scatter)
    s.line(fmt::format("fm_store(place, fm_load({} + from + k * {}));", s.pointer(t.memory, source.data), s.number(source.strides[axis])));
  else
    s.line(fmt::format("const {0} l = {1}, r = {2}; const {0} result = {3}; fm_store(place, {4});", t.sum, present, incoming,
                       scatter_text(args.op, t), half ? "result" : t.stored("result")));
  s.line("}");
  s.launch(l.lanes());
  if (!half) return;
  CallSource narrow("narrow");
  narrow.for_each("i", elements);
  narrow.line(fmt::format("const f32 x = fm_load({} + i); fm_store({} + i, {});", narrow.pointer("f32", wide.data()), narrow.pointer("u16", out.data), t.stored("x")));
  narrow.launch(elements);
}

void fold_call(const CallArgs& args) {
  use_operands(args);
  const TensorView &in = args.inputs[0], &out = args.outputs[0];
  const auto axis = static_cast<unsigned>(args.attributes[0]);
  const std::int64_t step = args.attributes[1], dilation = args.attributes[2], count = out.element_count();
  if (count == 0) return;
  const LaneSizes l = lane_sizes(out, axis);
  const ElementText t = element_text(out.dtype, false);
  CallSource s("fold");
  s.for_each("i", count);
  s.line(fmt::format("const i64 wide = {}, high = {}, inner = i % wide, place = i / wide % high, outer = i / wide / high;", s.number(l.inner), s.number(l.size)));
  TensorView windows = in;
  windows.rank = static_cast<std::uint8_t>(in.rank - 1);
  lane_start(s, "from", windows, axis);
  s.line(fmt::format("{} sum = 0;", t.sum));
  s.line(fmt::format("const i64 step = {}, windows = {};", s.number(step), s.number(in.sizes[axis])));
  s.line(fmt::format("for (i64 k = 0; k < {}; ++k) {{", s.number(in.sizes[in.rank - 1u])));
  s.line(fmt::format("const i64 start = place - k * {};", s.number(dilation)));
  s.line("if (start < 0 || start % step != 0 || start / step >= windows) continue;");
  s.line(fmt::format("sum = ({})(sum + {});", t.sum,
                     t.load(fmt::format("{} + from + start / step * {} + k * {}", s.pointer(t.memory, in.data), s.number(in.strides[axis]),
                                        s.number(in.strides[in.rank - 1u])))));
  s.line("}");
  s.line(fmt::format("fm_store({} + i, {});", s.pointer(t.memory, out.data), t.stored("sum")));
  s.launch(count);
}

}  // namespace fermata::gpu
