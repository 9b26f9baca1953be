// The rules of a kernel description (ir/kernel.h), checked one by one.
#include <fmt/format.h>

#include "ir/error.h"
#include "ir/kernel.h"
#include "ir/scalar_interpreter.h"

namespace fermata {
namespace {

template <class... Args> [[noreturn]] void broken(fmt::format_string<Args...> what, Args&&... args) {
  throw_internal("kernel: " + fmt::format(what, std::forward<Args>(args)...));
}

bool is_leaf(Prim prim) { return operand_count(prim) == 0; }

/// Operands precede their use, and a primitive exists for these dtypes.
void check_operands(const ScalarProgram& program, ValueId at) {
  const Instr& instr = program[at];
  const ValueId given[] = {instr.a, instr.b, instr.c};
  const unsigned wanted = operand_count(instr.prim);
  for (unsigned i = 0; i < 3; ++i) {
    if (i >= wanted && given[i] != kNoValue) broken("%{} ({}) has too many operands", at, name(instr.prim));
    if (i < wanted && given[i] >= at) broken("%{} ({}) uses a value that does not precede it", at, name(instr.prim));
  }
  if (is_leaf(instr.prim)) return;
  if (instr.prim == Prim::gather || instr.prim == Prim::guarded_input) {
    for (unsigned i = 0; i < wanted; ++i)
      if (program[given[i]].type != DType::i64)
        broken("%{} ({}) depends on a place of {}", at, name(instr.prim), name(program[given[i]].type));
    return;
  }
  const bool selects = instr.prim == Prim::select;
  const DType operand = program[selects ? instr.b : instr.a].type;
  if (selects && program[instr.a].type != DType::boolean) broken("%{} selects by {}", at, name(program[instr.a].type));
  for (unsigned i = selects ? 2 : 1; i < wanted; ++i)
    if (program[given[i]].type != operand)
      broken("%{} ({}) mixes {} and {}", at, name(instr.prim), name(operand), name(program[given[i]].type));
  if (prim_function(instr.prim, instr.type, operand) == nullptr)
    broken("%{}: {} of {} does not produce {}", at, name(instr.prim), name(operand), name(instr.type));
}

void check_constant(const Instr& instr, ValueId at) {
  if (!kStoredReal.has(instr.type)) broken("%{} has dtype {}", at, name(instr.type));
  const std::size_t width = 8 * byte_size(instr.type);
  if (width < 64 && instr.bits >> width != 0) broken("%{} has constant bits beyond its dtype", at);
}

/// A leaf, or one that names an access.
void check_index(const Kernel& kernel, ValueId at) {
  const Instr& instr = kernel.program[at];
  const auto same = [&](DType type) {
    if (instr.type != type) broken("%{} ({}) is {}, not {}", at, name(instr.prim), name(instr.type), name(type));
  };
  const auto within = [&](std::size_t count) {
    if (instr.index >= count) broken("%{} ({}) has index {} of {}", at, name(instr.prim), instr.index, count);
  };
  switch (instr.prim) {
    case Prim::input:
    case Prim::gather:
    case Prim::guarded_input:
      within(kernel.accesses.size());
      same(kernel.accesses[instr.index].dtype);
      if (kernel.accesses[instr.index].address_only)
        broken("%{} reads access {}, which has no memory", at, instr.index);
      if (kernel.accesses[instr.index].gathered != (instr.prim == Prim::gather) ||
          kernel.accesses[instr.index].guarded != (instr.prim == Prim::guarded_input))
        broken("%{} reads access {} in another way than it is described", at, instr.index);
      if (instr.prim == Prim::gather && !gathered_axis(kernel, instr)) broken("%{} gathers at no position", at);
      break;
    case Prim::offset:
      within(kernel.accesses.size());
      same(DType::i64);
      if (kernel.accesses[instr.index].gathered || kernel.accesses[instr.index].guarded)
        broken("%{} is the offset of an access that is read in another way", at);
      break;
    case Prim::position:
      within(kernel.accesses.size());
      if (!kernel.accesses[instr.index].address_only) broken("%{} is not numbered by offsets", at);
      break;
    case Prim::scalar:
      within(kernel.scalars.size());
      same(kernel.scalars[instr.index]);
      break;
    case Prim::constant: check_constant(instr, at); break;
    case Prim::reduced: {
      within(kernel.reductions.size());
      const Reduction& reduction = kernel.reductions[instr.index];
      if (instr.bits >= reduction.types.size())
        broken("%{} has component {} of {}", at, instr.bits, reduction.types.size());
      same(reduction.types[instr.bits]);
      for (const ValueId id : reduction.lifted)
        if (id >= at) broken("%{} uses reduction {} before what it reduces", at, instr.index);
      break;
    }
    default: broken("%{} is a {} outside a sub-program", at, name(instr.prim));
  }
}

void check_combine(const Reduction& reduction, std::size_t index) {
  const Formula& combine = reduction.combine;
  const std::size_t components = reduction.types.size();
  for (ValueId i = 0; i < combine.program.size(); ++i) {
    const Instr& instr = combine.program[i];
    check_operands(combine.program, i);
    if (instr.prim == Prim::constant)
      check_constant(instr, i);
    else if (instr.prim == Prim::parameter) {
      if (instr.index >= combine.parameters.size() || combine.parameters[instr.index] != instr.type)
        broken("reduction {}: %{} is no parameter of the combine", index, i);
    } else if (is_leaf(instr.prim) || has_access(instr.prim) || instr.prim == Prim::position)
      broken("reduction {}: the combine has a {}", index, name(instr.prim));
  }
  if (combine.parameters.size() != 2 * components || combine.results.size() != components)
    broken("reduction {}: the combine does not take two states and give one", index);
  for (std::size_t i = 0; i < components; ++i) {
    if (combine.parameters[i] != reduction.types[i] || combine.parameters[components + i] != reduction.types[i])
      broken("reduction {}: parameter {} of the combine has another dtype", index, i);
    if (combine.results[i] >= combine.program.size() || combine.program[combine.results[i]].type != reduction.types[i])
      broken("reduction {}: result {} of the combine has another dtype", index, i);
  }
}

void check_reductions(const Kernel& kernel) {
  if (kernel.reductions.empty() != (kernel.reduced == 0)) broken("reductions without reduced axes, or the reverse");
  for (std::size_t r = 0; r < kernel.reductions.size(); ++r) {
    const Reduction& reduction = kernel.reductions[r];
    const std::size_t components = reduction.types.size();
    if (components == 0 || reduction.lifted.size() != components || reduction.identity.size() != components)
      broken("reduction {} has unequal numbers of components", r);
    for (std::size_t i = 0; i < components; ++i) {
      const ValueId id = reduction.lifted[i];
      if (id >= kernel.program.size() || kernel.program[id].type != reduction.types[i])
        broken("reduction {}: lifted value {} has another dtype", r, i);
    }
    check_combine(reduction, r);
  }
}

void check_stores(const Kernel& kernel) {
  std::vector<bool> stored(kernel.accesses.size(), false);
  for (std::size_t s = 0; s < kernel.stores.size(); ++s) {
    const Store& store = kernel.stores[s];
    if (store.access >= kernel.accesses.size() || store.value >= kernel.program.size())
      broken("store {} is out of range", s);
    const Access& access = kernel.accesses[store.access];
    if (access.address_only) broken("store {} goes to access {}, which has no memory", s, store.access);
    if (access.gathered || access.guarded) broken("store {} goes to access {}, which is only read", s, store.access);
    if (access.dtype != kernel.program[store.value].type)
      broken("store {} puts {} into {}", s, name(kernel.program[store.value].type), name(access.dtype));
    if (stored[store.access]) broken("access {} is stored twice", store.access);
    stored[store.access] = true;
  }
}

/// Stages recompute what they read, so nothing may be read in a later stage than it is stored in.
void check_schedule(const Kernel& kernel) {
  const KernelSchedule plan = schedule(kernel);
  std::vector<bool> stored(kernel.accesses.size(), false);
  const auto check_reads = [&](const std::vector<ValueId>& values) {
    for (const ValueId id : values)
      if (kernel.program[id].prim == Prim::input && stored[kernel.program[id].index])
        broken("%{} reads access {} after it has been stored", id, kernel.program[id].index);
  };
  const auto mark = [&](const std::vector<std::uint16_t>& stores) {
    for (const std::uint16_t s : stores) stored[kernel.stores[s].access] = true;
  };
  for (const auto& stage : plan.stages) {
    check_reads(stage.element_values);
    mark(stage.element_stores);
    check_reads(stage.row_values);
    for (const std::uint16_t s : stage.row_stores)
      if (!plan.row_level[kernel.stores[s].value]) broken("store {} keeps one of many values per row", s);
    mark(stage.row_stores);
  }
}

}  // namespace

void verify(const Kernel& kernel) {
  if (kernel.rank == 0 || kernel.rank > kMaxRank) broken("rank {}", kernel.rank);
  if (kernel.reduced >> kernel.rank != 0) broken("reduced axes beyond rank {}", kernel.rank);
  for (std::size_t i = 0; i < kernel.accesses.size(); ++i) {
    const Access& access = kernel.accesses[i];
    if (!kStoredReal.has(access.dtype)) broken("access {} has dtype {}", i, name(access.dtype));
    if (access.axes >> kernel.rank != 0) broken("access {} has axes beyond rank {}", i, kernel.rank);
    if (access.unit_stride && (access.axes >> (kernel.rank - 1) & 1) == 0)
      broken("access {} has unit stride along an axis that it is broadcast over", i);
    if (access.half != Half::none && (access.unit_stride || access.address_only || !is_floating(access.dtype) ||
                                      (access.axes >> (kernel.rank - 1) & 1) == 0))
      broken("access {} is no half of complex numbers", i);
    if ((access.gathered || access.guarded) &&
        (access.address_only || access.half != Half::none || (access.gathered && access.guarded)))
      broken("access {} cannot be gathered or guarded", i);
  }
  for (const DType t : kernel.scalars)
    if (!kStoredReal.has(t)) broken("a scalar has dtype {}", name(t));
  check_reductions(kernel);
  for (ValueId i = 0; i < kernel.program.size(); ++i) {
    check_operands(kernel.program, i);
    const Prim prim = kernel.program[i].prim;
    if (is_leaf(prim) || has_access(prim) || prim == Prim::position) check_index(kernel, i);
  }
  check_stores(kernel);
  check_schedule(kernel);
}

}  // namespace fermata
