// See emission.h.
#include "codegen_cpu/jit/emission.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "codegen_cpu/jit/bounds_checks.h"
#include "codegen_cpu/jit/line_marks.h"
#include "codegen_cpu/jit/plugin.h"

namespace fermata::jit {
namespace {

Value* launch_field(CodeBuilder& b, Value* launch, std::size_t offset) {
  return b.CreateAlignedLoad(b.getInt64Ty(), b.element(b.getInt8Ty(), launch, offset), llvm::Align(8));
}

/// One bit for each store.
std::uint64_t streamable_stores(const Kernel& kernel) {
  if (kernel.stores.size() > 64) return 0;
  return ~std::uint64_t{0} >> (64 - std::max<std::size_t>(kernel.stores.size(), 1));
}

}  // namespace

unsigned choose_lanes(const Kernel& kernel, const NarrowSums& sums, const Isa& isa) {
  std::array<unsigned, 4> count{};  // of values of 1, 2, 4 and 8 bytes
  const auto look_at_type = [&](DType type) { ++count[static_cast<std::size_t>(std::countr_zero(byte_size(type)))]; };
  const auto look_at = [&](const Instr& instr) {
    if (instr.type != DType::boolean && instr.prim != Prim::constant && instr.prim != Prim::scalar)
      look_at_type(instr.type);
  };
  const Edges edges(kernel, true);
  const std::vector<std::uint16_t> axes = axes_of_values(kernel);
  const auto is_vector = [&](std::uint16_t of) { return (of >> (kernel.rank - 1u) & 1u) != 0; };
  for (ValueId id = 0; id < kernel.program.size(); ++id)
    if (is_vector(axes[id]) && !edges.is_only_compared(id) && !sums.is_only_added(id)) look_at(kernel.program[id]);
  for (const Store& store : kernel.stores)
    if (is_vector(kernel.accesses[store.access].axes) && !is_vector(axes[store.value]))
      look_at(kernel.program[store.value]);
  for (std::uint16_t r = 0; r < kernel.reductions.size(); ++r)
    if (sums.source(r) != kNoValue)
      look_at_type(sums.least(r));
    else
      for (const Instr& instr : kernel.reductions[r].combine.program.instrs()) look_at(instr);
  if (count[3] > count[0] + count[1] + count[2]) return isa.vector_bits / 64;
  if (count[3] + count[2] > 0) return isa.vector_bits / 32;
  return isa.vector_bits / (count[1] > 0 ? 16 : 8);
}

Emission::Emission(llvm::Function& function, const Kernel& described, const Isa& isa, CodeVariant variant)
    : kernel(described),
      schedule(fermata::schedule(described)),
      kept(keep_values(kernel, schedule)),
      streamed(variant.streamed & streamable_stores(kernel)),
      wide(variant.wide),
      turned(variant.turned),
      checked(variant.checked),
      narrow_sums(described),
      b(function, isa, choose_lanes(described, narrow_sums, isa)),
      launch(function.getArg(0)),
      part(function.getArg(1)),
      scratch(function.getArg(2)),
      accesses(b, described, launch, !turned && (wide || !described.is_row_kernel()), wide),
      evaluator(b, accesses, described, kept, wide && isa.masks, !variant.checked),
      row_begin(launch_field(b, launch, offsetof(KernelLaunch, row_begin))),
      row_end(launch_field(b, launch, offsetof(KernelLaunch, row_end))),
      column_begin(launch_field(b, launch, offsetof(KernelLaunch, column_begin))),
      column_end(launch_field(b, launch, offsetof(KernelLaunch, column_end))),
      at_entry(evaluator.empty()) {}

llvm::SmallVector<unsigned, 4> Emission::outer_reduced_axes() const {
  llvm::SmallVector<unsigned, 4> axes;
  for (unsigned axis = 0; axis < vector_axis(); ++axis)
    if (kernel.is_reduced(axis)) axes.push_back(axis);
  return axes;
}

Value* Emission::product(const llvm::SmallVector<Digit, 4>& digits) {
  Value* result = b.i64(1);
  for (const Digit& digit : digits) result = b.CreateMul(result, digit.size);
  return result;
}

void Emission::add_scratch(unsigned columns, unsigned lanes) {
  scratch_columns = columns, scratch_lanes = lanes;
  Value* group = b.i64(columns);
  if (columns > lanes) {
    Value* const rounded = b.CreateAdd(b.CreateSub(column_end, column_begin), b.i64(lanes - 1));
    group = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, group, b.CreateAnd(rounded, b.i64(-std::int64_t{lanes})));
  }
  accesses.add_slots(kept.slots, scratch, group);
}

