// cumulative_logsumexp and linear_recurrence of fermata/statistics.h: operators of one pass over each line. The
// derivatives of both are linear recurrences.
#include <algorithm>
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

// ---- Kernels

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

/// Lines along the last axis but one, with any distance between their elements.
template <class T> class Lines {
 public:
  explicit Lines(const Elements& x) : view_(x.view()), data_(x.data<T>()) {}
  /// The first element of line `inner` of all that share the `outer`th index of the axes in front.
  const T* line(std::int64_t outer, std::int64_t inner) const {
    std::int64_t offset = inner * inner_step();
    for (unsigned axis = view_.rank - 2; axis-- > 0; outer /= view_.sizes[axis])
      offset += outer % view_.sizes[axis] * view_.strides[axis];
    return data_ + offset;
  }
  std::int64_t step() const { return view_.strides[view_.rank - 2]; }
  std::int64_t inner_step() const { return view_.strides[view_.rank - 1]; }

 private:
  const TensorView view_;
  const T* const data_;
};

/// A step takes as long as a product and a sum that wait for each other: several lines go side by side.
template <int kLines, class T> void recurrence_of_lines(const Lines<T>& factors, const Lines<T>& in, T* out,
                                                        std::int64_t first, std::int64_t size, std::int64_t inner) {
  const T *by[kLines], *from[kLines];
  T *to[kLines], y[kLines];
  for (int k = 0; k < kLines; ++k) {
    const std::int64_t outer = (first + k) / inner, column = (first + k) % inner;
    by[k] = factors.line(outer, column), from[k] = in.line(outer, column);
    to[k] = out + outer * size * inner + column, *to[k] = y[k] = *from[k];
  }
  for (std::int64_t i = 1; i < size; ++i)
    for (int k = 0; k < kLines; ++k)
      to[k][i * inner] = y[k] = by[k][i * factors.step()] * y[k] + from[k][i * in.step()];
}

/// Rows of as many neighboring lines.
template <class T> void recurrence_of_rows(const Lines<T>& factors, const Lines<T>& in, T* to, std::int64_t outer,
                                           std::int64_t column, std::int64_t columns, std::int64_t size,
                                           std::int64_t inner) {
  const T *by = factors.line(outer, column), *from = in.line(outer, column);
  to += outer * size * inner + column;
  std::copy_n(from, columns, to);
  for (std::int64_t i = 1; i < size; ++i) {
    by += factors.step(), from += in.step();
    T* const next = to + inner;
    if (factors.inner_step() == 0)
      for (std::int64_t j = 0; j < columns; ++j) next[j] = *by * to[j] + from[j];
    else
      for (std::int64_t j = 0; j < columns; ++j) next[j] = by[j] * to[j] + from[j];
    to = next;
  }
}

template <class T> Tensor recurrence_of(const Tensor& decay, const Tensor& x, Location where) {
  const auto in_rows = [&](const Tensor& t, bool may_repeat) {
    const std::int64_t step = Lines<T>(Elements(t, where)).inner_step();
    return t.size(-1) == 1 || step == 1 || (may_repeat && step == 0) ? t : copy(t, where);
  };
  const Tensor rows_of_decay = in_rows(decay, true), rows = in_rows(x, false), out = empty(x.shape(), x.dtype());
  const Elements decays(rows_of_decay, where), values(rows, where);
  const Lines<T> factors(decays), in(values);
  T* const to = elements_to_fill<T>(out, where);
  const std::int64_t size = x.size(-2), inner = x.size(-1), lines = size == 0 ? 0 : x.element_count() / size;
  constexpr std::int64_t kFewestColumns = 16, kMostColumns = 256, kSide = 8;
  if (inner >= kFewestColumns) {
    const std::int64_t blocks = (inner + kMostColumns - 1) / kMostColumns, outer = lines / inner;
    constexpr double kNsPerElement = 0.3;
    const double cost = kNsPerElement * static_cast<double>(size * std::min(inner, kMostColumns));
    parallel_for(0, outer * blocks, cost, [&](std::int64_t b, std::int64_t e) {
      for (; b < e; ++b) {
        const std::int64_t column = b % blocks * kMostColumns;
        recurrence_of_rows(factors, in, to, b / blocks, column, std::min(kMostColumns, inner - column), size, inner);
      }
    });
    return out;
  }
  parallel_for(0, (lines + kSide - 1) / kSide, static_cast<double>(size * kSide), [&](std::int64_t b, std::int64_t e) {
    std::int64_t line = b * kSide;
    for (const std::int64_t end = std::min(e * kSide, lines); line < end;)
      if (end - line >= kSide)
        recurrence_of_lines<kSide>(factors, in, to, line, size, inner), line += kSide;
      else
        recurrence_of_lines<1>(factors, in, to, line, size, inner), ++line;
  });
  return out;
}

// ---- Calls

Tensor logsumexp_along_last(const Tensor& x, Location where) {
  static const auto op = OperatorHandle::find("fermata::cumulative_logsumexp_last").typed<Tensor(const Tensor&)>();
  return op(x, where);
}
/// Along the last axis but one.
Tensor recurrence_along_lines(const Tensor& decay, const Tensor& x, Location where) {
  static const auto op =
      OperatorHandle::find("fermata::linear_recurrence_lines").typed<Tensor(const Tensor&, const Tensor&)>();
  return op(decay, x, where);
}

