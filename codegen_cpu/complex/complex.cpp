// Creation, copies and matrix products of complex numbers.
#include "codegen_cpu/complex/complex.h"

#include <bit>
#include <complex>

#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "codegen_cpu/library/matmul.h"
#include "codegen_cpu/library/matmul_amx.h"
#include "ir/shape.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// The number is stored as a real one.
void full_call(const CallArgs& args) {
  const TensorView& out = args.outputs[0];
  const std::int64_t count = out.element_count();
  if (out.dtype == DType::c64)
    std::fill_n(static_cast<std::complex<float>*>(out.data), count,
                std::complex(std::bit_cast<float>(static_cast<std::uint32_t>(args.scalars[0]))));
  else
    std::fill_n(static_cast<std::complex<double>*>(out.data), count,
                std::complex(std::bit_cast<double>(args.scalars[0])));
}

void copy_call(const CallArgs& args) {
  const TensorView &in = args.inputs[0], &out = args.outputs[0];
  const std::span<const std::int64_t> sizes{in.sizes, in.rank};
  const Shape dense = dense_strides(sizes);  // the output's own shape may differ: a reshape that is not a view
  strided_copy({out.data, dense}, {in.data, {in.strides, in.rank}}, sizes, byte_size(in.dtype));
}

/// The real or imaginary parts of a complex view, as a view.
struct Part {
  Part(const TensorView& whole, bool imaginary) : view(whole) {
    view.dtype = real_dtype(whole.dtype);
    if (imaginary) view.data = static_cast<std::byte*>(whole.data) + byte_size(view.dtype);
    for (unsigned axis = 0; axis < whole.rank; ++axis) strides.push_back(2 * whole.strides[axis]);
    view.strides = strides.data();
  }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  TensorView view;
  Shape strides;
};

void real_matmul(const CallArgs& complex, const Part& lhs, const Part& rhs, void* to) {
  const TensorView inputs[] = {lhs.view, rhs.view};
  TensorView out = complex.outputs[0];
  out.dtype = lhs.view.dtype, out.data = to;
  const CallArgs args{Op::matmul, inputs, {&out, 1}, {}, {}, complex.where};
  const bool onednn = out.dtype == DType::f32 && has_onednn() && matmul_onednn_fits(args);
  const double cost = onednn ? matmul_onednn_cost(args) : matmul_portable_cost(args);
  if (out.dtype == DType::f32 && matmul_amx_fits(args) && matmul_amx_cost(args) < cost) return matmul_amx(args);
  onednn ? matmul_onednn(args) : matmul_portable(args);
}

/// (Ar + i Ai) (Br + i Bi): four products, so that each element has the rounding errors of a real one.
template <class T> void multiply_matrices(const CallArgs& args) {
  const Part ar(args.inputs[0], false), ai(args.inputs[0], true), br(args.inputs[1], false), bi(args.inputs[1], true);
  const std::int64_t count = args.outputs[0].element_count();
  const Scratch<T> first(count), second(count);
  auto* const out = static_cast<T*>(args.outputs[0].data);
  const auto combine = [&](std::int64_t part, T sign) {
    parallel_for(0, count, 1, [&](std::int64_t b, std::int64_t e) {
      for (std::int64_t i = b; i < e; ++i) out[2 * i + part] = first[i] + sign * second[i];
    });
  };
  real_matmul(args, ar, br, first.data()), real_matmul(args, ai, bi, second.data());
  combine(0, -1);
  real_matmul(args, ar, bi, first.data()), real_matmul(args, ai, br, second.data());
  combine(1, 1);
}

/// As four products of real matrices, by the fastest kernel.
void complex_matmul_call(const CallArgs& args) {
  if (args.outputs[0].element_count() == 0) return;
  if (args.outputs[0].dtype == DType::c64)
    multiply_matrices<float>(args);
  else
    multiply_matrices<double>(args);
}

}  // namespace

FERMATA_KERNELS(cpu) {
  add_complex_kernel(Op::full, &full_call);
  add_complex_kernel(Op::copy, &copy_call);
  add_complex_kernel(Op::matmul, &complex_matmul_call);
}

}  // namespace fermata
