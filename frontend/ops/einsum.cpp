// einsum: the equation is read, each operand is brought to one axis per index, and pairs are contracted.
//
// A contraction is a matrix product where an index is summed over, and else a multiplication, which fuses. The order is
// greedy: at each step the pair with the fewest multiplications, of several the one with the smallest result.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fermata/linalg.h"
#include "fermata/products.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"

namespace fermata {
namespace {

/// A letter, or, above all letters, an axis that "..." stands for: the last one is 256, those before it count up.
using Index = int;
constexpr Index kEllipsis = 256;
using Indices = std::vector<Index>;

bool has(const Indices& indices, Index i) { return std::ranges::find(indices, i) != indices.end(); }

std::string_view label_of(std::size_t operand) {
  static constexpr std::string_view kLabels[] = {"x0", "x1", "x2", "x3", "x4", "x5", "x6", "x7", "x8", "x9"};
  return operand < std::size(kLabels) ? kLabels[operand] : "x..";
}

struct Equation {
  std::vector<Indices> operands;
  Indices result;
};

/// Reads an equation for operands of known ranks.
class EquationReader {
 public:
  EquationReader(std::string_view text, std::span<const Tensor> operands, Location where)
      : text_(text), operands_(operands), where_(where) {}

  Equation read() const {
    std::string plain;
    for (const char c : text_)
      if (c != ' ') plain += c;
    const std::size_t arrow = plain.find("->");
    std::vector<std::string> terms{""};
    for (const char c : plain.substr(0, arrow)) {
      if (c == ',')
        terms.emplace_back();
      else
        terms.back() += c;
    }
    if (terms.size() != operands_.size()) fail(fmt::format("has {} operands, not {}", terms.size(), operands_.size()));
    Equation equation;
    Index dots = 0;
    for (std::size_t k = 0; k < terms.size(); ++k) {
      equation.operands.push_back(indices_of(terms[k], operands_[k].rank(), k));
      for (const Index i : equation.operands.back()) dots = std::max(dots, i - kEllipsis + 1);
    }
    equation.result =
        arrow == std::string::npos ? implicit(equation, dots) : stated(plain.substr(arrow + 2), equation, dots);
    return equation;
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    std::vector<ErrorOperand> lines;
    for (std::size_t k = 0; k < operands_.size(); ++k)
      lines.push_back({label_of(k), to_string(operands_[k].dtype(), operands_[k].shape()), ""});
    throw ValueError(1394,
                     format_error(1394, "ValueError", fmt::format("einsum: \"{}\" {}", text_, what), lines, where_));
  }

  /// One index per axis; "..." stands for as many as the letters leave.
  Indices indices_of(const std::string& term, std::int64_t rank, std::size_t k) const {
    const std::size_t dots = term.find("...");
    const std::size_t letters = term.size() - (dots == std::string::npos ? 0 : 3);
    const std::int64_t rest = rank - static_cast<std::int64_t>(letters);
    if (rest < 0 || (dots == std::string::npos && rest != 0))
      fail(fmt::format("has for operand {} {} letters for {} axes", k, letters, rank));
    return expand(term, dots, static_cast<Index>(rest));
  }
  Indices expand(const std::string& term, std::size_t dots, Index count) const {
    Indices indices;
    for (std::size_t i = 0; i < term.size(); ++i) {
      if (i == dots) {
        for (Index d = count; d-- > 0;) indices.push_back(kEllipsis + d);
        i += 2;
        continue;
      }
      const bool letter = (term[i] >= 'a' && term[i] <= 'z') || (term[i] >= 'A' && term[i] <= 'Z');
      if (!letter) fail(fmt::format("has '{}' instead of a letter or ...", term[i]));
      indices.push_back(term[i]);
    }
    return indices;
  }
  Indices implicit(const Equation& equation, Index dots) const {
    std::map<Index, int> count;
    for (const Indices& indices : equation.operands)
      for (const Index i : indices) ++count[i];
    Indices result;
    for (Index d = dots; d-- > 0;) result.push_back(kEllipsis + d);
    for (const auto& [index, uses] : count)
      if (index < kEllipsis && uses == 1) result.push_back(index);
    return result;
  }
  Indices stated(const std::string& term, const Equation& equation, Index dots) const {
    const Indices result = expand(term, term.find("..."), dots);
    for (std::size_t i = 0; i < result.size(); ++i) {
      const bool known = std::ranges::any_of(equation.operands, [&](const Indices& o) { return has(o, result[i]); });
      if (!known) fail(fmt::format("has '{}' only in its result", static_cast<char>(result[i])));
      if (std::count(result.begin(), result.end(), result[i]) > 1)
        fail(fmt::format("has '{}' twice in its result", static_cast<char>(result[i])));
    }
    return result;
  }

