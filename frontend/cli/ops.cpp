// `fermata ops`: the operator table with its kernels; one operator with what every key, device and dtype leads to; the
// operators that have a kernel for a key; kernels without an operator.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string>

#include "dispatch/kernel_table.h"
#include "frontend/cli/commands.h"
#include "ir/custom_op.h"
#include "ir/edit_distance.h"
#include "ir/error.h"
#include "ir/op_traits.h"

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
  constexpr std::array<Named, 12> kNamed = {{{kNumbersOrBoolean, "numbers bool"},
                                             {kNumbers, "numbers"},
                                             {kFloating | kComplex, "floating complex"},
                                             {kComplex, "complex"},
                                             {kRealOrBoolean, "real bool"},
                                             {kReal, "real"},
                                             {kFloating, "floating"},
                                             {kIntegers | kBoolean, "integers bool"},
                                             {kIntegers, "integers"},
                                             {DTypeSet(DType::f32) | DType::f64 | kComplex, "f32 f64 complex"},
                                             {DTypeSet(DType::f32) | DType::f64, "f32 f64"},
                                             {kBoolean, "bool"}}};
  for (const Named& n : kNamed)
    if (n.set.bits == set.bits) return std::string(n.text);
  std::string text;
  for (std::size_t t = 0; t < kDTypeCount; ++t)
    if (set.has(static_cast<DType>(t))) text += fmt::format("{}{}", text.empty() ? "" : " ", kDTypes[t].name);
  return text;
}

/// What the kernels of an op take, on any backend. The u64 of random ops is what emitting kernels are looked up by.
DTypeSet kernel_dtypes(Op op) {
  DTypeSet set;
  for (std::size_t b = 0; b < kBackendCount; ++b)
    if (const BackendCell* cell = backend_cell(op, static_cast<BackendKey>(b)))
      for (const KernelVariant& v : cell->variants) set = set | v.dtypes;
  if (op == Op::input || set.bits == 0) return kNumbersOrBoolean;
  return family(op) == Family::random ? set & kFloating : set;
}

/// The dtypes that users may call an op with, and its kernels on every backend.
void print_row(Op op) {
  DTypeSet accepted;
  if (info(op).rule == DTypeRule::none) accepted = family(op) == Family::composite ? kRealOrBoolean : kernel_dtypes(op);
  for (std::size_t t = 0; t < kDTypeCount; ++t)
    if (apply_rule(info(op).rule, static_cast<DType>(t))) accepted = accepted | static_cast<DType>(t);
  std::string kernels;
  for (std::size_t b = 0; b < kBackendCount; ++b) {
    const BackendCell* cell = backend_cell(op, static_cast<BackendKey>(b));
    if (cell == nullptr || cell->variants.empty()) continue;
    kernels += fmt::format("{}{}:", kernels.empty() ? "" : "  ", kBackendNames[b]);
    for (const KernelVariant& v : cell->variants) kernels += fmt::format(" {} ({})", v.name, name(v.form));
  }
  if (kernels.empty()) kernels = family(op) == Family::composite ? "composed of other ops" : "-";
  fmt::print("{:<20} {:<10} {:<14} {}\n", name(op), kFamilies[static_cast<std::size_t>(family(op))],
             dtypes_text(accepted), kernels);
}

/// The kernels of a backend cell that a dtype leads to, those that emit first: what compiled mode prefers.
std::string kernels_for(const BackendCell& cell, DType dtype) {
  std::string text;
  for (const bool emits : {true, false})
    for (const KernelVariant& v : cell.variants)
      if (v.dtypes.has(dtype) && (v.form == KernelForm::emit) == emits)
        text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", v.name, name(v.form));
  return text;
}

/// What the Autograd key of a device does with the operator.
std::string gradient_text(const OperatorEntry& entry, BackendKey device) {
  const KernelFunction* kernel = entry.kernels[cell_of(Functionality::autograd, device)].load();
  if (kernel == nullptr) return "none";
  if (kernel->key.kind == RegistrationKey::Kind::composite_implicit) return "of its parts";
  const auto has_own = [&](const RegistrationKey& key) {
    const std::vector<std::string> names = operators_with(key);
    return std::ranges::find(names, entry.name) != names.end();
  };
  // Else it is the fallback, under which results remember that a derivative is missing.
  const bool own = has_own(RegistrationKey::everywhere(Functionality::autograd)) ||
                   has_own(RegistrationKey::cell(Functionality::autograd, device));
  return own ? short_location(kernel->where) : "none: a backward pass throws";
}

