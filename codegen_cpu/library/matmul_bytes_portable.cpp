// See matmul_bytes.h: the kernels for any machine. They widen to i32 and leave the rest to matmul_portable.
#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "codegen_cpu/library/matmul.h"
#include "codegen_cpu/library/matmul_bytes.h"
#include "codegen_cpu/library/matmul_problem.h"
#include "dispatch/kernel_files.h"
#include "ir/ops/products.h"
#include "ir/shape.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

using Wide = Scratch<std::int32_t>;

void widen(const void* bytes, bool is_signed, std::int64_t count, std::int32_t* to) {
  parallel_for(0, count, 0.1, [&](std::int64_t b, std::int64_t e) {
    if (is_signed)
      for (std::int64_t i = b; i < e; ++i) to[i] = static_cast<const std::int8_t*>(bytes)[i];
    else
      for (std::int64_t i = b; i < e; ++i) to[i] = static_cast<const std::uint8_t*>(bytes)[i];
  });
}

/// The elements of a view in row-major order, as i32.
Wide widened(const TensorView& view) {
  const std::int64_t count = view.element_count();
  Wide wide(count);
  const bool dense = is_contiguous(view, 0, view.rank);
  const Scratch<std::byte> copy(dense ? 0 : count);
  const std::span<const std::int64_t> sizes{view.sizes, view.rank};
  if (!dense) strided_copy({copy.data(), dense_strides(sizes)}, {view.data, {view.strides, view.rank}}, sizes, 1);
  widen(dense ? view.data : copy.data(), view.dtype == DType::i8, count, wide.data());
  return wide;
}

/// [N/64, K/4, 64, 4] back to [K, N].
Wide unpacked(const TensorView& packed, std::int64_t k_size, std::int64_t columns) {
  const Scratch<std::byte> copy(packed.element_count());
  const std::span<const std::int64_t> sizes{packed.sizes, packed.rank};
  strided_copy({copy.data(), dense_strides(sizes)}, {packed.data, {packed.strides, packed.rank}}, sizes, 1);
  const auto* const blocks = reinterpret_cast<const std::int8_t*>(copy.data());
  Wide wide(k_size * columns);
  parallel_for(0, k_size, static_cast<double>(columns), [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t k = b; k < e; ++k)
      for (std::int64_t j = 0; j < columns; ++j)
        wide[k * columns + j] = blocks[((j / 64 * packed.sizes[1] + k / 4) * 64 + j % 64) * 4 + k % 4];
  });
  return wide;
}

void multiply_wide(const CallArgs& args, const Wide& lhs, const Wide& rhs, const Shape& rhs_sizes) {
  const TensorView& left = args.inputs[0];
  const Shape lhs_strides = dense_strides({left.sizes, left.rank}), rhs_strides = dense_strides(rhs_sizes);
  const TensorView inputs[] = {
      {lhs.data(), DType::i32, left.rank, left.sizes, lhs_strides.data()},
      {rhs.data(), DType::i32, static_cast<std::uint8_t>(rhs_sizes.rank()), rhs_sizes.data(), rhs_strides.data()}};
  matmul_portable({Op::matmul, inputs, args.outputs, {}, {}, args.where});
}

double portable_cost(double multiply_adds) { return 300 + multiply_adds / 8; }

}  // namespace

void matmul_i32_portable(const CallArgs& args) {
  const TensorView& rhs = args.inputs[1];
  multiply_wide(args, widened(args.inputs[0]), widened(rhs), Shape(std::span(rhs.sizes, rhs.rank)));
}
double matmul_i32_portable_cost(const CallArgs& args) {
  const MatmulProblem p = decode_matmul(args);
  const double rate = eager::instruction_set() == "avx512" ? 30 : eager::instruction_set() == "avx2" ? 15 : 8;
  const auto sides =
      static_cast<double>(args.inputs[0].element_count() + args.inputs[1].element_count());  // widened first
  return 450 + p.multiply_adds() / rate + sides * 0.3 + (p.batches > 1 ? 80 * static_cast<double>(p.batches) : 0);
}

void matmul_packed_portable(const CallArgs& args) {
  const TensorView& x = args.inputs[0];
  const Shape sizes{x.sizes[x.rank - 1], attributes_of<ops::MatmulPacked>(args).columns.value};
  multiply_wide(args, widened(x), unpacked(args.inputs[1], sizes[0], sizes[1]), sizes);
}
double matmul_packed_portable_cost(const CallArgs& args) {
  const std::int64_t columns = attributes_of<ops::MatmulPacked>(args).columns.value;
  return portable_cost(static_cast<double>(args.inputs[0].element_count()) * static_cast<double>(columns));
}

FERMATA_KERNELS(cpu) {
  constexpr DTypeSet kBytes = DTypeSet(DType::i8) | DType::u8;
  add_variant(Op::matmul_i32, BackendKey::cpu,
              {.name = "portable",
               .form = KernelForm::library,
               .dtypes = kBytes,
               .call = &matmul_i32_portable,
               .cost = &matmul_i32_portable_cost});
  add_variant(Op::matmul_packed, BackendKey::cpu,
              {.name = "portable",
               .form = KernelForm::library,
               .dtypes = kBytes,
               .call = &matmul_packed_portable,
               .cost = &matmul_packed_portable_cost});
}

}  // namespace fermata
