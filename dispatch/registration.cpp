// See registration.h. The table is written under one lock and read without any.
#include "dispatch/registration.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "dispatch/fill.h"
#include "dispatch/table.h"
#include "ir/custom_op.h"
#include "ir/error.h"
#include "ir/keep_forever.h"

namespace fermata {

namespace {

std::string_view text(Functionality f) { return kFunctionalityNames[static_cast<std::size_t>(f)]; }
std::string_view text(BackendKey b) { return kBackendNames[static_cast<std::size_t>(b)]; }

std::string place(std::source_location where) { return short_location(where); }

[[noreturn]] void conflict(const std::string& what, const KernelFunction& before, std::source_location where) {
  throw ValueError(1515, format_error(1515, "ValueError", what, {{"first", place(before.where), ""}}, where,
                                      "mark it as a replacement, or use another name"));
}

/// Two kernels of one key: an error unless one of them says that it replaces the other.
void check_conflict(const std::string& what, const std::vector<const KernelFunction*>& kernels,
                    const KernelFunction& added) {
  const bool variants =
      added.key.kind == RegistrationKey::Kind::cell && is_backend_functionality(added.key.functionality);
  for (const KernelFunction* k : kernels) {
    if (k->key != added.key || k->replaces != added.replaces) continue;
    if (variants && k->variant != added.variant) continue;
    conflict(variants ? fmt::format("{}: duplicate kernel '{}' for {}", what, added.variant, to_string(added.key))
                      : fmt::format("{}: duplicate kernel for {}", what, to_string(added.key)),
             *k, added.where);
  }
}

/// The backend kernel that an op shares with its family is a first one, too. What a family has for wrapper keys is what
/// an op without a kernel of its own gets.
void check_replaces_family(const OperatorRow& row, const KernelFunction& added) {
  if (added.replaces || table().batches > 0) return;  // a batch is the engine's own
  if (added.key.kind != RegistrationKey::Kind::cell || !is_backend_functionality(added.key.functionality)) return;
  // A device may compile for a family without having code for this op.
  const BackendCell* cell = row.entry.backends[static_cast<std::size_t>(added.key.backend)].load();
  if (cell == nullptr || cell->variants.empty()) return;
  for (const KernelFunction* k : family_kernels(row))
    if (k->key == added.key && k->variant == added.variant)
      conflict(fmt::format("{}: duplicate kernel for {}", row.name, to_string(added.key)), *k, added.where);
}

/// A composite serves backends without a kernel. Ops of the table have one on each, so it would never be called.
void check_replaces_by_composite(const OperatorRow& row, const KernelFunction& added) {
  const bool is_composite = added.key.kind == RegistrationKey::Kind::composite_implicit ||
                            added.key.kind == RegistrationKey::Kind::composite_explicit;
  if (!added.replaces || !is_composite || table().batches > 0) return;
  if (is_external(row.entry.op) || family(row.entry.op) == Family::composite) return;
  throw ValueError(1520,
                   format_error(1520, "ValueError",
                                fmt::format("{}: a composite cannot replace the kernels that backends have", row.name),
                                {{"kernel", to_string(added.key), ""}}, added.where,
                                "name the backend whose kernel it replaces: FERMATA_LIBRARY_IMPL(fermata, CPU, m)"));
}

std::string signature_text(const SignatureOps& ops) {
  std::string out = "(";
  for (const ArgType& t : ops.arguments()) out += (out.size() > 1 ? ", " : "") + to_string(t);
  out += ") -> ";
  const auto results = ops.results();
  if (results.size() != 1) out += "(";
  for (std::size_t i = 0; i < results.size(); ++i) out += (i > 0 ? ", " : "") + to_string(results[i]);
  return results.size() != 1 ? out + ")" : out;
}

bool agrees(const Schema& schema, const SignatureOps& ops) {
  const auto arguments = ops.arguments(), results = ops.results();
  if (arguments.size() != schema.arguments.size()) return false;
  for (std::size_t i = 0; i < arguments.size(); ++i)
    if (arguments[i] != schema.arguments[i].type) return false;
  if (results.empty()) return schema.results.empty();
  if (results.size() != schema.results.size()) return false;
  for (std::size_t i = 0; i < results.size(); ++i)
    if (results[i] != schema.results[i].type) return false;
  return true;
}

void check_signature(const OperatorRow& row, const SignatureOps& ops, std::source_location where) {
  if (row.schema != nullptr && !agrees(*row.schema, ops))
    throw ValueError(
        1514,
        format_error(1514, "ValueError", fmt::format("{}: the signature does not match the schema", row.name),
                     {{"schema", to_string(*row.schema), place(row.schema_where)}, {"kernel", signature_text(ops), ""}},
                     where));
  const SignatureOps* known = row.entry.signature.load(std::memory_order_relaxed);
  if (known == nullptr || *known->type == *ops.type) return;
  std::string first;
  for (const KernelFunction* k : row.kernels)
    if (k->signature == known) first = place(k->where);
  throw ValueError(
      1514, format_error(1514, "ValueError",
                         fmt::format("{}: the signature does not match that of the other kernels", row.name),
                         {{"first", signature_text(*known), first}, {"kernel", signature_text(ops), ""}}, where));
}

ErasedKernel typed_face(const KernelFunction* k, const SignatureOps* signature) {
  if (signature == nullptr) return nullptr;
  if (k == nullptr) return signature->missing;
  return k->typed != nullptr ? k->typed : signature->boxed;
}

/// Stores what a reader may have met before; true if it is another one.
template <class T> bool replace(std::atomic<T>& place, T value) {
  return place.exchange(value, std::memory_order_acq_rel) != value;
}

void recompute(OperatorRow& row) {
  OperatorEntry& entry = row.entry;
  bool differs = false;
  for (std::size_t b = 0; b < kBackendCount; ++b)
    if (has_own_kernel(row, b + 1)) differs |= replace(entry.boxed, boxed_op(row));
  const SignatureOps* signature = entry.signature.load(std::memory_order_relaxed);
  entry.cells[0].store(typed_face(nullptr, signature), std::memory_order_release);
  for (std::size_t column = 0; column <= kBackendCount; ++column) {
    std::uint64_t alive = 0xff;
    if (column != 0) entry.cells[column].store(typed_face(nullptr, signature), std::memory_order_release);
    for (std::size_t i = 0; i < kFunctionalityCount; ++i) {
      const auto f = static_cast<Functionality>(i);
      const Filled filled = fill(row, f, column);
      if (!filled.fallthrough) alive |= DispatchKeySet(f).bits;
      const std::size_t cell = (i + 1) * 8 + column;
      const KernelFunction* kernel = filled.fallthrough ? nullptr : filled.kernel;
      differs |= replace(entry.kernels[cell], kernel);
      entry.cells[cell].store(typed_face(kernel, signature), std::memory_order_release);
    }
    differs |= replace(entry.not_fallthrough[column], alive);
  }
  if (differs) table_generation.fetch_add(1, std::memory_order_acq_rel);
}

void recompute_all() {
  if (table().batches > 0) return;
  for (std::size_t i = 0; i < table().all.size(); ++i) recompute(*table().all[i]);  // rows for calls may be added
}
/// Calls may be running it when it is taken away.
const KernelFunction* kept(KernelFunction&& kernel) { return keep_forever<KernelFunction>(std::move(kernel)); }

Registration undo_in(std::vector<const KernelFunction*>& list, const KernelFunction* kernel, OperatorRow* row) {
  return Registration([&list, kernel, row] {
    const std::lock_guard lock(table().mutex);
    std::erase(list, kernel);
    if (row != nullptr)
      changed(*row);
    else
      recompute_all();
  });
}

}  // namespace

std::atomic<std::uint64_t> table_generation{0};

void changed(OperatorRow& row) {
  if (table().batches == 0) recompute(row);
}

std::string to_string(const RegistrationKey& key) {
  switch (key.kind) {
    case RegistrationKey::Kind::composite_explicit: return "CompositeExplicit";
    case RegistrationKey::Kind::composite_implicit: return "CompositeImplicit";
    case RegistrationKey::Kind::functionality: return std::string(text(key.functionality));
    case RegistrationKey::Kind::cell: break;
  }
  if (key.functionality == Functionality::dense) return std::string(text(key.backend));
  return fmt::format("{}{}", text(key.functionality), text(key.backend));
}

RegistrationKey parse_key(std::string_view name, std::source_location where) {
  std::vector<RegistrationKey> all{RegistrationKey::composite(RegistrationKey::Kind::composite_explicit),
                                   RegistrationKey::composite(RegistrationKey::Kind::composite_implicit)};
  for (std::size_t i = 0; i < kFunctionalityCount; ++i) {
    const auto f = static_cast<Functionality>(i);
    if (!per_backend(f) || f == Functionality::autograd) all.push_back(RegistrationKey::everywhere(f));
    for (std::size_t b = 0; b < kBackendCount; ++b) all.push_back(RegistrationKey::cell(f, static_cast<BackendKey>(b)));
  }
  std::string known;
  for (const RegistrationKey& key : all) {
    if (to_string(key) == name) return key;
    if (key.kind != RegistrationKey::Kind::cell || key.functionality == Functionality::dense)
      known += (known.empty() ? "" : ", ") + to_string(key);
  }
  throw ValueError(
      1513,
      format_error(1513, "ValueError", fmt::format("there is no dispatch key {}", name), {}, where,
                   fmt::format("use one of {}, or one of them with a backend: AutogradCPU, QuantizedCPU", known)));
}

OperatorTable& table() {
  static auto* t = new OperatorTable;  // outlives every static tensor
  return *t;
}

RegistrationBatch::RegistrationBatch() : lock_(table().mutex) { ++table().batches; }
RegistrationBatch::~RegistrationBatch() {
  --table().batches;
  recompute_all();
}

Registration register_schema(Schema schema, std::string doc, std::source_location where) {
  OperatorTable& t = table();
  std::unique_lock lock(t.mutex);
  OperatorRow& row = t.row(schema.qualified_name());
  if (row.schema != nullptr)
    throw ValueError(1516, format_error(1516, "ValueError", fmt::format("{}: duplicate schema", row.name),
                                        {{"first", to_string(*row.schema), place(row.schema_where)}}, where));
  if (const SignatureOps* known = row.entry.signature.load(); known != nullptr && !agrees(schema, *known)) {
    std::string first;
    for (const KernelFunction* k : row.kernels)
      if (k->signature == known) first = place(k->where);
    throw ValueError(
        1514, format_error(1514, "ValueError", fmt::format("{}: the schema does not match the kernels", row.name),
                           {{"schema", to_string(schema), ""}, {"kernel", signature_text(*known), first}}, where));
  }
  row.schema = keep_forever<Schema>(std::move(schema));  // a call may be reading it when it is taken away
  set_effect(row.entry.op, row.schema->effect.value_or(Effect::effect));
  row.doc = std::move(doc), row.schema_where = where;
  row.entry.schema.store(row.schema, std::memory_order_release);
  changed(row);
  const auto listeners = t.listeners;
  lock.unlock();
  for (const auto& [id, l] : listeners)
    if (l.defined) l.defined(row.entry);
  return Registration([&row] {
    std::unique_lock again(table().mutex);
    row.schema = nullptr;
    row.entry.schema.store(nullptr, std::memory_order_release);
    changed(row);
    const auto hearing = table().listeners;
    again.unlock();
    for (const auto& [id, l] : hearing)
      if (l.removed) l.removed(row.entry);
  });
}

Registration register_kernel(std::string_view op, KernelFunction kernel) {
  OperatorTable& t = table();
  const std::lock_guard lock(t.mutex);
  OperatorRow& row = t.row(std::string(op));
  if (kernel.signature != nullptr) check_signature(row, *kernel.signature, kernel.where);
  check_conflict(row.name, row.kernels, kernel);
  check_replaces_family(row, kernel);
  check_replaces_by_composite(row, kernel);
  if (kernel.signature != nullptr && row.entry.signature.load() == nullptr) row.entry.signature.store(kernel.signature);
  row.kernels.push_back(kept(std::move(kernel)));
  changed(row);
  const KernelFunction* added = row.kernels.back();
  return Registration([&row, added] {
    const std::lock_guard again(table().mutex);
    std::erase(row.kernels, added);
    // The signature is that of the kernels: with the last one it is free again, unless the schema fixes it anyway.
    if (std::ranges::none_of(row.kernels, [](const KernelFunction* k) { return k->signature != nullptr; }) &&
        row.schema == nullptr)
      row.entry.signature.store(nullptr);
    changed(row);
  });
}

Registration register_fallback(KernelFunction kernel) {
  OperatorTable& t = table();
  const std::lock_guard lock(t.mutex);
  check_conflict("fallback", t.fallbacks, kernel);
  t.fallbacks.push_back(kept(std::move(kernel)));
  recompute_all();
  return undo_in(t.fallbacks, t.fallbacks.back(), nullptr);
}

void register_family_kernel(Family family, KernelFunction kernel) {
  OperatorTable& t = table();
  const std::lock_guard lock(t.mutex);
  auto& kernels = t.family_kernels[static_cast<std::size_t>(family)];
  check_conflict("a family", kernels, kernel);
  kernels.push_back(kept(std::move(kernel)));
  recompute_all();
}

Registration register_formula(std::string_view op, Family family, DTypeRule rule, std::function<Formula(DType)> formula,
                              std::source_location where) {
  OperatorTable& t = table();
  const std::lock_guard lock(t.mutex);
  OperatorRow& row = t.row(std::string(op));
  const SignatureOps& ops = pointwise_signature(family);
  check_signature(row, ops, where);
  define_external_op(
      {.name = row.name, .family = family, .rule = rule, .doc = row.doc, .formula = std::move(formula), .infer = {}});
  set_rules(row.entry);
  set_effect(row.entry.op, Effect::pure);
  set_external_variants(row, where);
  row.entry.signature.store(&ops);
  changed(row);
  table_generation.fetch_add(1, std::memory_order_acq_rel);  // what the cells hold means something else
  return Registration([&row] {
    const std::lock_guard again(table().mutex);
    table_generation.fetch_add(1, std::memory_order_acq_rel);
    define_external_op({.name = row.name,
                        .family = Family::external,
                        .rule = DTypeRule::none,
                        .doc = row.doc,
                        .formula = {},
                        .infer = external_infer(row.entry)});
    set_rules(row.entry);
    set_effect(row.entry.op, row.schema != nullptr ? row.schema->effect.value_or(Effect::effect) : Effect::effect);
    set_external_variants(row, {});
    changed(row);
  });
}

Registration register_namespace(std::string_view space, std::source_location where) {
  OperatorTable& t = table();
  const std::lock_guard lock(t.mutex);
  const auto [at, fresh] = t.namespaces.try_emplace(std::string(space), where);
  if (!fresh)
    throw ValueError(
        1517, format_error(1517, "ValueError", fmt::format("the namespace {} is defined twice", space),
                           {{"first", place(at->second), ""}}, where, "use FERMATA_LIBRARY_FRAGMENT to extend it"));
  return Registration([name = std::string(space)] {
    const std::lock_guard again(table().mutex);
    table().namespaces.erase(name);
  });
}

const OperatorEntry* find_operator(std::string_view name) {
  OperatorTable& t = table();
  const std::lock_guard lock(t.mutex);
  const OperatorRow* row = t.find(name);
  return row == nullptr ? nullptr : &row->entry;
}

const OperatorEntry& operator_named(std::string_view name, std::source_location where) {
  const OperatorEntry* entry = find_operator(name);
  if (entry != nullptr && entry->schema.load() != nullptr) return *entry;
  const std::string hint = entry != nullptr ? "it has kernels: define its schema with def()" : nearest_operator(name);
  throw UnsupportedError(
      2006, format_error(2006, "UnsupportedError", fmt::format("{}: no operator of this name has a schema", name), {},
                         where, hint));
}

void require_signature(const OperatorEntry& entry, const SignatureOps& ops, std::source_location where) {
  OperatorTable& t = table();
  const std::lock_guard lock(t.mutex);
  OperatorRow& row = *t.find(entry.name);
  check_signature(row, ops, where);
  if (row.entry.signature.load() != nullptr) return;
  row.entry.signature.store(&ops);
  changed(row);
}

Registration add_listener(OperatorListener listener) {
  OperatorTable& t = table();
  std::unique_lock lock(t.mutex);
  const std::uint64_t id = t.next_listener++;
  t.listeners.emplace(id, listener);
  std::vector<const OperatorEntry*> known;
  for (const OperatorRow* row : t.all)
    if (row->schema != nullptr) known.push_back(&row->entry);
  lock.unlock();
  if (listener.defined)
    for (const OperatorEntry* entry : known) listener.defined(*entry);
  return Registration([id] {
    const std::lock_guard again(table().mutex);
    table().listeners.erase(id);
  });
}

std::vector<std::string> dangling_kernels() {
  const std::lock_guard lock(table().mutex);
  std::vector<std::string> found;
  for (const OperatorRow* row : table().all)
    if (row->schema == nullptr)
      for (const KernelFunction* k : row->kernels)
        found.push_back(fmt::format("{} for {}, registered at {}", row->name, to_string(k->key), place(k->where)));
  std::ranges::sort(found);
  return found;
}

std::vector<std::string> operators_with(const RegistrationKey& key) {
  const std::lock_guard lock(table().mutex);
  std::vector<std::string> found;
  for (const OperatorRow* row : table().all)
    if (!with_key(row->kernels, key).empty() || !with_key(family_kernels(*row), key).empty())
      found.push_back(row->name);
  std::ranges::sort(found);
  return found;
}

namespace {

/// One line per distinct way that cells are filled: "AutogradCPU, AutogradCUDA, ... <- rule, place".
struct RowLines {
  std::vector<std::pair<std::string, std::string>> lines;  // what, cells
  void add(const std::string& what, const std::string& cell) {
    const auto at = std::ranges::find(lines, what, &std::pair<std::string, std::string>::first);
    if (at == lines.end())
      lines.emplace_back(what, cell);
    else
      at->second += ", " + cell;
  }
};

RowLines row_lines(OperatorRow& row) {
  RowLines out;
  for (std::size_t i = kFunctionalityCount; i-- > 0;) {
    const auto f = static_cast<Functionality>(i);
    for (std::size_t column = per_backend(f) ? 1 : 0; column <= kBackendCount; ++column) {
      const Filled filled = fill(row, f, column);
      if (filled.kernel == nullptr && !is_backend_functionality(f)) continue;
      const bool whole = !per_backend(f) && column == 0;
      const std::string cell =
          whole ? std::string(text(f)) : to_string(RegistrationKey::cell(f, static_cast<BackendKey>(column - 1)));
      if (filled.kernel == nullptr) continue;
      if (!whole && !per_backend(f) && fill(row, f, 0).kernel == filled.kernel) continue;
      out.add(fmt::format("{}{}{}, {}", filled.rule, filled.fallthrough ? ", passed over" : "",
                          filled.kernel->variant == "default" ? "" : fmt::format(" '{}'", filled.kernel->variant),
                          place(filled.kernel->where)),
              cell);
    }
  }
  return out;
}

/// Cells of one functionality on every backend, or on every one but the CPU, as one name.
std::string shortened(std::string cells) {
  for (std::size_t i = 0; i < kFunctionalityCount; ++i) {
    const auto f = static_cast<Functionality>(i);
    if (!per_backend(f)) continue;
    for (const std::size_t first : {std::size_t{0}, std::size_t{1}}) {
      std::string all;
      for (std::size_t b = first; b < kBackendCount; ++b)
        all += (b == first ? "" : ", ") + to_string(RegistrationKey::cell(f, static_cast<BackendKey>(b)));
      const std::size_t at = cells.find(all);
      if (at == cells.npos) continue;
      const std::string one = f == Functionality::dense ? "every backend" : fmt::format("{}*", text(f));
      cells.replace(at, all.size(), first == 0 ? one : one + " but the CPU's");
    }
  }
  return cells;
}

}  // namespace

std::string describe_row(std::string_view name) {
  const std::lock_guard lock(table().mutex);
  OperatorRow* row = table().find(name);
  if (row == nullptr) return {};
  std::string out = fmt::format("{}\n", row->schema != nullptr ? to_string(*row->schema) : row->name + ": no schema");
  if (!row->doc.empty()) out += fmt::format("  {}\n", row->doc);
  if (row->schema != nullptr && row->schema_where.line() != 0)
    out += fmt::format("  defined at {}\n", place(row->schema_where));
  for (const auto& [what, cells] : row_lines(*row).lines)
    out += fmt::format("  {:<14} <- {}\n", shortened(cells), what);
  return out;
}

std::string row_fingerprint(std::string_view name) {
  const std::lock_guard lock(table().mutex);
  OperatorRow* row = table().find(name);
  std::string out;
  if (row == nullptr) return out;
  for (const auto& [what, cells] : row_lines(*row).lines) out += fmt::format("{}<-{};", cells, what);
  for (std::size_t column = 0; column <= kBackendCount; ++column)
    out += fmt::format("{:x};", row->entry.not_fallthrough[column].load());
  return out;
}

}  // namespace fermata