void Emission::rows(llvm::function_ref<void(const Values& addresses, Environment& env)> body) {
  llvm::SmallVector<Digit, 4> digits;
  std::uint16_t row_axes = 0;
  for (unsigned axis = 0; axis < vector_axis(); ++axis)
    if (!kernel.is_reduced(axis))
      digits.push_back(accesses.axis_digit(axis)), row_axes |= static_cast<std::uint16_t>(1u << axis);
  accesses.linear_loop(digits, row_begin, row_end, accesses.origin(), {},
                       [&](const Values& addresses, Value* number, Value*, const Values&) {
                         row = number;
                         Environment env = at_entry;
                         evaluator.uniforms(schedule.row_prologue, row_axes, true, addresses, env);
                         if (kernel.reduced == 0)
                           evaluator.uniforms(schedule.stages[0].element_values, row_axes, true, addresses, env);
                         body(addresses, env);
                         return Values{};
                       });
}

bool Emission::cuts_at_edges(const KernelSchedule::Stage& stage, GroupPlan plan) const {
  constexpr unsigned kFewInstructions = 100, kMostInstructions = 400;
  return affords(std::bit_floor(plan.width) * vector_count(stage), kFewInstructions, kMostInstructions) &&
         std::ranges::any_of(stage.element_values, [&](ValueId id) { return evaluator.edges().has_edge(id); });
}

void Emission::columns(const KernelSchedule::Stage& stage, const Environment& env, const Values& addresses,
                       Value* begin, Value* end, GroupPlan plan,
                       llvm::function_ref<void(const Span& span, unsigned width)> body) {
  const auto cut_or_not = [&](Value* first, GroupPlan groups, bool aligned) {
    if (cuts_at_edges(stage, plan))
      columns_between_edges(stage, env, addresses, first, end, std::bit_floor(groups.width), body, aligned);
    else
      columns(first, end, groups, body, aligned);
  };
  const std::vector<std::uint16_t>& stores = stage.element_stores;
  const auto leader = std::ranges::find_if(stores, [&](std::uint16_t s) { return (streamed >> s & 1u) != 0; });
  if (leader == stores.end()) return cut_or_not(begin, plan, false);
  Value* const head = accesses.unaligned_head(kernel.stores[*leader].access, addresses[kernel.stores[*leader].access],
                                              begin, b.CreateSub(end, begin));
  Value* const first = b.CreateAdd(begin, head);
  columns(begin, first, {1, true}, body);
  cut_or_not(first, {std::bit_floor(plan.width), false}, true);
}

/// Up to the next edge, groups of `width` vectors that know what holds there, and then one vector, for each lane of
/// which that is found out.
void Emission::columns_between_edges(const KernelSchedule::Stage& stage, const Environment& env,
                                     const Values& addresses, Value* begin, Value* end, unsigned width,
                                     llvm::function_ref<void(const Span& span, unsigned width)> body, bool aligned) {
  const std::int64_t lanes = b.lanes(), step = lanes * width;
  const Values edges = evaluator.edge_columns(stage.element_values, addresses, env);
  b.when(b.CreateICmpSLT(begin, end), {}, [&] {
    b.repeat_while({begin}, [&](Values& at) -> Value* {
      Value *const first = at[0], *next = end;
      for (Value* const edge : edges)
        next = b.CreateSelect(b.CreateICmpSGT(edge, first), b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, edge, next),
                              next);
      const Values decided = evaluator.decide(stage.element_values, addresses, env, first);
      Value* const whole = b.CreateAdd(first, b.CreateAnd(b.CreateSub(next, first), b.i64(-step)));
      b.loop(first, whole, step, {}, [&](Value* index, const Values&) {
        body({.index = index, .aligned = aligned, .decided = &decided}, width);
        return Values{};
      });
      at = b.when(b.CreateICmpSLT(whole, end), {whole}, [&] {
        body(partial_span(whole, b.CreateSub(end, whole), 1), 1);
        return Values{b.CreateAdd(whole, b.i64(lanes))};
      });
      return b.CreateICmpSLT(at[0], end);
    });
    return Values{};
  });
}

Value* Emission::whole_columns(Value* begin, Value* end, unsigned width,
                               llvm::function_ref<void(const Span& span, unsigned width)> body, bool aligned) {
  const std::int64_t step = std::int64_t{b.lanes()} * width;
  Value* const whole = b.CreateAdd(begin, b.CreateAnd(b.CreateSub(end, begin), b.i64(-step)));
  b.loop(begin, whole, step, {}, [&](Value* index, const Values&) {
    body({.index = index, .aligned = aligned}, width);
    return Values{};
  });
  return whole;
}