/// Elements one place later along an axis, and back; `edge` fills the place that becomes free.
VjpTensor moved(const VjpTensor& x, std::int64_t axis, bool later, double edge, Location where) {
  const std::int64_t n = x.tensor().size(axis);
  if (n == 0) return x;
  const Tensor free = full_like(slice(x.tensor(), axis, 0, 1, 1, where), edge, {}, where);
  const Tensor rest = later ? slice(x.tensor(), axis, 0, n - 1, 1, where) : slice(x.tensor(), axis, 1, n, 1, where);
  const std::array both{later ? free : rest, later ? rest : free};
  return concat(both, axis, where);
}

/// y[t] = x[t] + decay[t + 1] y[t + 1] along the last axis but one.
VjpTensor backward_recurrence(const VjpTensor& decay, const VjpTensor& x, Location where) {
  const auto turned = [&](const VjpTensor& t) { return flip(t.tensor(), -2, where); };
  return flip(recurrence_along_lines(turned(moved(decay, -2, false, 0, where)), turned(x), where), -2, where);
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
  const VjpTensor decay = ratio(moved(y, -1, true, 0, where), y);  // the first one is not read
  const auto as_lines = [&](const VjpTensor& t) { return expand_dims(t.tensor(), -1, where); };
  const VjpTensor sums = squeeze(backward_recurrence(as_lines(decay), as_lines(g), where).tensor(), -1, where);
  return {vjp::where(x == -HUGE_VAL, 0, sums * ratio(x, y)).tensor()};
}

std::vector<Tensor> recurrence_gradient(const DerivativeArguments& d) {
  const Location where = vjp::current_line;
  const VjpTensor decay = d.arguments[0].as<Tensor>();
  const VjpTensor by_x = backward_recurrence(decay, d.gradients[0], where);
  return {(by_x * moved(d.results[0], -2, true, 0, where)).tensor(), by_x.tensor()};
}

Tensor with_batch(const BatchedArguments& b, std::size_t k) {
  const Tensor& x = b.arguments[k].as<Tensor>();
  if (b.batched[k]) return x;
  Shape sizes{b.size};
  for (const std::int64_t s : x.shape()) sizes.push_back(s);
  return broadcast_to(expand_dims(x, 0), sizes);
}

/// The elements in front of an axis, along it, and behind it.
Shape in_three(const Shape& shape, unsigned axis) {
  Shape sizes{1, 1, 1};
  for (unsigned i = 0; i < shape.rank(); ++i) sizes[i < axis ? 0 : i == axis ? 1 : 2] *= shape[i];
  return sizes;
}

/// A decay, which broadcasts to `shape`, in three axes. One that is the same for all of an axis is not copied.
Tensor lines_of_decay(const Tensor& decay, const Shape& shape, unsigned axis, Location where) {
  const Shape lines = in_three(shape, axis);
  Shape own;
  for (unsigned i = 0; i < shape.rank() - decay.rank(); ++i) own.push_back(1);
  for (const std::int64_t size : decay.shape()) own.push_back(size);
  const Shape own_lines = in_three(own, axis);
  for (unsigned i = 0; i < own_lines.rank(); ++i)
    if (own_lines[i] != 1 && own_lines[i] != lines[i]) return reshape(broadcast_to(decay, shape, where), lines, where);
  return broadcast_to(reshape(decay, own_lines, where), lines, where);
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
  const Tensor factors = astype(decay, compute_dtype(dtype), where);
  const Tensor values = broadcast_arrays({factors, astype(x, compute_dtype(dtype), where)}, where)[1];
  const Shape shape = values.shape();
  const unsigned at = normalize_axis("linear_recurrence", axis, type_of(values), where);
  const Shape lines = in_three(shape, at);
  const Tensor result =
      recurrence_along_lines(lines_of_decay(factors, shape, at, where), reshape(values, lines, where), where);
  return astype(reshape(result, shape, where), dtype, where);
}

void register_recurrences() {
  constexpr const char *kLogsumexp = "cumulative_logsumexp_last", *kRecurrence = "linear_recurrence_lines";
  Library m(Library::Kind::fragment, "fermata"), cpu(Library::Kind::implementation, "fermata", "CPU"),
      cuda(Library::Kind::implementation, "fermata", "CUDA"), meta(Library::Kind::implementation, "fermata", "Meta"),
      autograd(Library::Kind::implementation, "fermata", "Autograd"),
      batched(Library::Kind::implementation, "fermata", "Batched");
  m.def("pure cumulative_logsumexp_last(Tensor x) -> Tensor", "cumulative_logsumexp along the last axis.");
  m.def("pure linear_recurrence_lines(Tensor decay, Tensor x) -> Tensor",
        "linear_recurrence along the last axis but one.");
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
                       return {recurrence_along_lines(with_batch(b, 0), with_batch(b, 1), Location::current())};
                     }));
  for (Library* library : {&m, &cpu, &cuda, &meta, &autograd, &batched}) library->keep();
}

}  // namespace fermata
