// The op enumeration and what the table (ops.def) says of each op.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "ir/dtype.h"
#include "ir/scalar_program.h"

namespace fermata {

enum class Op : std::uint16_t {
#define FERMATA_UNARY(name, rule, formula, vjp, doc) name,
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) name,
#define FERMATA_TERNARY(name, rule, formula, vjp_a, vjp_b, vjp_c, doc) name,
#define FERMATA_REDUCE(name, rule, vjp, doc) name,
#define FERMATA_RANDOM(name, formula, doc) name,
#define FERMATA_IRREGULAR(name, structure, doc) name,
#define FERMATA_COMPOSITE(name, precision, doc) name,
#include "ir/ops.def"
  count
};
inline constexpr std::size_t kOpCount = static_cast<std::size_t>(Op::count);

/// `external`: operators from outside that are not pointwise (ir/custom_op.h).
enum class Family : std::uint8_t { unary, binary, ternary, reduce, random, irregular, composite, external };

/// How operand dtypes become the dtype of the computation and of the result.
enum class DTypeRule : std::uint8_t {
  numeric,        // integers and floats as they are; bool is an error
  floating,       // floats as they are; integers and bool become f32
  floating_test,  // like floating, complex too; the result is bool
  truth,          // operands become bool (non-zero is true), complex ones too; the result is bool
  bits,           // integers and bool as they are; floats are an error
  integers,       // integers as they are; the rest is an error
  words,          // u64 as it is; the rest is an error
  compare,        // any but complex; the result is bool
  choose,         // the first operand becomes bool; the others promote
  accumulate,     // reductions: floats and complex as they are; bool and signed become i64, unsigned u64
  ordered,        // reductions: any real dtype or bool, kept
  index,          // reductions: any real dtype or bool; the result is i64
  arithmetic,     // like numeric, complex too
  analytic,       // like floating, complex too
  magnitude,      // like arithmetic; the result of a complex operand is real
  argument,       // like analytic; the result of a complex operand is real
  equality,       // any; the result is bool
  none,           // irregular and random ops decide for themselves
};

struct OpInfo {
  std::string_view name;
  Family family;
  DTypeRule rule;
  std::int8_t operands;  // -1: it differs from call to call
  std::string_view formula;
  std::string_view doc;
};
const OpInfo& info(Op op);
inline std::string_view name(Op op) { return info(op).name; }
inline Family family(Op op) { return info(op).family; }
inline bool is_pointwise(Op op) { return family(op) <= Family::ternary; }
std::optional<Op> op_from_name(std::string_view name);

/// What a rule makes of a (promoted) operand dtype: the dtype operands are cast to and the dtype of the result.
/// Nothing where the rule does not accept the dtype. f16 and bf16 stay: kernels compute them in f32.
struct RuleResult {
  DType operand, result;
};
std::optional<RuleResult> apply_rule(DTypeRule rule, DType promoted);

/// The scalar program of a pointwise op at a compute dtype (f32 for f16 and bf16). Parameters are the operands.
/// Recorded once per (op, dtype) and kept; the reference is valid for the life of the process. Thread-safe.
const Formula& pointwise_formula(Op op, DType compute);
/// The scalar program of a random op: parameters are index (i64), key (u64) and offset (u64).
const Formula& random_formula(Op op, DType compute);

/// A reduction's monoid at an operand dtype (after the rule, a compute dtype): what to lift, combine and finish.
struct ReduceFormula {
  std::vector<DType> types;             // of the state's components
  std::vector<std::uint64_t> identity;  // constant bits
  Formula lift;                         // (x, index i64) -> components
  Formula combine;                      // (left components, right components) -> components
  Formula finish;                       // components -> result
};
const ReduceFormula& reduce_formula(Op op, DType operand);

}  // namespace fermata
