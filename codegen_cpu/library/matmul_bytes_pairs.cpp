// See matmul_bytes.h: products of bytes where processors have no instruction for four of them. The left side is widened
// to i16; the right side is in the blocks of matmul_packed, or is brought into them, and is widened as it is loaded.
#include <algorithm>
#include <cstring>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/library/matmul_bytes.h"
#include "codegen_cpu/library/matmul_bytes_pairs.h"
#include "codegen_cpu/library/matmul_problem.h"
#include "dispatch/kernel_files.h"
#include "ir/error.h"
#include "ir/ops/products.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {

bool has_byte_pairs() {
#if defined(__x86_64__)
  return eager::instruction_set() != "baseline";
#else
  return false;
#endif
}

#if defined(__x86_64__)
namespace {

constexpr std::int64_t kBlockGroup = kBytesColumns * kBytesGroup;
/// Multiply-adds per nanosecond of one core.
constexpr double kPerNs = 66;

std::int64_t parts(std::int64_t size, std::int64_t part) { return (size + part - 1) / part; }

/// Rows of a left side, of all batches one after another.
class WidenedRows {
 public:
  WidenedRows(std::int64_t rows, std::int64_t k)
      : k_(k), row_(parts(k, kBytesGroup) * kBytesGroup), numbers_(rows * row_) {}
  void fill(std::int64_t first, std::int64_t count, const std::byte* from, std::int64_t row, std::int64_t column,
            bool has_signs) const {
    parallel_for(0, count, static_cast<double>(row_) * 0.1, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) {
        std::int16_t* const to = numbers_.data() + (first + i) * row_;
        if (has_signs)
          widen(reinterpret_cast<const std::int8_t*>(from) + i * row, column, to);
        else
          widen(reinterpret_cast<const std::uint8_t*>(from) + i * row, column, to);
      }
    });
  }
  const std::int16_t* at(std::int64_t row) const { return numbers_.data() + row * row_; }
  std::int64_t row() const { return row_; }

 private:
  template <class Byte> void widen(const Byte* from, std::int64_t column, std::int16_t* to) const {
    if (column == 1)
      for (std::int64_t i = 0; i < k_; ++i) to[i] = from[i];
    else
      for (std::int64_t i = 0; i < k_; ++i) to[i] = from[i * column];
    std::fill(to + k_, to + row_, std::int16_t{0});
  }
  const std::int64_t k_, row_;
  const Scratch<std::int16_t> numbers_;
};

/// Some groups of some columns of a right side, as they lie in a block.
void pack_groups(const MatmulProblem& p, const std::byte* rhs, std::int64_t column, std::int64_t begin,
                 std::int64_t end, std::byte* block) {
  const std::int64_t columns = std::min(kBytesColumns, p.n - column), padded = parts(columns, 8) * 8;
  const std::int64_t in_vectors = parts(columns, 16) * 16;  // other columns do not change these
  const std::int64_t to_row = p.rhs.row_stride, to_column = p.rhs.column_stride;
  rhs += column * to_column;
  std::int64_t done = 0;  // columns that are packed already, as far as `whole`
  const std::int64_t whole = to_row == 1 ? begin + (std::min(end, p.k / kBytesGroup) - begin) / 4 * 4 : begin;
  for (; whole > begin && done + 4 <= columns; done += 4)
    interleave_columns_avx2(rhs + done * to_column + begin * kBytesGroup, to_column, whole - begin,
                            block + begin * kBlockGroup + done * kBytesGroup);
  for (std::int64_t group = begin; group < end; ++group) {
    const std::int64_t k = group * kBytesGroup, depth = std::min(kBytesGroup, p.k - k);
    std::byte* const to = block + group * kBlockGroup;
    std::int64_t c = group < whole ? done : 0;
    if (depth == kBytesGroup && to_column == 1) {
      const std::byte* const rows[] = {rhs + k * to_row, rhs + (k + 1) * to_row, rhs + (k + 2) * to_row,
                                       rhs + (k + 3) * to_row};
      const bool can_read_on = to_row >= 0 && column + (k + 3) * to_row + in_vectors <= (p.k - 1) * to_row + p.n;
      c = can_read_on ? in_vectors : columns / 16 * 16;
      interleave_rows_avx2(rows, c, to);
    } else if (depth == kBytesGroup && to_row == 1) {
      for (; c < columns; ++c) std::memcpy(to + c * kBytesGroup, rhs + c * to_column + k, kBytesGroup);
    }
    for (; c < padded; ++c)
      for (std::int64_t i = 0; i < kBytesGroup; ++i)
        to[c * kBytesGroup + i] = c < columns && i < depth ? rhs[c * to_column + (k + i) * to_row] : std::byte{0};
  }
}

struct Blocks {
  const std::byte* data;
  std::int64_t groups, bytes;  // bytes: from one to the next
  bool has_signs;
};

void multiply(const WidenedRows& x, const Blocks& blocks, std::int64_t batches, std::int64_t rows, std::int64_t columns,
              std::int32_t* out) {
  const std::int64_t across = parts(columns, kBytesColumns), down = parts(rows, kBytesRows);
  const double ns =
      50 + static_cast<double>(std::min(rows, kBytesRows) * std::min(columns, kBytesColumns) * x.row()) / kPerNs;
  parallel_for(0, batches * down * across, ns, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t task = begin; task < end; ++task) {
      const std::int64_t block = task % across, batch = task / across / down;
      const std::int64_t first = task / across % down * kBytesRows, row = batch * rows + first;
      pairs_tile_avx2({.x = x.at(row),
                       .x_row = x.row(),
                       .groups = blocks.groups,
                       .block = blocks.data + (batch * across + block) * blocks.bytes,
                       .has_signs = blocks.has_signs,
                       .out = out + row * columns + block * kBytesColumns,
                       .out_row = columns,
                       .rows = std::min(kBytesRows, rows - first),
                       .columns = std::min(kBytesColumns, columns - block * kBytesColumns)});
    }
  });
}

