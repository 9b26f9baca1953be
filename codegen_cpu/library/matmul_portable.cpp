// The portable matmul: which kernels this machine runs, and the tasks they are given.
#include <algorithm>
#include <numeric>
#include <optional>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/library/matmul.h"
#include "codegen_cpu/library/matmul_portable_kernels.h"
#include "codegen_cpu/library/matmul_problem.h"
#include "codegen_cpu/library/product_rates.h"
#include "dispatch/kernel_files.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

const PortableKernels& kernels() {
  static const PortableKernels& best = FERMATA_TABLE(kPortable);
  return best;
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

/// Multiply-adds of f32 per nanosecond without any of the instruction sets that are measured.
constexpr double kBaselinePerNs = 2;

double per_ns(DType t) {
  const ProductRates& rates = product_rates();
  const int bytes = kernels().vector_bytes;
  const double f32 = bytes == 64 ? rates.portable_avx512 : bytes == 32 ? rates.portable_avx2 : kBaselinePerNs;
  return t == DType::f64 || byte_size(t) == 8 ? f32 / 2 : f32;
}

/// Tiles are cut in columns at multiples of this.
constexpr std::int64_t kNarrowest = 64;

/// One side as vectors, the other as the matrix whose rows or columns they are multiplied with.
struct Vectors {
  bool are_rows;  // of the left side; else columns of the right one
  std::int64_t count, columns, to_next_column, along_k;
  bool by_halves;
};
std::optional<Vectors> vectors_of(const MatmulProblem& p) {
  if (is_vector_product(p)) {
    const VectorProduct v = vector_product_of(p);
    return Vectors{v.is_row, 1, v.columns, v.to_next_column, v.along_k, v.sums_by_halves()};
  }
  switch (few_vectors_of(p)) {
    case FewVectors::rows: return Vectors{true, p.m, p.n, p.rhs.column_stride, 1, true};
    case FewVectors::columns: return Vectors{false, p.n, p.m, p.lhs.row_stride, 1, true};
    case FewVectors::none: break;
  }
  return {};
}

std::int64_t parts(std::int64_t size, std::int64_t part) { return (size + part - 1) / part; }

/// Columns that a task computes: as many for every thread, since each reads what it computes with once and that takes
/// longer than anything else. Bits do not depend on it, as every column is a chain over all of k.
std::int64_t columns_of_block(const MatmulProblem& p, const Vectors& v) {
  constexpr std::int64_t kFewest = 128, kStep = 64;  // in whole cache lines, in runs that are not too short
  const std::int64_t tasks = parts(thread_count(), p.batches);
  const std::int64_t blocks = parts(parts(v.columns, kVectorColumns), tasks) * tasks;
  const std::int64_t columns = parts(parts(v.columns, blocks), kStep) * kStep;
  return std::min(v.columns, std::max(columns, kFewest));
}

void multiply_vectors(const MatmulProblem& p, const Vectors& v, TileEpilogue epilogue) {
  const auto storage = static_cast<std::size_t>(storage_of(p.dtype));
  const auto bytes = static_cast<std::int64_t>(byte_size(p.dtype));
  const std::int64_t block = columns_of_block(p, v), blocks = parts(v.columns, block);
  const double each = static_cast<double>(bytes) * 0.07 + static_cast<double>(v.count - 1) * 2 / per_ns(p.dtype);
  const double ns = 50 + static_cast<double>(p.k) * static_cast<double>(block) * each;
  const MatrixSide& few = v.are_rows ? p.lhs : p.rhs;
  parallel_for(0, p.batches * blocks, ns, [&](std::int64_t first, std::int64_t last) {
    const ScratchBytes scratch(vector_scratch_bytes(v.count, p.k));
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t batch = task / blocks, begin = task % blocks * block, end = std::min(begin + block, v.columns);
      const std::byte *lhs = p.lhs_of(batch), *rhs = p.rhs_of(batch);
      const std::int64_t out_vector = v.are_rows ? p.n : 1, out_column = v.are_rows ? 1 : p.n;
      kernels().vector_product[storage]({.vector = v.are_rows ? lhs : rhs,
                                         .vectors = v.count,
                                         .to_next_vector = v.are_rows ? few.row_stride : few.column_stride,
                                         .vector_stride = v.are_rows ? few.column_stride : few.row_stride,
                                         .matrix = (v.are_rows ? rhs : lhs) + begin * v.to_next_column * bytes,
                                         .matrix_k = v.along_k,
                                         .matrix_column = v.to_next_column,
                                         .by_halves = v.by_halves,
                                         .out = p.out_of(batch) + begin * out_column * bytes,
                                         .out_vector = out_vector,
                                         .out_column = out_column,
                                         .columns = end - begin,
                                         .k = p.k,
                                         .scratch = scratch.held.data});
      if (v.are_rows)
        epilogue({batch * p.m, (batch + 1) * p.m, begin, end});
      else
        epilogue({batch * p.m + begin, batch * p.m + end, 0, p.n});
    }
  });
}

