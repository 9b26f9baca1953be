// Linear algebra on stacks of small real matrices: each lane of a vector is a matrix (small_matrices_kernels.h), where
// a call of LAPACK for each would take longer than the work.
//
// A matrix gets the same bits whatever stack it is part of: the operations on it and their order depend on its size
// only.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/transpose.h"
#include "codegen_cpu/library/lapack_stack.h"
#include "codegen_cpu/library/small_matrices_kernels.h"
#include "dispatch/kernel_files.h"
#include "ir/ops/linalg.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Rows, and right-hand sides; rows of what is solved by iterations.
constexpr std::int64_t kLargest = 32, kLargestIterated = 12;

const SmallMatrices& small_matrices(std::int64_t matrices) {
#if defined(__x86_64__)
  if (matrices > kSmallMatricesBaseline.f32.lanes && eager::instruction_set() == "avx512") return kSmallMatricesAvx512;
  if (matrices > kSmallMatricesBaseline.f32.lanes && eager::instruction_set() == "avx2") return kSmallMatricesAvx2;
#endif
  return kSmallMatricesBaseline;
}
template <class T> const SmallMatrixKernels<T>& kernels_of(const SmallMatrices& all) {
  if constexpr (sizeof(T) == 4)
    return all.f32;
  else
    return all.f64;
}

/// Element by element, the matrices of a tile side by side.
template <class T> class Tile {
 public:
  Tile(std::int64_t rows, std::int64_t columns, std::int64_t lanes)
      : rows_(rows), columns_(columns), lanes_(lanes), held_(rows * columns * lanes) {}
  T* data() const { return held_.data(); }
  T* at(std::int64_t i, std::int64_t j) const { return held_.data() + (i * columns_ + j) * lanes_; }
  std::int64_t elements() const { return rows_ * columns_; }
  std::int64_t lanes() const { return lanes_; }

  void fill_identity() const {
    std::fill_n(data(), elements() * lanes_, T(0));
    for (std::int64_t i = 0; i < std::min(rows_, columns_); ++i) std::fill_n(at(i, i), lanes_, T(1));
  }
  /// Matrices [first, first + count) of an operand; what is left of the lanes gets identity matrices.
  void read(const MatrixStack& stack, std::size_t operand, std::int64_t first, std::int64_t count) const {
    if (count < lanes_) fill_identity();
    const TensorView& v = stack.args().inputs[operand];
    const std::int64_t down = v.strides[v.rank - 2], along = v.strides[v.rank - 1];
    const auto* const from = static_cast<const T*>(v.data);
    const std::int64_t begin = stack.offset(operand, first), step = stack.step(operand);
    if (step > 0 && (along == 1 || columns_ == 1) && (down == columns_ || rows_ == 1))
      return transpose_kernels().of_bytes[sizeof(T)]({.to = data(),
                                                      .from = from + begin,
                                                      .to_line = lanes_,
                                                      .from_line = step,
                                                      .lines = elements(),
                                                      .columns = count,
                                                      .streams = false});
    for (std::int64_t lane = 0; lane < count; ++lane) {
      const T* const matrix = from + stack.offset(operand, first + lane);
      for (std::int64_t i = 0; i < rows_; ++i)
        for (std::int64_t j = 0; j < columns_; ++j) at(i, j)[lane] = matrix[i * down + j * along];
    }
  }
  /// Dense matrices, one after the other.
  void write(T* to, std::int64_t count) const {
    transpose_kernels().of_bytes[sizeof(T)]({.to = to,
                                             .from = data(),
                                             .to_line = elements(),
                                             .from_line = lanes_,
                                             .lines = count,
                                             .columns = elements(),
                                             .streams = false});
  }

 private:
  std::int64_t rows_, columns_, lanes_;
  Scratch<T> held_;
};

/// What a call does to one tile after the other.
template <class T> struct TileCall {
  MatrixStack& stack;
  const SmallMatrixKernels<T>& kernels;
  std::int64_t first = 0, count = 0;
  std::int64_t rows() const { return stack.rows(0); }
  void fail(FailedLanes lanes) const {
    for (std::int64_t lane = 0; lane < count; ++lane)
      if ((lanes >> lane & 1u) != 0) return stack.fail(first + lane);
  }
  Tile<T> tile(std::int64_t columns) const { return Tile<T>(rows(), columns, kernels.lanes); }
};

