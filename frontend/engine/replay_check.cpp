// Whether a compiled function that is recorded again is the same program: a function that
// depends on something other than its arguments is then an error, instead of replaying the result of its first call.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "frontend/engine/captured_call.h"
#include "frontend/engine/captured_function.h"
#include "frontend/engine/control_step.h"
#include "frontend/tensor/host_elements.h"
#include "ir/error.h"

namespace fermata {
namespace {

using Found = std::optional<Difference>;

std::string text(std::span<const std::int64_t> numbers) { return fmt::format("[{}]", fmt::join(numbers, ", ")); }
std::string text(const Layout& l) { return to_string(l.type.dtype, l.type.shape); }

/// A host number as stored in a program.
std::string number(std::uint64_t bits, DType dtype) {
  std::string out = fmt::format("{:#x}", bits);
  visit_compute(dtype, [&]<class T>() {
    T value;
    std::memcpy(&value, &bits, sizeof value);
    out = std::is_same_v<T, bool> ? (value ? "true" : "false") : fmt::format("{}", +value);
  });
  return out;
}

bool same_elements(const Tensor& a, const Tensor& b, Location where) {
  const HostElements x(a, "a check of a compiled function", where), y(b, "a check of a compiled function", where);
  return x.count() == y.count() && x.dtype() == y.dtype() &&
         std::memcmp(x.data(), y.data(), static_cast<std::size_t>(x.count()) * byte_size(x.dtype())) == 0;
}

/// The functions that a call owns. The op determines their number.
Found difference_of_functions(const ProgramNode& now, const ProgramNode& before, Location where) {
  for (std::size_t i = 0; now.subgraphs != nullptr && i < now.subgraphs->size(); ++i) {
    const CapturedFunction &a = captured((*now.subgraphs)[i]), &b = captured((*before.subgraphs)[i]);
    if (Found d = find_difference(a.program(), b.program(), where)) return d->is_inside = true, d;
  }
  return {};
}

/// The difference between two constants that the function creates.
Found difference_of_constants(const Tensor& now, const Tensor& before, Location where) {
  if (now.defined() != before.defined()) return Difference{"a new constant", where};
  if (!now.defined() || now.node() == before.node()) return {};
  if (now.dtype() != before.dtype() || now.shape() != before.shape())
    return Difference{"a constant of another type", where};
  if (same_elements(now, before, where)) return {};
  return Difference{"a constant with other elements, " + to_string(now.dtype(), now.shape()), where};
}

class ProgramCheck {
 public:
  ProgramCheck(const Program& now, const Program& before, Location where)
      : now_(now), before_(before), where_(where), readers_(now.nodes.size(), kNobody) {
    for (std::size_t i = now.nodes.size(); i-- > 0;)
      for (const std::uint32_t operand : now.nodes[i].operands)
        if (operand < readers_.size()) readers_[operand] = i;
  }

  Found find() const {
    const std::size_t count = std::min(now_.nodes.size(), before_.nodes.size());
    for (std::size_t i = 0; i < count; ++i)
      if (Found d = difference_at(i)) return d;
    if (now_.nodes.size() == before_.nodes.size()) return {};
    const bool more = now_.nodes.size() > before_.nodes.size();
    const ProgramNode& first = (more ? now_ : before_).nodes[count];
    return Difference{
        fmt::format("it {} {}, and {}", more ? "calls" : "does not call", name(first.op), more ? "did not" : "did"),
        line_of(first)};
  }

 private:
  Location line_of(const ProgramNode& n) const { return n.where.line() != 0 ? n.where : where_; }
  const ProgramNode* reader_of(std::size_t i) const {
    return readers_[i] == kNobody ? nullptr : &now_.nodes[readers_[i]];
  }
  static std::string named(const ProgramNode& n) {
    return n.leaf >= 0 ? "read a tensor" : fmt::format("call {}", name(n.op));
  }

  Found difference_at(std::size_t i) const {
    const ProgramNode &a = now_.nodes[i], &b = before_.nodes[i];
    // The line of a leaf is that of its first reader.
    const ProgramNode* const reader = a.leaf >= 0 ? reader_of(i) : nullptr;
    const Location line = line_of(reader != nullptr ? *reader : a);
    if (a.op != b.op || (a.leaf < 0) != (b.leaf < 0))
      return Difference{
          fmt::format("it does not {} here, but {}s{}", named(b), named(a).substr(0, 4), named(a).substr(4)), line};
    if (a.leaf < 0) {
      // Before the operands: captures are operands, and a line inside the function is more specific.
      if (Found d = difference_of_functions(a, b, line)) return d;
      const std::string d = difference_of_calls(a, b);
      return d.empty() ? Found() : Difference{d, line};
    }
    const std::string_view by = reader != nullptr ? name(reader->op) : "it";
    if (!(a.type == b.type))
      return Difference{fmt::format("{} reads {}, and read {}", by, text(a.type), text(b.type)), line};
    Found d = find_difference(now_.leaves[static_cast<std::size_t>(a.leaf)],
                              before_.leaves[static_cast<std::size_t>(b.leaf)], line);
    if (d && !d->is_inside) d->what = fmt::format("{} reads {}", by, d->what);
    return d;
  }