/// Multiply-adds of a tile that is not cut further to have one for every thread: about 5 us.
constexpr double kFewest = 5e5;
/// Rows of a tile, where each has its own right side to pack and that is to be worth it.
constexpr std::int64_t kRowsOfBatch = 1024;
/// Bytes of a row of a tile's sums.
constexpr std::int64_t kBytesOfRow = 4096;
/// Bytes of panels that tiles share; a larger right side is packed by each tile, block by block.
constexpr double kMostPanelBytes = 128 << 20;

/// Tiles of a few blocks' rows and so many columns that copying the left side is little beside them: every
/// tile copies its left side, while tiles above each other share their panels. What follows the product finds small
/// ones in a cache. As many as the pool can share out
/// evenly: bits do not depend on it, as every element is one chain over all of k.
MatmulTiles cut_into_tiles(const MatmulProblem& p, MatmulStorage storage, bool has_epilogue) {
  const std::int64_t widest = kBytesOfRow / static_cast<std::int64_t>(sum_bytes(storage));
  MatmulTiles t{p.m, p.n, 1, parts(p.n, widest)};
  const std::int64_t chunks = thread_count() == 1 ? 1 : 4 * thread_count();
  if (p.m > kPortableRows && (has_epilogue || p.batches < chunks || p.m > kRowsOfBatch)) {
    const std::int64_t unit = chunks / std::gcd(chunks, t.across * p.batches), down = parts(p.m, kPortableRows);
    t.down = parts(down, unit) * unit;
    if (p.m / t.down < kPortableRows / 3) t.down = down;
  } else if (p.batches < chunks) {
    const auto most = static_cast<std::int64_t>(p.multiply_adds() / kFewest);
    t.across =
        std::max({t.across, std::int64_t{1}, std::min({chunks / p.batches, parts(p.n, kNarrowest), most / p.batches})});
  }
  t.rows = parts(p.m, t.down), t.down = parts(p.m, t.rows);
  t.columns = std::min(p.n, parts(parts(p.n, t.across), kNarrowest) * kNarrowest), t.across = parts(p.n, t.columns);
  return t;
}

/// Rows up to which packing the right side is some hundredths of the product: panels are kept if it comes again.
constexpr std::int64_t kMostRowsOfKept = 512;
/// Rows from which on panels are read faster than a right side that lies in rows: fewer wait for memory anyway.
constexpr std::int64_t kLeastRowsOfKept = 8;

/// Panels of the whole right side, if several tiles read the same ones or they are kept with it.
class SharedPanels {
 public:
  SharedPanels(const MatmulProblem& p, MatmulStorage storage, const MatmulTiles& tiles)
      : width_(kernels().panel_columns[static_cast<std::size_t>(storage)]),
        sum_bytes_(static_cast<std::int64_t>(sum_bytes(storage))),
        rows_(panel_rows(p.k)),
        batch_bytes_(parts(p.n, width_) * width_ * panel_rows(p.k) * sum_bytes_) {
    const bool is_read_in_place = p.rhs.column_stride == 1 && p.m < kLeastRowsOfKept;
    const auto bytes = static_cast<std::size_t>(batch_bytes_ * p.batches);
    if (p.batches == 1 && p.m <= kMostRowsOfKept && p.k * p.n >= kLeastKept && !is_read_in_place) {
      const PackedKey key = key_of_rhs(p, &kernels().pack_rhs[static_cast<std::size_t>(storage)]);
      kept_ = PrepackedWeights::find(p.rhs.buffer, key, bytes, [&](std::byte* to) { pack(p, storage, to); });
      if (kept_ != nullptr) panels_ = static_cast<std::byte*>(kept_->data);
    }
    if (kept_ != nullptr || tiles.down == 1 || static_cast<double>(bytes) > kMostPanelBytes) return;
    panels_ = held_.emplace(static_cast<std::int64_t>(bytes)).data();
    pack(p, storage, panels_);
  }
  SharedPanels(const SharedPanels&) = delete;
  /// From a column on that starts a panel; null if there are none.
  const std::byte* at(std::int64_t batch, std::int64_t column) const {
    return panels_ == nullptr ? nullptr : panels_ + batch * batch_bytes_ + column * rows_ * sum_bytes_;
  }

