// See float_remainder.h. The steps are recorded from their templates once, and lowered like any formula.
#include "codegen_cpu/jit/float_remainder.h"

#include "codegen_cpu/jit/primitives.h"
#include "ir/scalar_math/float_remainder.h"
#include "ir/scalar_program.h"

namespace fermata::jit {
namespace {

/// The steps of the division with elements of type T as formulas. A division under way is [rest, divisor, left,
/// exponent].
struct RemainderFormulas {
  Formula quick;                // x, y -> rest, whether it is long
  Formula begin, more, finish;  // x, y -> division; division -> division; division -> rest
};

template <class T> Sym<T> parameter(Formula& f) {
  const auto index = static_cast<std::uint16_t>(f.parameters.size());
  f.parameters.push_back(dtype_of<T>);
  return Sym<T>::from_id(f.program.add({.prim = Prim::parameter, .type = dtype_of<T>, .index = index}));
}

template <class T> math::LongDivision<Sym<T>> division_parameters(Formula& f) {
  using S = typename math::FloatFormat<T>::Signed;
  const auto rest = parameter<T>(f), divisor = parameter<T>(f);
  const auto left = parameter<S>(f), exponent = parameter<S>(f);
  return {rest, divisor, left, exponent};
}
template <class T> void set_results(Formula& f, const math::LongDivision<Sym<T>>& division) {
  f.results = {division.rest.id(), division.divisor.id(), division.left.id(), division.exponent.id()};
}

template <class T> RemainderFormulas record() {
  RemainderFormulas made;
  {
    Recorder recorder(made.quick.program);
    const Sym<T> x = parameter<T>(made.quick), y = parameter<T>(made.quick);
    const auto [rest, is_long] = math::quick_remainder(x, y);
    made.quick.results = {rest.id(), is_long.id()};
  }
  {
    Recorder recorder(made.begin.program);
    const Sym<T> x = parameter<T>(made.begin), y = parameter<T>(made.begin);
    set_results(made.begin, math::begin_remainder(x, y));
  }
  {
    Recorder recorder(made.more.program);
    set_results(made.more, math::continue_remainder(division_parameters<T>(made.more)));
  }
  Recorder recorder(made.finish.program);
  made.finish.results = {math::finish_remainder(division_parameters<T>(made.finish)).id()};
  return made;
}

const RemainderFormulas& formulas_of(const Value* like) {
  static const RemainderFormulas single = record<float>(), twice = record<double>();
  return like->getType()->getScalarType()->isFloatTy() ? single : twice;
}

Values apply(CodeBuilder& b, const Formula& formula, const Values& operands) {
  const ScalarProgram& program = formula.program;
  Values values(program.size());
  const auto at = [&](ValueId id) { return id == kNoValue ? nullptr : values[id]; };
  for (ValueId i = 0; i < program.size(); ++i) {
    const Instr& instr = program[i];
    switch (instr.prim) {
      case Prim::parameter: values[i] = operands[instr.index]; break;
      case Prim::constant: values[i] = b.constant(instr.type, instr.bits, lanes_of(operands[0])); break;
      default:
        values[i] =
            lower_primitive(b, instr.prim, instr.type, program[instr.prim == Prim::select ? instr.b : instr.a].type,
                            at(instr.a), at(instr.b), at(instr.c));
    }
  }
  Values results;
  for (const ValueId id : formula.results) results.push_back(values[id]);
  return results;
}

/// Whether some lane of a mask is set.
Value* any(CodeBuilder& b, Value* mask) {
  const unsigned lanes = lanes_of(mask);
  if (lanes == 1) return mask;
  Type* const word = b.getIntNTy(lanes);
  return b.CreateICmpNE(b.CreateBitCast(mask, word), llvm::Constant::getNullValue(word));
}

/// The function of the module that divides sizes step by step.
llvm::Function* long_division(CodeBuilder& b, Type* type) {
  llvm::Function* const kernel = b.GetInsertBlock()->getParent();
  llvm::Module& module = *kernel->getParent();
  const unsigned lanes = type->isVectorTy() ? llvm::cast<llvm::FixedVectorType>(type)->getNumElements() : 1;
  const std::string name = "remainder." + std::to_string(lanes) + (type->getScalarType()->isFloatTy() ? "f32" : "f64");
  if (llvm::Function* const made = module.getFunction(name)) return made;
  auto* const function = llvm::Function::Create(llvm::FunctionType::get(type, {type, type}, false),
                                                llvm::GlobalValue::InternalLinkage, name, module);
  function->addFnAttrs(llvm::AttrBuilder(b.getContext(), kernel->getAttributes().getFnAttrs()));
  function->setDoesNotAccessMemory();
  function->addFnAttr(llvm::Attribute::WillReturn);
  CodeBuilder inside(*function, b.isa(), b.lanes());
  const RemainderFormulas& formulas = formulas_of(function->getArg(0));
  const Values done = inside.repeat_while(
      apply(inside, formulas.begin, {function->getArg(0), function->getArg(1)}), [&](Values& division) {
        division = apply(inside, formulas.more, division);
        return any(inside, inside.CreateICmpSGT(division[2], llvm::Constant::getNullValue(division[2]->getType())));
      });
  inside.CreateRet(apply(inside, formulas.finish, done)[0]);
  return function;
}

}  // namespace

Value* float_remainder(CodeBuilder& b, Value* dividend, Value* divisor) {
  Type* const type = dividend->getType();
  Value* const x = b.call(llvm::Intrinsic::fabs, {dividend});
  Value* const y = b.call(llvm::Intrinsic::fabs, {divisor});
  const Values quick = apply(b, formulas_of(dividend).quick, {x, y});
  const Values rest = b.when(any(b, quick[1]), {quick[0]}, [&]() -> Values {
    Value* const long_x = b.CreateSelect(quick[1], x, llvm::Constant::getNullValue(type));
    Value* const long_y = b.CreateSelect(quick[1], y, llvm::ConstantFP::get(type, 1));
    return {b.CreateSelect(quick[1], b.CreateCall(long_division(b, type), {long_x, long_y}), quick[0])};
  });
  return b.CreateBinaryIntrinsic(llvm::Intrinsic::copysign, rest[0], dividend);
}

}  // namespace fermata::jit