/// Device x dtype x gradient: dtypes that lead to the same kernels share a line.
void print_devices(const OperatorEntry& entry) {
  std::vector<std::array<std::string, 4>> lines{{"device", "operand dtypes", "kernels", "gradient"}};
  for (std::size_t b = 0; b < kBackendCount; ++b) {
    const BackendCell* cell = entry.backends[b].load();
    if (cell == nullptr) continue;
    std::vector<std::pair<std::string, DTypeSet>> ways;
    for (std::size_t t = 0; t < kDTypeCount; ++t) {
      const std::string kernels = kernels_for(*cell, static_cast<DType>(t));
      const auto same = std::ranges::find(ways, kernels, &std::pair<std::string, DTypeSet>::first);
      if (kernels.empty()) continue;
      if (same == ways.end())
        ways.emplace_back(kernels, DTypeSet(static_cast<DType>(t)));
      else
        same->second = same->second | static_cast<DType>(t);
    }
    const auto key = static_cast<BackendKey>(b);
    const bool external = is_external(entry.op) && entry.kernels[cell_of(Functionality::dense, key)].load() == nullptr;
    for (const auto& [kernels, dtypes] : ways)
      if (!external)
        lines.push_back({std::string(kBackendNames[b]), dtypes_text(dtypes), kernels,
                         (dtypes & kFloating).bits != 0 ? gradient_text(entry, key) : "-"});
  }
  if (lines.size() == 1) return;
  std::array<std::size_t, 4> widths{};
  for (const auto& line : lines)
    for (std::size_t i = 0; i < line.size(); ++i) widths[i] = std::max(widths[i], line[i].size());
  fmt::print("\n");
  for (const auto& line : lines)
    fmt::print("  {:<{}}  {:<{}}  {:<{}}  {}\n", line[0], widths[0], line[1], widths[1], line[2], widths[2], line[3]);
}

/// The attributes that calls have, and what each is to a plan.
void print_attributes(Op op) {
  constexpr std::array<std::string_view, 5> kKinds = {"integer", "bool", "axis", "axes", "integers"};
  constexpr std::array<std::string_view, 4> kRoles = {"in the key of plans", "may differ from run to run",
                                                      "a size of the result, may differ from run to run",
                                                      "may differ from run to run; which of them are 1 is in the key"};
  for (const AttributeField& f : traits(op).fields)
    fmt::print("  attribute      {} ({}): {}\n", f.name, kKinds[static_cast<std::size_t>(f.kind)],
               kRoles[static_cast<std::size_t>(f.role)]);
}

void print_operator(const std::string& wanted) {
  if (const OperatorEntry* entry = find_operator(wanted)) {
    fmt::print("{}", describe_row(entry->name));
    if (!info(entry->op).formula.empty()) fmt::print("  formula        {}\n", info(entry->op).formula);
    print_attributes(entry->op);
    fmt::print("{}", describe_variants(entry->op));
    print_devices(*entry);
    return;
  }
  std::string_view nearest;
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (const auto n = name(static_cast<Op>(i));
        nearest.empty() || edit_distance(wanted, n) < edit_distance(wanted, nearest))
      nearest = n;
  throw ValueError(1333,
                   format_error(1333, "ValueError", fmt::format("no op named {}", wanted), {}, {},
                                edit_distance(wanted, nearest) <= 2 ? fmt::format("{}?", nearest)
                                                                    : std::string("`fermata ops` lists all ops")));
}

void print_all() {
  fmt::print("{:<20} {:<10} {:<14} {}\n", "op", "family", "operands", "kernels");
  for (std::size_t i = 0; i < kOpCount; ++i) print_row(static_cast<Op>(i));
  fmt::print(
      "\n{} ops. `fermata ops NAME` shows one: its formula, and every kernel with dtypes, conditions and the line that "
      "registered it.\n",
      kOpCount);
}

void print_key(const std::string& text) {
  const std::vector<std::string> names = operators_with(parse_key(text, {}));
  for (const std::string& n : names) fmt::print("{}\n", n);
  fmt::print("\n{} operators have a kernel of their own for {}, or one that their family shares.\n", names.size(),
             text);
}

void print_dangling() {
  const std::vector<std::string> kernels = dangling_kernels();
  for (const std::string& k : kernels) fmt::print("{}\n", k);
  if (kernels.empty()) fmt::print("every kernel has an operator with a schema\n");
}

}  // namespace

void add_ops(CLI::App& app) {
  CLI::App* command = app.add_subcommand("ops", "List all operators and their kernels, or show one in detail");
  const auto wanted = std::make_shared<std::string>(), key = std::make_shared<std::string>();
  const auto dangling = std::make_shared<bool>(false);
  CLI::Option* const one = command->add_option("name", *wanted, "Operator, such as matmul or my::scale");
  CLI::Option* const by_key =
      command->add_option("--key", *key, "List the operators that have a kernel for a key, such as AutogradCPU");
  command->add_flag("--dangling", *dangling, "List kernels whose operator has no schema")
      ->excludes(one)
      ->excludes(by_key);
  by_key->excludes(one);
  const auto coverage = std::make_shared<bool>(false);
  command->add_flag("--coverage", *coverage,
                    "Run every function of the array API and of neural networks and report what works");
  const auto numerics = std::make_shared<bool>(false);
  command->add_flag("--numerics", *numerics, "Print the error bounds of all ops, in the format of docs/numerics.md");
  command->callback([wanted, key, dangling, coverage, numerics] {
    if (*numerics)
      print_numerics();
    else if (*coverage)
      print_coverage();
    else if (*dangling)
      print_dangling();
    else if (!key->empty())
      print_key(*key);
    else if (!wanted->empty())
      print_operator(*wanted);
    else
      print_all();
  });
}

}  // namespace fermata::cli
