// See matmul_amx.h: which products there are, and the tasks that their kernels are given.
#include "codegen_cpu/library/matmul_amx.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#if defined(__x86_64__)
#include <cpuid.h>

#include "runtime/environment.h"
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "codegen_cpu/library/matmul_amx_kernels.h"
#include "codegen_cpu/library/matmul_portable_kernels.h"
#include "codegen_cpu/library/matmul_problem.h"
#include "codegen_cpu/library/product_rates.h"
#include "dispatch/kernel_files.h"
#include "ir/ops/products.h"
#include "ir/shape.h"
#include "runtime/call_attributes.h"
#include "runtime/processor_model.h"
#include "runtime/thread_pool.h"

namespace fermata {

#if defined(__x86_64__) && defined(__linux__)
namespace {

bool processor_has_tiles() {
  constexpr unsigned kTiles = 1u << 22 | 1u << 24 | 1u << 25,
                     kNarrowing = 1u << 5;  // amx_bf16, amx_tile, amx_int8; avx512_bf16
  unsigned a, b, c, d;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0 || (d & kTiles) != kTiles) return false;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a & kNarrowing) != 0;
}

/// Linux keeps room for tiles in the state of a process only if it asks: arch_prctl(ARCH_REQ_XCOMP_PERM,
/// XFEATURE_XTILEDATA).
bool system_permits_tiles() {
  constexpr int kRequest = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

}  // namespace

bool has_amx() {
  static const bool has = permits_instructions("amx") && eager::instruction_set() == "avx512" &&
                          processor_has_tiles() && system_permits_tiles();
  return has;
}

bool splits_f32() {
  static const bool does = [] {
    const char* const wanted = environment_variable("FERMATA_F32_PRODUCTS");
    return wanted == nullptr || std::string_view(wanted) != "fma";
  }();
  return does;
}

bool can_be_split(std::uint32_t largest) {
  constexpr std::uint32_t kLeast = (127u - 40) << 23, kMost = (127u + 50) << 23;
  return largest == 0 || (largest >= kLeast && largest < kMost);
}

namespace {

AmxKind kind_of(DType lhs, DType rhs) {
  if (lhs == DType::f32) return AmxKind::f32;
  if (lhs == DType::bf16) return AmxKind::bf16;
  if (lhs == DType::i8) return rhs == DType::i8 ? AmxKind::i8_i8 : AmxKind::i8_u8;
  return rhs == DType::i8 ? AmxKind::u8_i8 : AmxKind::u8_u8;
}

std::int64_t parts(std::int64_t size, std::int64_t part) { return (size + part - 1) / part; }
std::int64_t whole(std::int64_t size, std::int64_t step) { return parts(size, step) * step; }

/// A product, and what its result is made of.
struct AmxCall {
  AmxKind kind;
  MatmulProblem problem;
  std::int64_t out_bytes;
  const std::byte* blocks = nullptr;  // the right side as matmul_packed has it

