// Ops of two complex operands, `where`, parts and casts. Division is that of <complex>, which follows C99's Annex G. A
// host number is a real operand.
#include <cmath>
#include <limits>

#include "codegen_cpu/complex/complex.h"
#include "codegen_cpu/complex/elements.h"
#include "ir/float16.h"
#include "ir/small_dtypes.h"

namespace fermata {
namespace {

/// The operands as complex ones: converts a host number, for the lifetime of this object.
template <class T> class ComplexOperands {
 public:
  ComplexOperands(const CallArgs& args, std::size_t first) : args_(args) {
    for (std::size_t k = 0; k < args.inputs.size(); ++k) {
      views_[k] = args.inputs[k];
      if (k < first || is_complex(views_[k].dtype)) continue;
      numbers_[k] = *static_cast<const T*>(views_[k].data);
      views_[k].data = &numbers_[k], views_[k].dtype = sizeof(T) == 4 ? DType::c64 : DType::c128;
    }
    args_.inputs = {views_.data(), args.inputs.size()};
  }
  ComplexOperands(const ComplexOperands&) = delete;
  ComplexOperands& operator=(const ComplexOperands&) = delete;
  const CallArgs& args() const { return args_; }

 private:
  CallArgs args_;
  std::array<TensorView, 3> views_;
  std::array<std::complex<T>, 3> numbers_;
};

bool is_c64(const CallArgs& args, std::size_t first) {
  for (std::size_t k = first; k < args.inputs.size(); ++k)
    if (is_complex(args.inputs[k].dtype)) return args.inputs[k].dtype == DType::c64;
  return args.outputs[0].dtype == DType::c64;
}

template <class F> void run(const CallArgs& args, double ns, F&& f) {
  const auto as = [&]<class T>() {
    const ComplexOperands<T> operands(args, 0);
    using Z = std::complex<T>;
    for_each_element<decltype(f(Z(), Z())), Z, Z>(operands.args(), ns, f);
  };
  if (is_c64(args, 0))
    as.template operator()<float>();
  else
    as.template operator()<double>();
}

/// A loop in vectors for c64, elements one by one for c128.
template <class F> void in_vectors(const CallArgs& args, double ns, eager::InnerLoop loop, F&& f) {
  if (is_c64(args, 0)) {
    const ComplexOperands<float> operands(args, 0);
    return ComplexLoopCall<2>(operands.args(), loop).run(ns / 2);
  }
  run(args, ns, f);
}

/// 0 to a power is 0, 1 or infinite; elsewhere exp(b log a), in the next wider type, where the product does not cancel.
template <class T> std::complex<T> power(std::complex<T> a, std::complex<T> b) {
  using W = std::conditional_t<std::is_same_v<T, float>, double, long double>;
  if (b == std::complex<T>(0)) return 1;
  if (a == std::complex<T>(0)) {
    if (b.real() > 0) return 0;
    return {std::numeric_limits<T>::infinity(), std::numeric_limits<T>::quiet_NaN()};
  }
  const std::complex<W> y =
      std::exp(std::complex<W>(b.real(), b.imag()) * std::log(std::complex<W>(a.real(), a.imag())));
  return {static_cast<T>(y.real()), static_cast<T>(y.imag())};
}

void where_call(const CallArgs& args) {
  const auto as = [&]<class T>() {
    using Z = std::complex<T>;
    const ComplexOperands<T> operands(args, 1);
    for_each_element<Z, bool, Z, Z>(operands.args(), 2, [](bool c, Z a, Z b) { return c ? a : b; });
  };
  if (args.outputs[0].dtype == DType::c64)
    as.template operator()<float>();
  else
    as.template operator()<double>();
}

template <class From> double to_double(From x) {
  if constexpr (std::is_same_v<From, Float16> || std::is_same_v<From, BFloat16> || kIsSmallFloat<From>)
    return to_float(x);
  else if constexpr (kIsSmallInteger<From>)
    return to_integer(x);
  else
    return static_cast<double>(x);
}

template <class T> void cast_to_complex(const CallArgs& args) {
  using Z = std::complex<T>;
  const auto from = [&]<class From>() {
    for_each_element<Z, From>(args, 2, [](From x) { return Z(static_cast<T>(to_double(x))); });
  };
  const DType given = args.inputs[0].dtype;
  if (given == DType::c64)
    for_each_element<Z, std::complex<float>>(args, 2, [](std::complex<float> z) { return Z(z.real(), z.imag()); });
  else if (given == DType::c128)
    for_each_element<Z, std::complex<double>>(
        args, 2, [](std::complex<double> z) { return Z(static_cast<T>(z.real()), static_cast<T>(z.imag())); });
  else if (given == DType::f16)
    from.template operator()<Float16>();
  else if (given == DType::bf16)
    from.template operator()<BFloat16>();
  else if (!visit_small(given, from))
    visit_compute(given, from);
}

/// Real operands, complex result.
void complex_from_parts_call(const CallArgs& args) {
  if (args.inputs[0].dtype == DType::f32)
    for_each_element<std::complex<float>, float, float>(args, 2, [](float a, float b) { return std::complex(a, b); });
  else
    for_each_element<std::complex<double>, double, double>(args, 2,
                                                           [](double a, double b) { return std::complex(a, b); });
}

#define FERMATA_COMPLEX(op, ns, expression)                                                      \
  add_complex_kernel(                                                                            \
      Op::op, +[](const CallArgs& args) {                                                        \
        run(args, ns, []<class T>(std::complex<T> a, std::complex<T> b) { return expression; }); \
      });
#define FERMATA_COMPLEX_LOOP(op, ns, expression)                                              \
  add_complex_kernel(                                                                         \
      Op::op, +[](const CallArgs& args) {                                                     \
        in_vectors(args, ns, complex_loops_in_use().op,                                       \
                   []<class T>(std::complex<T> a, std::complex<T> b) { return expression; }); \
      });

}  // namespace

void complex_cast_call(const CallArgs& args) {
  const DType from = args.inputs[0].dtype, to = args.outputs[0].dtype;
  if (to == DType::c64) return cast_to_complex<float>(args);
  if (to == DType::c128) return cast_to_complex<double>(args);
  if (from == DType::c64)
    for_each_element<bool, std::complex<float>>(args, 2, [](std::complex<float> z) { return z != 0.0f; });
  else
    for_each_element<bool, std::complex<double>>(args, 2, [](std::complex<double> z) { return z != 0.0; });
}

FERMATA_KERNELS(cpu) {
  FERMATA_COMPLEX(add, 2, a + b)
  FERMATA_COMPLEX(subtract, 2, a - b)
  FERMATA_COMPLEX_LOOP(multiply, 3, product(a, b))
  FERMATA_COMPLEX_LOOP(divide, 10, a / b)
  FERMATA_COMPLEX(pow, 150, power(a, b))
  FERMATA_COMPLEX(equal, 2, a == b)
  FERMATA_COMPLEX(not_equal, 2, a != b)
  add_complex_kernel(Op::where, &where_call);
  // A cast of a real operand to a complex result comes from the other kernel of cast.
  add_complex_kernel(Op::cast, &complex_cast_call);
  add_variant(Op::complex, BackendKey::cpu,
              {.name = "complex",
               .dtypes = DTypeSet(DType::f32) | DType::f64,
               .call = &complex_from_parts_call,
               .ships = Ships::with_math});
}

}  // namespace fermata
