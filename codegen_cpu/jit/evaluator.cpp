// See evaluator.h.
#include "codegen_cpu/jit/evaluator.h"

#include <algorithm>
#include <cstddef>

#include "codegen_cpu/jit/primitives.h"
#include "ir/instr_operands.h"

namespace fermata::jit {
namespace {

/// The dtype that says which primitive this is: select's first operand is always bool.
DType operand_dtype(const ScalarProgram& program, const Instr& instr) {
  return program[instr.prim == Prim::select ? instr.b : instr.a].type;
}
/// Where a value is kept, if it is read here.
const KeptValue* kept_value(const Environment& env, ValueId id) {
  if (env.read == nullptr) return nullptr;
  const auto at = std::ranges::find(*env.read, id, &KeptValue::value);
  return at == env.read->end() ? nullptr : &*at;
}

/// Comparisons of a formula that is computed for several vectors side by side.
constexpr std::ptrdiff_t kMostMasksBeside = 2;

}  // namespace

Evaluator::Evaluator(CodeBuilder& b, const Accesses& accesses, const Kernel& kernel, bool prepares_divisors)
    : b_(b),
      accesses_(accesses),
      kernel_(kernel),
      lines_(kernel),
      axes_(kernel.program.size()),
      needs_reduction_(kernel.program.size()),
      is_divisor_(kernel.program.size()) {
  const auto all = static_cast<std::uint16_t>((1u << kernel.rank) - 1u);
  for (ValueId i = 0; i < kernel.program.size(); ++i) {
    const Instr& instr = kernel.program[i];
    if (has_access(instr.prim)) axes_[i] = kernel.accesses[instr.index].axes;
    if (instr.prim == Prim::reduced) {
      axes_[i] = static_cast<std::uint16_t>(all & ~kernel.reduced);
      needs_reduction_[i] = true;
    }
    for_operands(instr, [&](ValueId id) {
      axes_[i] = static_cast<std::uint16_t>(axes_[i] | axes_[id]);
      needs_reduction_[i] = needs_reduction_[i] || needs_reduction_[id];
    });
    const bool divides = instr.prim == Prim::div || instr.prim == Prim::rem;
    if (!divides || !varies_along_vector_axis(instr.a) || varies_along_vector_axis(instr.b)) continue;
    if (instr.type == DType::f32 ? prepares_divisors && instr.prim == Prim::div
                                 : prepares_integer_divisor(kernel.program[instr.b]))
      is_divisor_[instr.b] = true;
  }
}

Environment Evaluator::empty() const {
  Environment env{.values = std::vector<Known>(kernel_.program.size()), .reduced = {}};
  for (const Reduction& reduction : kernel_.reductions) env.reduced.emplace_back(reduction.types.size());
  return env;
}

void Evaluator::set_uniform(Known& known, Value* scalar) {
  known.uniform = scalar;
  known.splat = b_.splat(scalar);
}

Value* Evaluator::operand(const Environment& env, ValueId id, unsigned vector, bool uniform) {
  if (id == kNoValue) return nullptr;
  return uniform ? env.values[id].uniform : this->vector(env, id, vector);
}

Value* Evaluator::vector(const Environment& env, ValueId id, unsigned vector) {
  const Known& known = env.values[id];
  return known.vectors.empty() ? known.splat : known.vectors[vector];
}

Value* Evaluator::lower(const Instr& instr, const Environment& env, unsigned vector, bool uniform) {
  return lower_primitive(b_, instr.prim, instr.type, operand_dtype(kernel_.program, instr),
                         operand(env, instr.a, vector, uniform), operand(env, instr.b, vector, uniform),
                         operand(env, instr.c, vector, uniform));
}

void Evaluator::compute_uniform(ValueId id, const Values& addresses, Environment& env) {
  const CodeBuilder::LineScope line(b_, lines_.value(id));
  const Instr& instr = kernel_.program[id];
  Value* value = nullptr;
  switch (instr.prim) {
    case Prim::input: value = accesses_.load_uniform(instr.index, addresses[instr.index]); break;
    case Prim::offset: value = accesses_.offset(instr.index, addresses[instr.index]); break;
    case Prim::constant: value = b_.constant(instr.type, instr.bits, 1); break;
    case Prim::scalar: value = accesses_.scalar(instr.index); break;
    case Prim::reduced: env.values[id] = env.reduced[instr.index][instr.bits]; break;
    case Prim::parameter: refuse("a kernel's program has a parameter");
    case Prim::position: {
      Values given{env.values[instr.a].uniform};
      accesses_.check_positions(given, env.values[instr.b].uniform, {});
      value = given[0];
      break;
    }
    case Prim::gather:
      value = accesses_.load_uniform(
          instr.index, accesses_.behind(instr.index, addresses[instr.index], env.values[instr.a].uniform));
      break;
    case Prim::guarded_input:
      value = b_.either(
          is_here(instr, env, 0, true),
          [&] { return Values{accesses_.load_uniform(instr.index, addresses[instr.index])}; },
          [&] { return Values{b_.constant(instr.type, 0, 1)}; })[0];
      break;
    default: value = lower(instr, env, 0, true);
  }
  Known& known = env.values[id];
  if (value != nullptr) set_uniform(known, value);
  if (is_divisor_[id] && b_.lanes() > 1) prepare(id, known);
}

void Evaluator::prepare(ValueId divisor, Known& known) {
  const DType type = kernel_.program[divisor].type;
  if (type == DType::f32)
    known.divisor = prepare_divisor(b_, known.uniform, known.splat, accesses_.size(kernel_.rank - 1u));
  else
    known.integer_divisor = prepare_integer_divisor(b_, type, known.uniform);
}

void Evaluator::uniforms(const std::vector<ValueId>& ids, std::uint16_t within, bool early, const Values& addresses,
                         Environment& env) {
  for (const ValueId id : ids)
    if (!env.values[id].exists() && !varies_along_vector_axis(id) && (axes_[id] & ~within) == 0 &&
        !(early && needs_reduction_[id]))
      compute_uniform(id, addresses, env);
}

void Evaluator::group(const std::vector<ValueId>& ids, const Group& group, Environment& env) {
  for (const ValueId id : ids) {
    Known& known = env.values[id];
    if (!varies_along_vector_axis(id)) {
      if (!known.exists()) compute_uniform(id, group.addresses, env);
      continue;
    }
    const CodeBuilder::LineScope line(b_, lines_.value(id));
    const Instr& instr = kernel_.program[id];
    if (instr.prim == Prim::reduced) {
      known = env.reduced[instr.index][instr.bits];
      continue;
    }
    if (known.vectors.size() < group.last) known.vectors.resize(group.last);
    if (const KeptValue* const kept = kept_value(env, id)) {
      for (unsigned v = group.first; v < group.last; ++v)
        known.vectors[v] = accesses_.load_slot(instr.type, kept->slot, group.addresses, group.span, v);
      continue;
    }
    if (instr.prim == Prim::div && env.values[instr.b].divisor && group.span.masks.empty()) {
      Values dividends;
      for (unsigned v = group.first; v < group.last; ++v) dividends.push_back(vector(env, instr.a, v));
      std::ranges::copy(divide_by_uniform(b_, dividends, *env.values[instr.b].divisor),
                        known.vectors.begin() + group.first);
      continue;
    }
    if (instr.prim == Prim::position) {
      check_positions(instr, group, env, known);
      continue;
    }
    if (instr.prim == Prim::gather && !varies_along_vector_axis(instr.a)) {
      Value* const address = accesses_.behind(instr.index, group.addresses[instr.index], env.values[instr.a].uniform);
      for (unsigned v = group.first; v < group.last; ++v)
        known.vectors[v] = accesses_.load(instr.index, address, group.span, v);
      continue;
    }
    if (instr.prim == Prim::guarded_input && !varies_along_vector_axis(instr.a)) {
      load_if(instr, group, is_here(instr, env, 0, true), known);
      continue;
    }
    for (unsigned v = group.first; v < group.last; ++v) known.vectors[v] = compute(instr, group, env, v);
  }
}

Value* Evaluator::is_here(const Instr& instr, const Environment& env, unsigned vector, bool uniform) {
  const auto is_constant = [&](ValueId id, std::int64_t value) {
    return kernel_.program[id] == Instr{.prim = Prim::constant, .type = DType::i64, .bits = constant_bits(value)};
  };
  Value* const at = operand(env, instr.a, vector, uniform);
  const auto follows = [&] { return b_.CreateICmpSLE(operand(env, instr.b, vector, uniform), at); };
  const auto precedes = [&] { return b_.CreateICmpSLT(at, operand(env, instr.c, vector, uniform)); };
  if (is_constant(instr.b, INT64_MIN)) return precedes();
  if (is_constant(instr.c, INT64_MAX)) return follows();
  return b_.CreateAnd(follows(), precedes());
}

Value* Evaluator::may_be_here(const Instr& instr, const Group& group, const Environment& env, unsigned vector) {
  const Instr& place = kernel_.program[instr.a];
  Value *const begin = env.values[instr.b].uniform, *const end = env.values[instr.c].uniform;
  if (place.prim != Prim::offset || begin == nullptr || end == nullptr) return nullptr;
  const auto [first, last] =
      accesses_.first_and_last_offset(place.index, group.addresses[place.index], group.span, vector);
  Value* const least = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, first, last);
  Value* const most = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, first, last);
  return b_.CreateAnd(b_.CreateICmpSLT(least, end), b_.CreateICmpSGE(most, begin));
}

