// The rows of the op table as types, for instantiating formulas: the recorder (formula.cpp) and the eager kernels.
//
// One struct per pointwise or random row, op##_row; `apply` is the formula. A formula may not compile for element types
// that it is not defined for, so check `accepts` with the row's rule before instantiating `apply`.
#pragma once

#include "ir/monoids.h"
#include "ir/op.h"
#include "ir/scalar_math.h"

namespace fermata {

/// Whether a formula of this rule is defined for a compute dtype. Formulas are over real elements; complex ones have
/// their own kernels.
constexpr bool accepts(DTypeRule rule, DType t) {
  switch (rule) {
    case DTypeRule::numeric:
    case DTypeRule::arithmetic:
    case DTypeRule::magnitude: return t != DType::boolean;
    case DTypeRule::floating:
    case DTypeRule::analytic:
    case DTypeRule::argument:
    case DTypeRule::floating_test: return is_floating(t);
    case DTypeRule::truth: return t == DType::boolean;
    case DTypeRule::bits: return !is_floating(t);
    case DTypeRule::integers: return is_integer(t);
    case DTypeRule::words: return t == DType::u64;
    case DTypeRule::accumulate: return is_floating(t) || t == DType::i64 || t == DType::u64;
    default: return true;
  }
}

#define FERMATA_UNARY(name, rule, formula, vjp, doc)              \
  struct name##_row {                                             \
    static constexpr DTypeRule kRule = DTypeRule::rule;           \
    template <class V> static auto apply(V x) { return formula; } \
  };
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc)         \
  struct name##_row {                                                  \
    static constexpr DTypeRule kRule = DTypeRule::rule;                \
    template <class V> static auto apply(V a, V b) { return formula; } \
  };
#define FERMATA_TERNARY(name, rule, formula, vjp_a, vjp_b, vjp_c, doc)                     \
  struct name##_row {                                                                      \
    static constexpr DTypeRule kRule = DTypeRule::rule;                                    \
    template <class V> static auto apply(typename V::Mask a, V b, V c) { return formula; } \
  };
#define FERMATA_RANDOM(name, formula, doc)                                                            \
  struct name##_row {                                                                                 \
    template <class V, class I, class K> static V apply(I index, K key, K offset) { return formula; } \
  };
#include "ir/ops.def"

}  // namespace fermata
