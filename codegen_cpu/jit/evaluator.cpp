// See evaluator.h.
#include "codegen_cpu/jit/evaluator.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>

#include "codegen_cpu/jit/primitives.h"
#include "codegen_cpu/jit/rounding_to_bf16.h"
#include "ir/instr_operands.h"
#include "ir/narrow_values.h"

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

Evaluator::Evaluator(CodeBuilder& b, const Accesses& accesses, const Kernel& kernel, const SpilledValues& kept,
                     bool for_speed, bool joins)
    : b_(b),
      accesses_(accesses),
      kernel_(kernel),
      lines_(kernel),
      edges_(kernel, joins),
      rare_(kernel, kept),
      for_speed_(for_speed),
      axes_(axes_of_values(kernel)),
      needs_reduction_(kernel.program.size()),
      is_divisor_(kernel.program.size()) {
  for (ValueId i = 0; i < kernel.program.size(); ++i) {
    const Instr& instr = kernel.program[i];
    needs_reduction_[i] = instr.prim == Prim::reduced;
    for_operands(instr, [&](ValueId id) { needs_reduction_[i] = needs_reduction_[i] || needs_reduction_[id]; });
    const bool divides = instr.prim == Prim::div || instr.prim == Prim::rem;
    if (!divides || !varies_along_vector_axis(instr.a) || varies_along_vector_axis(instr.b)) continue;
    const bool is_float = instr.type == DType::f32 || instr.type == DType::f64;
    if (is_float ? for_speed && instr.prim == Prim::div : prepares_integer_divisor(kernel.program[instr.b]))
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
  if (instr.prim == Prim::convert && instr.type == DType::bf16 && is_value_of(kernel_.program, instr.a, DType::bf16))
    return cut_to_bf16(b_, operand(env, instr.a, vector, uniform));
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
    case Prim::guarded_input: value = load_uniform_if(instr, addresses, is_here(instr, env, 0, true)); break;
    default: value = lower(instr, env, 0, true);
  }
  Known& known = env.values[id];
  if (value != nullptr) set_uniform(known, value);
  if (is_divisor_[id] && b_.lanes() > 1) prepare(id, known);
}

void Evaluator::prepare(ValueId divisor, Known& known) {
  const DType type = kernel_.program[divisor].type;
  if (is_floating(type))
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
  std::vector<ValueId> waiting;  // rare values, with a select that needs them ahead
  for (const ValueId id : ids) {
    if (varies_along_vector_axis(id) && rare_.contains(id)) {
      waiting.push_back(id);
      continue;
    }
    const Instr& instr = kernel_.program[id];
    if (instr.prim == Prim::select && instr.bits != 0 && !waiting.empty()) {
      std::vector<ValueId> needed;
      const auto is_needed = [&](ValueId rare) { return rare_.condition_of(rare) == instr.a; };
      std::ranges::copy_if(waiting, std::back_inserter(needed), is_needed);
      std::erase_if(waiting, is_needed);
      if (!needed.empty()) compute_rare(instr.a, needed, group, env);
    }
    compute_in_group(id, group, env);
  }
}

void Evaluator::compute_rare(ValueId usual, const std::vector<ValueId>& ids, const Group& group, Environment& env) {
  Value* all = nullptr;
  for (unsigned v = group.first; v < group.last; ++v) {
    Value* const lanes = vector(env, usual, v);
    all = all == nullptr ? lanes : b_.CreateAnd(all, lanes);
  }
  std::vector<ValueId> results;  // what is read behind the branch
  const auto is_here = [&](ValueId user) { return std::ranges::find(ids, user) != ids.end(); };
  std::ranges::copy_if(ids, std::back_inserter(results),
                       [&](ValueId id) { return !std::ranges::all_of(rare_.users(id), is_here); });
  Values none;
  for (const ValueId id : results)
    for (unsigned v = group.first; v < group.last; ++v)
      none.push_back(llvm::Constant::getNullValue(value_type(b_.getContext(), kernel_.program[id].type, b_.lanes())));
  const Values found = b_.when(b_.CreateNot(b_.all(all)), none, [&] {
    Environment here = env;
    for (const ValueId id : ids) compute_in_group(id, group, here);
    Values vectors;
    for (const ValueId id : results)
      for (unsigned v = group.first; v < group.last; ++v) vectors.push_back(vector(here, id, v));
    return vectors;
  });
  std::size_t next = 0;
  for (const ValueId id : results) {
    Values& vectors = env.values[id].vectors;
    if (vectors.size() < group.last) vectors.resize(group.last);
    for (unsigned v = group.first; v < group.last; ++v) vectors[v] = found[next++];
  }
}

