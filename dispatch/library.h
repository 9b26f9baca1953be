// Operator libraries: define custom operators and register kernels for existing ones.
//
//   FERMATA_LIBRARY(my, m) { m.def("scale(Tensor x, float factor=2) -> Tensor"); }
//   FERMATA_LIBRARY_IMPL(my, CPU, m) { m.impl("scale", [](const Tensor& x, double factor) { ... }); }
//   FERMATA_LIBRARY_IMPL(my, Autograd, m) { m.impl("scale", &scale_autograd); }
//
// A namespace is defined once and extended by fragments. Registrations last as long as their Library; those of the
// macros live as long as the program or shared object that contains them. docs/adding-an-op.md walks through an
// example.
#pragma once

#include <concepts>
#include <source_location>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "dispatch/registration.h"
#include "ir/custom_op.h"
#include "ir/formula_rows.h"
#include "ir/scalar_math.h"

namespace fermata {

/// How a kernel relates to others of its key.
struct KernelOptions {
  std::string variant = "default";           // backend keys may have several variants with different names
  std::function<bool(const Stack&)> fits{};  // whether it accepts the arguments; empty: always
  std::string fits_text{};                   // `fits` in words, for `fermata ops`
  double cost = 0;                           // among variants that fit, the cheapest runs
  bool replaces = false;                     // replaces an existing or later kernel
};

namespace detail {

template <class F, class Signature> struct KernelThunk;
template <class F, class R, class... C> struct KernelThunk<F, R(C...)> {
  using Traits = FunctionTraits<F>;
  static R stateless(const Call& call, C... args) {
    F f{};
    return Traits::invoke(f, call, std::forward<C>(args)...);
  }
  static R stateful(const Call& call, C... args) {
    const KernelFunction* k = call.kernel;
    if (k == nullptr) k = call.entry.kernels[call.keys.cell()].load(std::memory_order_acquire);
    if (k == nullptr || k->typed != reinterpret_cast<ErasedKernel>(&stateful)) [[unlikely]]  // replaced just now
      return Dispatcher<R(C...)>::call_with(call.entry, call.keys, call.where, std::forward<C>(args)...);
    return Traits::invoke(*static_cast<F*>(k->functor.get()), call, std::forward<C>(args)...);
  }
};

}  // namespace detail

/// Makes a kernel from a function, lambda or function object whose parameters are argument types. An optional first
/// parameter `const Call&` receives the keys of the call.
template <class F> KernelFunction make_kernel(F f, std::source_location where) {
  using Signature = CanonicalSignature<F>;
  using Thunk = detail::KernelThunk<F, Signature>;
  KernelFunction kernel{.signature = &signature_ops<Signature>(), .where = where};
  if constexpr (std::is_empty_v<F> && std::default_initializable<F>) {
    kernel.typed = reinterpret_cast<ErasedKernel>(&Thunk::stateless);
  } else {
    kernel.functor = std::make_shared<F>(std::move(f));
    kernel.typed = reinterpret_cast<ErasedKernel>(&Thunk::stateful);
  }
  return kernel;
}

using BoxedKernel = std::function<void(const Call&, Stack&)>;

class Library {
 public:
  enum class Kind : std::uint8_t { definition, fragment, implementation };
  /// Keeps the calling shared library loaded, even after dlclose.
  ///
  /// `key` is for implementations. The namespace `_` means all namespaces; fallbacks are registered there.
  Library(Kind kind, std::string_view space, std::string_view key = {},
          std::source_location where = std::source_location::current());
  Library(Library&&) noexcept = default;
  Library& operator=(Library&&) noexcept = default;

  /// Defines an operator by its schema, in the namespace of the library.
  Library& def(std::string_view schema, std::string doc = {},
               std::source_location where = std::source_location::current());
  /// Defines an operator with a kernel composed of other operators (CompositeImplicit). `schema` may be just a name;
  /// the rest is derived from the signature of the kernel.
  template <class F>
  requires(!std::convertible_to<F, std::string>) Library& def(
      std::string_view schema, F kernel, std::string doc = {},
      std::source_location where = std::source_location::current()) {
    KernelFunction made = make_kernel(std::move(kernel), where);
    define_with(schema, std::move(made), std::move(doc), where);
    return *this;
  }

