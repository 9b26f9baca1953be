// `fermata ops [NAME]`: the operator table with its kernels.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "dispatch/kernel_table.h"
#include "frontend/cli/commands.h"
#include "ir/error.h"

namespace fermata::cli {
namespace {

constexpr std::array<std::string_view, 7> kFamilies = {"unary",  "binary",    "ternary",  "reduce",
                                                       "random", "irregular", "composite"};

/// The dtypes of a set in words: "real", "floating", "f32 f64".
std::string dtypes_text(DTypeSet set) {
  struct Named {
    DTypeSet set;
    std::string_view text;
  };
  constexpr std::array<Named, 6> kNamed = {{{kRealOrBoolean, "real bool"},
                                            {kReal, "real"},
                                            {kFloating, "floating"},
                                            {kIntegers | kBoolean, "integers bool"},
                                            {kIntegers, "integers"},
                                            {kBoolean, "bool"}}};
  for (const Named& n : kNamed)
    if (n.set.bits == set.bits) return std::string(n.text);
  std::string text;
  for (std::size_t t = 0; t < kDTypeCount; ++t)
    if (set.has(static_cast<DType>(t))) text += fmt::format("{}{}", text.empty() ? "" : " ", kDTypes[t].name);
  return text;
}

/// The dtypes that users may call an op with, and its kernels on every backend.
void print_row(Op op) {
  DTypeSet accepted;
  if (info(op).rule == DTypeRule::none) accepted = family(op) == Family::random ? kFloating : kRealOrBoolean;
  for (std::size_t t = 0; t < kDTypeCount; ++t)
    if (apply_rule(info(op).rule, static_cast<DType>(t))) accepted = accepted | static_cast<DType>(t);
  std::string kernels;
  for (std::size_t b = 0; b < kBackendCount; ++b) {
    const BackendCell* cell = backend_cell(op, static_cast<BackendKey>(b));
    if (cell == nullptr || cell->variants.empty()) continue;
    kernels += fmt::format("{}{}:", kernels.empty() ? "" : "  ", kBackendNames[b]);
    for (const KernelVariant& v : cell->variants) kernels += fmt::format(" {} ({})", v.name, name(v.form));
  }
  if (kernels.empty()) kernels = family(op) == Family::composite ? "made of other ops" : "-";
  fmt::print("{:<20} {:<10} {:<14} {}\n", name(op), kFamilies[static_cast<std::size_t>(family(op))],
             op == Op::matmul ? dtypes_text(kReal) : dtypes_text(accepted), kernels);
}

/// How many single-letter edits turn one name into another.
std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row[b.size()];
}

void print_operator(const std::string& wanted) {
  if (const std::optional<Op> op = op_from_name(wanted)) {
    fmt::print("{}", describe_row(name(*op)));
    if (!info(*op).formula.empty()) fmt::print("  formula        {}\n", info(*op).formula);
    fmt::print("{}", describe_variants(*op));
    return;
  }
  std::string_view nearest;
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (const auto n = name(static_cast<Op>(i)); nearest.empty() || distance(wanted, n) < distance(wanted, nearest))
      nearest = n;
  throw ValueError(1333, format_error(1333, "ValueError", fmt::format("there is no op {}", wanted), {}, {},
                                      distance(wanted, nearest) <= 2 ? fmt::format("{}?", nearest)
                                                                     : std::string("`fermata ops` lists all")));
}

void print_all() {
  fmt::print("{:<20} {:<10} {:<14} {}\n", "op", "family", "operands", "kernels");
  for (std::size_t i = 0; i < kOpCount; ++i) print_row(static_cast<Op>(i));
  fmt::print(
      "\n{} ops. `fermata ops NAME` shows one: its formula, and every kernel with dtypes, conditions and the line that "
      "registered it.\n",
      kOpCount);
}

}  // namespace

void add_ops(CLI::App& app) {
  CLI::App* command = app.add_subcommand("ops", "List the operators and their kernels, or one in detail");
  const auto wanted = std::make_shared<std::string>();
  command->add_option("name", *wanted, "An op, such as matmul");
  command->callback([wanted] { wanted->empty() ? print_all() : print_operator(*wanted); });
}

}  // namespace fermata::cli