  static std::string difference_of_calls(const ProgramNode& a, const ProgramNode& b) {
    const std::string_view op = name(a.op);
    if (!(a.type == b.type)) return fmt::format("the result of {} is {}, and was {}", op, text(a.type), text(b.type));
    if (a.attributes != b.attributes)
      return fmt::format("the arguments of {} are {}, and were {}", op, text(a.attributes), text(b.attributes));
    if (a.operands != b.operands) return fmt::format("{} reads other values", op);
    if (a.is_drawn != b.is_drawn) return fmt::format("{} draws from another generator", op);
    if (a.scalars.size() != b.scalars.size()) return fmt::format("{} has another count of numbers", op);
    const auto at = std::ranges::mismatch(a.scalars, b.scalars);
    if (at.in1 == a.scalars.end()) return {};
    if (family(a.op) == Family::random)
      return fmt::format("the {} of {} is {}, and was {}", at.in1 == a.scalars.begin() ? "key" : "offset", op, *at.in1,
                         *at.in2);
    return fmt::format("the number of {} is {}, and was {}", op, number(*at.in1, a.scalar_dtype),
                       number(*at.in2, b.scalar_dtype));
  }

  static constexpr std::size_t kNobody = ~std::size_t{0};
  const Program &now_, &before_;
  Location where_;
  std::vector<std::size_t> readers_;  // the first reader of each node
};

Found find_difference(const ResultSource& now, const ResultSource& before, Location where) {
  if (now.output != before.output) return Difference{"another value", where};
  return now.output >= 0 ? Found() : find_difference(now.place, before.place, where);
}

/// Compares two lists: the first difference, and its index.
template <class T, class Compare> Found difference_of_lists(const std::vector<T>& now, const std::vector<T>& before,
                                                            std::string_view what, Location where, Compare&& compare) {
  if (now.size() != before.size())
    return Difference{fmt::format("it {} {} tensors, and {} before", what, now.size(), before.size()), where};
  for (std::size_t i = 0; i < now.size(); ++i)
    if (const Found d = compare(now[i], before[i])) return Difference{fmt::format("it {} {}", what, d->what), where};
  return {};
}

}  // namespace

std::optional<Difference> find_difference(const Place& now, const Place& before, Location where) {
  if (now.argument != before.argument || now.is_gradient != before.is_gradient || now.is_base != before.is_base)
    return Difference{"another argument", where};
  if (now.is_of_argument()) return {};
  if (now.leaf != before.leaf) return Difference{"the gradient of another tensor", where};
  if (now.leaf != nullptr) return {};
  if (now.is_constant && before.is_constant) return difference_of_constants(now.hidden, before.hidden, where);
  if (now.hidden.impl() == before.hidden.impl()) return {};
  return Difference{"another tensor, " + to_string(now.hidden.dtype(), now.hidden.shape()), where};
}

std::optional<Difference> find_difference(const Program& now, const Program& before, Location where) {
  return ProgramCheck(now, before, where).find();
}

void CapturedCall::require_same(const CallRecording& again, Location where) const {
  const auto sources = [&](const ResultSource& a, const ResultSource& b) { return find_difference(a, b, where); };
  const auto cells = [&](const ResultCell& a, const ResultCell& b) {
    return a.is_place != b.is_place ? Found(Difference{"another tensor", where}) : sources(a.source, b.source);
  };
  const auto results = [&](const Returned& a, const Returned& b) {
    const auto is_same_step = [](const ViewStep& x, const ViewStep& y) {
      return x.op == y.op && x.attributes == y.attributes && x.sizes == y.sizes;
    };
    const bool is_same = a.cell == b.cell && std::ranges::equal(a.view, b.view, is_same_step);
    return is_same ? Found() : Found(Difference{"another view", where});
  };
  const auto writes = [&](const WriteBack& a, const WriteBack& b) {
    const Found target = find_difference(a.target, b.target, where);
    return target ? target : sources(a.value, b.value);
  };
  const auto changes = [&](const GradientChange& a, const GradientChange& b) {
    if (a.is_cleared != b.is_cleared) return Found(Difference{"another tensor", where});
    const Found target = find_difference(a.gradient, b.gradient, where);
    return target || a.is_cleared ? target : sources(a.value, b.value);
  };
  Found d;
  if (again.must_run()) d = Difference{"its result requires gradients, and did not before", where};
  if (!d) d = find_difference(again.program, captured_.program(), where);
  if (!d && again.draws != draws_)
    d = Difference{fmt::format("it draws {} random numbers, and drew {}", again.draws, draws_), where};
  if (!d) d = difference_of_lists(again.cells, cells_, "gives", where, cells);
  if (!d) d = difference_of_lists(again.results, results_, "gives", where, results);
  if (!d && again.result_numbers != result_numbers_) d = Difference{"the other values in its result differ", where};
  if (!d) d = difference_of_lists(again.writes, writes_, "writes", where, writes);
  if (!d)
    d = difference_of_lists(again.gradient_changes, gradient_changes_, "changes the gradients of", where, changes);
  if (!d) return;
  throw UserError(
      1702, format_error(
                1702, "UserError",
                "a compiled function recorded a different program than at its first call: " + d->what, {}, d->where,
                "it depends on a value that is not an argument; pass it as an argument, a tensor or an fm::Setting"));
}

}  // namespace fermata
