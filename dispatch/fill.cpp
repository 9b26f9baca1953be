// See fill.h.
#include "dispatch/fill.h"

#include <fmt/format.h>

#include <algorithm>

#include "ir/custom_op.h"
#include "ir/error.h"

namespace fermata {

bool is_backend_functionality(Functionality f) { return f <= Functionality::sparse_csr; }
bool per_backend(Functionality f) {
  constexpr bool kPer[] = {
#define FERMATA_KEY(name, text, per) per,
      FERMATA_FUNCTIONALITIES(FERMATA_KEY)
#undef FERMATA_KEY
  };
  return kPer[static_cast<std::size_t>(f)];
}

namespace {

/// Those that are not replaced.
std::vector<const KernelFunction*> unreplaced(std::vector<const KernelFunction*> found) {
  std::erase_if(found, [&](const KernelFunction* k) {
    return !k->replaces && std::ranges::any_of(found, [k](const KernelFunction* o) {
      return o->replaces && o->key == k->key && o->variant == k->variant;
    });
  });
  return found;
}

}  // namespace

std::vector<const KernelFunction*> with_key(const std::vector<const KernelFunction*>& kernels, RegistrationKey key) {
  std::vector<const KernelFunction*> found;
  for (const KernelFunction* k : kernels)
    if (k->key == key) found.push_back(k);
  return found.size() > 1 ? unreplaced(std::move(found)) : found;
}

namespace {

/// One kernel that picks among variants: the cheapest that fits, by name where costs are equal.
const KernelFunction* chooser(OperatorRow& row, std::vector<const KernelFunction*> variants) {
  if (variants.size() == 1) return variants[0];
  std::ranges::sort(variants, [](const KernelFunction* a, const KernelFunction* b) {
    return a->cost != b->cost ? a->cost < b->cost : a->variant < b->variant;
  });
  for (const auto& known : row.choosers)
    if (known.first == variants) return known.second;
  auto* chosen =
      new KernelFunction{.signature = variants[0]->signature, .where = variants[0]->where, .key = variants[0]->key};
  chosen->variant = "chosen";
  chosen->boxed = [variants](const Call& call, Stack& stack) {
    for (const KernelFunction* k : variants)
      if (!k->fits || k->fits(stack)) return run_kernel(*k, call, stack);
    throw UnsupportedError(
        2007,
        format_error(2007, "UnsupportedError", fmt::format("{}: no kernel accepts these arguments", call.entry.name),
                     {}, call.where, fmt::format("`fermata ops {}` shows their conditions", call.entry.name)));
  };
  row.choosers.emplace_back(std::move(variants), chosen);
  return chosen;
}

}  // namespace

const std::vector<const KernelFunction*>& family_kernels(const OperatorRow& row) {
  return table().family_kernels[static_cast<std::size_t>(family(row.entry.op))];
}

namespace {

/// The kernels registered for a backend's cell: those of the row, and those of its family whose place none of them
/// takes.
std::vector<const KernelFunction*> of_backend(const OperatorRow& row, Functionality f, std::size_t column) {
  const RegistrationKey key = RegistrationKey::cell(f, static_cast<BackendKey>(column - 1));
  std::vector<const KernelFunction*> found = with_key(row.kernels, key);
  const auto takes_the_place = [own = found](const KernelFunction* k) {
    return std::ranges::any_of(own, [k](const KernelFunction* o) { return o->variant == k->variant; });
  };
  for (const KernelFunction* k : with_key(family_kernels(row), key))
    if (!takes_the_place(k)) found.push_back(k);
  return found;
}

}  // namespace

bool has_own_kernel(const OperatorRow& row, std::size_t column) {
  return column != 0 &&
         !with_key(row.kernels, RegistrationKey::cell(Functionality::dense, static_cast<BackendKey>(column - 1)))
              .empty();
}

namespace {

/// The kernel that was registered for exactly this cell.
const KernelFunction* exact(OperatorRow& row, Functionality f, std::size_t column) {
  if (column != 0 && is_backend_functionality(f))
    if (auto found = of_backend(row, f, column); !found.empty()) return chooser(row, std::move(found));
  for (const auto* kernels :
       {static_cast<const std::vector<const KernelFunction*>*>(&row.kernels), &family_kernels(row)}) {
    if (column != 0 && per_backend(f)) {
      const auto found = with_key(*kernels, RegistrationKey::cell(f, static_cast<BackendKey>(column - 1)));
      if (!found.empty()) return found[0];
    }
    if (column != 0 && !per_backend(f)) {
      const auto found = with_key(*kernels, RegistrationKey::cell(f, static_cast<BackendKey>(column - 1)));
      if (!found.empty()) return found[0];
    }
    if (f == Functionality::autograd) continue;  // the alias, which comes later
    const auto found = with_key(*kernels, RegistrationKey::everywhere(f));
    if (!found.empty()) return found[0];
  }
  return nullptr;
}

const KernelFunction* of_kind(const OperatorRow& row, RegistrationKey::Kind kind) {
  const auto found = with_key(row.kernels, RegistrationKey::composite(kind));
  return found.empty() ? nullptr : found[0];
}

/// Is the op made of others on this backend?
bool is_composite(OperatorRow& row, std::size_t column) {
  return exact(row, Functionality::dense, column) == nullptr &&
         (of_kind(row, RegistrationKey::Kind::composite_explicit) != nullptr ||
          of_kind(row, RegistrationKey::Kind::composite_implicit) != nullptr);
}

/// The rules of docs/dispatch.md, highest first.
Filled first_of(OperatorRow& row, Functionality f, std::size_t column) {
  const bool backend = is_backend_functionality(f);
  // A kernel of the op's own is recorded as a call of it, whatever the family's variants could do.
  if (f == Functionality::capture && has_own_kernel(row, column) &&
      with_key(row.kernels, RegistrationKey::everywhere(f)).empty())
    if (const auto found = with_key(table().fallbacks, RegistrationKey::everywhere(f)); !found.empty())
      return {found[0], "calls its kernel"};
  if (const KernelFunction* k = exact(row, f, column)) return {k, "registered", k->fallthrough};
  if (backend)
    if (const KernelFunction* k = of_kind(row, RegistrationKey::Kind::composite_explicit))
      return {k, "CompositeExplicit"};
  const bool own_backend = column != 0 && (exact(row, Functionality::dense, column) != nullptr ||
                                           of_kind(row, RegistrationKey::Kind::composite_explicit) != nullptr);
  if (backend || (f == Functionality::autograd && !own_backend))
    if (const KernelFunction* k = of_kind(row, RegistrationKey::Kind::composite_implicit))
      return {k, "CompositeImplicit"};
  if (f == Functionality::autograd)
    for (const auto* kernels :
         {static_cast<const std::vector<const KernelFunction*>*>(&row.kernels), &family_kernels(row)})
      if (const auto found = with_key(*kernels, RegistrationKey::everywhere(f)); !found.empty())
        return {found[0], "Autograd alias", found[0]->fallthrough};
  for (const RegistrationKey key : {RegistrationKey::cell(f, static_cast<BackendKey>(column == 0 ? 0 : column - 1)),
                                    RegistrationKey::everywhere(f)}) {
    if (column == 0 && key.kind == RegistrationKey::Kind::cell) continue;
    const auto found = with_key(table().fallbacks, key);
    if (found.empty() || (found[0]->applies != nullptr && !found[0]->applies(row.schema))) continue;
    if (found[0]->passes_composites && is_composite(row, column)) return {nullptr, "handled by its parts", true};
    return {found[0], "fallback", found[0]->fallthrough};
  }
  return backend ? Filled{} : Filled{nullptr, "nothing to do", true};
}

/// Passing Autograd over means "not differentiable": its fallback takes the call, whose results then raise in a
/// backward pass instead of having no part in it. A kernel that is not pure draws from a stream of its own, so that
/// what it draws does not depend on when it runs.
const KernelFunction* streamed(OperatorRow& row, const KernelFunction* kernel) {
  for (const KernelFunction* known : row.streamed)
    if (known->inner == kernel) return known;
  auto* made = new KernelFunction{.signature = kernel->signature, .where = kernel->where, .key = kernel->key};
  made->variant = kernel->variant, made->inner = kernel;
  if (kernel->typed != nullptr) {
    made->typed = kernel->signature->streamed;
  } else {
    made->boxed = [kernel](const Call& call, Stack& stack) {
      const StreamScope stream;
      run_kernel(*kernel, call, stack);
    };
  }
  row.streamed.push_back(made);
  return made;
}

bool is_run_in_stream(const OperatorRow& row, const Filled& filled) {
  return filled.kernel != nullptr && !filled.fallthrough && filled.rule == "registered" && is_boxed(row.entry.op) &&
         effect_of(row.entry.op) != Effect::pure;
}

}  // namespace

Filled fill(OperatorRow& row, Functionality f, std::size_t column) {
  Filled filled = first_of(row, f, column);
  if (f == Functionality::dense && column != static_cast<std::size_t>(BackendKey::meta) + 1 &&
      is_run_in_stream(row, filled))
    filled.kernel = streamed(row, filled.kernel);
  if (f != Functionality::autograd || !filled.fallthrough || filled.kernel == nullptr) return filled;
  const auto fallback = with_key(table().fallbacks, RegistrationKey::everywhere(f));
  return fallback.empty() ? filled : Filled{fallback[0], "not differentiable"};
}

}  // namespace fermata