  std::string_view text_;
  std::span<const Tensor> operands_;
  Location where_;
};

/// A tensor with one axis for each of its indices.
struct Term {
  Tensor value;
  Indices indices;
};

class Contraction {
 public:
  Contraction(std::string_view text, const Equation& equation, std::span<const Tensor> operands, Location where)
      : result_(equation.result), dtype_(operands[0].dtype()), where_(where) {
    settle_sizes(text, equation, operands);
    for (std::size_t k = 0; k < operands.size(); ++k) terms_.push_back(plain_term(operands[k], equation.operands[k]));
  }

  Tensor run() {
    while (terms_.size() > 1) {
      const auto [a, b] = cheapest_pair();
      Term product = multiply_terms(terms_[a], terms_[b], a, b);
      terms_[a] = std::move(product);
      terms_.erase(terms_.begin() + static_cast<std::ptrdiff_t>(b));
    }
    return arranged(sum_lone(terms_[0], 0, 0));
  }

 private:
  void settle_sizes(std::string_view text, const Equation& equation, std::span<const Tensor> operands) {
    for (std::size_t k = 0; k < operands.size(); ++k)
      for (std::size_t axis = 0; axis < equation.operands[k].size(); ++axis) {
        const std::int64_t given = operands[k].shape()[axis];
        const auto [at, first] = sizes_.try_emplace(equation.operands[k][axis], given);
        if (at->second == 1) at->second = given;
        if (given == at->second || given == 1) continue;
        const Index index = equation.operands[k][axis];
        std::vector<ErrorOperand> lines;
        for (std::size_t i = 0; i < operands.size(); ++i)
          lines.push_back({label_of(i), to_string(operands[i].dtype(), operands[i].shape()),
                           i == k ? fmt::format("axis {} is {}", axis, given) : ""});
        const std::string which =
            index < kEllipsis ? fmt::format("'{}'", static_cast<char>(index)) : std::string("an axis of ...");
        throw ShapeError(1094, format_error(1094, "ShapeError",
                                            fmt::format("einsum: \"{}\": sizes of {} differ ({} and {})", text, which,
                                                        at->second, given),
                                            lines, where_));
      }
  }