/// Of so many rows by columns and positions of k, each in whole vectors; `left` is widened.
double cost(double rows, double columns, double depth, double batches, double left) {
  const double work = columns * depth / kPerNs * (rows < 4 ? rows + 0.6 : rows);
  return 250 + batches * (work + rows * columns * 0.35) + left * 0.1;
}
double whole(std::int64_t size, std::int64_t step) { return static_cast<double>(parts(size, step) * step); }

}  // namespace

void matmul_i32_pairs(const CallArgs& args) {
  const MatmulProblem p = decode_matmul(args);
  if (p.batches * p.m * p.n == 0) return;
  const WidenedRows x(p.batches * p.m, p.k);
  for (std::int64_t batch = 0; batch < p.batches; ++batch)
    x.fill(batch * p.m, p.m, p.lhs_of(batch), p.lhs.row_stride, p.lhs.column_stride, args.inputs[0].dtype == DType::i8);
  const std::int64_t groups = parts(p.k, kBytesGroup), across = parts(p.n, kBytesColumns), bytes = groups * kBlockGroup;
  const Scratch<std::byte> blocks(p.batches * across * bytes);
  constexpr std::int64_t kTogether = 64;
  const std::int64_t stretches = parts(groups, kTogether);
  parallel_for(0, p.batches * across * stretches, kTogether * static_cast<double>(std::min(p.n, kBytesColumns)) * 0.5,
               [&](std::int64_t begin, std::int64_t end) {
                 for (std::int64_t task = begin; task < end; ++task) {
                   const std::int64_t block = task / stretches, first = task % stretches * kTogether;
                   pack_groups(p, p.rhs_of(block / across), block % across * kBytesColumns, first,
                               std::min(first + kTogether, groups), blocks.data() + block * bytes);
                 }
               });
  multiply(x, {blocks.data(), groups, bytes, args.inputs[1].dtype == DType::i8}, p.batches, p.m, p.n,
           static_cast<std::int32_t*>(args.outputs[0].data));
}

double matmul_i32_pairs_cost(const CallArgs& args) {
  const MatmulProblem p = decode_matmul(args);
  const auto batches = static_cast<double>(p.batches);
  const double columns = whole(p.n, 8), depth = whole(p.k, kBytesGroup);
  return cost(static_cast<double>(p.m), columns, depth, batches, static_cast<double>(args.inputs[0].element_count())) +
         batches * (120 + columns * depth * 0.06);
}

void matmul_packed_pairs(const CallArgs& args) {
  const TensorView &x = args.inputs[0], &blocks = args.inputs[1], &out = args.outputs[0];
  const std::int64_t columns = attributes_of<ops::MatmulPacked>(args).columns.value, k = x.sizes[x.rank - 1];
  if (out.element_count() == 0) return;
  const std::int64_t rows = out.element_count() / columns;
  const DenseElements x_rows(x), packed(blocks);
  const WidenedRows widened(rows, k);
  widened.fill(0, rows, static_cast<const std::byte*>(x_rows.data()), k, 1, x.dtype == DType::i8);
  multiply(widened,
           {static_cast<const std::byte*>(packed.data()), parts(k, kBytesGroup), blocks.sizes[1] * kBlockGroup, true},
           1, rows, columns, static_cast<std::int32_t*>(out.data));
}

double matmul_packed_pairs_cost(const CallArgs& args) {
  const TensorView& x = args.inputs[0];
  const std::int64_t columns = attributes_of<ops::MatmulPacked>(args).columns.value, k = x.sizes[x.rank - 1];
  const auto count = static_cast<double>(x.element_count());
  return cost(k > 0 ? count / static_cast<double>(k) : 0, whole(columns, 8), whole(k, kBytesGroup), 1, count);
}

#else

void matmul_i32_pairs(const CallArgs&) { throw_internal("matmul_i32_pairs: not on this processor"); }
double matmul_i32_pairs_cost(const CallArgs&) { return 0; }
void matmul_packed_pairs(const CallArgs&) { throw_internal("matmul_packed_pairs: not on this processor"); }
double matmul_packed_pairs_cost(const CallArgs&) { return 0; }

#endif

// Where there is VNNI, kernels that use it are faster: these are for what they do not do.
bool matmul_i32_pairs_fits(const CallArgs& args) { return !has_vnni() || args.inputs[1].dtype == DType::u8; }
bool matmul_packed_pairs_fits(const CallArgs& args) { return !has_vnni() || args.inputs[0].dtype == DType::i8; }

FERMATA_KERNELS(cpu) {
  if (!has_byte_pairs()) return;
  constexpr DTypeSet kBytes = DTypeSet(DType::i8) | DType::u8;
  add_variant(Op::matmul_i32, BackendKey::cpu,
              {.name = "pairs",
               .form = KernelForm::library,
               .dtypes = kBytes,
               .call = &matmul_i32_pairs,
               .fits = &matmul_i32_pairs_fits,
               .cost = &matmul_i32_pairs_cost,
               .fits_text = kMatmulI32PairsFits});
  add_variant(Op::matmul_packed, BackendKey::cpu,
              {.name = "pairs",
               .form = KernelForm::library,
               .dtypes = kBytes,
               .call = &matmul_packed_pairs,
               .fits = &matmul_packed_pairs_fits,
               .cost = &matmul_packed_pairs_cost,
               .fits_text = kMatmulPackedPairsFits});
}

}  // namespace fermata