  std::size_t number() const { return static_cast<std::size_t>(kind); }
  std::int64_t element_bytes() const { return kind == AmxKind::f32 ? 4 : kind == AmxKind::bf16 ? 2 : 1; }
  std::byte* out_of(std::int64_t batch) const {
    return problem.results.empty() ? problem.out + batch * problem.m * problem.n * out_bytes : problem.out_of(batch);
  }
};

/// Multiply-adds per nanosecond of one core, packing not included.
double per_ns(AmxKind k) {
  const ProductRates& rates = product_rates();
  return k == AmxKind::f32 ? rates.amx_f32 : k == AmxKind::bf16 ? rates.amx_bf16 : rates.amx_bytes;
}

/// Of a tile, at most. A block of its rows along k, the right side's columns that are packed together, and a panel's
/// sums stay in the second-level cache; what all columns of so many rows add up to is kept between blocks.
constexpr std::int64_t kMostRows = 512, kMostColumns = 2048, kLhsBytes = 1 << 20;
/// Columns of the right side that are packed together: memory is read in stretches, the longer the better, and read
/// again from a cache, which many rows share.
constexpr std::int64_t columns_packed(std::int64_t rows) { return rows <= 256 ? 256 : 128; }
/// Columns after which what follows the product is called: they are still in the second-level cache.
constexpr std::int64_t kColumnsTogether = 512;

/// Rows up to which the right side is kept packed if it comes again: panels of f32 have half as many bytes again as the
/// matrix, so for more rows packing in the second-level cache is quicker than reading them.
constexpr std::int64_t kMostRowsOfKept = 256;

/// Two tiles for each thread if there are enough columns or rows; every tile packs its own operands. Of few rows,
/// whose right side may be kept, one: packing the left side is a tenth of the work.
MatmulTiles cut_into_tiles(const MatmulProblem& p) {
  MatmulTiles t{p.m, p.n, parts(p.m, kMostRows), parts(p.n, kMostColumns)};
  const std::int64_t each = p.m <= kMostRowsOfKept ? 1 : 2;
  const std::int64_t wanted = parts(thread_count() == 1 ? 1 : each * thread_count(), p.batches);
  if (t.count() < wanted) {
    t.across = std::clamp(parts(wanted, t.down), t.across, std::max(t.across, parts(p.n, columns_packed(kMostRows))));
    t.down = std::clamp(parts(wanted, t.across), t.down, std::max(t.down, parts(p.m, 2 * kAmxLines)));
  }
  t.rows = whole(parts(p.m, t.down), kAmxLines), t.down = parts(p.m, t.rows);
  t.columns = whole(parts(p.n, t.across), 2 * kAmxLines), t.across = parts(p.n, t.columns);
  return t;
}

/// A right side that is kept: panels of all of k, and for f32 the largest magnitude of each column.
class KeptRhs {
 public:
  explicit KeptRhs(const AmxCall& c) : panel_bytes_(parts(c.problem.k, amx_step(c.kind)) * amx_step_bytes(c.kind)) {
    const MatmulProblem& p = c.problem;
    if (p.batches != 1 || p.m > kMostRowsOfKept || p.k * p.n < kLeastKept) return;
    const std::int64_t panels = parts(p.n, kAmxLines);
    const PackedKey key = key_of_rhs(p, &kAmxKernels.pack_rhs[c.number()]);
    const auto bytes = static_cast<std::size_t>(panels * (panel_bytes_ + kAmxLines * 4));
    columns_ = panels * kAmxLines;
    held_ = PrepackedWeights::find(p.rhs.buffer, key, bytes, [&](std::byte* to) { pack(c, to); });
  }
  explicit operator bool() const { return held_ != nullptr; }
  std::int64_t panel_bytes() const { return panel_bytes_; }
  const std::byte* panel(std::int64_t column) const {
    return static_cast<const std::byte*>(held_->data) + columns_ * 4 + column / kAmxLines * panel_bytes_;
  }
  const std::uint32_t* largest() const { return static_cast<const std::uint32_t*>(held_->data); }

 private:
  void pack(const AmxCall& c, std::byte* to) const {
    const MatmulProblem& p = c.problem;
    auto* const largest = reinterpret_cast<std::uint32_t*>(to);
    std::fill_n(largest, columns_, 0u);
    constexpr std::int64_t kColumns = 256;  // memory is read in stretches
    parallel_for(
        0, parts(p.n, kColumns), static_cast<double>(kColumns * p.k) * 0.3, [&](std::int64_t b, std::int64_t e) {
          const std::int64_t column = b * kColumns, end = std::min(e * kColumns, p.n);
          kAmxKernels.pack_rhs[c.number()]({.from = p.rhs.data + column * p.rhs.column_stride * c.element_bytes(),
                                            .line_stride = p.rhs.column_stride,
                                            .k_stride = p.rhs.row_stride,
                                            .lines = end - column,
                                            .k = p.k,
                                            .panels = to + columns_ * 4 + column / kAmxLines * panel_bytes_,
                                            .panel_bytes = panel_bytes_,
                                            .largest = c.kind == AmxKind::f32 ? largest + column : nullptr});
        });
  }
  std::int64_t panel_bytes_, columns_ = 0;
  StoragePtr held_;
};

/// Calls f(first, count) for every run of lines that cannot be split.
template <class F> void for_unsplit(const std::uint32_t* largest, std::int64_t lines, F&& f) {
  for (std::int64_t i = 0; i < lines; ++i) {
    if (can_be_split(largest[i])) continue;
    const std::int64_t first = i;
    while (i < lines && !can_be_split(largest[i])) ++i;
    f(first, i - first);
  }
}

/// What a task computes: rows and columns of a batch.
struct AmxTask {
  std::int64_t batch, row, rows, column, columns;
};

/// The work of a thread: memory for one tile, kept from task to task.
class TileWorker {
 public:
  TileWorker(const AmxCall& call, const KeptRhs& kept, const MatmulTiles& tiles)
      : c_(call),
        p_(call.problem),
        kept_(kept),
        columns_packed_(packs_rhs() ? columns_packed(tiles.rows) : 64),
        depth_(depth_of(call, std::max(tiles.rows, columns_packed_))),
        panel_bytes_(parts(depth_, amx_step(call.kind)) * amx_step_bytes(call.kind)),
        sums_bytes_(whole(tiles.rows, kAmxLines) * kAmxLines * 4),
        lhs_(parts(tiles.rows, kAmxLines) * panel_bytes_),
        rhs_(packs_rhs() ? columns_packed_ / kAmxLines * panel_bytes_ : 0),
        sums_(sums_bytes_ * parts(depth_ < p_.k ? tiles.columns : columns_packed_, kAmxLines)),
        largest_(tiles.rows + tiles.columns) {
    kAmxKernels.configure();
  }
  ~TileWorker() { kAmxKernels.release(); }
  TileWorker(const TileWorker&) = delete;

