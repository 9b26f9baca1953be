// See matmul_problem.h.
#include "codegen_cpu/library/matmul_problem.h"

#include <algorithm>
#include <cstring>

#include "codegen_cpu/irregular/strided_copy.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Enough for the threads of a large machine to share a product of some milliseconds, few enough for a small one.
constexpr std::int64_t kTilesWanted = 16;

std::int64_t cut(std::int64_t size, std::int64_t parts, std::int64_t granule) {
  const std::int64_t part = (size + parts - 1) / parts;
  return std::min(size, (part + granule - 1) / granule * granule);
}

/// Takes the innermost batch axes along which only the left side changes, and changes like rows do, as more rows.
void fold_batch_into_rows(MatmulProblem& p) {
  while (!p.batch_sizes.empty()) {
    const std::size_t last = p.batch_sizes.rank() - 1;
    const std::int64_t size = p.batch_sizes[last], step = p.lhs.batch_strides[last];
    if (p.rhs.batch_strides[last] != 0) return;
    if (p.m == 1)
      p.lhs.row_stride = step;
    else if (step != p.m * p.lhs.row_stride)
      return;
    p.m *= size;
    p.batches /= size;
    for (Shape* s : {&p.batch_sizes, &p.lhs.batch_strides, &p.rhs.batch_strides})
      *s = Shape(std::span<const std::int64_t>(s->data(), last));
  }
}

void add_batch_axes(MatmulProblem& p, const TensorView& lhs, unsigned lhs_axes, const TensorView& rhs,
                    unsigned rhs_axes) {
  const unsigned lhs_rank = lhs.rank - lhs_axes, rhs_rank = rhs.rank - rhs_axes, rank = std::max(lhs_rank, rhs_rank);
  for (unsigned i = 0; i < rank; ++i) {
    const int l = static_cast<int>(i + lhs_rank) - static_cast<int>(rank);
    const int r = static_cast<int>(i + rhs_rank) - static_cast<int>(rank);
    const std::int64_t lhs_size = l < 0 ? 1 : lhs.sizes[l], rhs_size = r < 0 ? 1 : rhs.sizes[r];
    const std::int64_t size = lhs_size == 1 ? rhs_size : lhs_size;
    p.batches *= size;
    if (size == 1) continue;
    p.batch_sizes.push_back(size);
    p.lhs.batch_strides.push_back(lhs_size == 1 ? 0 : lhs.strides[l]);
    p.rhs.batch_strides.push_back(rhs_size == 1 ? 0 : rhs.strides[r]);
  }
}

}  // namespace

double MatmulProblem::bytes() const {
  const auto size = static_cast<double>(byte_size(dtype)), out_size = static_cast<double>(byte_size(result)),
             mm = static_cast<double>(m), nn = static_cast<double>(n), kk = static_cast<double>(k);
  return static_cast<double>(batches) * (size * (mm * kk + kk * nn) + out_size * mm * nn);
}

const std::byte* MatmulProblem::data_of(const MatrixSide& side, std::size_t number, std::int64_t batch) const {
  const std::byte* data = side.data;
  if (!results.empty()) {
    const auto call = static_cast<std::size_t>(take_call(batch));
    data = static_cast<const std::byte*>(calls[2 * call + number].data);
  }
  std::int64_t offset = 0;
  for (std::size_t i = batch_sizes.rank(); i-- > 0;) {
    offset += batch % batch_sizes[i] * side.batch_strides[i];
    batch /= batch_sizes[i];
  }
  return data + offset * static_cast<std::int64_t>(byte_size(dtype));
}

std::byte* MatmulProblem::out_of(std::int64_t batch) const {
  std::byte* data = out;
  if (!results.empty()) data = static_cast<std::byte*>(results[static_cast<std::size_t>(take_call(batch))].data);
  return data + batch * m * n * static_cast<std::int64_t>(byte_size(result));
}

MatmulProblem decode_matmul(const CallArgs& args) {
  const TensorView &lhs = args.inputs[0], &rhs = args.inputs[1];
  MatmulProblem p{.dtype = lhs.dtype,
                  .result = args.outputs.empty() ? lhs.dtype : args.outputs[0].dtype,
                  .m = 1,
                  .n = 1,
                  .k = lhs.sizes[lhs.rank - 1],
                  .lhs = {static_cast<const std::byte*>(lhs.data), 0, lhs.strides[lhs.rank - 1], {}, lhs.buffer},
                  .rhs = {static_cast<const std::byte*>(rhs.data), rhs.strides[0], 0, {}, rhs.buffer},
                  .out = args.outputs.empty() ? nullptr : static_cast<std::byte*>(args.outputs[0].data),
                  .batch_sizes = {}};
  if (lhs.rank > 1) {
    p.m = lhs.sizes[lhs.rank - 2];
    p.lhs.row_stride = lhs.strides[lhs.rank - 2];
  }
  if (rhs.rank > 1) {
    p.n = rhs.sizes[rhs.rank - 1];
    p.rhs.row_stride = rhs.strides[rhs.rank - 2];
    p.rhs.column_stride = rhs.strides[rhs.rank - 1];
  }
  if (lhs.rank > 2 || rhs.rank > 2) {
    add_batch_axes(p, lhs, lhs.rank > 1 ? 2 : 1, rhs, rhs.rank > 1 ? 2 : 1);
    if (p.batches != 0) fold_batch_into_rows(p);
  }
  if (args.outputs.size() > 1) {
    p.calls = args.inputs, p.results = args.outputs;
    p.batches_of_call = p.batches;
    p.batches *= static_cast<std::int64_t>(args.outputs.size());
  }
  return p;
}

