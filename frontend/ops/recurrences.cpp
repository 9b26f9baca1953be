// cumulative_logsumexp and linear_recurrence of fermata/statistics.h: operators of one pass over each line. The
// derivatives of both are linear recurrences.
#include <array>
#include <cmath>
#include <limits>

#include "fermata/creation.h"
#include "fermata/library.h"
#include "fermata/manipulation.h"
#include "fermata/ops.h"
#include "fermata/statistics.h"
#include "fermata/views.h"
#include "frontend/engine/startup.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/run_on_host.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"
#include "ir/infer.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

using vjp::VjpTensor;

// ---- Kernels, along the last axis

Tensor dense_of(const Tensor& x, Location where) { return Elements(x, where).dense() ? x : copy(x, where); }

/// Calls f(first element, number of elements) for each line of a result of that shape.
template <class F> void for_lines(const Tensor& x, double ns_per_element, F&& f) {
  const std::int64_t size = x.size(-1), lines = size == 0 ? 0 : x.element_count() / size;
  parallel_for(0, lines, ns_per_element * static_cast<double>(size), [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t line = b; line < e; ++line) f(line * size, size);
  });
}

/// With the largest element so far, and the sum of the exponentials relative to it.
template <class T> Tensor logsumexp_of(const Tensor& x, Location where) {
  const Tensor dense = dense_of(x, where), out = empty(x.shape(), x.dtype());
  const Elements in(dense, where);
  const T* const from = in.data<T>();
  T* const to = elements_to_fill<T>(out, where);
  for_lines(x, 20, [&](std::int64_t begin, std::int64_t size) {
    T most = -std::numeric_limits<T>::infinity(), sum = 0;
    for (std::int64_t i = begin; i < begin + size; ++i) {
      const T value = from[i];
      if (value > most) {
        sum = std::isinf(most) ? T(1) : sum * std::exp(most - value) + T(1);
        most = value;
      } else if (value == most) {
        sum += std::isinf(value) && value < 0 ? T(0) : T(1);
      } else {
        sum += std::exp(value - most);  // NaN stays from here on
      }
      to[i] = std::isinf(most) && sum == sum ? most : most + std::log(sum);
    }
  });
  return out;
}

template <class T> Tensor recurrence_of(const Tensor& decay, const Tensor& x, Location where) {
  const Tensor dense_decay = dense_of(decay, where), dense = dense_of(x, where), out = empty(x.shape(), x.dtype());
  const Elements factors(dense_decay, where), in(dense, where);
  const T *const by = factors.data<T>(), *const from = in.data<T>();
  T* const to = elements_to_fill<T>(out, where);
  for_lines(x, 2, [&](std::int64_t begin, std::int64_t size) {
    T y = to[begin] = from[begin];
    for (std::int64_t i = begin + 1; i < begin + size; ++i) to[i] = y = by[i] * y + from[i];
  });
  return out;
}

// ---- Calls

Tensor logsumexp_along_last(const Tensor& x, Location where) {
  static const auto op = OperatorHandle::find("fermata::cumulative_logsumexp_last").typed<Tensor(const Tensor&)>();
  return op(x, where);
}
VjpTensor recurrence_along_last(const VjpTensor& decay, const VjpTensor& x, Location where) {
  static const auto op =
      OperatorHandle::find("fermata::linear_recurrence_last").typed<Tensor(const Tensor&, const Tensor&)>();
  return op(decay.tensor(), x.tensor(), where);
}

/// Elements one place later along the last axis, and back; `edge` fills the place that becomes free.
VjpTensor moved(const VjpTensor& x, bool later, double edge, Location where) {
  const std::int64_t n = x.shape().back();
  if (n == 0) return x;
  const Tensor free = full_like(slice(x.tensor(), -1, 0, 1, 1, where), edge, {}, where);
  const Tensor rest = later ? slice(x.tensor(), -1, 0, n - 1, 1, where) : slice(x.tensor(), -1, 1, n, 1, where);
  const std::array both{later ? free : rest, later ? rest : free};
  return concat(both, -1, where);
}

/// y[t] = x[t] + decay[t + 1] y[t + 1].
VjpTensor backward_recurrence(const VjpTensor& decay, const VjpTensor& x, Location where) {
  const auto turned = [&](const VjpTensor& t) { return VjpTensor(flip(t.tensor(), -1, where)); };
  return turned(recurrence_along_last(turned(moved(decay, false, 0, where)), turned(x), where));
}

/// exp(a - b) for a <= b, which may both be infinite.
VjpTensor ratio(const VjpTensor& a, const VjpTensor& b) {
  const VjpTensor same = a == b;
  return vjp::where(same, 1, exp(vjp::where(same, 0, a - b)));
}

/// With y the result: the sums of g[j] exp(x[i] - y[j]) over j >= i.
std::vector<Tensor> logsumexp_gradient(const DerivativeArguments& d) {
  const Location where = vjp::current_line;
  const VjpTensor g = d.gradients[0], x = d.arguments[0].as<Tensor>(), y = d.results[0];
  const VjpTensor decay = ratio(moved(y, true, 0, where), y);  // the first one is not read
  return {vjp::where(x == -HUGE_VAL, 0, backward_recurrence(decay, g, where) * ratio(x, y)).tensor()};
}

