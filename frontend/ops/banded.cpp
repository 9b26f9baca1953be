// solve_banded of fermata/linalg.h: elimination with partial pivoting within the band. Pivoting fills as many diagonals
// above it as the band has below the main one.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>

#include "fermata/creation.h"
#include "fermata/library.h"
#include "fermata/linalg.h"
#include "fermata/ops.h"
#include "fermata/reductions.h"
#include "fermata/views.h"
#include "frontend/engine/startup.h"
#include "frontend/ops/calls.h"
#include "frontend/ops/linalg_operands.h"
#include "frontend/ops/run_on_host.h"
#include "frontend/transforms/autograd/vjp_tensor.h"
#include "ir/error.h"
#include "runtime/thread_pool.h"

namespace fermata::linalg {
namespace {

using vjp::VjpTensor;

/// One matrix, column by column with room for what pivoting fills.
template <class T> class Band {
 public:
  Band(const T* bands, std::int64_t n, std::int64_t lower, std::int64_t upper)
      : n_(n), lower_(lower), upper_(upper), height_(2 * lower + upper + 1), a_(static_cast<std::size_t>(height_ * n)) {
    for (std::int64_t j = 0; j < n; ++j)
      for (std::int64_t i = std::max<std::int64_t>(0, j - upper); i <= std::min(n - 1, j + lower); ++i)
        at(i, j) = bands[(upper + i - j) * n + j];
  }
  /// x [n, k] in place of b; false where a pivot vanishes.
  bool solve(T* b, std::int64_t k) {
    for (std::int64_t c = 0; c < n_; ++c) {
      const std::int64_t end = std::min(n_, c + lower_ + 1), right = std::min(n_, c + lower_ + upper_ + 1);
      std::int64_t pivot = c;
      for (std::int64_t i = c + 1; i < end; ++i)
        if (std::abs(at(i, c)) > std::abs(at(pivot, c))) pivot = i;
      if (at(pivot, c) == T(0)) return false;
      if (pivot != c) {
        for (std::int64_t j = c; j < right; ++j) std::swap(at(pivot, j), at(c, j));
        std::swap_ranges(b + c * k, b + (c + 1) * k, b + pivot * k);
      }
      for (std::int64_t i = c + 1; i < end; ++i) {
        const T factor = at(i, c) / at(c, c);
        if (factor == T(0)) continue;
        for (std::int64_t j = c + 1; j < right; ++j) at(i, j) -= factor * at(c, j);
        for (std::int64_t j = 0; j < k; ++j) b[i * k + j] -= factor * b[c * k + j];
      }
    }
    for (std::int64_t i = n_; i-- > 0;) {
      const std::int64_t right = std::min(n_, i + lower_ + upper_ + 1);
      for (std::int64_t c = i + 1; c < right; ++c)
        for (std::int64_t j = 0; j < k; ++j) b[i * k + j] -= at(i, c) * b[c * k + j];
      for (std::int64_t j = 0; j < k; ++j) b[i * k + j] /= at(i, i);
    }
    return true;
  }

 private:
  T& at(std::int64_t i, std::int64_t j) { return a_[static_cast<std::size_t>(j * height_ + i - j + upper_ + lower_)]; }
  std::int64_t n_, lower_, upper_, height_;
  std::vector<T> a_;
};

template <class T>
Tensor solved(const Tensor& bands, const Tensor& b, std::int64_t lower, std::int64_t upper, Location where) {
  const Tensor dense_bands = Elements(bands, where).dense() ? bands : copy(bands, where),
               dense = Elements(b, where).dense() ? b : copy(b, where), out = empty(b.shape(), b.dtype());
  const Elements of_bands(dense_bands, where), of_b(dense, where);
  const std::int64_t n = b.size(-2), k = b.size(-1), height = lower + upper + 1;
  T* const to = elements_to_fill<T>(out, where);
  if (n * k == 0) return out;
  std::copy_n(of_b.data<T>(), of_b.count(), to);
  std::atomic<std::int64_t> failed{INT64_MAX};
  const double cost = static_cast<double>(n) * static_cast<double>((lower + 1) * (height + lower + k));
  parallel_for(0, of_b.count() / (n * k), cost, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t m = begin; m < end; ++m)
      if (!Band<T>(of_bands.data<T>() + m * height * n, n, lower, upper).solve(to + m * n * k, k))
        for (std::int64_t lowest = failed.load(); m < lowest && !failed.compare_exchange_weak(lowest, m);) {}
  });
  if (failed.load() != INT64_MAX)
    throw ValueError(
        1390, format_error(
                  1390, "ValueError", fmt::format("solve_banded: matrix {} is singular", failed.load()),
                  {{"bands", to_string(bands.dtype(), bands.shape()), ""}, {"b", to_string(b.dtype(), b.shape()), ""}},
                  where));
  return out;
}

Tensor call_solve(const Tensor& bands, const Tensor& b, std::int64_t lower, std::int64_t upper, Location where) {
  static const auto op = OperatorHandle::find("fermata::linalg_solve_banded")
                             .typed<Tensor(const Tensor&, const Tensor&, std::int64_t, std::int64_t)>();
  return op(bands, b, lower, upper, where);
}

/// Elements along an axis `by` places earlier, zeros for those beyond.
Tensor earlier(const Tensor& x, std::int64_t axis, std::int64_t by, Location where) {
  const std::int64_t n = x.size(axis), count = std::min(std::abs(by), n);
  if (count == 0) return x;
  const Tensor none = zeros_like(slice(x, axis, 0, count, 1, where), {}, where);
  return by > 0 ? concat({slice(x, axis, count, n, 1, where), none}, axis, where)
                : concat({none, slice(x, axis, 0, n - count, 1, where)}, axis, where);
}

