// The readable text of a kernel description: its parts, then what runs when.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "ir/kernel_lines.h"
#include "ir/scalar_text.h"

namespace fermata {
namespace {

std::string axes_text(std::uint16_t mask) {
  std::vector<unsigned> axes;
  for (unsigned axis = 0; axis < kMaxRank; ++axis)
    if ((mask >> axis & 1u) != 0) axes.push_back(axis);
  return fmt::format("[{}]", fmt::join(axes, ", "));
}

std::string instr_text(const ScalarProgram& program, ValueId id) {
  const Instr& instr = program[id];
  std::string text = fmt::format("%{} = {}", id, name(instr.prim));
  switch (instr.prim) {
    case Prim::constant: text += " " + scalar_to_text(instr.type, instr.bits); break;
    case Prim::reduced: text += fmt::format(" {}.{}", instr.index, instr.bits); break;
    case Prim::input:
    case Prim::offset:
    case Prim::scalar:
    case Prim::gather:
    case Prim::guarded_input:
    case Prim::position:
    case Prim::parameter: text += fmt::format(" {}", instr.index); break;
    default: break;
  }
  const char* separator = instr.prim == Prim::guarded_input                            ? " where "
                          : instr.prim == Prim::gather || instr.prim == Prim::position ? " of "
                                                                                       : " ";
  for (const ValueId operand : {instr.a, instr.b, instr.c}) {
    if (operand == kNoValue) continue;
    text += fmt::format("{}%{}", separator, operand);
    separator = ", ";
  }
  return text + fmt::format(" : {}", name(instr.type));
}

std::string values_text(const std::vector<ValueId>& ids) {
  std::vector<std::string> names;
  for (const ValueId id : ids) names.push_back(fmt::format("%{}", id));
  return fmt::format("{}", fmt::join(names, " "));
}

void print_reduction(std::string& text, const Reduction& reduction, std::size_t index) {
  text += fmt::format("  reduction {} of {}\n    identity", index, values_text(reduction.lifted));
  for (std::size_t i = 0; i < reduction.types.size(); ++i)
    text +=
        fmt::format(" {} : {}", scalar_to_text(reduction.types[i], reduction.identity[i]), name(reduction.types[i]));
  text += '\n';
  const ScalarProgram& combine = reduction.combine.program;
  for (ValueId id = 0; id < combine.size(); ++id) text += "    " + instr_text(combine, id) + '\n';
  text += fmt::format("    return {}\n", values_text(reduction.combine.results));
}

void print_line(std::string& text, std::string_view label, const std::vector<ValueId>& values) {
  if (!values.empty()) text += fmt::format("    {} {}\n", label, values_text(values));
}
void print_line(std::string& text, std::string_view label, const std::vector<std::uint16_t>& indices) {
  if (!indices.empty()) text += fmt::format("    {} {}\n", label, fmt::join(indices, " "));
}

}  // namespace

KernelLines::KernelLines(const Kernel& kernel)
    : first_value_(static_cast<unsigned>(2 + kernel.accesses.size() + kernel.scalars.size())) {
  unsigned next = value(static_cast<ValueId>(kernel.program.size()));
  for (const Reduction& reduction : kernel.reductions)
    reductions_.push_back(next), next += static_cast<unsigned>(3 + reduction.combine.program.size());
  first_store_ = next;
}

std::string to_string(const Kernel& kernel) {
  std::string text = fmt::format("kernel rank={} reduced={}\n", kernel.rank, axes_text(kernel.reduced));
  for (std::size_t i = 0; i < kernel.accesses.size(); ++i) {
    const Access& access = kernel.accesses[i];
    text += fmt::format("  access {} : {} axes={}{}{}{}{}{}\n", i, name(access.dtype), axes_text(access.axes),
                        access.unit_stride ? " unit" : "", access.address_only ? " address" : "",
                        access.gathered ? " gathered" : "", access.guarded ? " guarded" : "",
                        access.half == Half::real        ? " real"
                        : access.half == Half::imaginary ? " imaginary"
                                                         : "");
  }
  for (std::size_t i = 0; i < kernel.scalars.size(); ++i)
    text += fmt::format("  scalar {} : {}\n", i, name(kernel.scalars[i]));
  for (ValueId id = 0; id < kernel.program.size(); ++id) text += "  " + instr_text(kernel.program, id) + '\n';
  for (std::size_t i = 0; i < kernel.reductions.size(); ++i) print_reduction(text, kernel.reductions[i], i);
  for (std::size_t i = 0; i < kernel.stores.size(); ++i)
    text += fmt::format("  store {} : %{} -> access {}\n", i, kernel.stores[i].value, kernel.stores[i].access);
  const KernelSchedule plan = schedule(kernel);
  if (!plan.row_prologue.empty()) {
    text += "  prologue\n";
    print_line(text, "values", plan.row_prologue);
  }
  for (std::size_t i = 0; i < plan.stages.size(); ++i) {
    text += fmt::format("  stage {}\n", i);
    print_line(text, "point values", plan.stages[i].element_values);
    print_line(text, "reductions", plan.stages[i].reductions);
    print_line(text, "point stores", plan.stages[i].element_stores);
    print_line(text, "row values", plan.stages[i].row_values);
    print_line(text, "row stores", plan.stages[i].row_stores);
  }
  return text;
}

}  // namespace fermata