void Evaluator::compute_in_group(ValueId id, const Group& group, Environment& env) {
  Known& known = env.values[id];
  if (!varies_along_vector_axis(id)) {
    if (!known.exists()) compute_uniform(id, group.addresses, env);
    return;
  }
  const CodeBuilder::LineScope line(b_, lines_.value(id));
  const Instr& instr = kernel_.program[id];
  if (instr.prim == Prim::reduced) {
    known = env.reduced[instr.index][instr.bits];
    return;
  }
  if (edges_.is_only_compared(id)) return;
  if (group.span.decided != nullptr && (edges_.has_place(id) || (*group.span.decided)[id] != nullptr)) {
    between_edges(id, group, env);
    return;
  }
  if (known.vectors.size() < group.last) known.vectors.resize(group.last);
  if (const KeptValue* const kept = kept_value(env, id)) {
    for (unsigned v = group.first; v < group.last; ++v)
      known.vectors[v] = accesses_.load_slot(instr.type, kept->slot, group.addresses, group.span, v);
    return;
  }
  if (instr.prim == Prim::div && env.values[instr.b].divisor && group.span.masks.empty()) {
    Values dividends;
    for (unsigned v = group.first; v < group.last; ++v) dividends.push_back(vector(env, instr.a, v));
    const Instr& dividend = kernel_.program[instr.a];
    const bool are_whole = dividend.prim == Prim::convert && !is_floating(kernel_.program[dividend.a].type);
    std::ranges::copy(divide_by_uniform(b_, dividends, *env.values[instr.b].divisor, are_whole),
                      known.vectors.begin() + group.first);
    return;
  }
  if (for_speed_ && instr.prim == Prim::convert && instr.type == DType::bf16 &&
      has_bf16(b_, kernel_.program[instr.a].type)) {
    Values vectors;
    for (unsigned v = group.first; v < group.last; ++v) vectors.push_back(vector(env, instr.a, v));
    const bool is_cut = is_value_of(kernel_.program, instr.a, DType::bf16);
    std::ranges::copy(round_to_bf16(b_, vectors, is_cut), known.vectors.begin() + group.first);
    return;
  }
  if (instr.prim == Prim::position) {
    check_positions(instr, group, env, known);
    return;
  }
  if (instr.prim == Prim::gather && !varies_along_vector_axis(instr.a)) {
    Value* const address = accesses_.behind(instr.index, group.addresses[instr.index], env.values[instr.a].uniform);
    for (unsigned v = group.first; v < group.last; ++v)
      known.vectors[v] = accesses_.load(instr.index, address, group.span, v);
    return;
  }
  if (instr.prim == Prim::guarded_input && !varies_along_vector_axis(instr.a)) {
    load_if(instr, group, is_here(instr, env, 0, true), known);
    return;
  }
  for (unsigned v = group.first; v < group.last; ++v) known.vectors[v] = compute(id, group, env, v);
}

bool Evaluator::is_constant(ValueId id, std::int64_t value) const {
  return kernel_.program[id] == Instr{.prim = Prim::constant, .type = DType::i64, .bits = constant_bits(value)};
}

Value* Evaluator::is_here(const Instr& instr, const Environment& env, unsigned vector, bool uniform) {
  Value* const at = operand(env, instr.a, vector, uniform);
  const auto follows = [&] { return b_.CreateICmpSLE(operand(env, instr.b, vector, uniform), at); };
  const auto precedes = [&] { return b_.CreateICmpSLT(at, operand(env, instr.c, vector, uniform)); };
  if (is_constant(instr.b, INT64_MIN)) return precedes();
  if (is_constant(instr.c, INT64_MAX)) return follows();
  return b_.CreateAnd(follows(), precedes());
}

bool Evaluator::is_known(ValueId comparison, const Environment& env) const {
  bool known = true;
  for_operands(kernel_.program[comparison], [&](ValueId id) {
    known = known && (varies_along_vector_axis(id) || env.values[id].uniform != nullptr);
  });
  return known;
}

Value* Evaluator::edge(ValueId position, ValueId uniform, bool after, const Values& addresses, const Environment& env) {
  Value* const first = addresses[kernel_.program[position].index];
  Value* const column = b_.CreateBinaryIntrinsic(llvm::Intrinsic::ssub_sat, env.values[uniform].uniform, first);
  return after ? b_.CreateBinaryIntrinsic(llvm::Intrinsic::sadd_sat, column, b_.i64(1)) : column;
}

Value* Evaluator::compare(ValueId id, const Values& addresses, const Environment& env,
                          llvm::function_ref<Value*(Value* edge, bool behind)> side) {
  const Instr& instr = kernel_.program[id];
  if (instr.prim == Prim::guarded_input) {
    const bool begins = !is_constant(instr.b, INT64_MIN), ends = !is_constant(instr.c, INT64_MAX);
    if (!begins && !ends) return side(b_.i64(INT64_MIN), true);
    Value* const follows = begins ? side(edge(instr.a, instr.b, false, addresses, env), true) : nullptr;
    Value* const precedes = ends ? side(edge(instr.a, instr.c, false, addresses, env), false) : nullptr;
    return !begins ? precedes : !ends ? follows : b_.CreateAnd(follows, precedes);
  }
  if (varies_along_vector_axis(instr.a))  // the position is less, or at most
    return side(edge(instr.a, instr.b, instr.prim == Prim::le, addresses, env), false);
  return side(edge(instr.b, instr.a, instr.prim == Prim::lt, addresses, env), true);
}