bool split_calls(const CallArgs& args, FunctionRef<PackedOperands::Accepts> accepts,
                 FunctionRef<void(const CallArgs&)> kernel) {
  if (args.outputs.size() < 2) return false;
  const MatmulProblem p = decode_matmul(args);
  if (accepts(p.lhs, p.m, p.k) && accepts(p.rhs, p.k, p.n)) return false;
  for (std::size_t i = 0; i < args.outputs.size(); ++i) {
    CallArgs one = args;
    one.inputs = args.inputs.subspan(2 * i, 2), one.outputs = args.outputs.subspan(i, 1);
    kernel(one);
  }
  return true;
}

bool is_regular(const MatrixSide& side, std::int64_t rows, std::int64_t columns) {
  const bool by_rows = (columns == 1 || side.column_stride == 1) && (rows == 1 || side.row_stride >= columns);
  const bool by_columns = (rows == 1 || side.row_stride == 1) && (columns == 1 || side.column_stride >= rows);
  return by_rows || by_columns;
}

PackedOperands::PackedOperands(MatmulProblem& problem) : PackedOperands(problem, kReadInPlace) {}

PackedOperands::PackedOperands(MatmulProblem& problem, FunctionRef<Accepts> accepts) {
  if (!accepts(problem.lhs, problem.m, problem.k)) pack(problem, problem.lhs, problem.m, problem.k);
  if (!accepts(problem.rhs, problem.k, problem.n)) pack(problem, problem.rhs, problem.k, problem.n);
}

void PackedOperands::pack(const MatmulProblem& problem, MatrixSide& side, std::int64_t rows, std::int64_t columns) {
  // Axes that only repeat the same matrices are not copied out.
  Shape sizes, from = side.batch_strides;
  for (std::size_t i = 0; i < from.rank(); ++i) sizes.push_back(from[i] == 0 ? 1 : problem.batch_sizes[i]);
  sizes.push_back(rows), sizes.push_back(columns);
  from.push_back(side.row_stride), from.push_back(side.column_stride);
  const Shape to = dense_strides(sizes);
  const std::size_t bytes = byte_size(problem.dtype);
  std::byte* const copy = held_[count_++].emplace(element_count(sizes) * static_cast<std::int64_t>(bytes)).data();
  strided_copy({copy, to}, {const_cast<std::byte*>(side.data), from}, sizes, bytes);
  side.data = copy, side.buffer = nullptr;
  side.row_stride = columns, side.column_stride = 1;
  for (std::size_t i = 0; i < side.batch_strides.rank(); ++i)
    if (side.batch_strides[i] != 0) side.batch_strides[i] = to[i];
}

VectorProduct vector_product_of(const MatmulProblem& p) {
  const bool is_row = p.m == 1;
  const MatrixSide& side = is_row ? p.rhs : p.lhs;
  const std::int64_t rows = is_row ? p.k : p.m, columns = is_row ? p.n : p.k;
  const bool lies = is_regular(side, rows, columns);
  const std::int64_t down = lies ? side.row_stride : columns, across = lies ? side.column_stride : 1;
  VectorProduct v{is_row, is_row ? p.n : p.m, is_row ? across : down, is_row ? down : across};
  if (v.columns == 1) v.to_next_column = 1;
  if (p.k == 1) v.along_k = 1;
  return v;
}

FewVectors few_vectors_of(const MatmulProblem& p) {
  if (is_vector_product(p) || p.k < kLeastByHalves) return FewVectors::none;
  // One right side may come again, and is then kept in panels, from which products are faster.
  const std::int64_t batches = p.results.empty() ? p.batches : p.batches_of_call;
  if (batches == 1 && p.k * p.n >= kLeastKept) return FewVectors::none;
  if (p.m <= kFewVectors && p.rhs.row_stride == 1 && p.rhs.column_stride >= p.k) return FewVectors::rows;
  if (p.n <= kFewVectors && p.lhs.column_stride == 1 && p.lhs.row_stride >= p.k) return FewVectors::columns;
  return FewVectors::none;
}

PackedKey key_of_rhs(const MatmulProblem& p, const void* layout) {
  return {layout, p.rhs.data, {p.k, p.n, p.rhs.row_stride, p.rhs.column_stride}};
}

MatmulTiles tile_matmul(const MatmulProblem& p, double fewest, std::int64_t granule, std::int64_t most_rows,
                        std::int64_t most_columns) {
  std::int64_t down = 1, across = 1, rows = p.m, columns = p.n;
  const auto halve = [&](bool by_rows) {
    if (by_rows)
      rows = cut(p.m, down *= 2, granule);
    else
      columns = cut(p.n, across *= 2, granule);
  };
  while (down * across * p.batches < kTilesWanted && std::max(rows, columns) > granule &&
         static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(p.k) >= 2 * fewest)
    halve(rows >= columns);
  while (rows > most_rows) halve(true);
  while (columns > most_columns) halve(false);
  return {rows, columns, (p.m + rows - 1) / rows, (p.n + columns - 1) / columns};
}

void fill_zero(const MatmulProblem& p) {
  const std::int64_t bytes = p.m * p.n * static_cast<std::int64_t>(byte_size(p.result));
  parallel_for(0, p.batches, 0.05 * static_cast<double>(bytes), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t batch = begin; batch < end; ++batch)
      std::memset(p.out_of(batch), 0, static_cast<std::size_t>(bytes));
  });
}

TileEpilogue tile_epilogue_of(const CallArgs& args) {
  static constexpr auto kNothing = [](const ResultTile&) {};
  return args.epilogue != nullptr ? args.epilogue->on_tile : TileEpilogue(kNothing);
}

}  // namespace fermata
