// The op enumeration and the op table (ops.def).
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

/// `external`: custom operators that are not pointwise (ir/custom_op.h).
enum class Family : std::uint8_t { unary, binary, ternary, reduce, random, irregular, composite, external };

/// How operand dtypes determine the compute dtype and the result dtype.
enum class DTypeRule : std::uint8_t {
  numeric,        // integers and floats unchanged; bool is an error
  floating,       // floats unchanged; integers and bool become f32
  floating_test,  // like floating, and complex; the result is bool
  truth,          // operands become bool (non-zero is true), also complex ones; the result is bool
  bits,           // integers and bool unchanged; floats are an error
  integers,       // integers unchanged; the rest is an error
  words,          // u64 unchanged; the rest is an error
  compare,        // any but complex; the result is bool
  choose,         // the first operand becomes bool; the others promote
  accumulate,     // reductions: floats and complex unchanged; bool and signed become i64, unsigned u64
  ordered,        // reductions: any real dtype or bool, unchanged
  index,          // reductions: any real dtype or bool; the result is i64
  arithmetic,     // like numeric, and complex
  analytic,       // like floating, and complex
  magnitude,      // like arithmetic; the result of a complex operand is real
  argument,       // like analytic; the result of a complex operand is real
  equality,       // any; the result is bool
  none,           // irregular and random ops have their own rules
};

struct OpInfo {
  std::string_view name;
  Family family;
  DTypeRule rule;
  std::int8_t operands;  // -1: variable
  std::string_view formula;
  std::string_view doc;
};
const OpInfo& info(Op op);
inline std::string_view name(Op op) { return info(op).name; }
inline Family family(Op op) { return info(op).family; }
inline bool is_pointwise(Op op) { return family(op) <= Family::ternary; }
std::optional<Op> op_from_name(std::string_view name);

/// Applies a rule to a (promoted) operand dtype: returns the dtype operands are cast to and the dtype of the result, or
/// nullopt if the rule does not accept the dtype. f16 and bf16 are unchanged: kernels compute them in f32.
struct RuleResult {
  DType operand, result;
};
std::optional<RuleResult> apply_rule(DTypeRule rule, DType promoted);

/// The scalar program of a pointwise op at a compute dtype (f32 for f16 and bf16). Parameters are the operands.
/// Recorded once per (op, dtype) and cached; the reference is valid for the lifetime of the process. Thread-safe.
const Formula& pointwise_formula(Op op, DType compute);
/// The scalar program of a random op: parameters are index (i64), key (u64) and offset (u64).
const Formula& random_formula(Op op, DType compute);

/// A reduction's monoid at an operand dtype (after the rule, a compute dtype).
struct ReduceFormula {
  std::vector<DType> types;             // of the state's components
  std::vector<std::uint64_t> identity;  // constant bits
  Formula lift;                         // (x, index i64) -> components
  Formula combine;                      // (left components, right components) -> components
  Formula finish;                       // components -> result
};
const ReduceFormula& reduce_formula(Op op, DType operand);

}  // namespace fermata