  /// Registers a kernel for the key of this library; for a fragment or definition the key is CompositeImplicit.
  template <class F> Library& impl(std::string_view name, F kernel, KernelOptions options = {},
                                   std::source_location where = std::source_location::current()) {
    add_kernel(name, make_kernel(std::move(kernel), where), std::move(options));
    return *this;
  }
  /// Registers a kernel that takes its arguments on a stack and leaves its results there.
  Library& impl_boxed(std::string_view name, BoxedKernel kernel, KernelOptions options = {},
                      std::source_location where = std::source_location::current());
  /// Makes the operator skip this key. For Autograd this means: not differentiable.
  Library& fallthrough(std::string_view name, std::source_location where = std::source_location::current());
  /// Registers a kernel for every operator without a kernel for this key.
  Library& fallback(BoxedKernel kernel, bool replaces = false,
                    std::source_location where = std::source_location::current());

  /// Defines a pointwise operator of one, two or three operands by its formula, a generic function of values as in
  /// ir/ops/*.def:
  ///   m.pointwise<DTypeRule::floating>("mish", [](auto x) { return x * math::tanh(math::softplus(x)); });
  /// It runs on every backend, in both modes, and fuses with its neighbors. The rule determines result dtypes
  /// (ir/op.h).
  template <DTypeRule Rule, class F> Library& pointwise(std::string_view name, F formula, std::string doc = {},
                                                        std::source_location where = std::source_location::current());

  void keep();

 private:
  void define_with(std::string_view schema, KernelFunction kernel, std::string doc, std::source_location where);
  void define_pointwise(std::string_view name, Family family, DTypeRule rule, std::function<Formula(DType)> formula,
                        std::string doc, std::source_location where);
  void add_kernel(std::string_view name, KernelFunction kernel, KernelOptions options);
  std::string qualified(std::string_view name) const;

  Kind kind_;
  std::string space_;
  RegistrationKey key_;
  std::vector<Registration> registrations_;
};

namespace detail {

/// The number of operands of a formula, probed at f32 or, if the rule rejects that, at i64 or bool.
template <class F, class V> constexpr std::size_t formula_operands() {
  if constexpr (std::invocable<F, V>)
    return 1;
  else if constexpr (std::invocable<F, V, V>)
    return 2;
  else if constexpr (std::invocable<F, V, V, V>)
    return 3;
  else
    return 0;
}
template <DTypeRule Rule> using FormulaProbe =
    std::conditional_t<accepts(Rule, DType::f32), float,
                       std::conditional_t<accepts(Rule, DType::i64), std::int64_t, bool>>;

/// Records the formula at a compute dtype that the rule accepts.
template <DTypeRule Rule, class F> Formula record_formula(const F& f, DType compute) {
  constexpr std::size_t count = formula_operands<F, Sym<FormulaProbe<Rule>>>();
  Formula made;
  visit_compute(compute, [&]<class T>() {
    if constexpr (accepts(Rule, dtype_of<T>)) {
      Recorder recorder(made.program);
      made.parameters.assign(count, dtype_of<T>);
      const auto parameter = [&](std::size_t i) {
        return Sym<T>::from_id(
            made.program.add({.prim = Prim::parameter, .type = dtype_of<T>, .index = static_cast<std::uint16_t>(i)}));
      };
      [&]<std::size_t... I>(std::index_sequence<I...>) {
        const std::array<Sym<T>, count> x{parameter(I)...};
        made.results = {f(x[I]...).id()};
      }
      (std::make_index_sequence<count>{});
    }
  });
  return made;
}

}  // namespace detail

template <DTypeRule Rule, class F>
Library& Library::pointwise(std::string_view name, F formula, std::string doc, std::source_location where) {
  constexpr std::size_t operands = detail::formula_operands<F, Sym<detail::FormulaProbe<Rule>>>();
  static_assert(operands > 0, "a formula must be a generic function of one to three values");
  static_assert(Rule != DTypeRule::none && Rule != DTypeRule::choose,
                "the rule must be for pointwise ops without a condition");
  define_pointwise(
      name, static_cast<Family>(operands - 1), Rule,
      [formula](DType compute) { return detail::record_formula<Rule>(formula, compute); }, std::move(doc), where);
  return *this;
}

/// Runs a function with a Library when the program or shared object is loaded. Errors are printed and then terminate
/// the program.
class LibraryAtLoad {
 public:
  LibraryAtLoad(Library::Kind kind, const char* space, const char* key, void (*fill)(Library&),
                std::source_location where);