std::vector<Tensor> recurrence_gradient(const DerivativeArguments& d) {
  const Location where = vjp::current_line;
  const VjpTensor decay = d.arguments[0].as<Tensor>();
  const VjpTensor by_x = backward_recurrence(decay, d.gradients[0], where);
  return {(by_x * moved(d.results[0], true, 0, where)).tensor(), by_x.tensor()};
}

Tensor with_batch(const BatchedArguments& b, std::size_t k) {
  const Tensor& x = b.arguments[k].as<Tensor>();
  if (b.batched[k]) return x;
  Shape sizes{b.size};
  for (const std::int64_t s : x.shape()) sizes.push_back(s);
  return broadcast_to(expand_dims(x, 0), sizes);
}

DType real_floating(std::string_view function, const Tensor& x, Location where) {
  if (is_complex(x.dtype()))
    throw DTypeError(1101, format_error(1101, "DTypeError",
                                        std::string(function) + ": does not take " + std::string(name(x.dtype())),
                                        describe(x), where, "it takes real numbers"));
  return is_floating(x.dtype()) ? x.dtype() : DType::f32;
}

}  // namespace

Tensor cumulative_logsumexp(const Tensor& x, std::int64_t axis, Location where) {
  require_defined("cumulative_logsumexp", x, where);
  const std::int64_t at = normalize_axis("cumulative_logsumexp", axis, type_of(x), where);
  const DType dtype = real_floating("cumulative_logsumexp", x, where);
  const Tensor lines = moveaxis(astype(x, compute_dtype(dtype), where), at, -1, where);
  return astype(moveaxis(logsumexp_along_last(lines, where), -1, at, where), dtype, where);
}

Tensor linear_recurrence(const Tensor& decay, const Tensor& x, std::int64_t axis, Location where) {
  require_defined("linear_recurrence", decay, where), require_defined("linear_recurrence", x, where);
  const DType of_decay = real_floating("linear_recurrence", decay, where),
              of_x = real_floating("linear_recurrence", x, where);
  const DType dtype = promote(of_decay, of_x).value_or(DType::f32);
  const std::vector<Tensor> both =
      broadcast_arrays({astype(decay, compute_dtype(dtype), where), astype(x, compute_dtype(dtype), where)}, where);
  const std::int64_t at = normalize_axis("linear_recurrence", axis, type_of(both[1]), where);
  const auto lines = [&](const Tensor& t) { return moveaxis(t, at, -1, where); };
  const Tensor result = recurrence_along_last(lines(both[0]), lines(both[1]), where).tensor();
  return astype(moveaxis(result, -1, at, where), dtype, where);
}

void register_recurrences() {
  constexpr const char *kLogsumexp = "cumulative_logsumexp_last", *kRecurrence = "linear_recurrence_last";
  Library m(Library::Kind::fragment, "fermata"), cpu(Library::Kind::implementation, "fermata", "CPU"),
      cuda(Library::Kind::implementation, "fermata", "CUDA"), meta(Library::Kind::implementation, "fermata", "Meta"),
      autograd(Library::Kind::implementation, "fermata", "Autograd"),
      batched(Library::Kind::implementation, "fermata", "Batched");
  m.def("pure cumulative_logsumexp_last(Tensor x) -> Tensor", "cumulative_logsumexp along the last axis.");
  m.def("pure linear_recurrence_last(Tensor decay, Tensor x) -> Tensor", "linear_recurrence along the last axis.");
  cpu.impl(kLogsumexp, [](const Call& call, const Tensor& x) {
    return x.dtype() == DType::f64 ? logsumexp_of<double>(x, call.where) : logsumexp_of<float>(x, call.where);
  });
  cpu.impl(kRecurrence, [](const Call& call, const Tensor& decay, const Tensor& x) {
    return x.dtype() == DType::f64 ? recurrence_of<double>(decay, x, call.where)
                                   : recurrence_of<float>(decay, x, call.where);
  });
  meta.impl(kLogsumexp, [](const Call&, const Tensor& x) { return meta_tensor({x.dtype(), x.shape()}); });
  meta.impl(kRecurrence, [](const Call&, const Tensor&, const Tensor& x) {
    return meta_tensor({x.dtype(), x.shape()});
  });
  for (const char* name : {kLogsumexp, kRecurrence}) cuda.impl_boxed(name, run_on_host());
  autograd.impl_boxed(kLogsumexp, derivative(&logsumexp_gradient));
  autograd.impl_boxed(kRecurrence, derivative(&recurrence_gradient));
  batched.impl_boxed(kLogsumexp, batching_rule([](const BatchedArguments& b) -> std::vector<Tensor> {
                       return {logsumexp_along_last(with_batch(b, 0), Location::current())};
                     }));
  batched.impl_boxed(kRecurrence, batching_rule([](const BatchedArguments& b) -> std::vector<Tensor> {
                       return {recurrence_along_last(with_batch(b, 0), with_batch(b, 1), Location::current()).tensor()};
                     }));
  for (Library* library : {&m, &cpu, &cuda, &meta, &autograd, &batched}) library->keep();
}

}  // namespace fermata