 private:
  void pack(const MatmulProblem& p, MatmulStorage storage, std::byte* to) const {
    const auto bytes = static_cast<std::int64_t>(byte_size(p.dtype));
    const std::int64_t columns = kNarrowest, blocks = parts(p.n, columns);
    parallel_for(0, p.batches * blocks, static_cast<double>(columns * p.k) * 0.15,
                 [&](std::int64_t first, std::int64_t last) {
                   for (std::int64_t task = first; task < last;) {
                     const std::int64_t batch = task / blocks, block = task % blocks,
                                        end = std::min(blocks, block + last - task);
                     kernels().pack_rhs[static_cast<std::size_t>(storage)](
                         {.rhs = p.rhs_of(batch) + block * columns * p.rhs.column_stride * bytes,
                          .k_stride = p.rhs.row_stride,
                          .column_stride = p.rhs.column_stride,
                          .k = p.k,
                          .columns = std::min(end * columns, p.n) - block * columns,
                          .panels = to + batch * batch_bytes_ + block * columns * rows_ * sum_bytes_});
                     task += end - block;
                   }
                 });
  }
  std::int64_t width_, sum_bytes_, rows_, batch_bytes_;
  std::optional<Scratch<std::byte>> held_;
  StoragePtr kept_;
  std::byte* panels_ = nullptr;
};

void multiply_tiles(const MatmulProblem& p, TileEpilogue epilogue, const Epilogue* known) {
  const MatmulStorage storage = storage_of(p.dtype);
  const auto bytes = static_cast<std::int64_t>(byte_size(p.dtype));
  const bool is_elsewhere = known != nullptr && known->takes_tiles_elsewhere;
  const MatmulTiles tiles = cut_into_tiles(p, storage, known != nullptr);
  const SharedPanels panels(p, storage, tiles);
  const double ns = static_cast<double>(tiles.rows * tiles.columns) * static_cast<double>(p.k) / per_ns(p.dtype);
  parallel_for(0, p.batches * tiles.count(), ns, [&](std::int64_t first, std::int64_t last) {
    const std::size_t own = portable_scratch_bytes(storage, tiles.rows, tiles.columns);
    const ScratchBytes scratch(own + static_cast<std::size_t>(is_elsewhere ? tiles.rows * p.n * bytes : 0));
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t batch = task / tiles.count(), tile = task % tiles.count();
      const std::int64_t i = tile / tiles.across * tiles.rows, j = tile % tiles.across * tiles.columns;
      const std::int64_t rows = std::min(tiles.rows, p.m - i), columns = std::min(tiles.columns, p.n - j);
      std::byte* const out =
          is_elsewhere ? static_cast<std::byte*>(scratch.held.data) + own : p.out_of(batch) + i * p.n * bytes;
      kernels().tile[static_cast<std::size_t>(storage)]({.lhs = p.lhs_of(batch) + i * p.lhs.row_stride * bytes,
                                                         .lhs_row = p.lhs.row_stride,
                                                         .lhs_k = p.lhs.column_stride,
                                                         .rhs = p.rhs_of(batch) + j * p.rhs.column_stride * bytes,
                                                         .rhs_k = p.rhs.row_stride,
                                                         .rhs_column = p.rhs.column_stride,
                                                         .rhs_panels = panels.at(batch, j),
                                                         .out = out + j * bytes,
                                                         .out_row = p.n,
                                                         .rows = rows,
                                                         .columns = columns,
                                                         .k = p.k,
                                                         .scratch = scratch.held.data});
      epilogue({batch * p.m + i, batch * p.m + i + rows, j, j + columns, is_elsewhere ? out : nullptr});
    }
  });
}

}  // namespace

void multiply_f32_tile(PortableTile tile) {
  std::optional<ScratchBytes> scratch;
  if (tile.scratch == nullptr)
    tile.scratch = scratch.emplace(portable_scratch_bytes(MatmulStorage::f32, tile.rows, tile.columns)).held.data;
  kernels().tile[static_cast<std::size_t>(MatmulStorage::f32)](tile);
}

void matmul_portable(const CallArgs& args) { matmul_portable(args, tile_epilogue_of(args)); }

