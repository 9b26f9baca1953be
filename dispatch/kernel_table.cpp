// See kernel_table.h and operator.h: rows, and the variants of backend cells. What fills a cell is in registration.cpp.
#include "dispatch/kernel_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <mutex>

#include "dispatch/call.h"
#include "dispatch/custom_call.h"
#include "dispatch/measured_choices.h"
#include "dispatch/table.h"
#include "dispatch/variant_choice.h"
#include "ir/custom_op.h"
#include "ir/edit_distance.h"
#include "ir/error.h"

namespace fermata {
namespace {

OperatorRow& row_of(Op op) {
  OperatorTable& t = table();
  const auto i = static_cast<std::size_t>(op);
  return i < kOpCount ? t.built_in[i] : *t.external[i - kOpCount].load(std::memory_order_acquire);
}

/// The schema of a built-in op, generated from its family.
const Schema* built_in_schema(Op op) {
  const std::string head = fmt::format("fermata::{}", name(op));
  switch (family(op)) {
    case Family::unary: return new Schema(parse_schema(head + "(Operand x) -> Tensor"));
    case Family::binary: return new Schema(parse_schema(head + "(Operand lhs, Operand rhs) -> Tensor"));
    case Family::ternary: return new Schema(parse_schema(head + "(Operand condition, Operand x, Operand y) -> Tensor"));
    default:
      return new Schema(parse_schema(head +
                                     "(Tensor[] operands, int[] attributes=[], int[] scalars=[], dtype? dtype=None, "
                                     "Shape sizes=[], Device device=CPU) -> Tensor"));
  }
}

std::string dtype_names(DTypeSet set, std::string_view between) {
  std::string names;
  for (std::size_t t = 0; t < kDTypeCount; ++t)
    if (set.has(static_cast<DType>(t))) names += fmt::format("{}{}", names.empty() ? "" : between, kDTypes[t].name);
  return names;
}

}  // namespace

OperatorTable::OperatorTable() : built_in(new OperatorRow[kOpCount]) {
  for (std::size_t i = 0; i < kOpCount; ++i) {
    OperatorRow& row = built_in[i];
    const Op op = static_cast<Op>(i);
    row.name = name(op), row.doc = info(op).doc;
    row.entry.name = row.name, row.entry.op = op;
    row.schema = built_in_schema(op);
    row.entry.schema = row.schema;
    row.entry.signature = &pointwise_signature(family(op));
    set_rules(row.entry);
    all.push_back(&row);
    by_name.emplace(row.name, &row), by_name.emplace("fermata::" + row.name, &row);
  }
}

OperatorRow* OperatorTable::find(std::string_view name) {
  const auto found = by_name.find(std::string(name));
  return found == by_name.end() ? nullptr : found->second;
}

OperatorRow& OperatorTable::row(const std::string& name) {
  if (OperatorRow* known = find(name)) return *known;
  auto made = std::make_unique<OperatorRow>();
  made->name = name;
  made->entry.name = made->name;
  made->entry.op = define_external_op({.name = name, .doc = {}, .formula = {}, .infer = external_infer(made->entry)});
  set_rules(made->entry);
  set_external_variants(*made, {});
  for (auto& alive : made->entry.not_fallthrough) alive = ~0ull;
  OperatorRow& added = *made.release();  // rows live as long as the process: handles refer to them
  external[static_cast<std::size_t>(added.entry.op) - kOpCount].store(&added, std::memory_order_release);
  all.push_back(&added);
  by_name.emplace(added.name, &added);
  return added;
}

Op boxed_op(OperatorRow& row) {
  if (family(row.entry.op) == Family::external) return row.entry.op;
  const std::string name = "kernel::" + row.name;
  if (const OperatorRow* known = table().find(name)) return known->entry.op;
  OperatorRow& made = table().row(name);
  made.doc = "A kernel that was registered for " + row.name + ".";
  made.entry.target = &row.entry;
  return made.entry.op;
}

OperatorEntry& operator_entry(Op op) {
  static OperatorRow* const rows = table().built_in.get();
  const auto i = static_cast<std::size_t>(op);
  return i < kOpCount ? rows[i].entry : row_of(op).entry;
}

const SignatureOps& pointwise_signature(Family family) {
  switch (family) {
    case Family::unary: return signature_ops<UnaryCall>();
    case Family::binary: return signature_ops<BinaryCall>();
    case Family::ternary: return signature_ops<TernaryCall>();
    default: return signature_ops<GeneralCall>();
  }
}

void set_rules(OperatorEntry& entry) {
  const DTypeRule rule = info(entry.op).rule;
  entry.has_condition = rule == DTypeRule::choose;
  for (std::size_t t = 0; t < kDTypeCount; ++t)
    entry.rules[t] = apply_rule(rule, static_cast<DType>(t)).value_or(kRefused);
}

std::string nearest_operator(std::string_view wanted) {
  std::string_view nearest;
  std::size_t best = 3;
  for (const OperatorRow* row : table().all)
    if (const std::size_t d = edit_distance(wanted, row->name); row->schema != nullptr && d < best)
      nearest = row->name, best = d;
  return nearest.empty() ? "`fermata ops` lists all ops" : fmt::format("{}?", nearest);
}

namespace {

/// The kernel that was registered for an op of the table itself, where there is one.
const KernelFunction* own_kernel(const OperatorRow& row, BackendKey backend) {
  const std::lock_guard lock(table().mutex);
  const RegistrationKey key = RegistrationKey::cell(Functionality::dense, backend);
  const auto own = std::ranges::find_if(row.kernels, [&](const KernelFunction* k) { return k->key == key; });
  return own == row.kernels.end() ? nullptr : row.entry.kernels[cell_of(Functionality::dense, backend)].load();
}

}  // namespace

std::string_view name(KernelForm form) {
  constexpr std::string_view kNames[] = {"call", "emit", "library"};
  return kNames[static_cast<std::size_t>(form)];
}

void set_kernel(Op op, RegistrationKey key, ErasedKernel kernel, const SignatureOps& signature,
                std::source_location where) {
  KernelFunction made{.typed = kernel, .signature = &signature, .where = where, .key = key};
  register_kernel(operator_entry(op).name, std::move(made)).keep();
}

void set_family_kernel(Family family, RegistrationKey key, ErasedKernel kernel, const SignatureOps& signature,
                       std::source_location where) {
  register_family_kernel(family, {.typed = kernel, .signature = &signature, .where = where, .key = key});
}

void set_family_kernels(RegistrationKey key, const FamilyKernels& kernels, std::source_location where) {
  set_family_kernel<UnaryCall>(Family::unary, key, kernels.unary, where);
  set_family_kernel<BinaryCall>(Family::binary, key, kernels.binary, where);
  set_family_kernel<TernaryCall>(Family::ternary, key, kernels.ternary, where);
  for (const Family family : {Family::reduce, Family::random, Family::irregular})
    set_family_kernel<GeneralCall>(family, key, kernels.general, where);
}

void set_variants(OperatorRow& row, BackendKey backend, std::vector<KernelVariant> variants) {
  auto cell = std::make_unique<BackendCell>();
  cell->variants = std::move(variants);
  for (std::size_t t = 0; t < kDTypeCount; ++t) {
    const KernelVariant* only = nullptr;
    bool choice = false;
    for (const KernelVariant& v : cell->variants) {
      if (!v.dtypes.has(static_cast<DType>(t))) continue;
      if (v.form == KernelForm::emit) cell->emits = cell->emits | static_cast<DType>(t);
      if (v.call == nullptr) continue;
      choice = choice || only != nullptr || v.fits != nullptr;
      only = &v;
    }
    cell->only_call[t] = only != nullptr && !choice ? only->call : nullptr;
    cell->inner[t] = only != nullptr && !choice ? only->inner[t] : nullptr;
  }
  // A cell is replaced and kept, never changed: calls may be reading it.
  const auto b = static_cast<std::size_t>(backend);
  row.entry.backends[b].store(cell.get(), std::memory_order_release);
  row.backends[b].push_back(std::move(cell));
}

void add_variant(Op op, BackendKey backend, KernelVariant variant) {
  OperatorRow& row = row_of(op);
  const std::lock_guard lock(table().mutex);
  const BackendCell* known = backend_cell(op, backend);
  std::vector<KernelVariant> variants = known != nullptr ? known->variants : std::vector<KernelVariant>();
  for (const KernelVariant& v : variants)
    if (v.name == variant.name)
      throw ValueError(1515, format_error(1515, "ValueError",
                                          fmt::format("{}: duplicate variant '{}' for {}", row.name, v.name,
                                                      kBackendNames[static_cast<std::size_t>(backend)]),
                                          {{"first", short_location(v.where), ""}}, variant.where, "use another name"));
  variants.push_back(std::move(variant));
  set_variants(row, backend, std::move(variants));
  if (table().batches > 0) return;
  renew_op(op);
  changed(row);
  table_generation.fetch_add(1, std::memory_order_acq_rel);
}

void set_external_variants(OperatorRow& row, std::source_location where) {
  for (std::size_t b = 0; b < kBackendCount; ++b)
    if (const auto key = static_cast<BackendKey>(b); key != BackendKey::meta)
      set_variants(row, key, external_variants(row.entry, key, where));
}

const BackendCell* backend_cell(Op op, BackendKey backend) {
  return operator_entry(op).backends[static_cast<std::size_t>(backend)].load(std::memory_order_acquire);
}

bool gives_buffer(Op op, BackendKey backend) {
  const BackendCell* cell = is_boxed(op) ? backend_cell(op, backend) : nullptr;
  return cell != nullptr && std::ranges::all_of(cell->variants, &KernelVariant::is_boxed);
}

void throw_no_dtype(const OperatorEntry& entry, BackendKey backend, DType operand, std::source_location where) {
  const BackendCell* cell = entry.backends[static_cast<std::size_t>(backend)].load(std::memory_order_acquire);
  DTypeSet available;
  if (cell != nullptr)
    for (const KernelVariant& v : cell->variants)
      if (v.call != nullptr || backend != BackendKey::cpu) available = available | v.dtypes;
  const std::string names = dtype_names(available, ", ");
  throw UnsupportedError(2002,
                         format_error(2002, "UnsupportedError",
                                      fmt::format("{}: no {} kernel for {}", entry.name,
                                                  kBackendNames[static_cast<std::size_t>(backend)], name(operand)),
                                      {}, where, names.empty() ? "" : fmt::format("cast to one of: {}", names)));
}

ChosenKernel select_call(const OperatorEntry& entry, BackendKey backend, DType operand, const CallArgs& args,
                         std::source_location where) {
  const BackendCell* cell = entry.backends[static_cast<std::size_t>(backend)].load(std::memory_order_acquire);
  double cost = 0;
  const KernelVariant* const best = cell != nullptr ? cheapest_variant(cell->variants, operand, args, &cost) : nullptr;
  if (best == nullptr) throw_no_dtype(entry, backend, operand, where);
  if (cost < kLeastCompared || backend != BackendKey::cpu) [[likely]]
    return {best->call};
  return measured_choice(*cell, *best, operand, args);
}

void run_call(const OperatorEntry& entry, BackendKey backend, DType operand, const CallArgs& args,
              std::source_location where) {
  const ChosenKernel kernel = select_call(entry, backend, operand, args, where);
  if (kernel.open != nullptr) [[unlikely]]
    return kernel.open->run(kernel.call, args);
  kernel.call(args);
}

std::string describe_variants(Op op) {
  std::string text;
  for (std::size_t b = 0; b < kBackendCount; ++b) {
    const BackendCell* cell = backend_cell(op, static_cast<BackendKey>(b));
    if (cell == nullptr) continue;
    const KernelFunction* own = is_boxed(op) ? nullptr : own_kernel(row_of(op), static_cast<BackendKey>(b));
    if (own != nullptr)
      text += fmt::format("  {:<14} {:<8} {:<12} {}\n", kBackendNames[b], name(KernelForm::call), own->variant,
                          short_location(own->where));
    for (const KernelVariant& v : cell->variants)
      text += fmt::format("  {:<14} {:<8} {:<12} {}{}   {}{}\n", kBackendNames[b], name(v.form), v.name,
                          dtype_names(v.dtypes, " "), v.fits_text.empty() ? "" : fmt::format("  where {}", v.fits_text),
                          short_location(v.where), own != nullptr ? ", after the kernel above" : "");
  }
  return text;
}

}  // namespace fermata
