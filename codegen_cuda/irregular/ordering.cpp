// sort, argsort, top_k_indices, searchsorted and flatnonzero. See irregular.h.
//
// Elements become unsigned 64-bit keys in the same order; lines are sorted side by side, stably, with their positions.
#include <fmt/format.h>

#include <algorithm>

#include "codegen_cuda/irregular/element_text.h"
#include "codegen_cuda/irregular/irregular.h"
#include "codegen_cuda/irregular/positions.h"
#include "ir/ops/ordering.h"
#include "runtime/call_attributes.h"

namespace fermata::gpu {
namespace {

/// An expression: the key of the element with these bits (a name). NaN is above all numbers; where `equal_zeros`, -0 is
/// 0. Signed comparison orders keys.
std::string key_text(DType dtype, const std::string& bits, bool equal_zeros) {
  const unsigned width = 8u * static_cast<unsigned>(byte_size(dtype));
  const std::uint64_t sign = std::uint64_t{1} << (width - 1),
                      all = width == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << width) - 1;
  const std::string u = fmt::format("(u64){}", bits);
  const std::string to_signed = width == 64 ? "(i64)(({}) ^ 0x8000000000000000ull)" : "(i64)({})";
  std::string key = u;
  if (is_floating(dtype)) {
    const std::uint64_t infinity = dtype == DType::f16    ? 0x7c00
                                   : dtype == DType::bf16 ? 0x7f80
                                   : dtype == DType::f32  ? 0x7f800000u
                                                          : 0x7ff0000000000000u;
    const std::string value = equal_zeros ? fmt::format("({0} == {1}ull ? 0ull : {0})", u, sign) : u;
    key = fmt::format("(({0} & {1}ull) > {2}ull ? {3}ull : ({0} & {4}ull) != 0 ? ~({0}) & {3}ull : ({0} | {4}ull))",
                      value, all & ~sign, infinity, all, sign);
  } else if (is_signed(dtype)) {
    key = fmt::format("({} ^ {}ull)", u, sign);
  }
  return fmt::format(fmt::runtime(to_signed), key);
}

struct Lines {
  unsigned axis;
  std::int64_t size, count = 1, inner = 1;
};
Lines lines_of(const TensorView& v, unsigned axis) {
  Lines l{axis, v.sizes[axis], 1, 1};
  for (unsigned i = 0; i < v.rank; ++i)
    if (i != axis) l.count *= v.sizes[i], l.inner *= i > axis ? v.sizes[i] : 1;
  return l;
}

/// Declares `name`: the element of a view that is number `place` of line `line`.
void element_at(CallSource& s, const std::string& variable, const TensorView& v, const Lines& l) {
  s.offset(variable + "_before", fmt::format("line / {}", s.number(l.inner)), v, 0, l.axis);
  s.offset(variable + "_behind", fmt::format("line % {}", s.number(l.inner)), v, l.axis + 1, v.rank);
  s.line(fmt::format("const i64 {0} = {0}_before + {0}_behind + place * {1};", variable, s.number(v.strides[l.axis])));
}

/// Keys and positions of all lines, sorted line by line; `descending`: largest first.
const std::int64_t* sorted_lines(const CallArgs& args, const Lines& l, bool descending, bool equal_zeros,
                                 void* memory) {
  const TensorView& x = args.inputs[0];
  const std::int64_t count = l.count * l.size;
  CallSource s("keys");
  s.for_each("i", count);
  s.line(fmt::format("const i64 size = {}, line = i / size, place = i % size;", s.number(l.size)));
  element_at(s, "from", x, l);
  const std::string_view type = bits_text(x.dtype);
  s.line(fmt::format("const {0} bits = fm_load({1} + from); const i64 key = {2};", type, s.pointer(type, x.data),
                     key_text(x.dtype, "bits", equal_zeros)));
  s.line(fmt::format("i64* const to = {}; fm_store(to + i, {}); fm_store(to + count + i, place);",
                     s.pointer("i64", memory), descending ? "~key" : "key"));
  s.launch(count);
  return sort_lines(static_cast<std::int64_t*>(memory), count, l.size);
}

void sort_call(const CallArgs& args) {
  use_operands(args);
  const TensorView &x = args.inputs[0], &out = args.outputs[0];
  const auto [axis, descending] = attributes_of<ops::Sort>(args);
  const Lines l = lines_of(out, static_cast<unsigned>(axis.value));
  const std::int64_t count = l.count * l.size;
  if (count == 0) return;
  const Workspace memory(count * 4 * 8);
  const std::int64_t* const sorted = sorted_lines(args, l, descending.value, false, memory.data());
  const std::string_view type = bits_text(x.dtype);
  CallSource s("sorted");
  s.for_each("i", count);
  s.line(fmt::format("const i64 size = {}, line = i / size;", s.number(l.size)));
  const std::string pairs = s.pointer("const i64", sorted);
  s.line("{");
  s.line(fmt::format("const i64 place = fm_load({} + count + i);", pairs));
  element_at(s, "from", x, l);
  s.line(fmt::format("const {} element = fm_load({} + from);", type, s.pointer(type, x.data)));
  s.line("{ const i64 place = i % size;");
  element_at(s, "to", out, l);
  s.line(fmt::format("fm_store({} + to, element);", s.pointer(type, out.data)));
  s.line("} }");
  s.launch(count);
}

/// The first `kept` positions of each sorted line.
static void write_positions(const CallArgs& args, const Lines& l, const std::int64_t* sorted, std::int64_t kept) {
  const TensorView& out = args.outputs[0];
  CallSource s("ranked");
  s.for_each("i", l.count * kept);
  s.line(fmt::format("const i64 kept = {}, line = i / kept, place = i % kept;", s.number(kept)));
  element_at(s, "to", out, l);
  s.line(fmt::format("fm_store({} + to, fm_load({} + {} + line * {} + place));", s.pointer("i64", out.data),
                     s.pointer("const i64", sorted), s.number(l.count * l.size), s.number(l.size)));
  s.launch(l.count * kept);
}

void argsort_call(const CallArgs& args) {
  use_operands(args);
  const auto [axis, descending] = attributes_of<ops::Argsort>(args);
  const Lines l = lines_of(args.inputs[0], static_cast<unsigned>(axis.value));
  if (args.outputs[0].element_count() == 0) return;
  const Workspace memory(l.count * l.size * 4 * 8);
  write_positions(args, l, sorted_lines(args, l, descending.value, true, memory.data()), l.size);
}

void top_k_indices_call(const CallArgs& args) {
  use_operands(args);
  const auto [axis, k, largest] = attributes_of<ops::TopKIndices>(args);
  const Lines l = lines_of(args.inputs[0], static_cast<unsigned>(axis.value));
  if (args.outputs[0].element_count() == 0) return;
  const Workspace memory(l.count * l.size * 4 * 8);
  write_positions(args, l, sorted_lines(args, l, largest.value, true, memory.data()), k.value);
}

void searchsorted_call(const CallArgs& args) {
  use_operands(args);
  const TensorView &line = args.inputs[0], &wanted = args.inputs[1], &out = args.outputs[0];
  const std::int64_t count = out.element_count();
  const bool right = attributes_of<ops::Searchsorted>(args).right.value;
  const std::string_view type = bits_text(line.dtype);
  CallSource s("searchsorted");
  s.for_each("i", count);
  s.offset("from", "i", wanted, 0, wanted.rank);
  s.line(fmt::format("const {0} wanted = fm_load({1} + from); const i64 key = {2};", type, s.pointer(type, wanted.data),
                     key_text(line.dtype, "wanted", true)));
  s.line(fmt::format("i64 low = 0, high = {};", s.number(line.sizes[0])));
  s.line(fmt::format(
      "while (low < high) {{ const i64 middle = low + (high - low) / 2; const {0} bits = fm_load({1} + middle * {2}); const i64 there = {3};",
      type, s.pointer(type, line.data), s.number(line.strides[0]), key_text(line.dtype, "bits", true)));
  s.line(fmt::format("if (there {} key) low = middle + 1; else high = middle; }}", right ? "<=" : "<"));
  s.line(fmt::format("fm_store({} + i, low);", s.pointer("i64", out.data)));
  s.launch(count);
}

void flatnonzero_call(const CallArgs& args) {
  use_operands(args);
  const TensorView &x = args.inputs[0], &out = args.outputs[0];
  const std::int64_t count = x.element_count(), wanted = out.sizes[0];
  if (wanted == 0) return;
  const Workspace memory(std::max<std::int64_t>(count, 1) * 4 * 8);
  const std::string_view type = bits_text(x.dtype);
  const std::int64_t* sorted = static_cast<const std::int64_t*>(memory.data());
  if (count != 0) {
    // Zeros are sorted behind all others, which keep their order.
    CallSource s("nonzero");
    s.for_each("i", count);
    s.offset("from", "i", x, 0, x.rank);
    const std::string mask = is_floating(x.dtype)
                                 ? fmt::format(" & {:#x}ull", byte_size(x.dtype) == 8   ? 0x7fffffffffffffffull
                                                              : byte_size(x.dtype) == 4 ? 0x7fffffffull
                                                                                        : 0x7fffull)
                                 : "";
    s.line(fmt::format("const i64 key = ((u64)fm_load({} + from){}) != 0 ? 0 : 1;", s.pointer(type, x.data), mask));
    s.line(fmt::format("i64* const to = {}; fm_store(to + i, key); fm_store(to + count + i, i);",
                       s.pointer("i64", memory.data())));
    s.launch(count);
    sorted = sort_lines(static_cast<std::int64_t*>(memory.data()), count, count);
  }
  CallSource s("positions_of_nonzero");
  s.for_each("i", wanted);
  s.line(fmt::format("const i64 elements = {}; const i64* const pairs = {};", s.number(count),
                     s.pointer("const i64", sorted)));
  s.line(fmt::format(
      "fm_store({} + i * {}, i < elements && fm_load(pairs + i) == 0 ? fm_load(pairs + elements + i) : elements);",
      s.pointer("i64", out.data), s.number(out.strides[0])));
  s.launch(wanted);
}

}  // namespace

FERMATA_KERNELS(cuda) {
  add_nvrtc_kernel(Op::sort, &sort_call);
  add_nvrtc_kernel(Op::argsort, &argsort_call);
  add_nvrtc_kernel(Op::top_k_indices, &top_k_indices_call);
  add_nvrtc_kernel(Op::searchsorted, &searchsorted_call);
  add_nvrtc_kernel(Op::flatnonzero, &flatnonzero_call);
}

}  // namespace fermata::gpu
