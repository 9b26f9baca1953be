// Special functions whose loops end by value: each is an operator of operands of one shape and dtype, which its public
// function has brought there, with a kernel that walks over the elements. Floats are computed in f64.

#include <fmt/format.h>

#include <array>
#include <numeric>

#include "fermata/creation.h"
#include "fermata/device.h"
#include "fermata/dtypes.h"
#include "fermata/library.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/special.h"
#include "fermata/views.h"
#include "frontend/engine/startup.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/incomplete_functions.h"
#include "frontend/ops/run_on_host.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

// ---- Kernels

/// What one element takes, roughly.
constexpr double kNanoseconds = 150;

template <class T, class F, std::size_t... K>
Tensor map_elements(std::span<const Tensor> operands, F f, Location where, std::index_sequence<K...>) {
  const std::array dense{(Elements(operands[K], where).dense() ? operands[K] : copy(operands[K], where))...};
  const std::array in{Elements(dense[K], where)...};
  const Tensor out = empty(operands[0].shape(), operands[0].dtype());
  T* const to = elements_to_fill<T>(out, where);
  parallel_for(0, in[0].count(), kNanoseconds, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t i = b; i < e; ++i) to[i] = static_cast<T>(f(in[K].template data<T>()[i]...));
  });
  return out;
}

/// `kernel` over elements of any integer dtype, or of f32 and f64.
template <std::size_t kCount, bool kIntegers, class F>
Tensor run_kernel_over(std::span<const Tensor> operands, F kernel, Location where) {
  Tensor out;
  visit_compute(operands[0].dtype(), [&]<class T>() {
    constexpr bool kFloat = std::is_floating_point_v<T>;
    if constexpr (!std::is_same_v<T, bool> && kFloat != kIntegers)
      out = map_elements<T>(operands, kernel, where, std::make_index_sequence<kCount>());
  });
  return out;
}

struct GcdOfIntegers {
  template <class T> T operator()(T a, T b) const {
    using U = std::make_unsigned_t<T>;
    const auto size = [](T x) { return x < 0 ? static_cast<U>(U{0} - static_cast<U>(x)) : static_cast<U>(x); };
    return static_cast<T>(std::gcd(size(a), size(b)));
  }
};
struct LcmOfIntegers {
  template <class T> T operator()(T a, T b) const {
    using U = std::make_unsigned_t<T>;
    const auto size = [](T x) { return x < 0 ? static_cast<U>(U{0} - static_cast<U>(x)) : static_cast<U>(x); };
    const U x = size(a), y = size(b);
    return x == 0 || y == 0 ? T{0} : static_cast<T>(static_cast<U>(x / std::gcd(x, y)) * y);
  }
};

// ---- Definitions

/// The batch comes first; what has none is stretched to it.
std::vector<Tensor> in_front(const BatchedArguments& b, const OperatorHandle& op) {
  Stack stack;
  Shape sizes;
  for (std::size_t k = 0; k < b.arguments.size(); ++k)
    if (b.batched[k]) sizes = b.arguments[k].as<Tensor>().shape();
  for (std::size_t k = 0; k < b.arguments.size(); ++k) {
    const Tensor& x = b.arguments[k].as<Tensor>();
    stack.emplace_back(b.batched[k] ? x : broadcast_to(expand_dims(x, 0), sizes));
  }
  op.call_boxed(stack);
  return {stack[0].as<Tensor>()};
}

using Gradients = std::vector<Tensor> (*)(const DerivativeArguments& d);