void matmul_portable(const CallArgs& args, TileEpilogue epilogue) {
  MatmulProblem p = decode_matmul(args);
  if (p.batches * p.m * p.n == 0) return;
  if (p.k == 0) {
    fill_zero(p);
    return epilogue({0, p.batches * p.m, 0, p.n});
  }
  if (is_vector_product(p)) {
    if (split_calls(args, kReadInPlace, [&](const CallArgs& one) { matmul_portable(one, epilogue); })) return;
    const PackedOperands packed(p);
    multiply_vectors(p, *vectors_of(p), epilogue);
  } else if (const auto vectors = vectors_of(p)) {
    multiply_vectors(p, *vectors, epilogue);
  } else {
    multiply_tiles(p, epilogue, args.epilogue);  // which packs in any case
  }
}

bool matmul_portable_fits(const CallArgs& args) { return kReal.has(args.inputs[0].dtype); }

/// Nanoseconds that each product of a batch takes in addition to its multiply-adds; one with a vector.
constexpr double kEachProduct = 80, kEachVector = 25;

double matmul_portable_cost(const CallArgs& args) {
  const MatmulProblem p = decode_matmul(args);
  const double each_product = p.batches > 1 ? kEachProduct * static_cast<double>(p.batches) : 0;
  if (is_vector_product(p)) {
    constexpr double kCachedBytes = 4 << 20, kCached = 0.7;
    const double byte = product_rates().portable_byte * (p.bytes() < kCachedBytes ? kCached : 1);
    return 100 + p.bytes() * byte + (p.batches > 1 ? kEachVector * static_cast<double>(p.batches) : 0);
  }
  const auto whole = [](std::int64_t x, std::int64_t step) { return static_cast<double>(parts(x, step) * step); };
  const double batches = static_cast<double>(p.batches), k = static_cast<double>(p.k), m = static_cast<double>(p.m);
  if (few_vectors_of(p) != FewVectors::none) {  // a load for each multiplication, so half of what others reach
    const double far = p.bytes() > (2 << 20) ? 0.035 * p.bytes() : 0;
    const double sums = batches * m * static_cast<double>(p.n);
    return 150 + each_product + std::max(sums * (4 + k * 2 / per_ns(p.dtype)), far);
  }
  const std::int64_t panel = kernels().panel_columns[static_cast<std::size_t>(storage_of(p.dtype))], lanes = panel / 2;
  const double columns = whole(p.n, lanes);
  if (p.m <= kernels().few_rows) {  // each element of the right side is read, perhaps turned, and multiplied
    const bool in_rows = p.rhs.column_stride == 1 && p.n >= (kernels().vector_bytes == 64 ? panel : lanes);
    const double each = in_rows ? 0.05 + m / per_ns(p.dtype) / 0.85 : 0.15 + m / per_ns(p.dtype) / 1.1;
    const double far = p.bytes() > (2 << 20) ? 0.035 * static_cast<double>(byte_size(p.dtype)) : 0;
    // Elements that fill no vector are copied one by one, and so are narrow results of such rows.
    const bool has_edge = p.n % lanes != 0;
    const double edge = has_edge && !in_rows ? 0.5 * k * static_cast<double>(p.n % lanes) : 0;
    const double narrowed =
        has_edge && byte_size(p.dtype) < sum_bytes(storage_of(p.dtype)) ? m * static_cast<double>(p.n) : 0;
    return 150 + each_product + batches * (k * columns * std::max(each, far) + m * k * 0.1 + edge + narrowed);
  }
  const double multiply_adds = batches * m * columns * k / per_ns(p.dtype);
  // What does not lie along k on the left is copied, and the right side; sums are read and written again for each block
  // of k.
  const double lhs = p.lhs.column_stride == 1 && byte_size(p.dtype) == sum_bytes(storage_of(p.dtype)) ? 0.03 : 0.2;
  const double rhs = k * static_cast<double>(p.n) > 2e6 ? 0.3 : 0.15;
  const double wide = static_cast<double>(sum_bytes(storage_of(p.dtype))) / 4;
  const double copies =
      wide * (m * k * lhs + k * columns * rhs +
              m * columns * static_cast<double>(parts(p.k, portable_depth(sum_bytes(storage_of(p.dtype))))) * 0.1);
  // A panel that is not whole is packed element by element, and its sums are written so where they fill no vector.
  const double edge = static_cast<double>(p.n % panel) * wide * (0.3 * k + (p.n % lanes == 0 ? 0 : 0.2 * m));
  return 150 + each_product + multiply_adds + batches * (copies + edge);
}

FERMATA_KERNELS(cpu) {
  add_variant(Op::matmul, BackendKey::cpu,
              {.name = "portable",
               .form = KernelForm::library,
               .dtypes = kShippedProducts,
               .call = &matmul_portable,
               .cost = &matmul_portable_cost,
               .epilogue = EpilogueForm::tiles,
               .in_batches = true,
               .by_rows = true});
}

}  // namespace fermata