  /// Diagonals of letters that occur twice, and without axes of size 1 that others stretch.
  Term plain_term(Tensor x, Indices indices) const {
    for (std::size_t i = 0; i < indices.size(); ++i)
      for (std::size_t j = i + 1; j < indices.size();) {
        if (indices[i] != indices[j]) {
          ++j;
          continue;
        }
        const Index index = indices[i];
        x = diagonal_of(x, i, j);
        indices.erase(indices.begin() + static_cast<std::ptrdiff_t>(j));
        indices.erase(indices.begin() + static_cast<std::ptrdiff_t>(i));
        indices.push_back(index);
        j = i + 1;
      }
    std::vector<std::int64_t> stretched;
    Indices kept;
    for (std::size_t i = 0; i < indices.size(); ++i)
      if (x.shape()[i] == 1 && sizes_.at(indices[i]) != 1)
        stretched.push_back(static_cast<std::int64_t>(i));
      else
        kept.push_back(indices[i]);
    return {stretched.empty() ? x : squeeze(x, stretched, where_), kept};
  }
  /// The elements where axes i and j agree, along a last axis. One of size 1 beside another stretches.
  Tensor diagonal_of(const Tensor& x, std::size_t i, std::size_t j) const {
    const Shape shape = x.shape();
    if (shape[i] != shape[j]) {
      const std::size_t one = shape[i] == 1 ? i : j, other = one == i ? j : i;
      std::vector<std::int64_t> order;
      for (std::size_t axis = 0; axis < shape.rank(); ++axis)
        if (axis != one && axis != other) order.push_back(static_cast<std::int64_t>(axis));
      order.push_back(static_cast<std::int64_t>(other)), order.push_back(static_cast<std::int64_t>(one));
      return squeeze(permute(x, order, where_), -1, where_);
    }
    std::vector<std::int64_t> order;
    for (std::size_t axis = 0; axis < shape.rank(); ++axis)
      if (axis != i && axis != j) order.push_back(static_cast<std::int64_t>(axis));
    order.push_back(static_cast<std::int64_t>(i)), order.push_back(static_cast<std::int64_t>(j));
    return linalg::diagonal(permute(x, order, where_), 0, where_);
  }

  /// Is an index needed by the result, or by a term other than a and b?
  bool needed(Index index, std::size_t a, std::size_t b) const {
    if (has(result_, index)) return true;
    for (std::size_t k = 0; k < terms_.size(); ++k)
      if (k != a && k != b && has(terms_[k].indices, index)) return true;
    return false;
  }

  /// Sums over the indices that no other operand needs.
  Term sum_lone(const Term& term, std::size_t a, std::size_t b) const {
    std::vector<std::int64_t> axes;
    Indices kept;
    for (std::size_t i = 0; i < term.indices.size(); ++i)
      if (needed(term.indices[i], a, b))
        kept.push_back(term.indices[i]);
      else
        axes.push_back(static_cast<std::int64_t>(i));
    if (axes.empty()) return term;
    return {astype(sum(term.value, axes, false, where_), dtype_, where_), kept};
  }

  std::pair<std::size_t, std::size_t> cheapest_pair() const {
    std::pair<std::size_t, std::size_t> best{0, 1};
    std::pair<double, double> least{std::numeric_limits<double>::infinity(), 0};
    for (std::size_t a = 0; a < terms_.size(); ++a)
      for (std::size_t b = a + 1; b < terms_.size(); ++b) {
        double work = 1, size = 1;
        Indices both = terms_[a].indices;
        for (const Index i : terms_[b].indices)
          if (!has(both, i)) both.push_back(i);
        for (const Index i : both) {
          work *= static_cast<double>(sizes_.at(i));
          if (needed(i, a, b)) size *= static_cast<double>(sizes_.at(i));
        }
        if (std::pair(work, size) < least) least = {work, size}, best = {a, b};
      }
    return best;
  }

  Term multiply_terms(const Term& a, const Term& b, std::size_t at_a, std::size_t at_b) const {
    // Indices that only one of them has and nothing else needs are summed first.
    const auto alone = [&](const Term& own, const Term& other) {
      std::vector<std::int64_t> axes;
      Indices kept;
      for (std::size_t i = 0; i < own.indices.size(); ++i)
        if (has(other.indices, own.indices[i]) || needed(own.indices[i], at_a, at_b))
          kept.push_back(own.indices[i]);
        else
          axes.push_back(static_cast<std::int64_t>(i));
      return axes.empty() ? own : Term{astype(sum(own.value, axes, false, where_), dtype_, where_), kept};
    };
    const Term left = alone(a, b), right = alone(b, a);
    Indices batch, contracted, rows, columns;
    for (const Index i : left.indices)
      (!has(right.indices, i) ? rows : needed(i, at_a, at_b) ? batch : contracted).push_back(i);
    for (const Index i : right.indices)
      if (!has(left.indices, i)) columns.push_back(i);
    const std::array groups{batch, rows, columns, contracted};
    if (contracted.empty() || dtype_ == DType::boolean) return multiplied(left, right, groups);
    const Tensor l = grouped(left, {batch, rows, contracted}), r = grouped(right, {batch, contracted, columns});
    Term product{matmul(l, r, where_), batch};
    product.indices.insert(product.indices.end(), rows.begin(), rows.end());
    product.indices.insert(product.indices.end(), columns.begin(), columns.end());
    Shape sizes;
    for (const Index i : product.indices) sizes.push_back(sizes_.at(i));
    product.value = reshape(product.value, sizes, where_);
    return product;
  }

