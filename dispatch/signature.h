// C++ signatures for the dispatcher: the schema type of a parameter, the canonical signature of an operator, and
// boxing.
//
// Kernels may spell their parameters freely (Tensor or const Tensor&, int or std::int64_t, a vector or a span). An
// operator has one canonical signature, through which all calls go.
#pragma once

#include <functional>
#include <tuple>
#include <typeinfo>

#include "dispatch/draw_stream.h"
#include "dispatch/operator.h"
#include "dispatch/value.h"

namespace fermata {

/// Per parameter type: the schema type, the canonical spelling (`Canonical`), the storage during a boxed call
/// (`Holder`), and the conversions. Undefined for types that are not argument types.
template <class T> struct ArgumentTraits;

namespace detail {

template <TypeKind K, class Type> struct PlainArgument {
  static constexpr ArgType kType{K, false, false};
  using Canonical = const Type&;
  using Holder = Type;
  static Holder hold(Value& v) { return std::move(v.template as<Type>()); }
  static Canonical pass(Holder& h) { return h; }
  static Value box(Canonical v) { return v; }
};
template <TypeKind K, class Type> struct NumberArgument {
  static constexpr ArgType kType{K, false, false};
  using Canonical = Type;
  using Holder = Type;
  static Holder hold(Value& v) { return v.template as<Type>(); }
  static Canonical pass(Holder& h) { return h; }
  static Value box(Canonical v) { return v; }
};
template <TypeKind K, class Type> struct ListArgument {
  static constexpr ArgType kType{K, true, false};
  using Canonical = std::span<const Type>;
  using Holder = std::vector<Type>;
  static Holder hold(Value& v) { return std::move(v.template as<Holder>()); }
  static Canonical pass(Holder& h) { return h; }
  static Value box(Canonical v) { return Holder(v.begin(), v.end()); }
};
template <TypeKind K, class Type, bool List> struct OptionalArgument {
  static constexpr ArgType kType{K, List, true};
  using Canonical = const std::optional<Type>&;
  using Holder = std::optional<Type>;
  static Holder hold(Value& v) { return v.is_none() ? Holder() : Holder(std::move(v.template as<Type>())); }
  static Canonical pass(Holder& h) { return h; }
  static Value box(Canonical v) { return v ? Value(*v) : Value(); }
};

}  // namespace detail

template <> struct ArgumentTraits<Tensor> : detail::PlainArgument<TypeKind::tensor, Tensor> {};
template <> struct ArgumentTraits<Scalar> : detail::PlainArgument<TypeKind::scalar, Scalar> {};
template <> struct ArgumentTraits<std::int64_t> : detail::NumberArgument<TypeKind::integer, std::int64_t> {};
template <> struct ArgumentTraits<double> : detail::NumberArgument<TypeKind::floating, double> {};
template <> struct ArgumentTraits<bool> : detail::NumberArgument<TypeKind::boolean, bool> {};
template <> struct ArgumentTraits<DType> : detail::NumberArgument<TypeKind::dtype, DType> {};
template <> struct ArgumentTraits<Device> : detail::NumberArgument<TypeKind::device, Device> {};
template <> struct ArgumentTraits<std::span<const Tensor>> : detail::ListArgument<TypeKind::tensor, Tensor> {};
template <> struct ArgumentTraits<std::span<const std::int64_t>>
    : detail::ListArgument<TypeKind::integer, std::int64_t> {};
template <> struct ArgumentTraits<std::span<const double>> : detail::ListArgument<TypeKind::floating, double> {};
template <> struct ArgumentTraits<std::optional<Tensor>> : detail::OptionalArgument<TypeKind::tensor, Tensor, false> {};
template <> struct ArgumentTraits<std::optional<Scalar>> : detail::OptionalArgument<TypeKind::scalar, Scalar, false> {};
template <> struct ArgumentTraits<std::optional<std::int64_t>>
    : detail::OptionalArgument<TypeKind::integer, std::int64_t, false> {};
template <> struct ArgumentTraits<std::optional<double>> : detail::OptionalArgument<TypeKind::floating, double, false> {
};
template <> struct ArgumentTraits<std::optional<bool>> : detail::OptionalArgument<TypeKind::boolean, bool, false> {};
template <> struct ArgumentTraits<std::optional<DType>> : detail::OptionalArgument<TypeKind::dtype, DType, false> {};
template <> struct ArgumentTraits<std::optional<Device>> : detail::OptionalArgument<TypeKind::device, Device, false> {};
template <> struct ArgumentTraits<std::optional<std::vector<std::int64_t>>>
    : detail::OptionalArgument<TypeKind::integer, std::vector<std::int64_t>, true> {};

/// A tensor or a host number, as the pointwise ops of the table take.
template <> struct ArgumentTraits<Operand> {
  static constexpr ArgType kType{TypeKind::operand, false, false};
  using Canonical = const Operand&;
  struct Holder {
    Tensor tensor;
    Operand operand;
    Holder(Value& v)
        : tensor(v.is<Tensor>() ? v.as<Tensor>() : Tensor()),
          operand(v.is<Tensor>() ? Operand(tensor) : Operand(v.as<Scalar>())) {}
    Holder(const Holder& o)
        : tensor(o.tensor), operand(o.operand.is_tensor() ? Operand(tensor) : Operand(o.operand.scalar())) {}
    Holder& operator=(const Holder&) = delete;
  };
  static Holder hold(Value& v) { return Holder(v); }
  static Canonical pass(Holder& h) { return h.operand; }
  static Value box(Canonical o) { return o.is_tensor() ? Value(o.tensor()) : Value(o.scalar()); }
};

template <> struct ArgumentTraits<std::string_view> {
  static constexpr ArgType kType{TypeKind::string, false, false};
  using Canonical = std::string_view;
  using Holder = std::string;
  static Holder hold(Value& v) { return std::move(v.as<std::string>()); }
  static Canonical pass(Holder& h) { return h; }
  static Value box(Canonical v) { return std::string(v); }
};

/// The arguments of the table's irregular ops, as five values: int[] attributes, int[] scalars, dtype?, Shape, Device.
template <> struct ArgumentTraits<Attributes> {
  using Canonical = const Attributes&;
  static constexpr std::size_t kValues = 5;
  struct Holder {
    std::vector<std::int64_t> integers;
    std::vector<std::uint64_t> scalars;
    Attributes attributes;
    explicit Holder(Value* v)
        : integers(v[0].as<std::vector<std::int64_t>>()),
          scalars(v[1].as<std::vector<std::int64_t>>().begin(), v[1].as<std::vector<std::int64_t>>().end()),
          attributes{
              .wanted = {v[2].is_none() ? DType::f32 : v[2].as<DType>(), Shape(v[3].as<std::vector<std::int64_t>>())},
              .integers = integers,
              .scalars = scalars,
              .backend = v[4].as<Device>().backend()} {}
    Holder(const Holder&) = delete;
  };
};

// ---- Other spellings

/// Maps a parameter type to the type whose traits describe it.
template <class T> struct NormalArgument { using type = std::remove_cvref_t<T>; };
template <class T>
requires(std::integral<std::remove_cvref_t<T>> &&
         !std::same_as<std::remove_cvref_t<T>, bool>) struct NormalArgument<T> {
  using type = std::int64_t;
};
template <class T>
requires std::floating_point<std::remove_cvref_t<T>>
struct NormalArgument<T> {
  using type = double;
};
template <class T>
requires std::same_as<std::remove_cvref_t<T>, std::string>
struct NormalArgument<T> {
  using type = std::string_view;
};
template <class T>
requires(std::same_as<std::remove_cvref_t<T>, std::vector<Tensor>>) struct NormalArgument<T> {
  using type = std::span<const Tensor>;
};
template <class T>
requires(std::same_as<std::remove_cvref_t<T>, std::vector<std::int64_t>> ||
         std::same_as<std::remove_cvref_t<T>, Shape>) struct NormalArgument<T> {
  using type = std::span<const std::int64_t>;
};
template <class T>
requires(std::same_as<std::remove_cvref_t<T>, std::vector<double>>) struct NormalArgument<T> {
  using type = std::span<const double>;
};
template <class T> using NormalArgumentOf = typename NormalArgument<T>::type;
template <class T> using CanonicalOf = typename ArgumentTraits<NormalArgumentOf<T>>::Canonical;

/// Converts a canonical argument to parameter type T.
template <class T, class C> decltype(auto) respell(C&& canonical) {
  using U = std::remove_cvref_t<T>;
  if constexpr (std::same_as<U, Shape>)
    return Shape(canonical);
  else if constexpr (std::same_as<T, Tensor&>)
    return const_cast<Tensor&>(canonical);  // a handle: only the tensor it refers to is written
  else if constexpr (std::same_as<U, std::string>)
    return std::string(canonical);
  else if constexpr (std::same_as<U, std::vector<Tensor>> || std::same_as<U, std::vector<std::int64_t>> ||
                     std::same_as<U, std::vector<double>>)
    return U(canonical.begin(), canonical.end());
  else if constexpr (std::is_arithmetic_v<U>)
    return static_cast<U>(canonical);
  else
    return std::forward<C>(canonical);
}

// ---- Signatures

template <class F> struct FunctionTraits : FunctionTraits<decltype(&F::operator())> {};
template <class R, class... A> struct FunctionTraits<R(A...)> {
  static constexpr bool kTakesCall = false;
  using Result = R;
  using Canonical = R(CanonicalOf<A>...);
  template <class F, class... C> static R invoke(F& f, const Call&, C&&... args) {
    return f(respell<A>(std::forward<C>(args))...);
  }
};
/// A kernel with a first parameter `const Call&` receives the keys of the call and can redispatch.
template <class R, class... A> struct FunctionTraits<R(const Call&, A...)> {
  static constexpr bool kTakesCall = true;
  using Result = R;
  using Canonical = R(CanonicalOf<A>...);
  template <class F, class... C> static R invoke(F& f, const Call& call, C&&... args) {
    return f(call, respell<A>(std::forward<C>(args))...);
  }
};
template <class R, class... A> struct FunctionTraits<R (*)(A...)> : FunctionTraits<R(A...)> {};
template <class R, class... A> struct FunctionTraits<R (&)(A...)> : FunctionTraits<R(A...)> {};
template <class O, class R, class... A> struct FunctionTraits<R (O::*)(A...)> : FunctionTraits<R(A...)> {};
template <class O, class R, class... A> struct FunctionTraits<R (O::*)(A...) const> : FunctionTraits<R(A...)> {};
template <class F> using CanonicalSignature = typename FunctionTraits<F>::Canonical;

// ---- Results

template <class R> struct ResultTraits {
  using Traits = ArgumentTraits<NormalArgumentOf<R>>;
  static std::vector<ArgType> types() { return {Traits::kType}; }
  static void box(Stack& stack, R&& result) { stack.push_back(Value(std::move(result))); }
  static R unbox(Stack& stack, const OperatorEntry&) { return std::move(stack.at(0).as<R>()); }
};
template <> struct ResultTraits<void> {
  static std::vector<ArgType> types() { return {}; }
};
template <class... T> struct ResultTraits<std::tuple<T...>> {
  static std::vector<ArgType> types() { return {ArgumentTraits<NormalArgumentOf<T>>::kType...}; }
  static void box(Stack& stack, std::tuple<T...>&& result) {
    std::apply([&](auto&&... each) { (stack.push_back(Value(std::move(each))), ...); }, std::move(result));
  }
  static std::tuple<T...> unbox(Stack& stack, const OperatorEntry&) {
    return [&]<std::size_t... I>(std::index_sequence<I...>) {
      return std::tuple<T...>{std::move(stack.at(I).as<T>())...};
    }
    (std::index_sequence_for<T...>{});
  }
};

// ---- Boxed and unboxed

namespace detail {

template <class C> inline constexpr std::size_t kValuesOf = 1;
template <> inline constexpr std::size_t kValuesOf<const Attributes&> = ArgumentTraits<Attributes>::kValues;

template <class C> using TraitsOf = ArgumentTraits<std::remove_cvref_t<C>>;

template <class C> void box_argument(Stack& stack, const std::remove_cvref_t<C>& v) {
  if constexpr (std::same_as<std::remove_cvref_t<C>, Attributes>) {
    stack.push_back(std::vector<std::int64_t>(v.integers.begin(), v.integers.end()));
    stack.push_back(std::vector<std::int64_t>(v.scalars.begin(), v.scalars.end()));
    stack.push_back(v.wanted.dtype);
    stack.push_back(std::vector<std::int64_t>(v.wanted.shape.begin(), v.wanted.shape.end()));
    stack.push_back(v.backend);
  } else {
    stack.push_back(TraitsOf<C>::box(v));
  }
}
template <class C> struct Held {
  typename TraitsOf<C>::Holder holder;
  explicit Held(Value* v) : holder(TraitsOf<C>::hold(*v)) {}
  C get() { return TraitsOf<C>::pass(holder); }
};
template <> struct Held<const Attributes&> {
  ArgumentTraits<Attributes>::Holder holder;
  explicit Held(Value* v) : holder(v) {}
  const Attributes& get() { return holder.attributes; }
};

template <class C> void add_types(std::vector<ArgType>& types) {
  if constexpr (std::same_as<std::remove_cvref_t<C>, Attributes>)
    types.insert(types.end(), {{TypeKind::integer, true, false},
                               {TypeKind::integer, true, false},
                               {TypeKind::dtype, false, true},
                               {TypeKind::integer, true, false},
                               {TypeKind::device, false, false}});
  else
    types.push_back(TraitsOf<C>::kType);
}

}  // namespace detail

/// The call of the kernel that a table-made kernel wraps. `kernel` receives its typed pointer, or null if it is boxed
/// only.
Call inner_call(const Call& call, ErasedKernel& kernel);

/// Boxing and unboxing for a canonical signature.
template <class Signature> struct SignatureBoxing;
template <class R, class... C> struct SignatureBoxing<R(C...)> {
  using Kernel = R (*)(const Call&, C...);

  static std::vector<ArgType> argument_types() {
    std::vector<ArgType> types;
    (detail::add_types<C>(types), ...);
    return types;
  }
  /// Calls a typed kernel with the values of a stack, which are replaced by the results.
  static void unboxed(const Call& call, Stack& stack, ErasedKernel kernel) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      constexpr std::array<std::size_t, sizeof...(C)> counts{detail::kValuesOf<C>...};
      std::array<Value*, sizeof...(C)> first{};
      for (std::size_t i = 0, at = 0; i < counts.size(); at += counts[i++]) first[i] = &stack[at];
      std::tuple<detail::Held<C>...> held{first[I]...};
      if constexpr (std::is_void_v<R>) {
        reinterpret_cast<Kernel>(kernel)(call, std::get<I>(held).get()...);
        stack.clear();
      } else {
        R result = reinterpret_cast<Kernel>(kernel)(call, std::get<I>(held).get()...);
        stack.clear();
        ResultTraits<R>::box(stack, std::move(result));
      }
    }
    (std::index_sequence_for<C...>{});
  }
  /// The typed adapter of a boxed kernel, stored in the cell.
  static R boxed(const Call& call, C... args) {
    Stack stack;
    stack.reserve((detail::kValuesOf<C> + ... + 0));
    (detail::box_argument<C>(stack, args), ...);
    run_boxed_kernel(call, stack);
    if constexpr (!std::is_void_v<R>) return ResultTraits<R>::unbox(stack, call.entry);
  }
  static R missing(const Call& call, C...) { throw_missing_kernel(call); }
  /// Runs a typed kernel with its own random stream.
  static R streamed(const Call& call, C... args) {
    ErasedKernel inner = nullptr;
    const Call own = inner_call(call, inner);
    if (inner == nullptr) return boxed(call, args...);
    const StreamScope stream;
    return reinterpret_cast<Kernel>(inner)(own, args...);
  }
};

/// A type-erased canonical signature.
struct SignatureOps {
  const std::type_info* type;
  std::vector<ArgType> (*arguments)();
  std::vector<ArgType> (*results)();
  void (*unboxed)(const Call&, Stack&, ErasedKernel);
  ErasedKernel boxed, missing, streamed;
};
template <class Signature> struct SignatureResult;
template <class R, class... C> struct SignatureResult<R(C...)> { using type = R; };
template <class Signature> const SignatureOps& signature_ops() {
  using Boxing = SignatureBoxing<Signature>;
  static const SignatureOps ops{&typeid(Signature),
                                &Boxing::argument_types,
                                &ResultTraits<typename SignatureResult<Signature>::type>::types,
                                &Boxing::unboxed,
                                reinterpret_cast<ErasedKernel>(&Boxing::boxed),
                                reinterpret_cast<ErasedKernel>(&Boxing::missing),
                                reinterpret_cast<ErasedKernel>(&Boxing::streamed)};
  return ops;
}

}  // namespace fermata
