// See matmul_bytes.h: the kernels of oneDNN, one primitive execution per tile.
#include "codegen_cpu/library/matmul_bytes.h"

#if FERMATA_ONEDNN

#include <algorithm>

#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "codegen_cpu/library/matmul_problem.h"
#include "codegen_cpu/library/onednn_product.h"
#include "ir/shape.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

using namespace onednn;

/// Without VNNI products of bytes are added in pairs that saturate.
bool multiplies_bytes() { return has_isa(dnnl::cpu_isa::avx512_core_vnni); }

/// Calls body(first row, rows, first column, columns) for every tile of one batch after another.
template <class Body> void for_tiles(const MatmulProblem& p, Body&& body) {
  const MatmulTiles tiles = tile_matmul(p, 64e3 * per_ns(DType::i8), 64, 512, 512);
  const double ns =
      500 + static_cast<double>(tiles.rows * tiles.columns) * static_cast<double>(p.k) / per_ns(DType::i8);
  parallel_for(0, p.batches * tiles.count(), ns, [&](std::int64_t first, std::int64_t last) {
    const OneOpenMpThread single;
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t batch = task / tiles.count(), tile = task % tiles.count();
      const std::int64_t i = tile / tiles.across * tiles.rows, j = tile % tiles.across * tiles.columns;
      body(batch, i, std::min(tiles.rows, p.m - i), j, std::min(tiles.columns, p.n - j));
    }
  });
}

std::int32_t* sums_of(const CallArgs& args, const MatmulProblem& p, std::int64_t batch, std::int64_t i,
                      std::int64_t j) {
  return static_cast<std::int32_t*>(args.outputs[0].data) + (batch * p.m + i) * p.n + j;
}

/// x as one dense matrix of rows; a copy where it lies otherwise.
const void* dense_rows(const TensorView& x, const Scratch<std::byte>& copy) {
  if (copy.size() == 0) return x.data;
  const std::span<const std::int64_t> sizes{x.sizes, x.rank};
  strided_copy({copy.data(), dense_strides(sizes)}, {x.data, {x.strides, x.rank}}, sizes, 1);
  return copy.data();
}

std::int64_t copied_bytes(const TensorView& x) { return is_contiguous(x, 0, x.rank) ? 0 : x.element_count(); }

}  // namespace

void matmul_i32_onednn(const CallArgs& args) try {
  MatmulProblem p = decode_matmul(args);
  const PackedOperands packed(p);
  const DType right = args.inputs[1].dtype;
  for_tiles(p, [&](std::int64_t batch, std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns) {
    const SideStrides l = strides_of(p.lhs, rows, p.k), r = strides_of(p.rhs, p.k, columns);
    const Key key{p.dtype, right, DType::i32, false, {rows, columns, p.k, l.row, l.column, r.row, r.column, p.n}};
    product_for(key).run(p.lhs_of(batch) + i * p.lhs.row_stride, p.rhs_of(batch) + j * p.rhs.column_stride,
                         sums_of(args, p, batch, i, j));
  });
} catch (const dnnl::error& e) { throw_error(e); }

bool matmul_i32_onednn_fits(const CallArgs& args) {
  if (!multiplies_bytes() || args.inputs[1].dtype != DType::i8) return false;
  const MatmulProblem p = decode_matmul(args);
  return p.batches * p.m * p.n != 0 && p.k != 0;
}

double matmul_i32_onednn_cost(const CallArgs& args) {
  return 500 + decode_matmul(args).multiply_adds() / per_ns(DType::i8);
}

void matmul_packed_onednn(const CallArgs& args) try {
  const TensorView &x = args.inputs[0], &blocks = args.inputs[1];
  const Scratch<std::byte> copy(copied_bytes(x)), block_copy(copied_bytes(blocks));
  const auto* const rows_of_x = static_cast<const std::byte*>(dense_rows(x, copy));
  const auto* const packed = static_cast<const std::byte*>(dense_rows(blocks, block_copy));
  MatmulProblem p{.dtype = x.dtype,
                  .m = 1,
                  .n = args.attributes[0],
                  .k = x.sizes[x.rank - 1],
                  .lhs = {},
                  .rhs = {},
                  .out = nullptr,
                  .batch_sizes = {}};
  p.m = x.element_count() / p.k;
  const std::int64_t block_bytes = blocks.sizes[1] * 64 * 4;
  for_tiles(p, [&](std::int64_t batch, std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns) {
    const Key key{p.dtype, DType::i8, DType::i32, true, {rows, columns, p.k, p.k, 1, 0, 0, p.n}};
    product_for(key).run(rows_of_x + i * p.k, packed + j / 64 * block_bytes, sums_of(args, p, batch, i, j));
  });
} catch (const dnnl::error& e) {
  if (e.status == dnnl_unimplemented) return matmul_packed_portable(args);  // a shape that it has no kernel for
  throw_error(e);
}

bool matmul_packed_onednn_fits(const CallArgs& args) {
  return multiplies_bytes() && args.inputs[0].dtype == DType::u8 && args.inputs[0].element_count() != 0 &&
         args.attributes[0] != 0;
}

}  // namespace fermata

#else

#include "ir/error.h"

namespace fermata {

void matmul_i32_onednn(const CallArgs&) { throw_internal("matmul_i32_onednn: built without oneDNN"); }
bool matmul_i32_onednn_fits(const CallArgs&) { return false; }
double matmul_i32_onednn_cost(const CallArgs&) { return 0; }
void matmul_packed_onednn(const CallArgs&) { throw_internal("matmul_packed_onednn: built without oneDNN"); }
bool matmul_packed_onednn_fits(const CallArgs&) { return false; }

}  // namespace fermata

#endif
