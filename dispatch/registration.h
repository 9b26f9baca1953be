// What is registered, and the table that follows from it.
//
// Registration happens under one lock and in any order; every change computes the cells of the rows it concerns anew,
// so the finished table depends on what is registered and never on when. Handles are RAII: when one goes, what it
// registered goes with it, and whatever that shadowed is back. Calls take no lock: they may run a kernel while it is
// being taken away, so kernels are never freed.
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

/// What a kernel is registered for: one cell ("CPU", "AutogradCUDA", "QuantizedCPU"), a wrapper key on all backends
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
/// The key of a name; ValueError FM1513 for others.
RegistrationKey parse_key(std::string_view name, std::source_location where);

/// A kernel, however it was written. Immutable once registered.
struct KernelFunction {
  ErasedKernel typed = nullptr;                      // of the canonical signature; null: boxed only
  std::function<void(const Call&, Stack&)> boxed{};  // where `typed` is null
  std::shared_ptr<void> functor{};                   // what a typed kernel with state calls
  const SignatureOps* signature = nullptr;
  std::function<bool(const Stack&)> fits{};  // variants: does it take these arguments? Empty: always
  std::string fits_text{};                   // in words
  double cost = 0;                           // variants: the cheapest that fits runs
  std::string variant = "default";
  std::source_location where{};
  RegistrationKey key{};
  bool fallthrough = false;                  // the key is passed over
  bool replaces = false;                     // registered over another one on purpose
  bool (*applies)(const Schema*) = nullptr;  // fallbacks: for which ops; null: for all
  bool passes_composites = false;            // fallbacks: ops made of others meet it part by part
  const KernelFunction* inner = nullptr;     // made by the table: runs this one, which draws from a stream of its own
};

/// Takes a registration back when it goes. It may outlive everything.
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
  /// What is registered stays for the life of the process.
  void keep() { undo_ = nullptr; }

 private:
  std::function<void()> undo_;
};

/// Gives an operator its schema. Before or after its kernels.
[[nodiscard]] Registration register_schema(Schema schema, std::string doc, std::source_location where);
/// A kernel for an operator, which may not have a schema yet. With a signature, it must be that of the schema and of
/// the other kernels.
[[nodiscard]] Registration register_kernel(std::string_view op, KernelFunction kernel);
/// What runs for every op that has no kernel under this key.
[[nodiscard]] Registration register_fallback(KernelFunction kernel);
/// Kernels that ops of a family share, those defined later included: what the built-in wrapper keys register.
void register_family_kernel(Family family, KernelFunction kernel);
/// Makes an operator pointwise: `formula` is its part of a kernel, and it gets the family's kernels.
[[nodiscard]] Registration register_formula(std::string_view op, Family family, DTypeRule rule,
                                            std::function<Formula(DType)> formula, std::source_location where);
/// The namespace of an operator: one definition each, any number of fragments.
[[nodiscard]] Registration register_namespace(std::string_view space, std::source_location where);

/// The row of an operator by its qualified name; null where nothing of that name has a schema or a kernel.
const OperatorEntry* find_operator(std::string_view name);
/// The same; UnsupportedError FM2006 names what is near where there is no schema.
const OperatorEntry& operator_named(std::string_view name, std::source_location where);
/// Checks that the operator can be called with a signature, and makes it callable so. ValueError FM1514 otherwise.
void require_signature(const OperatorEntry& entry, const SignatureOps& ops, std::source_location where);

/// Hears of operators that get a schema, those that have one already included, and of those that lose it.
struct OperatorListener {
  std::function<void(const OperatorEntry&)> defined, removed;
};
[[nodiscard]] Registration add_listener(OperatorListener listener);

/// Kernels of operators that have no schema: "my::op for CPU, registered at file:line".
std::vector<std::string> dangling_kernels();
/// The operators that have a kernel of their own under a key.
std::vector<std::string> operators_with(const RegistrationKey& key);
/// The whole computed row: every cell, what fills it and by which rule, where it was registered. What `fermata ops
/// NAME` prints.
std::string describe_row(std::string_view name);
/// A line that is equal for equal rows, however they came about: for tests.
std::string row_fingerprint(std::string_view name);

}  // namespace fermata