void Evaluator::load_if(const Instr& instr, const Group& group, Value* condition, Known& to) {
  const auto all = [&](auto&& vector) {
    Values vectors;
    for (unsigned v = group.first; v < group.last; ++v) vectors.push_back(vector(v));
    return vectors;
  };
  const Values loaded = b_.either(
      condition,
      [&] {
        return all(
            [&](unsigned v) { return accesses_.load(instr.index, group.addresses[instr.index], group.span, v); });
      },
      [&] { return all([&](unsigned) -> Value* { return b_.constant(instr.type, 0, b_.lanes()); }); });
  std::ranges::copy(loaded, to.vectors.begin() + group.first);
}

void Evaluator::check_positions(const Instr& instr, const Group& group, const Environment& env, Known& to) {
  Values positions, masks;
  for (unsigned v = group.first; v < group.last; ++v) {
    positions.push_back(vector(env, instr.a, v));
    if (!group.span.masks.empty()) masks.push_back(group.span.masks[v]);
  }
  accesses_.check_positions(positions, vector(env, instr.b, group.first), masks);
  std::ranges::copy(positions, to.vectors.begin() + group.first);
}

Value* Evaluator::compute(const Instr& instr, const Group& group, const Environment& env, unsigned vector) {
  switch (instr.prim) {
    case Prim::input: return accesses_.load(instr.index, group.addresses[instr.index], group.span, vector);
    case Prim::offset: return accesses_.offsets(instr.index, group.addresses[instr.index], group.span, vector);
    case Prim::guarded_input:
      return accesses_.load_guarded(instr.index, group.addresses[instr.index], group.span, vector,
                                    is_here(instr, env, vector, false), may_be_here(instr, group, env, vector));
    case Prim::gather:
      return accesses_.gather(instr.index, group.addresses[instr.index], this->vector(env, instr.a, vector), group.span,
                              vector);
    case Prim::div:
    case Prim::rem:
      if (const auto& divisor = env.values[instr.b].integer_divisor)
        return divide_by_uniform(b_, instr.type, this->vector(env, instr.a, vector), *divisor, instr.prim == Prim::rem);
      break;
    default: break;
  }
  return lower(instr, env, vector, false);
}

