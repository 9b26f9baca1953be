// See matmul_bytes.h: the kernel of oneDNN, one primitive execution per tile.
#include "codegen_cpu/library/matmul_bytes.h"

#include "codegen_cpu/library/matmul.h"
#include "dispatch/kernel_files.h"

#if FERMATA_ONEDNN

#include <algorithm>

#include "codegen_cpu/library/matmul_problem.h"
#include "codegen_cpu/library/onednn_product.h"
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
    const SingleThreadedOpenMp single;
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

}  // namespace

void matmul_i32_onednn(const CallArgs& args) try {
  if (has_ended()) [[unlikely]]
    return matmul_i32_portable(args);
  MatmulProblem p = decode_matmul(args);
  const PackedOperands packed(p);
  const DType right = args.inputs[1].dtype;
  for_tiles(p, [&](std::int64_t batch, std::int64_t i, std::int64_t rows, std::int64_t j, std::int64_t columns) {
    const SideStrides l = strides_of(p.lhs, rows, p.k), r = strides_of(p.rhs, p.k, columns);
    const Key key{p.dtype, right, DType::i32, {rows, columns, p.k, l.row, l.column, r.row, r.column, p.n}};
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
  const MatmulProblem p = decode_matmul(args);
  // Fitted to Sapphire Rapids. With tiles, wide right sides, of which a tile takes a part of each row, go through slow
  // copies.
  constexpr double kLargeResult = 1 << 20;
  const bool has_tiles = onednn::has_isa(dnnl::cpu_isa::avx512_core_amx);
  const bool is_wide = has_tiles && p.n > 512, has_edge = has_tiles && p.n % 16 != 0;
  const auto whole = [](std::int64_t x, std::int64_t step) {
    return static_cast<double>((x + step - 1) / step * step);
  };
  const auto batches = static_cast<double>(p.batches), m = static_cast<double>(p.m), n = static_cast<double>(p.n);
  const double work = m * whole(p.n, 16) * whole(p.k, 64) / per_ns(DType::i8) * (is_wide ? 3 : has_edge ? 2 : 1);
  const double packing = n * static_cast<double>(p.k) * (is_wide ? 0.16 : has_tiles ? 0.035 : 0.06);
  const double result = m * n * (is_wide ? 1 : has_tiles && batches * m * n * 4 >= kLargeResult ? 0.18 : 0);
  return batches * (480 + work + packing + result);
}

}  // namespace fermata

#else

#include "ir/error.h"

namespace fermata {

void matmul_i32_onednn(const CallArgs&) { throw_internal("matmul_i32_onednn: built without oneDNN"); }
bool matmul_i32_onednn_fits(const CallArgs&) { return false; }
double matmul_i32_onednn_cost(const CallArgs&) { return 0; }

}  // namespace fermata

#endif

namespace fermata {
FERMATA_KERNELS(cpu) {
  if (!has_onednn()) return;
  constexpr DTypeSet kBytes = DTypeSet(DType::i8) | DType::u8;
  add_variant(Op::matmul_i32, BackendKey::cpu,
              {.name = "onednn",
               .form = KernelForm::library,
               .dtypes = kBytes,
               .call = &matmul_i32_onednn,
               .fits = &matmul_i32_onednn_fits,
               .cost = &matmul_i32_onednn_cost,
               .fits_text = kMatmulI32OnednnFits,
               .ships = Ships::nowhere});
}
}  // namespace fermata
