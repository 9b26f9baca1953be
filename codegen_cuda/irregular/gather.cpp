// take and index_add. See irregular.h.
//
// index_add sorts the positions, stably, and gives every element of a row to one thread, which adds the row's sources
// in order: the sums that the CPU makes, bit for bit.
#include <fmt/format.h>

#include "codegen_cuda/emit/primitives.h"
#include "codegen_cuda/irregular/element_text.h"
#include "codegen_cuda/irregular/irregular.h"
#include "codegen_cuda/irregular/positions.h"

namespace fermata::gpu {
namespace {

/// Keys: positions; numbers: 0, 1, ...
void write_pairs(const CallArgs& args, std::int64_t* pairs, std::int64_t count) {
  CallSource s("positions");
  s.for_each("i", count);
  read_position(s, args, "position", "i");
  const std::string to = s.pointer("i64", pairs);
  s.line(fmt::format("fm_store({0} + i, position); fm_store({0} + count + i, i);", to));
  s.launch(count);
}

/// How a sum is kept: half floats in f32, the others as they are. Unsigned integers wrap.
struct SumType {
  std::string sum, load, store;
};
SumType sum_type(DType dtype) {
  if (dtype == DType::f16) return {"f32", "fm_from_f16", "fm_to_f16"};
  if (dtype == DType::bf16) return {"f32", "fm_from_bf16", "fm_to_bf16"};
  return {is_floating(dtype) ? std::string(name(dtype)) : std::string(bits_text(dtype)), "", ""};
}

void take_call(const CallArgs& args) {
  use_operands(args);
  const TensorView &x = args.inputs[0], &out = args.outputs[0];
  const GatherSizes g = gather_sizes(args);
  const std::int64_t count = g.outer * g.positions * g.inner;
  if (count == 0) return;
  CallSource s("take");
  s.for_each("i", count);
  s.line(fmt::format(
      "const index inner = (index){}, positions = (index){}, row = (index)i / inner, which = row % positions;",
      s.number(g.inner), s.number(g.positions)));
  read_position(s, args, "position", "which");
  s.offset("before", "row / positions", x, 0, g.axis);
  s.offset("behind", "(index)i - row * inner", x, g.axis + 1, x.rank);
  const std::string_view type = bits_text(x.dtype);
  s.line(fmt::format("fm_store({} + i, fm_load({} + before + position * {} + behind));", s.pointer(type, out.data),
                     s.pointer(type, x.data), s.number(x.strides[g.axis])));
  s.launch(count);
}

void index_add_call(const CallArgs& args) {
  use_operands(args);
  const TensorView &x = args.inputs[0], &source = args.inputs[2], &out = args.outputs[0];
  copy_elements(x, out);
  const GatherSizes g = gather_sizes(args);
  const std::int64_t count = g.outer * g.positions * g.inner;
  if (count == 0 || g.size == 0) return;
  const Workspace pairs(g.positions * 4 * 8);
  auto* const unsorted = static_cast<std::int64_t*>(pairs.data());
  write_pairs(args, unsorted, g.positions);
  const std::int64_t* const sorted = sort_lines(unsorted, g.positions, g.positions);
  const SumType type = sum_type(x.dtype);
  CallSource s("index_add");
  s.for_each("i", count);
  s.line(fmt::format("const i64 inner = {}, positions = {}, size = {};", s.number(g.inner), s.number(g.positions),
                     s.number(g.size)));
  s.line(fmt::format("const i64* const keys = {};", s.pointer("const i64", sorted)));
  s.line("const index row = (index)i / (index)inner, lane = row / (index)positions;");
  s.line(
      "const i64 column = (index)i - row * (index)inner, first = row - lane * (index)positions, key = fm_load(keys + first);");
  s.line("if (first > 0 && fm_load(keys + first - 1) == key) continue;  // of the thread of the row's first source");
  const std::string_view bits = is_floating(x.dtype) && type.load.empty() ? name(x.dtype) : bits_text(x.dtype);
  s.line(fmt::format("{0}* const to = {1} + (lane * size + key) * inner + column;", bits, s.pointer(bits, out.data)));
  s.line(fmt::format("{} sum = {}(fm_load(to));", type.sum, type.load));
  s.line("for (i64 at = first; at < positions && fm_load(keys + at) == key; ++at) {");
  s.offset("from", "(lane * positions + fm_load(keys + positions + at)) * inner + column", source, 0, source.rank);
  s.line(
      fmt::format("sum = ({0})(sum + {1}(fm_load({2} + from)));", type.sum, type.load, s.pointer(bits, source.data)));
  s.line("}");
  s.line(fmt::format("fm_store(to, ({}){}(sum));", bits, type.store));
  s.launch(count);
}

}  // namespace

FERMATA_KERNELS(cuda) {
  add_nvrtc_kernel(Op::take, &take_call);
  add_nvrtc_kernel(Op::index_add, &index_add_call);
}

}  // namespace fermata::gpu