  /// Element by element, and then a sum where one is left to do.
  Term multiplied(const Term& left, const Term& right, const std::array<Indices, 4>& groups) const {
    Indices all;
    for (const Indices& group : groups) all.insert(all.end(), group.begin(), group.end());
    const Tensor product = multiply({spread(left, all), where_}, spread(right, all));
    const Indices& contracted = groups[3];
    if (contracted.empty()) return {product, all};
    std::vector<std::int64_t> axes;
    for (std::size_t i = all.size() - contracted.size(); i < all.size(); ++i)
      axes.push_back(static_cast<std::int64_t>(i));
    all.resize(all.size() - contracted.size());
    return {astype(sum(product, axes, false, where_), dtype_, where_), all};
  }

  Tensor ordered(const Term& term, const Indices& order) const {
    std::vector<std::int64_t> axes;
    for (const Index i : order) axes.push_back(std::ranges::find(term.indices, i) - term.indices.begin());
    return std::ranges::is_sorted(axes) ? term.value : permute(term.value, axes, where_);
  }
  /// The axes in the order of some indices; those that it lacks have size 1.
  Tensor spread(const Term& term, const Indices& order) const {
    Indices own;
    std::vector<std::int64_t> missing;
    for (std::size_t i = 0; i < order.size(); ++i)
      if (has(term.indices, order[i]))
        own.push_back(order[i]);
      else
        missing.push_back(static_cast<std::int64_t>(i));
    return expand_dims(ordered(term, own), missing, where_);
  }
  /// One axis per group.
  Tensor grouped(const Term& term, const std::array<Indices, 3>& groups) const {
    Indices order;
    Shape sizes;
    for (const Indices& group : groups) {
      std::int64_t size = 1;
      for (const Index i : group) order.push_back(i), size *= sizes_.at(i);
      sizes.push_back(size);
    }
    return reshape(ordered(term, order), sizes, where_);
  }
  /// The result's axes in order, stretched where all operands had size 1.
  Tensor arranged(const Term& term) const {
    Shape sizes;
    for (const Index i : result_) sizes.push_back(sizes_.at(i));
    return broadcast_to(spread(term, result_), sizes, where_);
  }

  Indices result_;
  DType dtype_;
  Location where_;
  std::map<Index, std::int64_t> sizes_;
  std::vector<Term> terms_;
};

}  // namespace

Tensor einsum(std::string_view equation, std::span<const Tensor> operands, Location where) {
  if (operands.empty())
    throw ValueError(
        1394, format_error(1394, "ValueError", fmt::format("einsum: \"{}\" has no operands", equation), {}, where));
  for (const Tensor& x : operands) require_defined("einsum", x, where);
  std::vector<Tensor> promoted(operands.begin(), operands.end());
  std::optional<DType> common = promoted[0].dtype();
  for (const Tensor& x : promoted)
    if (common) common = promote(*common, x.dtype());
  if (common)
    for (Tensor& x : promoted) x = astype(x, *common, where);
  const Equation read = EquationReader(equation, promoted, where).read();
  return Contraction(equation, read, promoted, where).run();
}

Tensor einsum(std::string_view equation, std::initializer_list<Tensor> operands, Location where) {
  return einsum(equation, std::span(std::data(operands), operands.size()), where);
}

}  // namespace fermata