 private:
  std::vector<Library> library_;
};

/// A handle to an operator, found by name.
class OperatorHandle {
 public:
  /// UnsupportedError FM2006 if no operator of that name has a schema.
  static OperatorHandle find(std::string_view name, std::source_location where = std::source_location::current()) {
    return OperatorHandle(operator_named(name, where));
  }
  const Schema& schema() const { return *entry_->schema.load(); }
  const OperatorEntry& entry() const { return *entry_; }
  /// Calls the operator with its arguments on a stack, which holds the results afterwards.
  void call_boxed(Stack& stack, std::source_location where = std::source_location::current()) const {
    fermata::call_boxed(*entry_, stack, where);
  }
  /// Returns a handle that is called like a function of this signature. Keep it in a static: find() takes a lock, calls
  /// do not.
  template <class Signature> auto typed(std::source_location where = std::source_location::current()) const;

 private:
  explicit OperatorHandle(const OperatorEntry& entry) : entry_(&entry) {}
  const OperatorEntry* entry_;
};

template <class Signature> class TypedOperator;
template <class R, class... A> class TypedOperator<R(A...)> {
 public:
  using Canonical = CanonicalSignature<R(A...)>;
  explicit TypedOperator(const OperatorEntry& entry) : entry_(&entry) {}
  R operator()(A... args, std::source_location where = std::source_location::current()) const {
    return Caller<Canonical>::call(*entry_, where, args...);
  }

 private:
  template <class S> struct Caller;
  template <class... C> struct Caller<R(C...)> {
    static R call(const OperatorEntry& entry, std::source_location where, C... args) {
      return Dispatcher<R(C...)>::call(entry, where, args...);
    }
  };
  const OperatorEntry* entry_;
};

template <class Signature> auto OperatorHandle::typed(std::source_location where) const {
  require_signature(*entry_, signature_ops<CanonicalSignature<Signature>>(), where);
  return TypedOperator<Signature>(*entry_);
}

}  // namespace fermata

#define FERMATA_LIBRARY_NAME2(name, line) name##line
#define FERMATA_LIBRARY_NAME(name, line) FERMATA_LIBRARY_NAME2(name, line)
#define FERMATA_LIBRARY_AT_LOAD(kind, space, key, m, number)                                            \
  static void FERMATA_LIBRARY_NAME(fermata_library_fill_, number)(::fermata::Library&);                 \
  static const ::fermata::LibraryAtLoad FERMATA_LIBRARY_NAME(fermata_library_, number)(                 \
      ::fermata::Library::Kind::kind, space, key, &FERMATA_LIBRARY_NAME(fermata_library_fill_, number), \
      std::source_location::current());                                                                 \
  static void FERMATA_LIBRARY_NAME(fermata_library_fill_, number)([[maybe_unused]] ::fermata::Library & m)

/// Defines a namespace of operators, once per program.
#define FERMATA_LIBRARY(space, m) FERMATA_LIBRARY_AT_LOAD(definition, #space, "", m, __COUNTER__)
/// Adds operators to a namespace.
#define FERMATA_LIBRARY_FRAGMENT(space, m) FERMATA_LIBRARY_AT_LOAD(fragment, #space, "", m, __COUNTER__)
/// Registers kernels for a key for operators of a namespace; built-in operators are in `fermata`.
#define FERMATA_LIBRARY_IMPL(space, key, m) FERMATA_LIBRARY_AT_LOAD(implementation, #space, #key, m, __COUNTER__)
