// `fermata ops --numerics`: the tables of docs/numerics.md.
#include <fmt/format.h>

#include <string>
#include <vector>

#include "frontend/cli/commands.h"
#include "ir/accuracy.h"

namespace fermata::cli {
namespace {

/// "a, b, c" over lines that are not too long.
std::string listed(const std::vector<std::string_view>& names) {
  constexpr std::size_t kWidth = 120;
  std::string text;
  std::size_t line = 0;
  for (const std::string_view n : names) {
    const std::string item = fmt::format("`{}`", n);
    if (!text.empty()) text += line + item.size() + 2 > kWidth ? ",\n" : ", ";
    line = text.ends_with('\n') ? item.size() : line + item.size() + 2;
    text += item;
  }
  return text;
}

template <class F> std::vector<std::string_view> ops_that(F&& holds) {
  std::vector<std::string_view> names;
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (holds(static_cast<Op>(i))) names.push_back(name(static_cast<Op>(i)));
  return names;
}

}  // namespace

void print_numerics() {
  fmt::print("| op | f32 | found | f64 |\n|---|---|---|---|\n");
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const auto op = static_cast<Op>(i);
    const Accuracy& a = accuracy(op);
    if (!a.has_row || !a.text.empty()) continue;
    fmt::print("| `{}` | {} | {} | {} |\n", name(op), a.f32,
               a.measured_f32 > 0 ? fmt::format("{}", a.measured_f32) : "", a.f64);
  }
  fmt::print("\nCorrectly rounded: {}.\n",
             listed(ops_that([](Op op) { return is_pointwise(op) && !accuracy(op).has_row; })));
  fmt::print("\nOf complex operands:\n\n| op | c64 | found | c128 | |\n|---|---|---|---|---|\n");
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (const ComplexAccuracy* const a = complex_accuracy(static_cast<Op>(i)))
      fmt::print("| `{}` | {} | {} | {} | {} |\n", name(static_cast<Op>(i)), a->c64, a->measured_c64, a->c128,
                 a->growth);
  fmt::print("\n| op | error |\n|---|---|\n");
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (const Accuracy& a = accuracy(static_cast<Op>(i)); !a.text.empty())
      fmt::print("| `{}` | {} |\n", name(static_cast<Op>(i)), a.text);
  fmt::print("\nData movement only: {}.\n", listed(ops_that([](Op op) {
               return !is_pointwise(op) && family(op) != Family::composite && !accuracy(op).has_row;
             })));
  fmt::print("\nComposed of other ops, whose errors add up: {}.\n",
             listed(ops_that([](Op op) { return family(op) == Family::composite; })));
}

}  // namespace fermata::cli