std::vector<Values> Evaluator::apply(const Formula& formula, const std::vector<Values>& operands) {
  std::vector<Values> values(operands.size(), Values(formula.program.size()));
  const auto compute = [&](ValueId i, std::size_t set) {
    const Instr& instr = formula.program[i];
    const auto at = [&](ValueId id) { return id == kNoValue ? nullptr : values[set][id]; };
    switch (instr.prim) {
      case Prim::parameter: values[set][i] = operands[set][instr.index]; break;
      case Prim::constant: values[set][i] = b_.constant(instr.type, instr.bits, lanes_of(operands[set][0])); break;
      default:
        values[set][i] = lower_primitive(b_, instr.prim, instr.type, operand_dtype(formula.program, instr), at(instr.a),
                                         at(instr.b), at(instr.c));
    }
  };
  // Side by side, sets hide each other's latency; but masks of several, of which there are seven registers, are
  // spilled.
  const auto masks = std::ranges::count(formula.program.instrs(), DType::boolean, &Instr::type);
  const std::size_t beside = masks > kMostMasksBeside ? 1 : operands.size();
  for (std::size_t first = 0; first < operands.size(); first += beside)
    for (ValueId i = 0; i < formula.program.size(); ++i)
      for (std::size_t set = first; set < first + beside; ++set) compute(i, set);
  std::vector<Values> results(operands.size());
  for (std::size_t set = 0; set < operands.size(); ++set)
    for (const ValueId id : formula.results) results[set].push_back(values[set][id]);
  return results;
}

unsigned peak_live_values(const Kernel& kernel, const Evaluator& evaluator, const std::vector<ValueId>& ids) {
  std::vector<std::size_t> last_use(kernel.program.size(), 0);
  for (std::size_t at = 0; at < ids.size(); ++at)
    for_operands(kernel.program[ids[at]], [&](ValueId id) { last_use[id] = at; });
  unsigned live = 0, peak = 1;
  for (std::size_t at = 0; at < ids.size(); ++at) {
    if (!evaluator.varies_along_vector_axis(ids[at])) continue;
    ++live;  // before its operands die: two-operand instructions often need a copy
    peak = std::max(peak, live);
    std::vector<ValueId> dying;
    for_operands(kernel.program[ids[at]], [&](ValueId id) {
      if (last_use[id] == at && evaluator.varies_along_vector_axis(id) && std::ranges::find(dying, id) == dying.end())
        dying.push_back(id);
    });
    live -= std::min(live, static_cast<unsigned>(dying.size()));
  }
  return peak;
}

}  // namespace fermata::jit