struct KernelDefinitions {
  template <std::size_t kCount, bool kIntegers, class F>
  void add(const std::string& name, F kernel, std::string text, Gradients gradients) {
    constexpr std::array<const char*, 3> kParameters = {"Tensor a", "Tensor a, Tensor b",
                                                        "Tensor a, Tensor b, Tensor c"};
    operators.def(fmt::format("pure {}({}) -> Tensor", name, kParameters[kCount - 1]), std::move(text));
    if constexpr (kCount == 2) {
      cpu.impl(name, [kernel](const Call& call, const Tensor& a, const Tensor& b) {
        return run_kernel_over<2, kIntegers>(std::array{a, b}, kernel, call.where);
      });
      meta.impl(name, [](const Call&, const Tensor& a, const Tensor&) { return meta_tensor({a.dtype(), a.shape()}); });
    } else {
      cpu.impl(name, [kernel](const Call& call, const Tensor& a, const Tensor& b, const Tensor& c) {
        return run_kernel_over<3, kIntegers>(std::array{a, b, c}, kernel, call.where);
      });
      meta.impl(name, [](const Call&, const Tensor& a, const Tensor&, const Tensor&) {
        return meta_tensor({a.dtype(), a.shape()});
      });
    }
    cuda.impl_boxed(name, run_on_host());
    if (gradients != nullptr) autograd.impl_boxed(name, derivative(gradients));
    batched.impl_boxed(name, batching_rule([full = "fermata::" + name](const BatchedArguments& b) {
                         return in_front(b, OperatorHandle::find(full));
                       }));
  }
  void keep() {
    for (Library* m : {&operators, &cpu, &cuda, &meta, &autograd, &batched}) m->keep();
  }
  Library operators{Library::Kind::fragment, "fermata"}, cpu{Library::Kind::implementation, "fermata", "CPU"},
      cuda{Library::Kind::implementation, "fermata", "CUDA"}, meta{Library::Kind::implementation, "fermata", "Meta"},
      autograd{Library::Kind::implementation, "fermata", "Autograd"},
      batched{Library::Kind::implementation, "fermata", "Batched"};
};

VjpTensor argument(const DerivativeArguments& d, std::size_t k) { return d.arguments[k].as<Tensor>(); }
/// The operator of a derivative by a parameter, which has no derivative of its own.
VjpTensor by_parameter(std::string_view name, std::initializer_list<VjpTensor> arguments) {
  Stack stack;
  for (const VjpTensor& x : arguments) stack.emplace_back(x.tensor());
  OperatorHandle::find("fermata::" + std::string(name)).call_boxed(stack, vjp::current_line);
  return stack[0].as<Tensor>();
}

/// x^(a - 1) e^-x / Gamma(a).
VjpTensor gamma_density(const VjpTensor& a, const VjpTensor& x) { return exp(xlogy(a - 1, x) - x - lgamma(a)); }
std::vector<Tensor> gammainc_gradients(const DerivativeArguments& d) {
  const VjpTensor g = d.gradients[0], a = argument(d, 0), x = argument(d, 1);
  return {(g * by_parameter("gammainc_by_order", {a, x})).tensor(), (g * gamma_density(a, x)).tensor()};
}
std::vector<Tensor> gammaincc_gradients(const DerivativeArguments& d) {
  const VjpTensor g = d.gradients[0], a = argument(d, 0), x = argument(d, 1);
  return {(-(g * by_parameter("gammainc_by_order", {a, x}))).tensor(), (-(g * gamma_density(a, x))).tensor()};
}
std::vector<Tensor> betainc_gradients(const DerivativeArguments& d) {
  const VjpTensor g = d.gradients[0], a = argument(d, 0), b = argument(d, 1), x = argument(d, 2);
  const VjpTensor log_beta = lgamma(a) + lgamma(b) - lgamma(a + b);
  const VjpTensor density = exp(xlogy(a - 1, x) + xlog1py(b - 1, -x) - log_beta);
  return {(g * by_parameter("betainc_by_a", {a, b, x})).tensor(),
          (g * by_parameter("betainc_by_b", {a, b, x})).tensor(), (g * density).tensor()};
}
std::vector<Tensor> zeta_gradients(const DerivativeArguments& d) {
  const VjpTensor g = d.gradients[0], s = argument(d, 0), q = argument(d, 1);
  const VjpTensor next = zeta({(s + 1).tensor(), vjp::current_line}, {q.tensor(), vjp::current_line});
  return {(g * by_parameter("zeta_by_exponent", {s, q})).tensor(), (g * -s * next).tensor()};
}

// ---- Operands

DType common_dtype(std::span<const Operand* const> operands) {
  std::optional<DType> common;
  for (std::size_t i = 0; i < operands.size(); ++i)
    for (std::size_t j = i + 1; j < operands.size(); ++j) {
      if (!operands[i]->is_tensor() && !operands[j]->is_tensor() && operands.size() > 2) continue;
      const DType pair = result_type(*operands[i], *operands[j]);
      common = common ? result_type({*common, pair}, operands[0]->where()) : pair;
    }
  return common.value_or(DType::f32);
}

