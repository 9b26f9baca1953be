// Registrations, and the kernel table computed from them.
//
// Registrations are made under one lock and in any order. Every change recomputes the cells of the affected rows, so
// the table depends only on what is registered, not on when. Handles are RAII: destroying one removes its registration
// and restores what it shadowed. Calls take no lock and may run a kernel while it is being removed, so kernels are
// never freed.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <source_location>
#include <string>
#include <string_view>
#include <vector>

#include "dispatch/schema.h"
#include "dispatch/signature.h"
#include "ir/key_set.h"

namespace fermata {

/// The key of a registration: one cell ("CPU", "AutogradCUDA", "QuantizedCPU"), a wrapper key on all backends
/// ("Autocast"), the alias "Autograd", or "CompositeImplicit" and "CompositeExplicit".
struct RegistrationKey {
  enum class Kind : std::uint8_t { cell, functionality, composite_explicit, composite_implicit };
  Kind kind = Kind::cell;
  Functionality functionality = Functionality::dense;
  BackendKey backend = BackendKey::cpu;
  bool operator==(const RegistrationKey&) const = default;
  static RegistrationKey cell(Functionality f, BackendKey b) { return {Kind::cell, f, b}; }
  static RegistrationKey composite(Kind kind = Kind::composite_implicit) { return {kind, {}, {}}; }
  static RegistrationKey everywhere(Functionality f) { return {Kind::functionality, f, {}}; }
};
std::string to_string(const RegistrationKey& key);
/// Parses the name of a key. ValueError FM1513 for unknown names.
RegistrationKey parse_key(std::string_view name, std::source_location where);

/// A registered kernel, typed or boxed. Immutable once registered.
struct KernelFunction {
  ErasedKernel typed = nullptr;                      // has the canonical signature; null: boxed only
  std::function<void(const Call&, Stack&)> boxed{};  // used if `typed` is null
  std::shared_ptr<void> functor{};                   // the state of a typed kernel
  const SignatureOps* signature = nullptr;
  std::function<bool(const Stack&)> fits{};  // variants: whether it accepts the arguments; empty: always
  std::string fits_text{};                   // `fits` in words
  double cost = 0;                           // variants: the cheapest that fits runs
  std::string variant = "default";
  std::source_location where{};
  RegistrationKey key{};
  bool fallthrough = false;                  // the key is skipped
  bool replaces = false;                     // intentionally replaces another kernel
  bool (*applies)(const Schema*) = nullptr;  // fallbacks: for which ops; null: for all
  bool passes_composites = false;            // fallbacks: composite ops are decomposed first
  const KernelFunction* inner = nullptr;     // created by the table: wraps this kernel, which draws from its own stream
};

/// Undoes a registration on destruction. May outlive the table.
class Registration {
 public:
  Registration() = default;
  explicit Registration(std::function<void()> undo) : undo_(std::move(undo)) {}
  Registration(Registration&& o) noexcept : undo_(std::exchange(o.undo_, nullptr)) {}
  Registration& operator=(Registration&& o) noexcept {
    std::swap(undo_, o.undo_);
    return *this;
  }
  ~Registration() { reset(); }
  void reset() {
    if (auto undo = std::exchange(undo_, nullptr)) undo();
  }
  /// Makes the registration permanent.
  void keep() { undo_ = nullptr; }

 private:
  std::function<void()> undo_;
};

/// Registers the schema of an operator, before or after its kernels.
[[nodiscard]] Registration register_schema(Schema schema, std::string doc, std::source_location where);
/// Registers a kernel for an operator, which may not have a schema yet. A signature must match the schema and the other
/// kernels.
[[nodiscard]] Registration register_kernel(std::string_view op, KernelFunction kernel);
/// Registers a kernel for every op that has no kernel under its key.
[[nodiscard]] Registration register_fallback(KernelFunction kernel);
/// Registers a kernel shared by all ops of a family, including later ones; used by built-in wrapper keys.
void register_family_kernel(Family family, KernelFunction kernel);
/// Makes an operator pointwise, with the family's kernels and `formula` as its part of fused kernels.
[[nodiscard]] Registration register_formula(std::string_view op, Family family, DTypeRule rule,
                                            std::function<Formula(DType)> formula, std::source_location where);
/// Registers the definition of a namespace; it is an error to define one twice.
[[nodiscard]] Registration register_namespace(std::string_view space, std::source_location where);

/// Finds an operator by its qualified name; returns null if it has neither a schema nor a kernel.
const OperatorEntry* find_operator(std::string_view name);
/// find_operator() that throws UnsupportedError FM2006, with similar names, if there is no schema.
const OperatorEntry& operator_named(std::string_view name, std::source_location where);
/// Checks that the operator can be called with a signature, and prepares its cells for it. ValueError FM1514 otherwise.
void require_signature(const OperatorEntry& entry, const SignatureOps& ops, std::source_location where);

/// Called when an operator gains or loses a schema, and once for each that already has one.
struct OperatorListener {
  std::function<void(const OperatorEntry&)> defined, removed;
};
[[nodiscard]] Registration add_listener(OperatorListener listener);

/// Kernels of operators that have no schema: "my::op for CPU, registered at file:line".
std::vector<std::string> dangling_kernels();
/// The operators that have their own kernel under a key.
std::vector<std::string> operators_with(const RegistrationKey& key);
/// The whole computed row, as printed by `fermata ops NAME`: every cell, the kernel that fills it, by which rule, and
/// where it was registered.
std::string describe_row(std::string_view name);
/// For tests: a line that is equal for equal rows, independent of registration order.
std::string row_fingerprint(std::string_view name);

}  // namespace fermata
