// The portable matmul: which kernels this machine runs, and the tasks they are given.
#include <algorithm>

#include "codegen_cpu/library/matmul.h"
#include "codegen_cpu/library/matmul_portable_kernels.h"
#include "codegen_cpu/library/matmul_problem.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

const PortableKernels& kernels() {
#if defined(__x86_64__)
  static const PortableKernels& best =
      __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
              __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512cd")
          ? kPortableAvx512
      : __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi2")
          ? kPortableAvx2
          : kPortableBaseline;
  return best;
#else
  return kPortableBaseline;
#endif
}

MatmulStorage storage_of(DType t) {
  switch (t) {
    case DType::u8:
    case DType::i8: return MatmulStorage::u8;
    case DType::u16:
    case DType::i16: return MatmulStorage::u16;
    case DType::u32:
    case DType::i32: return MatmulStorage::u32;
    case DType::u64:
    case DType::i64: return MatmulStorage::u64;
    case DType::f16: return MatmulStorage::f16;
    case DType::bf16: return MatmulStorage::bf16;
    case DType::f64: return MatmulStorage::f64;
    default: return MatmulStorage::f32;
  }
}

/// A task's scratch memory, from the allocator's own cache.
struct ScratchBytes {
  explicit ScratchBytes(std::size_t bytes) : held(allocate_bytes(bytes)) {}
  ~ScratchBytes() { release_bytes(held); }
  ScratchBytes(const ScratchBytes&) = delete;
  const Allocation held;
};

double per_ns(DType t) {
  const double f32 = kernels().multiply_adds_per_ns;
  return t == DType::f64 || byte_size(t) == 8 ? f32 / 2 : f32;
}

bool is_vector_product(const MatmulProblem& p) { return p.m == 1 || p.n == 1; }

void multiply_vectors(const MatmulProblem& p, MatmulEpilogue epilogue) {
  const auto storage = static_cast<std::size_t>(storage_of(p.dtype));
  const bool row = p.m == 1;  // a row times a matrix; else a matrix times a column
  const auto bytes = static_cast<std::int64_t>(byte_size(p.dtype));
  const std::int64_t columns = row ? p.n : p.m;
  // The stride along an axis of one element says nothing.
  const std::int64_t step = columns == 1 ? 1 : row ? p.rhs.column_stride : p.lhs.row_stride;
  const std::int64_t along = p.k == 1 ? 1 : row ? p.rhs.row_stride : p.lhs.column_stride;
  const std::int64_t block = std::min(columns, kVectorColumns), blocks = (columns + block - 1) / block;
  const double ns = 50 + static_cast<double>(p.k) * static_cast<double>(block) * static_cast<double>(bytes) * 0.07;
  parallel_for(0, p.batches * blocks, ns, [&](std::int64_t first, std::int64_t last) {
    const ScratchBytes scratch(vector_scratch_bytes(p.k));
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t batch = task / blocks, begin = task % blocks * block, end = std::min(begin + block, columns);
      const std::byte *lhs = p.lhs_of(batch), *rhs = p.rhs_of(batch);
      kernels().vector_product[storage]({.vector = row ? lhs : rhs,
                                         .vector_stride = row ? p.lhs.column_stride : p.rhs.row_stride,
                                         .matrix = (row ? rhs : lhs) + begin * step * bytes,
                                         .matrix_k = along,
                                         .matrix_column = step,
                                         .out = p.out_of(batch) + begin * bytes,
                                         .columns = end - begin,
                                         .k = p.k,
                                         .scratch = scratch.held.data});
      if (row)
        epilogue({batch, batch + 1, begin, end});
      else
        epilogue({batch * p.m + begin, batch * p.m + end, 0, 1});
    }
  });
}

void multiply_tiles(const MatmulProblem& p, MatmulEpilogue epilogue) {
  const MatmulStorage storage = storage_of(p.dtype);
  const auto bytes = static_cast<std::int64_t>(byte_size(p.dtype));
  const MatmulTiles tiles = tile_matmul(p, 4e6, 64, kPortableRows, portable_columns(storage));
  const double ns = static_cast<double>(tiles.rows * tiles.columns) * static_cast<double>(p.k) / per_ns(p.dtype);
  parallel_for(0, p.batches * tiles.count(), ns, [&](std::int64_t first, std::int64_t last) {
    const ScratchBytes scratch(kPortableScratch);
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t batch = task / tiles.count(), tile = task % tiles.count();
      const std::int64_t i = tile / tiles.across * tiles.rows, j = tile % tiles.across * tiles.columns;
      const std::int64_t rows = std::min(tiles.rows, p.m - i), columns = std::min(tiles.columns, p.n - j);
      kernels().tile[static_cast<std::size_t>(storage)]({.lhs = p.lhs_of(batch) + i * p.lhs.row_stride * bytes,
                                                         .lhs_row = p.lhs.row_stride,
                                                         .lhs_k = p.lhs.column_stride,
                                                         .rhs = p.rhs_of(batch) + j * p.rhs.column_stride * bytes,
                                                         .rhs_k = p.rhs.row_stride,
                                                         .rhs_column = p.rhs.column_stride,
                                                         .out = p.out_of(batch) + (i * p.n + j) * bytes,
                                                         .out_row = p.n,
                                                         .rows = rows,
                                                         .columns = columns,
                                                         .k = p.k,
                                                         .scratch = scratch.held.data});
      epilogue({batch * p.m + i, batch * p.m + i + rows, j, j + columns});
    }
  });
}

}  // namespace

void matmul_portable(const CallArgs& args) {
  matmul_portable(args, args.tiles != nullptr ? *args.tiles : MatmulEpilogue([](const MatmulTile&) {}));
}

void matmul_portable(const CallArgs& args, MatmulEpilogue epilogue) {
  MatmulProblem p = decode_matmul(args);
  if (p.batches * p.m * p.n == 0) return;
  if (p.k == 0) {
    fill_zero(p);
    return epilogue({0, p.batches * p.m, 0, p.n});
  }
  if (is_vector_product(p)) {
    const PackedOperands packed(p);
    multiply_vectors(p, epilogue);
  } else {
    multiply_tiles(p, epilogue);  // which packs in any case
  }
}

bool matmul_portable_fits(const CallArgs& args) { return kReal.has(args.inputs[0].dtype); }

double matmul_portable_cost(const CallArgs& args) {
  const MatmulProblem p = decode_matmul(args);
  if (is_vector_product(p)) return 100 + p.bytes() * 0.07;
  // Panels are packed once per tile row and column, and padded to whole panels.
  const auto whole = [](std::int64_t x, std::int64_t step) {
    return static_cast<double>((x + step - 1) / step * step);
  };
  const double padded = static_cast<double>(p.batches) * whole(p.m, 12) * whole(p.n, 32) * static_cast<double>(p.k);
  return 100 + padded / per_ns(p.dtype) + p.bytes() / static_cast<double>(byte_size(p.dtype)) * 0.15;
}

}  // namespace fermata