/// Room for what the tiles of a thread need, and what is done with each.
template <class T, bool kInverts> struct Eliminated {
  explicit Eliminated(const TileCall<T>& call) : a(call.tile(call.rows())), b(call.tile(columns(call))) {}
  static std::int64_t columns(const TileCall<T>& call) { return kInverts ? call.rows() : call.stack.columns(1); }
  void run(const TileCall<T>& call) const {
    const std::int64_t n = call.rows(), k = columns(call);
    a.read(call.stack, 0, call.first, call.count);
    if constexpr (kInverts)
      b.fill_identity();
    else
      b.read(call.stack, 1, call.first, call.count);
    call.fail(call.kernels.eliminate(a.data(), n, b.data(), k, sign.data()));
    call.kernels.substitute(a.data(), n, b.data(), k, true, false);
    b.write(call.stack.template result<T>(call.first), call.count);
  }
  Tile<T> a, b;
  Scratch<T> sign{kLargest};
};
template <class T> using Solve = Eliminated<T, false>;
template <class T> using Inverse = Eliminated<T, true>;

template <class T> struct SolveTriangular {
  explicit SolveTriangular(const TileCall<T>& call) : a(call.tile(call.rows())), b(call.tile(call.stack.columns(1))) {}
  void run(const TileCall<T>& call) const {
    const auto op = attributes_of<ops::SolveTriangular>(call.stack.args());
    a.read(call.stack, 0, call.first, call.count), b.read(call.stack, 1, call.first, call.count);
    call.fail(
        call.kernels.substitute(a.data(), call.rows(), b.data(), call.stack.columns(1), op.upper.value, op.unit.value));
    b.write(call.stack.template result<T>(call.first), call.count);
  }
  Tile<T> a, b;
};

/// LU without right-hand sides; a pivot that vanishes is on the diagonal.
template <class T> struct Lu {
  explicit Lu(const TileCall<T>& call) : a(call.tile(call.rows())) {}
  void factorize(const TileCall<T>& call) const {
    a.read(call.stack, 0, call.first, call.count);
    call.kernels.eliminate(a.data(), call.rows(), nullptr, 0, sign.data());
  }
  Tile<T> a;
  Scratch<T> sign{kLargest};
};

template <class T> struct Determinant : Lu<T> {
  using Lu<T>::Lu;
  void run(const TileCall<T>& call) const {
    this->factorize(call);
    T* const to = call.stack.template result<T>(call.first);
    for (std::int64_t lane = 0; lane < call.count; ++lane) {
      T product = this->sign[lane];
      for (std::int64_t i = 0; i < call.rows(); ++i) product *= this->a.at(i, i)[lane];
      to[lane] = product;
    }
  }
};

template <class T> struct LogDeterminant : Lu<T> {
  using Lu<T>::Lu;
  void run(const TileCall<T>& call) const {
    this->factorize(call);
    T* const to = call.stack.template result<T>(call.first);
    for (std::int64_t lane = 0; lane < call.count; ++lane) {
      T sign = this->sign[lane], logarithm = 0;
      for (std::int64_t i = 0; i < call.rows(); ++i) {
        const T pivot = this->a.at(i, i)[lane], size = std::abs(pivot);
        sign *= size == 0 ? T(0) : pivot / size;
        logarithm += std::log(size);
      }
      to[2 * lane] = sign, to[2 * lane + 1] = logarithm;
    }
  }
};

template <class T> struct CholeskyFactor {
  explicit CholeskyFactor(const TileCall<T>& call) : a(call.tile(call.rows())), turned(call.tile(call.rows())) {}
  void run(const TileCall<T>& call) const {
    const std::int64_t n = call.rows();
    const bool upper = attributes_of<ops::Cholesky>(call.stack.args()).upper.value;
    const Tile<T>&lower = upper ? turned : a, &result = a;
    a.read(call.stack, 0, call.first, call.count);
    if (upper) exchange(a, turned, n);
    call.fail(call.kernels.cholesky(lower.data(), n));
    if (upper) exchange(turned, a, n);
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < i; ++j) std::fill_n(upper ? a.at(i, j) : a.at(j, i), a.lanes(), T(0));
    result.write(call.stack.template result<T>(call.first), call.count);
  }
  /// Rows become columns.
  static void exchange(const Tile<T>& from, const Tile<T>& to, std::int64_t n) {
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < n; ++j) std::copy_n(from.at(i, j), from.lanes(), to.at(j, i));
  }
  Tile<T> a, turned;
};

