// See emission.h.
#include "codegen_cpu/jit/emission.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "codegen_cpu/jit/plugin.h"

namespace fermata::jit {
namespace {

Value* launch_field(CodeBuilder& b, Value* launch, std::size_t offset) {
  return b.CreateAlignedLoad(b.getInt64Ty(), b.CreateConstGEP1_64(b.getInt8Ty(), launch, offset), llvm::Align(8));
}

}  // namespace

unsigned choose_lanes(const Kernel& kernel, const Isa& isa) {
  std::array<unsigned, 4> count{};  // of values of 1, 2, 4 and 8 bytes
  const auto look_at = [&](const ScalarProgram& program) {
    for (const Instr& instr : program.instrs())
      if (instr.type != DType::boolean && instr.prim != Prim::constant && instr.prim != Prim::scalar)
        ++count[static_cast<std::size_t>(std::countr_zero(byte_size(instr.type)))];
  };
  look_at(kernel.program);
  for (const Reduction& reduction : kernel.reductions) look_at(reduction.combine.program);
  if (count[3] > count[0] + count[1] + count[2]) return isa.vector_bits / 64;
  if (count[3] + count[2] > 0) return isa.vector_bits / 32;
  return isa.vector_bits / (count[1] > 0 ? 16 : 8);
}

Emission::Emission(llvm::Function& function, const Kernel& described, const Isa& isa)
    : kernel(described), schedule(fermata::schedule(described)), b(function, isa, choose_lanes(described, isa)),
      launch(function.getArg(0)), part(function.getArg(1)), accesses(b, described, launch),
      evaluator(b, accesses, described),
      row_begin(launch_field(b, launch, offsetof(KernelLaunch, row_begin))),
      row_end(launch_field(b, launch, offsetof(KernelLaunch, row_end))),
      column_begin(launch_field(b, launch, offsetof(KernelLaunch, column_begin))),
      column_end(launch_field(b, launch, offsetof(KernelLaunch, column_end))), at_entry(evaluator.empty()) {}

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

void Emission::rows(llvm::function_ref<void(const Values& addresses, Environment& env)> body) {
  llvm::SmallVector<Digit, 4> digits;
  std::uint16_t row_axes = 0;
  for (unsigned axis = 0; axis < vector_axis(); ++axis)
    if (!kernel.is_reduced(axis)) digits.push_back(accesses.axis_digit(axis)), row_axes |= static_cast<std::uint16_t>(1u << axis);
  accesses.linear_loop(digits, row_begin, row_end, accesses.origin(), {},
                       [&](const Values& addresses, Value*, Value*, const Values&) {
                         Environment env = at_entry;
                         evaluator.uniforms(schedule.row_prologue, row_axes, true, addresses, env);
                         if (kernel.reduced == 0)
                           evaluator.uniforms(schedule.stages[0].element_values, row_axes, true, addresses, env);
                         body(addresses, env);
                         return Values{};
                       });
}

void Emission::columns(Value* begin, Value* end, unsigned width,
                       llvm::function_ref<void(const Span& span, unsigned width)> body) {
  const std::int64_t lanes = b.lanes(), step = lanes * width;
  const bool all_masked = width == 1 && b.isa().masks;  // a mask costs less than a second copy of a long program
  Value* whole = begin;
  if (!all_masked) {
    whole = b.CreateAdd(begin, b.CreateAnd(b.CreateSub(end, begin), b.i64(-step)));
    b.loop(begin, whole, step, {}, [&](Value* index, const Values&) {
      body({.index = index}, width);
      return Values{};
    });
  }
  b.loop(whole, end, lanes, {}, [&](Value* index, const Values&) {
    Value* const left = b.CreateSub(end, index);
    Value* const count = b.CreateBinaryIntrinsic(llvm::Intrinsic::smin, left, b.i64(lanes));
    body({.index = index, .count = count, .mask = b.mask_below(count)}, 1);
    return Values{};
  });
}

void Emission::store(const std::vector<std::uint16_t>& stores, const Environment& env, const Group& group) {
  for (const std::uint16_t s : stores) {
    const auto [access, value] = kernel.stores[s];
    Value* const address = group.addresses[access];
    if (accesses.along_vector_axis(access)) {
      for (unsigned v = group.first; v < group.last; ++v)
        accesses.store(access, address, group.span, v, evaluator.vector(env, value, v));
    } else {  // an axis of one element
      Value* const uniform = env.values[value].uniform;
      accesses.store_uniform(access, address, uniform != nullptr
                                                  ? uniform
                                                  : b.CreateExtractElement(evaluator.vector(env, value, group.first), std::uint64_t{0}));
    }
  }
}

unsigned Emission::group_width(const std::vector<ValueId>& ids, unsigned reserved, unsigned limit) const {
  unsigned length = 0, bits = 0;
  for (const ValueId id : ids) {
    if (!evaluator.varies_along_vector_axis(id)) continue;
    ++length;
    bits += std::max(b.isa().vector_bits, b.lanes() * static_cast<unsigned>(8 * byte_size(kernel.program[id].type)));
  }
  const unsigned registers_per_value = length == 0 ? 1 : (bits / length + b.isa().vector_bits - 1) / b.isa().vector_bits;
  const unsigned available = std::max(b.isa().registers - std::min(b.isa().registers, reserved), b.isa().registers / 4);
  const unsigned fitting = available / (registers_per_value * peak_live_values(kernel, evaluator, ids));
  // Long programs overlap in the processor by themselves, and every copy of one takes time to compile.
  constexpr unsigned kMostInstructions = 320;
  const unsigned affordable = length == 0 ? limit : kMostInstructions / length;
  return std::bit_floor(std::clamp(std::min(fitting, affordable), 1u, limit));
}

namespace {

void define_info(llvm::Module& module, const Kernel& kernel, const KernelSchedule& schedule) {
  std::uint64_t state_bytes = 0;
  if (can_split(kernel, schedule))
    for (const Reduction& reduction : kernel.reductions) state_bytes += 8 * reduction.types.size();
  const std::uint64_t fields[] = {kObjectVersion, state_bytes};
  auto* const values = llvm::ConstantDataArray::get(module.getContext(), fields);
  auto* const info = new llvm::GlobalVariable(module, values->getType(), true, llvm::GlobalValue::ExternalLinkage, values,
                                              kInfoSymbol);
  info->setAlignment(llvm::Align(8));
}

llvm::Function* declare_entry(llvm::Module& module, const Isa& isa) {
  llvm::LLVMContext& context = module.getContext();
  auto* const type = llvm::FunctionType::get(
      Type::getVoidTy(context), {llvm::PointerType::getUnqual(context), Type::getInt64Ty(context)}, false);
  auto* const function = llvm::Function::Create(type, llvm::Function::ExternalLinkage, kEntrySymbol, module);
  function->addFnAttr("target-cpu", isa.cpu);
  function->addFnAttr("prefer-vector-width", std::to_string(isa.vector_bits));
  function->addFnAttr("min-legal-vector-width", std::to_string(isa.vector_bits));
  function->addFnAttr("no-trapping-math", "true");
  function->addFnAttr(llvm::Attribute::NoUnwind);
  return function;
}

}  // namespace

void emit_kernel(llvm::Module& module, const Kernel& kernel, const Isa& isa) {
  Emission e(*declare_entry(module, isa), kernel, isa);
  e.evaluator.uniforms(e.schedule.row_prologue, 0, true, e.accesses.origin(), e.at_entry);
  for (const auto& stage : e.schedule.stages)
    e.evaluator.uniforms(stage.element_values, 0, true, e.accesses.origin(), e.at_entry);
  if (kernel.reduced == 0) emit_map_kernel(e);
  else if (kernel.is_row_kernel()) emit_row_kernel(e);
  else emit_column_kernel(e);
  e.b.CreateRetVoid();
  define_info(module, kernel, e.schedule);
}

}  // namespace fermata::jit