  void run(const AmxTask& t, TileEpilogue epilogue) const {
    std::fill_n(largest_.data(), t.rows + t.columns, 0u);
    if (kept_) std::copy_n(kept_.largest() + t.column, t.columns, largest_.data() + t.rows);
    for (std::int64_t k = 0; k < p_.k; k += depth_) {
      pack_lhs(t, k);
      for (std::int64_t j = 0; j < t.columns; j += kColumnsTogether) {
        const AmxTask some{t.batch, t.row, t.rows, t.column + j, std::min(kColumnsTogether, t.columns - j)};
        std::uint32_t* const column_largest = largest_.data() + t.rows + j;
        for (std::int64_t i = 0; i < some.columns; i += columns_packed_)
          multiply_panels(some, i, k, column_largest + i, (j + i) / kAmxLines);
        if (k + depth_ < p_.k) continue;
        if (c_.kind == AmxKind::f32) mend(some, column_largest);
        epilogue({t.batch * p_.m + t.row, t.batch * p_.m + t.row + t.rows, some.column, some.column + some.columns});
      }
    }
  }

 private:
  bool packs_rhs() const { return c_.blocks == nullptr && !kept_; }
  /// Places of k that are packed at a time: parts of equal size, in whole blocks of those that are added up together.
  static std::int64_t depth_of(const AmxCall& c, std::int64_t rows) {
    const std::int64_t block = amx_step(c.kind) * kAmxStepsTogether;
    const std::int64_t bytes = whole(rows, kAmxLines) / kAmxLines * amx_step_bytes(c.kind) * kAmxStepsTogether;
    const std::int64_t most = std::max(kLhsBytes / bytes, std::int64_t{1}) * block;
    return whole(parts(c.problem.k, parts(c.problem.k, most)), block);
  }

  void pack_lhs(const AmxTask& t, std::int64_t k) const {
    kAmxKernels.pack_lhs[c_.number()](
        {.from = p_.lhs_of(t.batch) + (t.row * p_.lhs.row_stride + k * p_.lhs.column_stride) * c_.element_bytes(),
         .line_stride = p_.lhs.row_stride,
         .k_stride = p_.lhs.column_stride,
         .lines = t.rows,
         .k = std::min(depth_, p_.k - k),
         .panels = lhs_.data(),
         .panel_bytes = panel_bytes_,
         .largest = c_.kind == AmxKind::f32 ? largest_.data() : nullptr});
  }

  void pack_rhs(const AmxTask& t, std::int64_t column, std::int64_t k, std::uint32_t* largest) const {
    const std::int64_t at = t.column + column;
    kAmxKernels.pack_rhs[c_.number()](
        {.from = p_.rhs_of(t.batch) + (at * p_.rhs.column_stride + k * p_.rhs.row_stride) * c_.element_bytes(),
         .line_stride = p_.rhs.column_stride,
         .k_stride = p_.rhs.row_stride,
         .lines = std::min(columns_packed_, t.columns - column),
         .k = std::min(depth_, p_.k - k),
         .panels = rhs_.data(),
         .panel_bytes = panel_bytes_,
         .largest = c_.kind == AmxKind::f32 ? largest : nullptr});
  }