Values Evaluator::edge_columns(const std::vector<ValueId>& ids, const Values& addresses, const Environment& env) {
  Values columns;
  for (const ValueId id : ids) {
    if (!edges_.has_edge(id) || !is_known(id, env)) continue;
    compare(id, addresses, env, [&](Value* edge, bool) -> Value* {
      columns.push_back(edge);
      return b_.getTrue();
    });
  }
  return columns;
}

Values Evaluator::decide(const std::vector<ValueId>& ids, const Values& addresses, const Environment& env,
                         Value* column) {
  Values decided(kernel_.program.size(), nullptr);
  for (const ValueId id : ids)
    if (edges_.has_edge(id) && is_known(id, env))
      decided[id] = compare(id, addresses, env, [&](Value* edge, bool behind) {
        return behind ? b_.CreateICmpSLE(edge, column) : b_.CreateICmpSGT(edge, column);
      });
  return decided;
}

/// Where a comparison has an edge within the vector, lanes before it are counted.
Value* Evaluator::lanes_of_comparison(ValueId id, const Group& group, const Environment& env, unsigned vector) {
  Value* const column = b_.CreateAdd(group.span.index, b_.i64(std::int64_t{vector} * b_.lanes()));
  return compare(id, group.addresses, env, [&](Value* edge, bool behind) {
    Value* const distance = b_.CreateBinaryIntrinsic(llvm::Intrinsic::ssub_sat, edge, column);
    return b_.mask_of_first(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, distance, b_.i64(0)), behind);
  });
}

void Evaluator::between_edges(ValueId id, const Group& group, Environment& env) {
  const Instr& instr = kernel_.program[id];
  const Values& decided = *group.span.decided;
  Known& known = env.values[id];
  if (!edges_.has_place(id)) {
    if (instr.prim != Prim::guarded_input) return set_uniform(known, decided[id]);
    if (!accesses_.along_vector_axis(instr.index))
      return set_uniform(known, load_uniform_if(instr, group.addresses, decided[id]));
    known.vectors.resize(group.last);
    return load_if(instr, group, decided[id], known);
  }
  known.places.resize(group.last);
  for (unsigned v = group.first; v < group.last; ++v)
    known.places[v] =
        instr.prim == Prim::select
            ? b_.CreateSelect(decided[instr.a], env.values[instr.b].places[v], env.values[instr.c].places[v])
            : accesses_.place(instr.index, group.addresses[instr.index], group.span, v, decided[id]);
  if (edges_.is_only_chosen(id)) return;
  ValueId element = id;
  while (kernel_.program[element].prim == Prim::select) element = kernel_.program[element].b;
  known.vectors.resize(group.last);
  for (unsigned v = group.first; v < group.last; ++v)
    known.vectors[v] = accesses_.load_place(kernel_.program[element].index, known.places[v]);
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

Value* Evaluator::load_uniform_if(const Instr& instr, const Values& addresses, Value* condition) {
  return b_.either(
      condition, [&] { return Values{accesses_.load_uniform(instr.index, addresses[instr.index])}; },
      [&] { return Values{b_.constant(instr.type, 0, 1)}; })[0];
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

Value* Evaluator::compute(ValueId id, const Group& group, const Environment& env, unsigned vector) {
  const Instr& instr = kernel_.program[id];
  const bool is_counted = edges_.has_edge(id) && is_known(id, env);
  if (is_counted && instr.prim != Prim::guarded_input) return lanes_of_comparison(id, group, env, vector);
  switch (instr.prim) {
    case Prim::input: return accesses_.load(instr.index, group.addresses[instr.index], group.span, vector);
    case Prim::offset: return accesses_.offsets(instr.index, group.addresses[instr.index], group.span, vector);
    case Prim::guarded_input:
      return accesses_.load_guarded(
          instr.index, group.addresses[instr.index], group.span, vector,
          is_counted ? lanes_of_comparison(id, group, env, vector) : is_here(instr, env, vector, false),
          may_be_here(instr, group, env, vector));
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
    if (evaluator.is_usual_vector(ids[at]))
      for_operands(kernel.program[ids[at]], [&](ValueId id) { last_use[id] = at; });
  unsigned live = 0, peak = 1;
  for (std::size_t at = 0; at < ids.size(); ++at) {
    if (!evaluator.is_usual_vector(ids[at])) continue;
    ++live;  // before its operands die: two-operand instructions often need a copy
    peak = std::max(peak, live);
    std::vector<ValueId> dying;
    for_operands(kernel.program[ids[at]], [&](ValueId id) {
      if (last_use[id] == at && evaluator.is_usual_vector(id) && std::ranges::find(dying, id) == dying.end())
        dying.push_back(id);
    });
    live -= std::min(live, static_cast<unsigned>(dying.size()));
  }
  return peak;
}

}  // namespace fermata::jit