void Emission::columns(Value* begin, Value* end, GroupPlan plan,
                       llvm::function_ref<void(const Span& span, unsigned width)> body, bool aligned) {
  Value* const whole = plan.masked ? begin : whole_columns(begin, end, plan.width, body, aligned);
  const unsigned width = plan.masked ? plan.width : 1;
  b.loop(whole, end, std::int64_t{b.lanes()} * width, {}, [&](Value* index, const Values&) {
    body(partial_span(index, b.CreateSub(end, index), width), width);
    return Values{};
  });
}

Span Emission::partial_span(Value* index, Value* left, unsigned width) {
  constexpr unsigned kFewPrimitives = 12;  // softmax takes 1.1 of the time to compile with branches
  const bool may_branch = affords(static_cast<unsigned>(kernel.program.size()), kFewPrimitives, ~0u);
  return {.index = index, .left = left, .masks = b.masks_below(left, width), .may_branch = may_branch};
}

const SpilledValues::Stage& Emission::kept_in(const KernelSchedule::Stage& stage) const {
  return kept.stages[static_cast<std::size_t>(&stage - schedule.stages.data())];
}

void Emission::enter(const KernelSchedule::Stage& stage, Environment& env) const { env.read = &kept_in(stage).read; }

void Emission::element_stores(const KernelSchedule::Stage& stage, const Environment& env, const Group& group) {
  store(stage.element_stores, env, group);
  for (const auto [value, slot] : kept_in(stage).written)
    for (unsigned v = group.first; v < group.last; ++v)
      accesses.store_slot(kernel.program[value].type, slot, group.addresses, group.span, v,
                          evaluator.vector(env, value, v));
}

/// The builder of kernels adds both parts of a result one after the other.
bool Emission::are_halves(std::uint16_t store, std::uint16_t next) const {
  const std::uint16_t access = kernel.stores[store].access;
  return next == store + 1 && kernel.stores[next].access == access + 1 && kernel.accesses[access].half == Half::real &&
         kernel.accesses[access + 1u].half == Half::imaginary;
}

unsigned Emission::interleaved_from(const std::vector<std::uint16_t>& stores, std::size_t first) const {
  constexpr unsigned kMostApart = 4;
  if (checked) return 1;  // an access is checked against one operand
  const auto access = [&](std::size_t i) { return kernel.stores[stores[i]].access; };
  std::size_t end = first + 1;
  while (end < stores.size() && accesses.may_interleave(access(first), access(end))) ++end;
  const std::size_t count = end - first;
  return count <= kMostApart && accesses.may_interleave(access(first), access(first)) ? static_cast<unsigned>(count)
                                                                                      : 1;
}

void Emission::find_interleaved_stores() {
  const auto find = [&](const std::vector<std::uint16_t>& stores) {
    for (std::size_t i = 0; i < stores.size();) {
      const unsigned count = interleaved_from(stores, i);
      llvm::SmallVector<unsigned, 4> of;
      for (unsigned k = 0; k < count; ++k) of.push_back(kernel.stores[stores[i + k]].access);
      if (count > 1) interleaved[stores[i]] = accesses.lie_between_each_other(of);
      i += count;
    }
  };
  for (const KernelSchedule::Stage& stage : schedule.stages) find(stage.element_stores), find(stage.row_stores);
}

void Emission::store(const std::vector<std::uint16_t>& stores, const Environment& env, const Group& group) {
  for (std::size_t i = 0; i < stores.size(); ++i) {
    const std::uint16_t s = stores[i];
    const CodeBuilder::LineScope line(b, evaluator.lines().store(s));
    const auto [access, value] = kernel.stores[s];
    Value* const address = group.addresses[access];
    if (i + 1 < stores.size() && are_halves(s, stores[i + 1])) {
      const ValueId imaginary = kernel.stores[stores[++i]].value;
      for (unsigned v = group.first; v < group.last; ++v)
        accesses.store_halves(access, address, group.span, v, evaluator.vector(env, value, v),
                              evaluator.vector(env, imaginary, v));
    } else if (const unsigned count = interleaved_from(stores, i); count > 1) {
      store_interleaved({stores.begin() + static_cast<std::ptrdiff_t>(i), count}, env, group);
      i += count - 1;
    } else {
      store_one(s, env, group);
    }
  }
}