  /// Columns that are packed together, of which the first panel is the tile's `number`th.
  void multiply_panels(const AmxTask& t, std::int64_t column, std::int64_t k, std::uint32_t* largest,
                       std::int64_t number) const {
    const std::int64_t at = t.column + column, step = k / amx_step(c_.kind);
    AmxProduct product{.lhs = lhs_.data(),
                       .lhs_panel = panel_bytes_,
                       .rhs = rhs_.data(),
                       .rhs_panel = panel_bytes_,
                       .rhs_step = amx_step_bytes(c_.kind),
                       .rhs_half = kAmxTileBytes,
                       .rhs_line = 64,
                       .rows = t.rows,
                       .columns = std::min(columns_packed_, t.columns - column),
                       .steps = parts(std::min(depth_, p_.k - k), amx_step(c_.kind)),
                       .sums = sums_.data() + (depth_ < p_.k ? number * whole(t.rows, kAmxLines) * kAmxLines * 4 : 0),
                       .first = k == 0,
                       .out = k + depth_ < p_.k ? nullptr : c_.out_of(t.batch) + (t.row * p_.n + at) * c_.out_bytes,
                       .out_row = p_.n * c_.out_bytes,
                       .out_bytes = c_.out_bytes};
    if (packs_rhs()) {
      pack_rhs(t, column, k, largest);
    } else if (kept_) {
      product.rhs = kept_.panel(at) + step * amx_step_bytes(c_.kind), product.rhs_panel = kept_.panel_bytes();
    } else {  // [N/64, K/4, 64, 4]
      product.rhs_panel = 128, product.rhs_step = 16 * 256, product.rhs_half = 64, product.rhs_line = 256;
      product.rhs = c_.blocks + (at / 64 * parts(p_.k, 64) + step) * product.rhs_step;
    }
    kAmxKernels.multiply[c_.number()](product);
  }

  /// Computes rows and columns again that must not be split: run by run, or, as each would prepare the right side anew,
  /// all at once.
  void mend(const AmxTask& t, const std::uint32_t* column_largest) const {
    constexpr int kFewRuns = 4;
    int runs = 0;
    const auto count = [&](std::int64_t, std::int64_t) { ++runs; };
    for_unsplit(largest_.data(), t.rows, count), for_unsplit(column_largest, t.columns, count);
    if (runs == 0) return;
    float* const out = reinterpret_cast<float*>(c_.out_of(t.batch)) + t.row * p_.n + t.column;
    const Scratch<float> all(runs > kFewRuns ? t.rows * t.columns : 0);
    if (runs > kFewRuns) multiply_in_order(t, all.data(), t.columns);
    const auto mend_part = [&](std::int64_t row, std::int64_t rows, std::int64_t column, std::int64_t columns) {
      if (runs <= kFewRuns)
        return multiply_in_order({t.batch, t.row + row, rows, t.column + column, columns}, out + row * p_.n + column,
                                 p_.n);
      for (std::int64_t i = row; i < row + rows; ++i)
        std::copy_n(all.data() + i * t.columns + column, columns, out + i * p_.n + column);
    };
    for_unsplit(largest_.data(), t.rows, [&](std::int64_t i, std::int64_t rows) { mend_part(i, rows, 0, t.columns); });
    for_unsplit(column_largest, t.columns,
                [&](std::int64_t j, std::int64_t columns) { mend_part(0, t.rows, j, columns); });
  }
  void multiply_in_order(const AmxTask& t, float* out, std::int64_t out_row) const {
    multiply_f32_tile({.lhs = p_.lhs_of(t.batch) + t.row * p_.lhs.row_stride * 4,
                       .lhs_row = p_.lhs.row_stride,
                       .lhs_k = p_.lhs.column_stride,
                       .rhs = p_.rhs_of(t.batch) + t.column * p_.rhs.column_stride * 4,
                       .rhs_k = p_.rhs.row_stride,
                       .rhs_column = p_.rhs.column_stride,
                       .rhs_panels = nullptr,
                       .out = out,
                       .out_row = out_row,
                       .rows = t.rows,
                       .columns = t.columns,
                       .k = p_.k,
                       .scratch = nullptr});
  }

