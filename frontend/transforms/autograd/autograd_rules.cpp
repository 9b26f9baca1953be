// See autograd_rules.h: the table, and what the vjp columns call.
#include "frontend/transforms/autograd/autograd_rules.h"

#include <algorithm>
#include <cmath>
#include <string_view>

#include "fermata/special.h"
#include "frontend/ops/op_rules.h"
#include "ir/custom_op.h"

namespace fermata {
namespace vjp {
namespace {

/// What the columns `zero` and `none` say instead of an expression; never evaluated.
struct Absent {
  operator VjpTensor() const { return {}; }
};
[[maybe_unused]] constexpr Absent zero, none;  // a table may use only one of them

constexpr bool is_word(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}
/// Does a variable of this name occur in the text of a formula?
constexpr bool mentions(std::string_view text, std::string_view variable) {
  for (std::size_t at = text.find(variable); at != text.npos; at = text.find(variable, at + 1)) {
    const bool starts = at == 0 || !is_word(text[at - 1]);
    const std::size_t end = at + variable.size();
    if (starts && (end == text.size() || !is_word(text[end]))) return true;
  }
  return false;
}

constexpr VjpRule::Entry entry(std::string_view text, std::array<std::string_view, 3> variables, Vjp vjp) {
  if (text == "none") return {};
  if (text == "zero") return {Derivative::zero, nullptr, 0};
  VjpRule::Entry e{Derivative::formula, vjp, 0};
  for (unsigned k = 0; k < variables.size(); ++k)
    if (!variables[k].empty() && mentions(text, variables[k])) e.reads = static_cast<std::uint8_t>(e.reads | 1u << k);
  if (mentions(text, "y")) e.reads |= VjpRule::kResult;
  return e;
}

constexpr std::array<std::string_view, 3> kUnary{"x", "", ""}, kBinary{"a", "b", ""}, kTernary{"a", "b", "c"};

// What a formula calls its operands; most formulas use few of them.
#define FERMATA_VJP_NAMES(first)                       \
  [[maybe_unused]] const VjpTensor& g = args.g;        \
  [[maybe_unused]] const VjpTensor& y = args.y;        \
  [[maybe_unused]] const VjpTensor& first = args.x[0]; \
  [[maybe_unused]] const VjpTensor& b = args.x[1];     \
  [[maybe_unused]] const VjpTensor& c = args.x[2];     \
  [[maybe_unused]] const std::uint16_t axes = args.axes;
#define FERMATA_VJP(variables, first, vjp)                                                \
  entry(                                                                                  \
      #vjp, variables, +[]([[maybe_unused]] const VjpArgs& args, unsigned) -> VjpTensor { \
        FERMATA_VJP_NAMES(first) return vjp;                                              \
      })

/// In the order of the enumeration, which is that of the table.
const std::array<VjpRule, kOpCount>& rules() {
  static const std::array<VjpRule, kOpCount> table = {
#define FERMATA_UNARY(name, rule, formula, vjp, doc) VjpRule{{FERMATA_VJP(kUnary, x, vjp)}},
#define FERMATA_BINARY(name, rule, formula, vjp_a, vjp_b, doc) \
  VjpRule{{FERMATA_VJP(kBinary, a, vjp_a), FERMATA_VJP(kBinary, a, vjp_b)}},
#define FERMATA_TERNARY(name, rule, formula, vjp_a, vjp_b, vjp_c, doc) \
  VjpRule{{FERMATA_VJP(kTernary, a, vjp_a), FERMATA_VJP(kTernary, a, vjp_b), FERMATA_VJP(kTernary, a, vjp_c)}},
#define FERMATA_REDUCE(name, rule, vjp, doc) VjpRule{{FERMATA_VJP(kUnary, x, vjp)}},
#define FERMATA_RANDOM(name, formula, doc) VjpRule{},
#define FERMATA_IRREGULAR(name, ...) name##_rules.gradients,
#define FERMATA_COMPOSITE(name, precision, doc) VjpRule{},
#include "ir/ops.def"
  };
  return table;
}

/// Products of all other elements along the last axis, from the pairs of a binary tree: no division, so zeros need no
/// care and the result can be differentiated again.
VjpTensor exclusive_product(const VjpTensor& x) {
  const std::int64_t rows = x.shape()[0];
  const auto every_second = [&](const VjpTensor& level, std::int64_t first) {
    return slice(level, {0, first}, {1, 2}, {rows, level.shape()[1] / 2});
  };
  const auto one = full(1, {x.dtype(), {rows, 1}}, x);
  std::vector<VjpTensor> levels{x};
  while (levels.back().shape()[1] > 1) {
    VjpTensor& level = levels.back();
    if (level.shape()[1] % 2 != 0) level = concat(std::array{level, one}, 1);
    levels.push_back(every_second(level, 0) * every_second(level, 1));
  }
  VjpTensor others = one;
  for (std::size_t i = levels.size() - 1; i-- > 0;) {
    const std::int64_t pairs = levels[i].shape()[1] / 2;
    others = slice(others, {0, 0}, {1, 1}, {rows, pairs});  // without what padding has added
    const VjpTensor left = expand_dims(others * every_second(levels[i], 1), 4);
    const VjpTensor right = expand_dims(others * every_second(levels[i], 0), 4);
    others = reshape(concat(std::array{left, right}, 2), {rows, 2 * pairs});
  }
  return slice(others, {0, 0}, {1, 1}, {rows, x.shape()[1]});
}

}  // namespace

VjpTensor trigamma(const VjpTensor& x) { return polygamma(1, {x.tensor(), current_line}); }

VjpTensor normal_hazard(const VjpTensor& x, const VjpTensor& log_ndtr) {
  const VjpTensor far = x < -7, u = reciprocal(square(where(far, x, -7)));
  const VjpTensor series = 1 + u * (-1 + u * (3 + u * (-15 + u * (105 + u * -945))));
  return where(far, -x / series, exp(where(far, 0, square(x) * -0.5 - log_ndtr)) * 0.3989422804014327);
}

VjpTensor split_gradient_among_ties(const VjpTensor& g, const VjpTensor& mask, std::uint16_t axes) {
  return where(mask, g / reduce(Op::sum, mask, axes, true), 0);
}

VjpTensor prod_of_others(const VjpTensor& x, const VjpTensor& y, std::uint16_t axes) {
  if (element_count(x.shape()) == 0 || axes == 0) return full(1, {x.dtype(), x.shape()}, x);
  if (thread_keys.excluded.has(Functionality::autograd)) {  // once is enough: cheaper, and right with zeros
    const VjpTensor zero_count = reduce(Op::sum, x == 0, axes, true);
    const VjpTensor rest = reduce(Op::prod, where(x == 0, 1, x), axes, true);
    return where(x == 0, where(zero_count == 1, rest, 0), y / x);
  }
  std::vector<std::int64_t> order, back;
  std::int64_t rows = 1;
  Shape moved;
  const auto collect = [&](bool reduced) {
    for (unsigned i = 0; i < x.shape().rank(); ++i) {
      if (((axes >> i & 1u) != 0) != reduced) continue;
      order.push_back(i), moved.push_back(x.shape()[i]);
      if (!reduced) rows *= x.shape()[i];
    }
  };
  collect(false), collect(true);
  for (std::size_t i = 0; i < order.size(); ++i)
    back.push_back(std::ranges::find(order, static_cast<std::int64_t>(i)) - order.begin());
  const VjpTensor flat = reshape(permute(x, order), {rows, element_count(x.shape()) / rows});
  return permute(reshape(exclusive_product(flat), moved), back);
}

VjpTensor pow_by_base(const VjpTensor& a, const VjpTensor& b) {
  if (b.is_scalar()) {
    const double exponent = b.scalar().as_double();
    if (exponent == 0) return 0;
    if (exponent == 1) return 1;
    if (exponent == 2) return a * 2;
    return pow(a, exponent - 1) * exponent;
  }
  // Where b is 0 the slope is 0 even at a = 0; the inner `where` keeps the pole there out of further derivatives.
  const VjpTensor flat = b == 0;
  return b * pow(where(flat, 1, a), where(flat, 1, b - 1));
}

VjpTensor pow_by_exponent(const VjpTensor& a, const VjpTensor& y) {
  if (a.is_scalar()) {
    const double base = a.scalar().as_double();
    return base == 0 ? VjpTensor(0) : y * std::log(base);
  }
  const VjpTensor flat = a == 0;
  return where(flat, 0, y) * log(cast(where(flat, 1, a), y.dtype()));
}

}  // namespace vjp

const VjpRule& vjp_rule(Op op) {
  static const VjpRule none{};  // custom operators register their derivative, or have none
  return is_external(op) ? none : vjp::rules()[static_cast<std::size_t>(op)];
}

}  // namespace fermata
