// See series.h. One operator has kernels for several dispatch keys; the other is a formula, from which Fermata
// generates all kernels.
#include "series.h"

#include <atomic>

#include "fermata/library.h"

namespace series {
namespace {

namespace fm = fermata;
using fm::Call, fm::DType, fm::Functionality, fm::Tensor;

std::atomic<int> runs{0};

DType result_dtype(DType t) { return fm::is_floating(t) ? t : DType::f32; }

void check(const Tensor& x, fm::Location where) {
  if (x.rank() > 0) return;
  throw fm::ShapeError(1003, fm::format_error(1003, "ShapeError", "series::ema: a series has an axis",
                                              {{"x", to_string(x.dtype(), x.shape()), ""}}, where));
}

/// Any strides along the last axis; the axes before it are made dense first.
template <class T> Tensor averaged(const Tensor& x, double decay) {
  const Tensor dense = fm::Elements(x).dense() ? x : fm::copy(x);
  const fm::Elements in(dense);
  const Tensor out = fm::empty(x.shape(), fm::dtype_of<T>);
  const std::int64_t length = x.size(-1);
  const T keep = static_cast<T>(decay), take = static_cast<T>(1 - decay);
  const T* from = in.data<T>();
  T* to = fm::elements_to_fill<T>(out);
  for (std::int64_t start = 0; start < in.count(); start += length) {
    T y = 0;
    for (std::int64_t t = 0; t < length; ++t) to[start + t] = y = keep * y + take * from[start + t];
  }
  return out;
}

// CPU: the kernel.
Tensor ema_cpu(const Call& call, const Tensor& x, double decay) {
  check(x, call.where);
  ++runs;
  if (x.dtype() == DType::f64) return averaged<double>(x, decay);
  return fm::astype(averaged<float>(fm::astype(x, DType::f32), decay), result_dtype(x.dtype()));
}

// Meta: the type of the result, so that calls can be recorded without running.
Tensor ema_meta(const Call& call, const Tensor& x, double) {
  check(x, call.where);
  return fm::meta_tensor({result_dtype(x.dtype()), x.shape()});
}

// Autograd: the average is linear in x, and its transpose is the average in reverse order.
std::vector<Tensor> ema_derivative(const fm::DerivativeArguments& d) {
  const double decay = d.arguments[1].as<double>();
  return {fm::flip(ema(fm::flip(d.gradients[0], -1), decay), -1)};
}

// Autocast: long sums need f32.
Tensor ema_autocast(const Call& call, const Tensor& x, double decay) {
  const fm::KeyGuard below({}, Functionality::autocast);
  return fm::Dispatcher<Tensor(const Tensor&, double)>::redispatch(call, Functionality::autocast,
                                                                   fm::cached_cast(x, DType::f32, call.where), decay);
}

// Batched: the kernel takes any number of leading axes, so the batch is just another one.
std::vector<Tensor> ema_batched(const fm::BatchedArguments& b) {
  return {ema(b.arguments[0].as<Tensor>(), b.arguments[1].as<double>())};
}

FERMATA_LIBRARY(series, m) {
  m.def("pure ema(Tensor x, float decay) -> Tensor", "Exponential moving average along the last axis.");
  m.pointwise<fm::DTypeRule::floating>(
      "symlog", [](auto x) { return fm::math::sign(x) * fm::math::log1p(abs(x)); }, "sign(x) log(1 + |x|)");
}
FERMATA_LIBRARY_IMPL(series, CPU, m) { m.impl("ema", &ema_cpu); }
FERMATA_LIBRARY_IMPL(series, Meta, m) { m.impl("ema", &ema_meta); }
FERMATA_LIBRARY_IMPL(series, Autograd, m) {
  m.impl_boxed("ema", fm::derivative(&ema_derivative));
  m.impl_boxed("symlog", fm::derivative([](const fm::DerivativeArguments& d) -> std::vector<Tensor> {
                 return {d.gradients[0] / (1 + fm::abs(d.arguments[0].as<Tensor>()))};
               }));
}
FERMATA_LIBRARY_IMPL(series, Autocast, m) { m.impl("ema", &ema_autocast); }
FERMATA_LIBRARY_IMPL(series, Batched, m) { m.impl_boxed("ema", fm::batching_rule(&ema_batched)); }

}  // namespace

Tensor ema(const Tensor& x, double decay, fm::Location where) {
  static const auto op = fm::OperatorHandle::find("series::ema").typed<Tensor(const Tensor&, double)>();
  return op(x, decay, where);
}

Tensor symlog(const fm::Operand& x) {
  static const auto op = fm::OperatorHandle::find("series::symlog").typed<Tensor(const fm::Operand&)>();
  return op(x, x.where());
}

int kernel_runs() { return runs; }

}  // namespace series