/// Stores that may lie between each other.
void Emission::store_interleaved(std::span<const std::uint16_t> stores, const Environment& env, const Group& group) {
  const auto each = [&] {
    for (const std::uint16_t s : stores) store_one(s, env, group);
    return Values{};
  };
  const std::uint16_t first = kernel.stores[stores[0]].access;
  if (!group.span.masks.empty() && !accesses.has_masked_interleaved(first)) {
    each();
    return;
  }
  b.either(
      interleaved.at(stores[0]),
      [&] {
        for (unsigned v = group.first; v < group.last; ++v) {
          Values values;
          for (const std::uint16_t s : stores) values.push_back(evaluator.vector(env, kernel.stores[s].value, v));
          accesses.store_interleaved(first, group.addresses[first], group.span, v, values);
        }
        return Values{};
      },
      each);
}

void Emission::store_one(std::uint16_t s, const Environment& env, const Group& group) {
  const auto [access, value] = kernel.stores[s];
  Value* const address = group.addresses[access];
  if (accesses.along_vector_axis(access)) {
    const bool streams = group.span.aligned && (streamed >> s & 1u) != 0;
    for (unsigned v = group.first; v < group.last; ++v) {
      Value* const vector = evaluator.vector(env, value, v);
      streams ? accesses.stream(access, address, group.span, v, vector)
              : accesses.store(access, address, group.span, v, vector);
    }
    return;
  }
  Value* const uniform = env.values[value].uniform;  // an axis of one element
  accesses.store_uniform(access, address,
                         uniform != nullptr
                             ? uniform
                             : b.CreateExtractElement(evaluator.vector(env, value, group.first), std::uint64_t{0}));
}

std::vector<TurnedOperand> Emission::turned_operands(unsigned axis, std::int64_t elements) {
  // There is another copy of the program for such tiles.
  constexpr unsigned kFewInstructions = 12, kMostOperands = 4;
  std::vector<TurnedOperand> found;
  for (const KernelSchedule::Stage& stage : schedule.stages)
    if (!affords(vector_count(stage), kFewInstructions, ~0u)) return found;
  const unsigned both = 1u << axis | 1u << vector_axis();
  for (unsigned a = 0; a < kernel.accesses.size(); ++a) {
    const Access& access = kernel.accesses[a];
    const bool is_read = std::ranges::any_of(kernel.program.instrs(),
                                             [&](const Instr& i) { return i.prim == Prim::input && i.index == a; });
    const bool is_stored = std::ranges::any_of(kernel.stores, [&](const Store& s) { return s.access == a; });
    if (is_read && !is_stored && !access.is_in_order() && (access.axes & both) == both && byte_size(access.dtype) == 4)
      found.push_back({a, nullptr});
  }
  if (found.size() > kMostOperands) found.clear();
  for (TurnedOperand& operand : found) operand.tile = b.stack(b.getInt32Ty(), static_cast<std::uint64_t>(elements), 64);
  return found;
}

unsigned Emission::vector_count(const KernelSchedule::Stage& stage) const {
  return static_cast<unsigned>(std::ranges::count_if(stage.element_values, [&](ValueId id) {
    return evaluator.is_usual_vector(id) && !evaluator.edges().is_only_compared(id);
  }));
}

bool Emission::affords(unsigned instructions, unsigned few, unsigned many) const {
  return instructions <= (wide ? many : few);
}

bool Emission::has_masked(const KernelSchedule::Stage& stage) const {
  return std::ranges::all_of(stage.element_values,
                             [&](ValueId id) {
                               const Instr& instr = kernel.program[id];
                               if (!evaluator.varies_along_vector_axis(id)) return true;
                               if (instr.prim == Prim::gather && evaluator.varies_along_vector_axis(instr.a))
                                 return accesses.has_gather(instr.index);
                               return !has_access(instr.prim) || instr.prim == Prim::offset ||
                                      accesses.has_masked(instr.index);
                             }) &&
         std::ranges::all_of(stage.element_stores,
                             [&](std::uint16_t s) { return accesses.has_masked(kernel.stores[s].access); });
}

bool Emission::prefers_one_copy(const KernelSchedule::Stage& stage) const {
  return !wide && b.isa().masks && has_masked(stage);
}

unsigned Emission::least_width() const {
  constexpr unsigned kLeastBits = 1024;
  return wide ? kLeastBits / b.isa().vector_bits : 1;
}

