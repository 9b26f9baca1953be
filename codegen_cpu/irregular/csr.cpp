// See csr.h.
#include "codegen_cpu/irregular/csr.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "ir/error.h"
#include "ir/ops/products.h"
#include "ir/shape.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// An operand as it lies, or a dense copy of it.
class DenseOperand {
 public:
  /// Rows may lie apart, as long as the elements of one do not.
  DenseOperand(const TensorView& view, bool rows_may_lie_apart)
      : view_(view),
        in_place_(is_contiguous(view, rows_may_lie_apart ? 1 : 0, view.rank)),
        copy_(in_place_ ? 0 : view.element_count() * static_cast<std::int64_t>(byte_size(view.dtype))) {
    if (in_place_) return;
    const std::span<const std::int64_t> sizes{view.sizes, view.rank};
    strided_copy({copy_.data(), dense_strides(sizes)}, {view.data, {view.strides, view.rank}}, sizes,
                 byte_size(view.dtype));
  }
  void* data() const { return in_place_ ? view_.data : copy_.data(); }
  std::int64_t row_stride() const { return in_place_ ? view_.strides[0] : view_.sizes[1]; }

 private:
  const TensorView& view_;
  bool in_place_;
  Scratch<std::byte> copy_;
};

[[noreturn]] void throw_broken(const CallArgs& args, const std::string& what) {
  const TensorView& pattern = args.inputs[0];
  throw IndexError(
      1250, format_error(1250, "IndexError", fmt::format("{}: {}", name(args.op), what),
                         {{"pattern", to_string(pattern.dtype, {pattern.sizes, pattern.rank}), ""}}, args.where));
}

CsrPattern checked(const CallArgs& args, const std::int64_t* data, std::int64_t rows, std::int64_t width) {
  const CsrPattern p{data, data + rows + 1, rows, args.inputs[0].sizes[0] - rows - 1, width};
  std::atomic<bool> valid = p.offsets[0] == 0 && p.offsets[rows] == p.entries;
  parallel_for(0, rows, 0.3, [&](std::int64_t b, std::int64_t e) {
    bool rising = true;
    for (std::int64_t i = b; i < e; ++i) rising &= p.offsets[i] <= p.offsets[i + 1];
    if (!rising) valid.store(false, std::memory_order_relaxed);
  });
  if (!valid.load()) throw_broken(args, fmt::format("row offsets do not rise from 0 to {}", p.entries));
  parallel_for(0, p.entries, 0.4, [&](std::int64_t b, std::int64_t e) {
    bool within = true;
    for (std::int64_t i = b; i < e; ++i)
      within &= static_cast<std::uint64_t>(p.columns[i]) < static_cast<std::uint64_t>(width);
    if (!within) valid.store(false, std::memory_order_relaxed);
  });
  if (!valid.load()) throw_broken(args, fmt::format("a column is not in [0, {})", width));
  return p;
}

/// Calls body(begin, end) with ranges of rows that have about the same number of entries.
template <class Body> void for_rows(const CsrPattern& p, double ns_per_entry, Body&& body) {
  parallel_for(0, p.rows + p.entries, ns_per_entry, [&](std::int64_t b, std::int64_t e) {
    // A row starts at unit offset + row; it belongs to the range that its start lies in.
    const auto row_at = [&](std::int64_t unit) {
      std::int64_t low = 0, high = p.rows;
      while (low < high) {
        const std::int64_t middle = low + (high - low) / 2;
        if (p.offsets[middle] + middle < unit)
          low = middle + 1;
        else
          high = middle;
      }
      return low;
    };
    body(row_at(b), e == p.rows + p.entries ? p.rows : row_at(e));
  });
}

/// Calls f.operator()<T>() for the type in which a dtype is multiplied: unsigned for integers.
template <class F> void visit_element(DType dtype, F&& f) {
  switch (csr_element(dtype)) {
    case CsrKernels::u8: return f.template operator()<std::uint8_t>();
    case CsrKernels::u16: return f.template operator()<std::uint16_t>();
    case CsrKernels::u32: return f.template operator()<std::uint32_t>();
    case CsrKernels::u64: return f.template operator()<std::uint64_t>();
    case CsrKernels::f32: return f.template operator()<float>();
    default: return f.template operator()<double>();
  }
}