/// [the eigenvalues; the eigenvectors as columns], or the eigenvalues alone.
template <class T, bool kVectors> struct Symmetric {
  explicit Symmetric(const TileCall<T>& call)
      : a(call.tile(call.rows())), result(kVectors ? call.rows() + 1 : 1, call.rows(), call.kernels.lanes) {}
  void run(const TileCall<T>& call) const {
    a.read(call.stack, 0, call.first, call.count);
    call.fail(call.kernels.eigen(a.data(), call.rows(), kVectors ? result.at(1, 0) : nullptr, result.data()));
    result.write(call.stack.template result<T>(call.first), call.count);
  }
  Tile<T> a, result;
};
template <class T> using EigenPairs = Symmetric<T, true>;
template <class T> using EigenValues = Symmetric<T, false>;

template <template <class> class Method, class T> void run_tiles(MatrixStack& stack) {
  const SmallMatrixKernels<T>& kernels = kernels_of<T>(small_matrices(stack.matrices()));
  const std::int64_t n = stack.rows(0), lanes = kernels.lanes, tiles = (stack.matrices() + lanes - 1) / lanes;
  const double cost = 100 + 2 * static_cast<double>(n * n * n);
  parallel_for(0, tiles, cost, [&](std::int64_t begin, std::int64_t end) {
    TileCall<T> call{stack, kernels};
    const Method<T> method(call);
    for (std::int64_t tile = begin; tile < end; ++tile) {
      call.first = tile * lanes, call.count = std::min(lanes, stack.matrices() - call.first);
      method.run(call);
    }
  });
}

template <template <class> class Method, unsigned kMatrixAxes, const MatrixFailure& kFailure>
void run(const CallArgs& args) {
  MatrixStack stack(args, kMatrixAxes);
  if (args.inputs[0].dtype == DType::f32)
    run_tiles<Method, float>(stack);
  else
    run_tiles<Method, double>(stack);
  stack.raise(kFailure);
}

template <std::int64_t kRows> bool is_small(const CallArgs& args) {
  if (args.outputs[0].element_count() == 0) return false;
  return std::ranges::all_of(
      args.inputs, [](const TensorView& v) { return v.sizes[v.rank - 2] <= kRows && v.sizes[v.rank - 1] <= kRows; });
}

template <std::int64_t kRows = kLargest>
void add_method(Op op, CallKernel call, std::source_location where = std::source_location::current()) {
  add_variant(
      op, BackendKey::cpu,
      {.name = "lanes",
       .form = KernelForm::library,
       .dtypes = DTypeSet(DType::f32) | DType::f64,
       .call = call,
       .fits = &is_small<kRows>,
       .cost = [](const CallArgs&) { return -1.0; },  // of every stack, so that bits do not depend on its length
       .fits_text = fmt::format("matrices of at most {} rows and columns", kRows),
       .ships = Ships::with_math,
       .where = where});
}

}  // namespace

FERMATA_KERNELS(cpu) {
  add_method(Op::cholesky, &run<CholeskyFactor, 2, kNotPositive>);
  add_method(Op::solve, &run<Solve, 2, kSingular>);
  add_method(Op::solve_triangular, &run<SolveTriangular, 2, kZeroOnDiagonal>);
  add_method(Op::inv, &run<Inverse, 2, kSingular>);
  add_method(Op::det, &run<Determinant, 0, kSingular>);
  add_method(Op::slogdet, &run<LogDeterminant, 1, kSingular>);
  add_method<kLargestIterated>(Op::eigh, &run<EigenPairs, 2, kNoEigenvalues>);
  add_method<kLargestIterated>(Op::eigvalsh, &run<EigenValues, 1, kNoEigenvalues>);
}

}  // namespace fermata