  const AmxCall& c_;
  const MatmulProblem& p_;
  const KeptRhs& kept_;
  const std::int64_t columns_packed_, depth_, panel_bytes_, sums_bytes_;
  const Scratch<std::byte> lhs_, rhs_, sums_;
  const Scratch<std::uint32_t> largest_;  // f32: of rows, then of columns
};

void multiply(const AmxCall& c, TileEpilogue epilogue) {
  const MatmulProblem& p = c.problem;
  const MatmulTiles tiles = cut_into_tiles(p);
  const KeptRhs kept(c);
  const double ns = 500 + static_cast<double>(tiles.rows * tiles.columns) * static_cast<double>(p.k) / per_ns(c.kind);
  parallel_for(0, p.batches * tiles.count(), ns, [&](std::int64_t first, std::int64_t last) {
    const TileWorker worker(c, kept, tiles);
    for (std::int64_t task = first; task < last; ++task) {
      const std::int64_t batch = task / tiles.count(), tile = task % tiles.count();
      const std::int64_t i = tile / tiles.across * tiles.rows, j = tile % tiles.across * tiles.columns;
      worker.run({batch, i, std::min(tiles.rows, p.m - i), j, std::min(tiles.columns, p.n - j)}, epilogue);
    }
  });
}

/// Times beside that of tiles, in ns: of an element of a side that is packed, and beside that if it does not lie along
/// its rows; of one of the right side that comes from memory; and of one product. Fitted to 96 products of each dtype.
struct AmxTimes {
  double packed, turned, from_memory, product;
};
AmxTimes times_of(AmxKind k) {
  if (k == AmxKind::f32) return {0.2, 0.19, 0.1, 90};
  return k == AmxKind::bf16 ? AmxTimes{0.072, 0.045, 0.07, 60} : AmxTimes{0.046, 0.015, 0.1, 20};
}

double cost(AmxKind kind, const MatmulProblem& p) {
  const double rows = static_cast<double>(whole(p.m, 16)), columns = static_cast<double>(whole(p.n, 16)),
               depth = static_cast<double>(whole(p.k, amx_step(kind)));
  constexpr double kLargeRhs = 2e6, kLargeResult = 1 << 20;
  const AmxTimes times = times_of(kind);
  const double m = static_cast<double>(p.m), n = static_cast<double>(p.n), batches = static_cast<double>(p.batches);
  const double copies = (m + n) * depth * times.packed + (p.rhs.column_stride == 1 ? 0 : n * depth * times.turned) +
                        (n * depth > kLargeRhs ? n * depth * times.from_memory : 0);
  const double sums = rows * columns * 0.02 * static_cast<double>(parts(p.k, amx_step(kind) * kAmxStepsTogether));
  const double result = batches * m * n * static_cast<double>(byte_size(p.result));
  return 90 + batches * (times.product + rows * columns * depth / per_ns(kind) + copies + sums) +
         (result >= kLargeResult ? result * 0.035 : 0);
}

bool is_empty(const MatmulProblem& p) { return p.batches * p.m * p.n == 0 || p.k == 0; }

}  // namespace

void matmul_amx(const CallArgs& args, TileEpilogue epilogue) {
  const MatmulProblem p = decode_matmul(args);
  multiply({kind_of(p.dtype, p.dtype), p, static_cast<std::int64_t>(byte_size(p.dtype))}, epilogue);
}

bool matmul_amx_fits(const CallArgs& args) {
  const DType t = args.inputs[0].dtype;
  if (!has_amx() || !(t == DType::bf16 || byte_size(t) == 1 || (t == DType::f32 && splits_f32()))) return false;
  return !is_empty(decode_matmul(args));
}

double matmul_amx_cost(const CallArgs& args) {
  const MatmulProblem p = decode_matmul(args);
  return cost(kind_of(p.dtype, p.dtype), p);
}

