// See op.h.
#include "ir/op.h"

#include <array>
#include <unordered_map>

#include "ir/custom_op.h"
#include "ir/ops/structures.h"

namespace fermata {
namespace {

/// How many operands the struct of an irregular op names; -1 where that differs from call to call.
template <class O> constexpr std::int8_t kOperands = O::operands.least != O::operands.count
                                                         ? -1
                                                         : static_cast<std::int8_t>(O::operands.count);

constexpr auto kOps = std::to_array<OpInfo>({
#define FERMATA_UNARY(name, rule, formula, vjp, doc) {#name, Family::unary, DTypeRule::rule, 1, #formula, doc},
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) \
  {#name, Family::binary, DTypeRule::rule, 2, #formula, doc},
#define FERMATA_TERNARY(name, rule, formula, vjp_a, vjp_b, vjp_c, doc) \
  {#name, Family::ternary, DTypeRule::rule, 3, #formula, doc},
#define FERMATA_REDUCE(name, rule, vjp, doc) {#name, Family::reduce, DTypeRule::rule, 1, "", doc},
#define FERMATA_RANDOM(name, formula, doc) {#name, Family::random, DTypeRule::none, 0, #formula, doc},
#define FERMATA_IRREGULAR(name, structure, doc) \
  {#name, Family::irregular, DTypeRule::none, kOperands<ops::structure>, "", doc},
#define FERMATA_SCAN(name, monoid, rule, doc) \
  {#name, Family::irregular, DTypeRule::rule, kOperands<ops::Scan>, "", doc},
#define FERMATA_COMPOSITE(name, precision, doc) {#name, Family::composite, DTypeRule::none, -1, "", doc},
#include "ir/ops.def"
});

}  // namespace

const OpInfo& info(Op op) { return is_external(op) ? external_info(op) : kOps[static_cast<std::size_t>(op)]; }

std::optional<Op> op_from_name(std::string_view text) {
  static const auto* by_name = [] {
    auto* map = new std::unordered_map<std::string_view, Op>;
    for (std::size_t i = 0; i < kOpCount; ++i) map->emplace(kOps[i].name, static_cast<Op>(i));
    return map;
  }();
  const auto found = by_name->find(text);
  if (found == by_name->end()) return external_op_from_name(text);
  return found->second;
}

std::optional<RuleResult> apply_rule(DTypeRule rule, DType t) {
  t = arithmetic_dtype(t);
  const DType floated = is_inexact(t) ? t : DType::f32;
  const bool real = kReal.has(t), real_or_bool = kRealOrBoolean.has(t), any = kNumbersOrBoolean.has(t);
  switch (rule) {
    case DTypeRule::numeric:
      if (real) return RuleResult{t, t};
      break;
    case DTypeRule::floating:
      if (real_or_bool) return RuleResult{floated, floated};
      break;
    case DTypeRule::floating_test:
      if (any) return RuleResult{floated, DType::boolean};
      break;
    case DTypeRule::truth:
      if (any) return RuleResult{DType::boolean, DType::boolean};
      break;
    case DTypeRule::bits:
      if (kIntegers.has(t) || kBoolean.has(t)) return RuleResult{t, t};
      break;
    case DTypeRule::integers:
      if (kIntegers.has(t)) return RuleResult{t, t};
      break;
    case DTypeRule::words:
      if (t == DType::u64) return RuleResult{t, t};
      break;
    case DTypeRule::compare:
      if (real_or_bool) return RuleResult{t, DType::boolean};
      break;
    case DTypeRule::choose:
      if (any) return RuleResult{t, t};
      break;
    case DTypeRule::accumulate:
      if (is_inexact(t)) return RuleResult{t, t};
      if (info(t).kind == DTypeKind::unsigned_integer) return RuleResult{DType::u64, DType::u64};
      if (real_or_bool) return RuleResult{DType::i64, DType::i64};
      break;
    case DTypeRule::ordered:
      if (real_or_bool) return RuleResult{t, t};
      break;
    case DTypeRule::index:
      if (real_or_bool) return RuleResult{t, DType::i64};
      break;
    case DTypeRule::arithmetic:
      if (kNumbers.has(t)) return RuleResult{t, t};
      break;
    case DTypeRule::analytic:
      if (any) return RuleResult{floated, floated};
      break;
    case DTypeRule::magnitude:
      if (kNumbers.has(t)) return RuleResult{t, real_dtype(t)};
      break;
    case DTypeRule::argument:
      if (any) return RuleResult{floated, real_dtype(floated)};
      break;
    case DTypeRule::equality:
      if (any) return RuleResult{t, DType::boolean};
      break;
    case DTypeRule::none: break;
  }
  return std::nullopt;
}

}  // namespace fermata