std::vector<Tensor> brought_together(std::span<const Operand* const> operands, DType dtype) {
  const Location where = operands[0]->where();
  std::vector<Tensor> tensors;
  Device place = cpu();
  for (const Operand* operand : operands)
    if (operand->is_tensor()) place = device(operand->tensor(), where);
  for (const Operand* operand : operands) {
    tensors.push_back(operand->is_tensor() ? astype(operand->tensor(), dtype, where)
                                           : full({}, operand->scalar(), dtype, place, where));
  }
  return broadcast_arrays(tensors, where);
}

void require_all_defined(std::string_view function, std::span<const Operand* const> operands) {
  for (const Operand* operand : operands)
    if (operand->is_tensor()) require_defined(function, operand->tensor(), operands[0]->where());
}

[[noreturn]] void refuse(std::string_view function, DType dtype, std::string_view hint, Location where) {
  throw DTypeError(1101, format_error(1101, "DTypeError", fmt::format("{}: does not take {}", function, name(dtype)),
                                      {}, where, hint));
}

/// A function of floats by its operator.
template <std::size_t kCount>
Tensor call_floating(std::string_view function, const std::array<const Operand*, kCount>& o) {
  const Location where = o[0]->where();
  require_all_defined(function, o);
  const DType common = common_dtype(o);
  if (is_complex(common)) refuse(function, common, "", where);
  const DType result = is_floating(common) ? common : DType::f32;
  const std::vector<Tensor> x = brought_together(o, compute_dtype(result));
  Stack stack(x.begin(), x.end());
  OperatorHandle::find("fermata::" + std::string(function)).call_boxed(stack, where);
  return astype(stack[0].as<Tensor>(), result, where);
}

Tensor call_integer(std::string_view function, const Operand& x, const Operand& y) {
  const std::array o{&x, &y};
  require_all_defined(function, o);
  const DType common = common_dtype(o);
  if (!is_integer(common)) refuse(function, common, "it takes integers", x.where());
  const std::vector<Tensor> both = brought_together(o, common);
  Stack stack(both.begin(), both.end());
  OperatorHandle::find("fermata::" + std::string(function)).call_boxed(stack, x.where());
  return stack[0].as<Tensor>();
}

}  // namespace

Tensor gammainc(const Operand& a, const Operand& x) { return call_floating<2>("gammainc", {&a, &x}); }
Tensor gammaincc(const Operand& a, const Operand& x) { return call_floating<2>("gammaincc", {&a, &x}); }
Tensor betainc(const Operand& a, const Operand& b, const Operand& x) {
  return call_floating<3>("betainc", {&a, &b, &x});
}
Tensor zeta(const Operand& s, const Operand& q) { return call_floating<2>("zeta", {&s, &q}); }
Tensor gcd(const Operand& x, const Operand& y) { return call_integer("gcd", x, y); }
Tensor lcm(const Operand& x, const Operand& y) { return call_integer("lcm", x, y); }

void register_special_functions() {
  KernelDefinitions m;
  m.add<2, false>(
      "gammainc", [](double a, double x) { return incomplete_gamma(a, x).lower; },
      "The regularized lower incomplete gamma function.", &gammainc_gradients);
  m.add<2, false>(
      "gammaincc", [](double a, double x) { return incomplete_gamma(a, x).upper; },
      "The regularized upper incomplete gamma function.", &gammaincc_gradients);
  m.add<3, false>("betainc", &incomplete_beta, "The regularized incomplete beta function.", &betainc_gradients);
  m.add<2, false>("zeta", &hurwitz_zeta, "The Hurwitz zeta function.", &zeta_gradients);
  m.add<2, true>("gcd", GcdOfIntegers(), "The greatest common divisor.", nullptr);
  m.add<2, true>("lcm", LcmOfIntegers(), "The least common multiple.", nullptr);
  m.add<2, false>("gammainc_by_order", &incomplete_gamma_by_order, "The derivative of gammainc by its order.", nullptr);
  m.add<3, false>("betainc_by_a", &incomplete_beta_by_a, "The derivative of betainc by its first parameter.", nullptr);
  m.add<3, false>("betainc_by_b", &incomplete_beta_by_b, "The derivative of betainc by its second parameter.", nullptr);
  m.add<2, false>("zeta_by_exponent", &hurwitz_zeta_by_exponent, "The derivative of zeta by its exponent.", nullptr);
  m.keep();
}

}  // namespace fermata