void matmul_i32_amx(const CallArgs& args) {
  multiply({kind_of(args.inputs[0].dtype, args.inputs[1].dtype), decode_matmul(args), 4}, [](const ResultTile&) {});
}
bool matmul_i32_amx_fits(const CallArgs& args) { return has_amx() && !is_empty(decode_matmul(args)); }
double matmul_i32_amx_cost(const CallArgs& args) { return cost(AmxKind::i8_i8, decode_matmul(args)); }

void matmul_packed_amx(const CallArgs& args) {
  const TensorView &x = args.inputs[0], &blocks = args.inputs[1];
  const auto dense = [](const TensorView& v, const Scratch<std::byte>& copy) {
    if (copy.size() == 0) return static_cast<const std::byte*>(v.data);
    const std::span<const std::int64_t> sizes{v.sizes, v.rank};
    strided_copy({copy.data(), dense_strides(sizes)}, {v.data, {v.strides, v.rank}}, sizes, 1);
    return static_cast<const std::byte*>(copy.data());
  };
  const auto copied = [](const TensorView& v) { return is_contiguous(v, 0, v.rank) ? 0 : v.element_count(); };
  const Scratch<std::byte> x_copy(copied(x)), block_copy(copied(blocks));
  const std::int64_t k = x.sizes[x.rank - 1], columns = attributes_of<ops::MatmulPacked>(args).columns.value;
  const MatmulProblem p{.dtype = x.dtype,
                        .result = DType::i32,
                        .m = x.element_count() / k,
                        .n = columns,
                        .k = k,
                        .lhs = {dense(x, x_copy), k, 1, {}},
                        .rhs = {nullptr, 0, 0, {}},
                        .out = static_cast<std::byte*>(args.outputs[0].data),
                        .batch_sizes = {}};
  multiply({kind_of(x.dtype, DType::i8), p, 4, dense(blocks, block_copy)}, [](const ResultTile&) {});
}
bool matmul_packed_amx_fits(const CallArgs& args) {
  return has_amx() && args.inputs[0].element_count() != 0 && attributes_of<ops::MatmulPacked>(args).columns.value != 0;
}

#else

bool has_amx() { return false; }
void matmul_amx(const CallArgs&, TileEpilogue) {}
bool matmul_amx_fits(const CallArgs&) { return false; }
double matmul_amx_cost(const CallArgs&) { return 0; }
void matmul_i32_amx(const CallArgs&) {}
bool matmul_i32_amx_fits(const CallArgs&) { return false; }
double matmul_i32_amx_cost(const CallArgs&) { return 0; }
void matmul_packed_amx(const CallArgs&) {}
bool matmul_packed_amx_fits(const CallArgs&) { return false; }

#endif

void matmul_amx(const CallArgs& args) { matmul_amx(args, tile_epilogue_of(args)); }

FERMATA_KERNELS(cpu) {
  if (!has_amx()) return;
  constexpr Ships kNotEverywhere = Ships::nowhere;  // an exported program may come to a processor without tiles
  add_variant(Op::matmul, BackendKey::cpu,
              {.name = "amx",
               .form = KernelForm::library,
               .dtypes = DTypeSet(DType::f32) | DType::bf16 | DType::i8 | DType::u8,
               .call = &matmul_amx,
               .fits = &matmul_amx_fits,
               .cost = &matmul_amx_cost,
               .fits_text = kMatmulAmxFits,
               .epilogue = EpilogueForm::tiles,
               .in_batches = true,
               .by_rows = true,
               .ships = kNotEverywhere});
  constexpr DTypeSet kBytes = DTypeSet(DType::i8) | DType::u8;
  add_variant(Op::matmul_i32, BackendKey::cpu,
              {.name = "amx",
               .form = KernelForm::library,
               .dtypes = kBytes,
               .call = &matmul_i32_amx,
               .fits = &matmul_i32_amx_fits,
               .cost = &matmul_i32_amx_cost,
               .fits_text = kMatmulAmxFits,
               .ships = kNotEverywhere});
  add_variant(Op::matmul_packed, BackendKey::cpu,
              {.name = "amx",
               .form = KernelForm::library,
               .dtypes = kBytes,
               .call = &matmul_packed_amx,
               .fits = &matmul_packed_amx_fits,
               .fits_text = kMatmulAmxFits,
               .ships = kNotEverywhere});
}

}  // namespace fermata
