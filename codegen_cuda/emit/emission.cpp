// See emission.h.
#include "codegen_cuda/emit/emission.h"

#include <bit>

#include "codegen_cuda/emit/primitives.h"

namespace fermata::gpu {

using fmt::format;

Emission::Emission(const Kernel& described, const KernelSchedule& what_when, std::string function, bool wide)
    : kernel(described),
      schedule(what_when),
      arguments(described),
      name(std::move(function)),
      index(wide ? "i64" : "i32") {}

std::string Emission::stride(std::size_t access, unsigned axis) const {
  return arguments.strides[access][axis] < 0 ? "1" : format("s{}_{}", access, axis);
}

void Emission::row_values(const KernelSchedule::Stage& stage, const char* who) {
  values(stage.row_values, [](std::size_t a) { return format("r{}", a); });
  if (stage.row_stores.empty()) return;
  block(
      [&] {
        for (const std::uint16_t s : stage.row_stores) store(s, format("r{}", kernel.stores[s].access));
      },
      "if ({})", who);
}

std::vector<unsigned> Emission::parallel_axes(bool with_vector_axis) const {
  std::vector<unsigned> axes;
  for (unsigned axis = 0; axis < kernel.rank; ++axis)
    if (!kernel.is_reduced(axis) && (with_vector_axis || axis != vector_axis())) axes.push_back(axis);
  return axes;
}

unsigned Emission::inner_reduced_axis() const {
  return static_cast<unsigned>(std::bit_width(unsigned{kernel.reduced})) - 1u;
}

std::vector<unsigned> Emission::outer_reduced_axes() const {
  std::vector<unsigned> axes;
  for (unsigned axis = 0; axis < inner_reduced_axis(); ++axis)
    if (kernel.is_reduced(axis)) axes.push_back(axis);
  return axes;
}

void Emission::formula_values(const Formula& formula, const std::function<std::string(std::size_t)>& parameter) {
  const auto operand = [](ValueId id) { return id == kNoValue ? std::string() : format("t{}", id); };
  for (ValueId i = 0; i < formula.program.size(); ++i) {
    const Instr& instr = formula.program[i];
    std::string is;
    if (instr.prim == Prim::parameter)
      is = parameter(instr.index);
    else if (instr.prim == Prim::constant)
      is = constant(instr.type, instr.bits);
    else
      is = primitive(instr.prim, instr.type, formula.program[instr.prim == Prim::select ? instr.b : instr.a].type,
                     operand(instr.a), operand(instr.b), operand(instr.c));
    line("const {} t{} = {};", value_type(instr.type), i, is);
  }
}

void Emission::define_combine(std::size_t r) {
  const Reduction& reduction = kernel.reductions[r];
  const std::size_t count = reduction.types.size();
  std::string parameters;
  for (std::size_t c = 0; c < count; ++c)
    parameters += format("{}{}& l{}", c == 0 ? "" : ", ", value_type(reduction.types[c]), c);
  for (std::size_t c = 0; c < count; ++c) parameters += format(", {} r{}", value_type(reduction.types[c]), c);
  block(
      [&] {
        formula_values(reduction.combine,
                       [&](std::size_t k) { return k < count ? format("l{}", k) : format("r{}", k - count); });
        for (std::size_t c = 0; c < count; ++c) line("l{} = t{};", c, reduction.combine.results[c]);
      },
      "FM_DEVICE void {}_combine{}({})", name, r, parameters);
}

void Emission::define_function(const std::string& function, const Formula& formula) {
  block(
      [&] {
        formula_values(formula, [](std::size_t k) { return format("x{}", k); });
        line("return t{};", formula.results[0]);
      },
      "FM_DEVICE f32 {}(f32 x0)", function);
}

void Emission::open(unsigned threads, int more) {
  for (std::size_t r = 0; r < kernel.reductions.size(); ++r) define_combine(r);
  line("FM_KERNEL({}, {}, {}) {{", name, arguments.count + more, threads);
  ++depth;
  for (std::size_t i = 0; i < kernel.accesses.size(); ++i) {
    const std::string_view type = memory_type(kernel.accesses[i].dtype);
    if (arguments.pointers[i] >= 0) line("{0}* const p{1} = ({0}*)a.v[{2}];", type, i, arguments.pointers[i]);
    for (unsigned axis = 0; axis < kernel.rank; ++axis)
      if (const int slot = arguments.strides[i][axis]; slot >= 0)
        line("const {0} s{1}_{2} = ({0})a.v[{3}];", index, i, axis, slot);
  }
  for (unsigned axis = 0; axis < kernel.rank; ++axis)
    line("const {0} n{1} = ({0})a.v[{2}];", index, axis, arguments.sizes[axis]);
  line("const {0} row_begin = ({0})a.v[{1}], row_end = ({0})a.v[{2}];", index, arguments.row_begin, arguments.row_end);
  line("const {0} column_begin = ({0})a.v[{1}], column_end = ({0})a.v[{2}];", index, arguments.column_begin,
       arguments.column_end);
  if (kernel.reduced != 0)
    line("const {0} blocks = ({0})a.v[{1}], blocks_per_pass = ({0})a.v[{2}];", index, arguments.blocks,
         arguments.blocks_per_pass);
}

void Emission::close() {
  --depth;
  line("}}");
}

void Emission::coordinates(const std::string& from, const std::vector<unsigned>& axes) {
  if (axes.empty()) return;
  line("{} rest_{} = {};", index, axes[0], from);
  const std::string rest = format("rest_{}", axes[0]);
  for (std::size_t i = axes.size(); i-- > 1;) {
    line("const {0} x{1} = {2} % n{1};", index, axes[i], rest);
    line("{} /= n{};", rest, axes[i]);
  }
  line("const {} x{} = {};", index, axes[0], rest);
}

void Emission::offsets(char prefix, char base, const std::vector<unsigned>& axes) {
  for (std::size_t a = 0; a < kernel.accesses.size(); ++a) {
    std::string sum = base != 0                   ? format("{}{}", base, a)
                      : arguments.offsets[a] >= 0 ? format("({})a.v[{}]", index, arguments.offsets[a])
                                                  : "0";
    for (const unsigned axis : axes)
      if (varies(a, axis)) sum += format(" + x{} * {}", axis, stride(a, axis));
    line("const {} {}{} = {};", index, prefix, a, sum);
  }
}

std::string Emission::loaded(std::size_t access, const std::string& offset) const {
  const bool boolean = kernel.accesses[access].dtype == DType::boolean;
  return format("fm_load(p{} + ({})){}", access, offset, boolean ? " != 0" : "");
}

void Emission::value(ValueId id, const std::string& offset) {
  const Instr& instr = kernel.program[id];
  const auto operand = [](ValueId v) { return v == kNoValue ? std::string() : format("v{}", v); };
  std::string is;
  switch (instr.prim) {
    case Prim::input: is = loaded(instr.index, offset); break;
    case Prim::offset: is = format("(i64)({})", offset); break;
    case Prim::scalar:
      is = format("fm_get<{}>(a.v[{}])", value_type(instr.type), arguments.scalars[instr.index]);
      break;
    case Prim::constant: is = constant(instr.type, instr.bits); break;
    case Prim::reduced: is = state(instr.index, instr.bits, "total"); break;
    default:
      is = primitive(instr.prim, instr.type, kernel.program[instr.prim == Prim::select ? instr.b : instr.a].type,
                     operand(instr.a), operand(instr.b), operand(instr.c));
  }
  line("const {} v{} = {};", value_type(instr.type), id, is);
}

void Emission::store(std::uint16_t number, const std::string& offset) {
  const Store& s = kernel.stores[number];
  line("fm_store(p{0} + ({1}), ({2})v{3});", s.access, offset, memory_type(kernel.accesses[s.access].dtype), s.value);
}

std::string Emission::state(std::uint16_t reduction, std::size_t component, const std::string& suffix) const {
  return format("a{}_{}{}", reduction, component, suffix);
}

std::vector<std::string> Emission::state_names(std::uint16_t reduction, const std::string& suffix) const {
  std::vector<std::string> names;
  for (std::size_t c = 0; c < kernel.reductions[reduction].types.size(); ++c)
    names.push_back(state(reduction, c, suffix));
  return names;
}

std::vector<std::string> Emission::lifted_names(std::uint16_t reduction) const {
  std::vector<std::string> names;
  for (const ValueId id : kernel.reductions[reduction].lifted) names.push_back(format("v{}", id));
  return names;
}

void Emission::declare_states(const std::vector<std::uint16_t>& reductions, const std::string& suffix,
                              const std::string& count) {
  for (const std::uint16_t r : reductions)
    for (std::size_t c = 0; c < kernel.reductions[r].types.size(); ++c) {
      const DType type = kernel.reductions[r].types[c];
      const std::string identity = constant(type, kernel.reductions[r].identity[c]);
      if (count.empty())
        line("{} {} = {};", value_type(type), state(r, c, suffix), identity);
      else
        line("{} {}[{}] = {{{}, {}}};", value_type(type), state(r, c, suffix), count, identity, identity);
    }
}

void Emission::combine(std::uint16_t reduction, const std::vector<std::string>& into,
                       const std::vector<std::string>& right) {
  std::string list;
  for (const auto* names : {&into, &right})
    for (const std::string& each : *names) list += format("{}{}", list.empty() ? "" : ", ", each);
  line("{}_combine{}({});", name, reduction, list);
}

std::size_t Emission::components(const std::vector<std::uint16_t>& reductions) const {
  std::size_t count = 0;
  for (const std::uint16_t r : reductions) count += kernel.reductions[r].types.size();
  return count;
}

}  // namespace fermata::gpu
