// See kernel_table.h and operator.h. The table is written under one lock and read without any.
#include "dispatch/kernel_table.h"

#include <fmt/format.h>

#include <memory>
#include <mutex>
#include <unordered_map>

#include "ir/error.h"

namespace fermata {
namespace {

[[noreturn]] void throw_missing(const Call& call) {
  std::string keys;
  for (std::size_t b = 0; b < kBackendCount; ++b)
    if (call.entry.cells[cell_of(Functionality::dense, static_cast<BackendKey>(b))].load() !=
        call.entry.cells[0].load())
      keys += fmt::format("{}{}", keys.empty() ? "" : ", ", kBackendNames[b]);
  const std::size_t row = call.keys.cell() / 8, column = call.keys.cell() % 8;
  const std::string key = fmt::format("{}{}", row == 0 ? "no key" : kFunctionalityNames[row - 1],
                                      column == 0 ? "" : fmt::format("/{}", kBackendNames[column - 1]));
  throw UnsupportedError(2001, format_error(2001, "UnsupportedError",
                                            fmt::format("{}: no kernel for {}", call.entry.name, key), {}, call.where,
                                            fmt::format("kernels exist for: {}; `fermata ops {}` prints the row",
                                                        keys.empty() ? "nothing" : keys, call.entry.name)));
}

Tensor missing_unary(const Call& call, const Operand&) { throw_missing(call); }
Tensor missing_binary(const Call& call, const Operand&, const Operand&) { throw_missing(call); }
Tensor missing_ternary(const Call& call, const Operand&, const Operand&, const Operand&) { throw_missing(call); }
Tensor missing_general(const Call& call, std::span<const Tensor>, const Attributes&) { throw_missing(call); }

struct Row {
  OperatorEntry entry;
  std::unordered_map<std::size_t, std::source_location> registered;  // by cell
  std::array<std::unique_ptr<BackendCell>, kBackendCount> backends;
};

struct Table {
  std::mutex mutex;
  std::array<Row, kOpCount> rows;
  Table() {
    for (std::size_t i = 0; i < kOpCount; ++i) initialise(rows[i].entry, static_cast<Op>(i));
  }
  static void initialise(OperatorEntry& entry, Op op) {
    entry.name = name(op), entry.op = op;
    for (std::size_t t = 0; t < kDTypeCount; ++t)
      entry.rules[t] = apply_rule(info(op).rule, static_cast<DType>(t)).value_or(kRefused);
    ErasedKernel missing;
    switch (family(op)) {
      case Family::unary:
        missing = reinterpret_cast<ErasedKernel>(&missing_unary), entry.signature = &typeid(UnaryCall);
        break;
      case Family::binary:
        missing = reinterpret_cast<ErasedKernel>(&missing_binary), entry.signature = &typeid(BinaryCall);
        break;
      case Family::ternary:
        missing = reinterpret_cast<ErasedKernel>(&missing_ternary), entry.signature = &typeid(TernaryCall);
        break;
      default: missing = reinterpret_cast<ErasedKernel>(&missing_general), entry.signature = &typeid(GeneralCall);
    }
    for (auto& cell : entry.cells) cell.store(missing, std::memory_order_relaxed);
  }
};

Table& table() {
  static Table* t = new Table;  // outlives every static tensor
  return *t;
}
Row& row(Op op) { return table().rows[static_cast<std::size_t>(op)]; }

}  // namespace

OperatorEntry& operator_entry(Op op) {
  static Table& t = table();
  return t.rows[static_cast<std::size_t>(op)].entry;
}

std::string_view name(KernelForm form) {
  constexpr std::string_view kNames[] = {"call", "emit", "library"};
  return kNames[static_cast<std::size_t>(form)];
}

void set_kernel(Op op, std::size_t cell, ErasedKernel kernel, const std::type_info& signature,
                std::source_location where) {
  Row& r = row(op);
  std::lock_guard lock(table().mutex);
  if (*r.entry.signature != signature)
    throw InternalError(9002, format_error(9002, "InternalError",
                                           fmt::format("{}: a kernel of another signature was registered", name(op)),
                                           {}, where));
  if (const auto before = r.registered.find(cell); before != r.registered.end())
    throw InternalError(9003, format_error(9003, "InternalError",
                                           fmt::format("{}: a second kernel for one cell; the first is at {}", name(op),
                                                       short_location(before->second)),
                                           {}, where));
  r.registered.emplace(cell, where);
  r.entry.cells[cell].store(kernel, std::memory_order_release);
}

void set_fallthrough(Op op, Functionality key) {
  row(op).entry.not_fallthrough.fetch_and(~DispatchKeySet(key).bits);
}

void add_variant(Op op, BackendKey backend, KernelVariant variant) {
  Row& r = row(op);
  std::lock_guard lock(table().mutex);
  auto& owned = r.backends[static_cast<std::size_t>(backend)];
  if (owned == nullptr) owned = std::make_unique<BackendCell>();
  for (const KernelVariant& v : owned->variants)
    if (v.name == variant.name)
      throw InternalError(9003, format_error(9003, "InternalError",
                                             fmt::format("{}: a second variant {}; the first is at {}", name(op),
                                                         v.name, short_location(v.where)),
                                             {}, variant.where));
  owned->variants.push_back(std::move(variant));
  BackendCell& cell = *owned;
  for (std::size_t t = 0; t < kDTypeCount; ++t) {
    const KernelVariant* only = nullptr;
    bool choice = false;
    for (const KernelVariant& v : cell.variants) {
      if (!v.dtypes.has(static_cast<DType>(t))) continue;
      if (v.form == KernelForm::emit) cell.emits = cell.emits | static_cast<DType>(t);
      if (v.call == nullptr) continue;
      choice = choice || only != nullptr || v.fits != nullptr;
      only = &v;
    }
    cell.only_call[t] = only != nullptr && !choice ? only->call : nullptr;
    cell.inner[t] = only != nullptr && !choice ? only->inner[t] : nullptr;
  }
  r.entry.backends[static_cast<std::size_t>(backend)].store(&cell, std::memory_order_release);
}

const BackendCell* backend_cell(Op op, BackendKey backend) {
  return operator_entry(op).backends[static_cast<std::size_t>(backend)].load(std::memory_order_acquire);
}

const KernelVariant& select_call(const OperatorEntry& entry, BackendKey backend, DType operand, const CallArgs& args,
                                 std::source_location where) {
  const BackendCell* cell = entry.backends[static_cast<std::size_t>(backend)].load(std::memory_order_acquire);
  const KernelVariant* best = nullptr;
  double best_cost = 0;
  DTypeSet available;
  if (cell != nullptr) {
    for (const KernelVariant& v : cell->variants) {
      if (v.call == nullptr) continue;
      available = available | v.dtypes;
      if (!v.dtypes.has(operand) || (v.fits != nullptr && !v.fits(args))) continue;
      const double cost = v.cost != nullptr ? v.cost(args) : 0;
      if (best == nullptr || cost < best_cost) best = &v, best_cost = cost;
    }
  }
  if (best != nullptr) return *best;
  std::string names;
  for (std::size_t t = 0; t < kDTypeCount; ++t)
    if (available.has(static_cast<DType>(t))) names += fmt::format("{}{}", names.empty() ? "" : ", ", kDTypes[t].name);
  throw UnsupportedError(
      2002, format_error(2002, "UnsupportedError",
                         fmt::format("{}: no {} kernel for {}", entry.name, kBackendNames[static_cast<std::size_t>(backend)],
                                     name(operand)),
                         {}, where, names.empty() ? "" : fmt::format("cast to one of: {}", names)));
}

std::string describe_operator(Op op) {
  const Row& r = row(op);
  std::lock_guard lock(table().mutex);
  std::string text = fmt::format("{}: {}\n", r.entry.name, info(op).doc);
  if (!info(op).formula.empty()) text += fmt::format("  formula  {}\n", info(op).formula);
  for (std::size_t cell = 0; cell < kCells; ++cell) {
    const auto found = r.registered.find(cell);
    if (found == r.registered.end()) continue;
    text += fmt::format("  {:<12} {:<6} wrapper or composite kernel   {}\n", kFunctionalityNames[cell / 8 - 1],
                        cell % 8 == 0 ? "" : kBackendNames[cell % 8 - 1], short_location(found->second));
  }
  for (std::size_t b = 0; b < kBackendCount; ++b) {
    if (r.backends[b] == nullptr) continue;
    for (const KernelVariant& v : r.backends[b]->variants) {
      std::string dtypes;
      for (std::size_t t = 0; t < kDTypeCount; ++t)
        if (v.dtypes.has(static_cast<DType>(t))) dtypes += fmt::format("{}{}", dtypes.empty() ? "" : " ", kDTypes[t].name);
      text += fmt::format("  {:<12} {:<6} {:<8} {:<10} {}{}   {}\n", "Dense", kBackendNames[b], name(v.form), v.name,
                          dtypes, v.fits_text.empty() ? "" : fmt::format("  where {}", v.fits_text),
                          short_location(v.where));
    }
  }
  return text;
}

}  // namespace fermata