GroupPlan Emission::group_plan(const KernelSchedule::Stage& stage, unsigned reserved, unsigned limit) const {
  // Long programs overlap in the processor by themselves, and every copy of one takes time to compile: ten operations
  // with tanh, exp and sigmoid 2.7 ms as one vector and 5.6 ms as two, which then take 18 instead of 23 ms for 16M.
  constexpr unsigned kLong = 24, kFewInstructions = 60, kMostInstructions = 400, kOverlapped = 32;
  const unsigned length = std::max(1u, vector_count(stage)), vector_bits = b.isa().vector_bits;
  unsigned bits = 0;
  const bool masked = b.isa().masks && length >= kLong && has_masked(stage);
  for (const ValueId id : stage.element_values) {
    if (!evaluator.is_usual_vector(id) || evaluator.edges().is_only_compared(id)) continue;
    bits += std::max(vector_bits, b.lanes() * static_cast<unsigned>(8 * byte_size(kernel.program[id].type)));
  }
  const unsigned registers_per_value = std::max(1u, (bits / length + vector_bits - 1) / vector_bits);
  const unsigned available = std::max(b.isa().registers - std::min(b.isa().registers, reserved), b.isa().registers / 4);
  const unsigned fitting =
      available / (registers_per_value * peak_live_values(kernel, evaluator, stage.element_values));
  const unsigned least = length > kOverlapped || !kernel.is_row_kernel() ? least_width() : 1;
  unsigned width = std::clamp(std::max(fitting, least / registers_per_value), 1u, limit);
  while (width > 1 && !affords(width * length, kFewInstructions, kMostInstructions)) --width;
  return {masked ? width : std::bit_floor(width), masked || (width == 1 && b.isa().masks)};
}

namespace {

void define_constant(llvm::Module& module, const char* symbol, llvm::Constant* value) {
  auto* const constant =
      new llvm::GlobalVariable(module, value->getType(), true, llvm::GlobalValue::ExternalLinkage, value, symbol);
  constant->setAlignment(llvm::Align(8));
}

void define_info(llvm::Module& module, const Emission& e, bool checked) {
  const Kernel& kernel = e.kernel;
  std::uint64_t state_bytes = 0;
  if (can_split(kernel, e.schedule) || e.splits_columns())
    for (const Reduction& reduction : kernel.reductions) state_bytes += 8 * reduction.types.size();
  std::uint64_t scratch = 0;
  for (const DType type : e.kept.slots) scratch += byte_size(type);
  const std::string bytes = checked ? serialize(kernel) : std::string();
  const std::uint64_t fields[] = {
      kObjectVersion,      state_bytes, streamable_stores(kernel), kernel.rank,     kernel.reduced,
      e.kept.slots.size(), scratch,     e.scratch_columns,         e.scratch_lanes, bytes.size()};
  static_assert(sizeof(fields) == sizeof(ObjectInfo));
  define_constant(module, kInfoSymbol, llvm::ConstantDataArray::get(module.getContext(), fields));
  if (checked)
    define_constant(module, kCheckedKernelSymbol,
                    llvm::ConstantDataArray::getString(module.getContext(), bytes, false));
}

llvm::Function* declare_entry(llvm::Module& module, const Isa& isa) {
  llvm::LLVMContext& context = module.getContext();
  Type* const pointer = llvm::PointerType::getUnqual(context);
  auto* const type =
      llvm::FunctionType::get(Type::getVoidTy(context), {pointer, Type::getInt64Ty(context), pointer, pointer}, false);
  auto* const function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, kEntrySymbol, module);
  function->addFnAttr("target-cpu", isa.cpu);
  function->addFnAttr("prefer-vector-width", std::to_string(isa.vector_bits));
  function->addFnAttr("min-legal-vector-width", std::to_string(isa.vector_bits));
  function->addFnAttr("no-trapping-math", "true");
  function->addFnAttr(llvm::Attribute::NoUnwind);
  return function;
}

}  // namespace

void emit_kernel(llvm::Module& module, const Kernel& kernel, const Isa& isa, CodeVariant variant) {
  llvm::Function& function = *declare_entry(module, isa);
  if (variant.listed) begin_lines(function);
  Emission e(function, kernel, isa, variant);
  const CodeBuilder::LineScope of_no_line(e.b, 0);
  e.evaluator.uniforms(e.schedule.row_prologue, 0, true, e.accesses.origin(), e.at_entry);
  for (const auto& stage : e.schedule.stages)
    e.evaluator.uniforms(stage.element_values, 0, true, e.accesses.origin(), e.at_entry);
  e.find_interleaved_stores();
  if (kernel.reduced == 0)
    emit_map_kernel(e);
  else if (kernel.is_row_kernel())
    emit_row_kernel(e);
  else
    emit_column_kernel(e);
  if (e.streamed != 0) e.b.CreateIntrinsic(llvm::Intrinsic::x86_sse_sfence, {}, {});  // before others may look
  e.b.CreateRetVoid();
  remove_unused(*e.b.GetInsertBlock()->getParent());
  if (variant.checked) add_bounds_checks(e);
  define_info(module, e, variant.checked);
}

}  // namespace fermata::jit