/// The transpose times the dense matrix: rows of the result meet in many entries, so threads share its columns.
template <class T> void add_transposed(const CsrRows& r) {
  const auto* const values = static_cast<const T*>(r.values);
  const auto* const dense = static_cast<const T*>(r.dense);
  auto* const out = static_cast<T*>(r.out);
  std::fill_n(out, r.pattern.width * r.columns, T{});
  parallel_for(
      0, r.columns, static_cast<double>(r.pattern.entries) * 0.4,
      [&](std::int64_t b, std::int64_t e) {
        for (std::int64_t i = 0; i < r.pattern.rows; ++i)
          for (std::int64_t entry = r.pattern.offsets[i]; entry < r.pattern.offsets[i + 1]; ++entry) {
            const T value = values[entry];
            const T* const from = dense + i * r.dense_row_stride;
            T* const to = out + r.pattern.columns[entry] * r.columns;
            for (std::int64_t j = b; j < e; ++j) to[j] = static_cast<T>(to[j] + csr_product(value, from[j]));
          }
      },
      16);
}

template <class T> void sample(const CsrPattern& p, const T* lhs, const T* rhs, std::int64_t width, T* out) {
  for_rows(p, 2 + static_cast<double>(width) * 0.2, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i)
      for (std::int64_t e = p.offsets[i]; e < p.offsets[i + 1]; ++e) {
        const T *const a = lhs + i * width, *const b = rhs + p.columns[e] * width;
        T sums[16] = {};  // fixed chains, merged by halves
        std::int64_t j = 0;
        for (; j + 16 <= width; j += 16)
          for (int lane = 0; lane < 16; ++lane)
            sums[lane] = static_cast<T>(sums[lane] + csr_product(a[j + lane], b[j + lane]));
        for (int lane = 0; j < width; ++j, ++lane) sums[lane] = static_cast<T>(sums[lane] + csr_product(a[j], b[j]));
        for (int half = 8; half > 0; half /= 2)
          for (int lane = 0; lane < half; ++lane) sums[lane] = static_cast<T>(sums[lane] + sums[lane + half]);
        out[e] = sums[0];
      }
  });
}

}  // namespace

const CsrKernels& csr_kernels() {
  static const CsrKernels& best = FERMATA_TABLE(kCsr);
  return best;
}

CsrKernels::Element csr_element(DType dtype) {
  if (dtype == DType::f32) return CsrKernels::f32;
  if (dtype == DType::f64) return CsrKernels::f64;
  switch (byte_size(dtype)) {
    case 1: return CsrKernels::u8;
    case 2: return CsrKernels::u16;
    case 4: return CsrKernels::u32;
    default: return CsrKernels::u64;
  }
}

void csr_matmul_call(const CallArgs& args) {
  const TensorView &pattern = args.inputs[0], &values = args.inputs[1], &dense = args.inputs[2];
  const auto op = attributes_of<ops::CsrMatmul>(args);
  const bool transposed = op.transposed.value;
  const DenseOperand indices(pattern, false), entries(values, false), matrix(dense, true);
  const CsrPattern p = checked(args, static_cast<const std::int64_t*>(indices.data()),
                               pattern.sizes[0] - 1 - values.sizes[0], op.columns.value);
  const CsrRows rows{p, entries.data(), matrix.data(), args.outputs[0].data, dense.sizes[1], matrix.row_stride()};
  if (rows.columns == 0) return;
  if (transposed) return visit_element(dense.dtype, [&]<class T>() { add_transposed<T>(rows); });
  const auto run = csr_kernels().rows[csr_element(dense.dtype)];
  const double bytes = static_cast<double>(dense.sizes[1]) * static_cast<double>(byte_size(dense.dtype));
  for_rows(p, 1 + 0.05 * bytes, [&](std::int64_t begin, std::int64_t end) { run(rows, begin, end); });
}

void csr_sampled_matmul_call(const CallArgs& args) {
  const TensorView &pattern = args.inputs[0], &lhs = args.inputs[1], &rhs = args.inputs[2];
  const DenseOperand indices(pattern, false), left(lhs, false), right(rhs, false);
  const CsrPattern p = checked(args, static_cast<const std::int64_t*>(indices.data()), lhs.sizes[0], rhs.sizes[0]);
  visit_element(lhs.dtype, [&]<class T>() {
    sample(p, static_cast<const T*>(left.data()), static_cast<const T*>(right.data()), lhs.sizes[1],
           static_cast<T*>(args.outputs[0].data));
  });
}

FERMATA_KERNELS(cpu) {
  add_native_kernel(Op::csr_matmul, &csr_matmul_call, Ships::with_math);
  add_native_kernel(Op::csr_sampled_matmul, &csr_sampled_matmul_call, Ships::with_math);
}

}  // namespace fermata