/// The bands of the transpose: row lower + d has the elements of row upper - d from d places on.
Tensor transposed(const Tensor& bands, std::int64_t lower, std::int64_t upper, Location where) {
  std::vector<Tensor> rows;
  for (std::int64_t d = -lower; d <= upper; ++d)
    rows.push_back(earlier(select(bands, -2, upper - d, where), -1, d, where));
  return stack(rows, -2, where);
}

std::vector<Tensor> gradient_of(const DerivativeArguments& d) {
  const Location where = vjp::current_line;
  const Tensor &bands = d.arguments[0].as<Tensor>(), &x = d.results[0];
  const auto lower = d.arguments[2].as<std::int64_t>(), upper = d.arguments[3].as<std::int64_t>();
  const Tensor by_b = call_solve(transposed(bands, lower, upper, where), d.gradients[0], upper, lower, where);
  std::vector<Tensor> rows;  // that of the elements a[j + r, j]: -by_b[j + r] x[j]
  for (std::int64_t r = -upper; r <= lower; ++r) {
    const Tensor product = multiply({earlier(by_b, -2, r, where), where}, x);
    rows.push_back(negative({sum(product, -1, false, where), where}));
  }
  return {stack(rows, -2, where), by_b};
}

Tensor with_batch(const BatchedArguments& b, std::size_t k) {
  const Tensor& x = b.arguments[k].as<Tensor>();
  if (b.batched[k]) return x;
  Shape sizes{b.size};
  for (const std::int64_t s : x.shape()) sizes.push_back(s);
  return broadcast_to(expand_dims(x, 0), sizes);
}

Shape batch_of(const Tensor& x) {
  const Shape shape = x.shape();
  return Shape(std::span<const std::int64_t>(shape).first(shape.rank() - 2u));
}

}  // namespace

Tensor solve_banded(std::int64_t lower, std::int64_t upper, const Tensor& bands, const Tensor& b, Location where) {
  require_defined("solve_banded", bands, where), require_defined("solve_banded", b, where);
  std::vector<Tensor> both = solvable(bands, b, where);
  if (both[0].dtype() != DType::f32 && both[0].dtype() != DType::f64)
    throw DTypeError(
        1101, format_error(1101, "DTypeError", fmt::format("solve_banded: does not take {}", name(both[0].dtype())),
                           describe(bands, b), where, "cast it to f32 or f64 first"));
  const bool vector = b.rank() == 1;
  if (vector) both[1] = expand_dims(both[1], 1, where);
  const bool fits = lower >= 0 && upper >= 0 && bands.rank() >= 2 && both[1].rank() >= 2 &&
                    bands.size(-2) == lower + upper + 1 && bands.size(-1) == both[1].size(-2) &&
                    both[0].dtype() == both[1].dtype();
  const std::optional<Shape> batch = fits ? broadcast_shapes(batch_of(both[0]), batch_of(both[1])) : std::nullopt;
  if (!batch)
    throw ShapeError(
        1004, format_error(
                  1004, "ShapeError",
                  fmt::format("solve_banded: bands [.., {}, N] and b [.., N, K] do not match", lower + upper + 1),
                  {{"bands", to_string(bands.dtype(), bands.shape()), ""}, {"b", to_string(b.dtype(), b.shape()), ""}},
                  where));
  for (Tensor& t : both) {
    Shape sizes = *batch;
    sizes.push_back(t.size(-2)), sizes.push_back(t.size(-1));
    t = broadcast_to(t, sizes, where);
  }
  const Tensor x = call_solve(both[0], both[1], lower, upper, where);
  return vector ? squeeze(x, -1, where) : x;
}

}  // namespace fermata::linalg

namespace fermata {

void register_banded() {
  using namespace linalg;
  constexpr const char* kName = "linalg_solve_banded";
  Library m(Library::Kind::fragment, "fermata"), cpu(Library::Kind::implementation, "fermata", "CPU"),
      cuda(Library::Kind::implementation, "fermata", "CUDA"), meta(Library::Kind::implementation, "fermata", "Meta"),
      autograd(Library::Kind::implementation, "fermata", "Autograd"),
      batched(Library::Kind::implementation, "fermata", "Batched");
  m.def("pure linalg_solve_banded(Tensor bands, Tensor b, int lower, int upper) -> Tensor",
        "x of a x = b for matrices of few diagonals.");
  cpu.impl(kName, [](const Call& call, const Tensor& bands, const Tensor& b, std::int64_t lower, std::int64_t upper) {
    return b.dtype() == DType::f64 ? solved<double>(bands, b, lower, upper, call.where)
                                   : solved<float>(bands, b, lower, upper, call.where);
  });
  cuda.impl_boxed(kName, run_on_host());
  meta.impl(kName, [](const Call&, const Tensor&, const Tensor& b, std::int64_t, std::int64_t) {
    return meta_tensor({b.dtype(), b.shape()});
  });
  autograd.impl_boxed(kName, derivative(&gradient_of));
  batched.impl_boxed(kName, batching_rule([](const BatchedArguments& b) -> std::vector<Tensor> {
                       return {call_solve(with_batch(b, 0), with_batch(b, 1), b.arguments[2].as<std::int64_t>(),
                                          b.arguments[3].as<std::int64_t>(), Location::current())};
                     }));
  for (Library* library : {&m, &cpu, &cuda, &meta, &autograd, &batched}) library->keep();
}

}  // namespace fermata
