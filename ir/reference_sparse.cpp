// Reference evaluation of the sparse products, and of the product with packed bytes.
#include <fmt/format.h>

#include <bit>

#include "ir/error.h"
#include "ir/ops/products.h"
#include "ir/packed_weights.h"
#include "ir/reference_element.h"

namespace fermata::ops {
namespace {

/// Sums of products per element of the result: floats in long double, integers wrapping.
class Sums {
 public:
  explicit Sums(const GraphNode& node)
      : node_(node),
        floats_(static_cast<std::size_t>(keeps_floats(node.dtype) ? element_count(node.shape) : 0)),
        integers_(static_cast<std::size_t>(keeps_floats(node.dtype) ? 0 : element_count(node.shape))) {}
  void add(std::int64_t to, const ReferenceTensor& a, std::int64_t i, const ReferenceTensor& b, std::int64_t j) {
    const auto t = static_cast<std::size_t>(to), s = static_cast<std::size_t>(i), r = static_cast<std::size_t>(j);
    if (keeps_floats(node_.dtype))
      floats_[t] += static_cast<long double>(a.floats[s]) * static_cast<long double>(b.floats[r]);
    else
      integers_[t] += static_cast<std::uint64_t>(a.integers[s]) * static_cast<std::uint64_t>(b.integers[r]);
  }
  ReferenceTensor take() const {
    ReferenceTensor result{node_.dtype, node_.shape, {}, {}};
    for (const long double sum : floats_) result.floats.push_back(static_cast<double>(sum));
    if (keeps_floats(node_.dtype)) return result;
    ElementWriter writer(node_.dtype, node_.shape, DType::u64);
    for (std::size_t i = 0; i < integers_.size(); ++i) writer.set(static_cast<std::int64_t>(i), integers_[i]);
    return writer.take();
  }

 private:
  const GraphNode& node_;
  std::vector<long double> floats_;
  std::vector<std::uint64_t> integers_;
};

/// Calls f(row, column, entry) for every entry of a pattern, which is checked as kernels check it.
template <class F> void for_entries(const GraphNode& node, const ReferenceTensor& pattern, std::int64_t rows,
                                    std::int64_t columns, F&& f) {
  const std::vector<std::int64_t>& p = pattern.integers;
  const auto entries = static_cast<std::int64_t>(p.size()) - rows - 1;
  bool valid = p[0] == 0 && p[static_cast<std::size_t>(rows)] == entries;
  for (std::size_t row = 0; row < static_cast<std::size_t>(rows); ++row) valid = valid && p[row] <= p[row + 1];
  for (std::size_t i = static_cast<std::size_t>(rows) + 1; i < p.size(); ++i)
    valid = valid && p[i] >= 0 && p[i] < columns;
  if (!valid)
    throw IndexError(
        1250, format_error(1250, "IndexError", fmt::format("{}: row offsets or columns out of range", name(node.op)),
                           {}, node.where));
  for (std::int64_t row = 0; row < rows; ++row)
    for (std::int64_t e = p[static_cast<std::size_t>(row)]; e < p[static_cast<std::size_t>(row) + 1]; ++e)
      f(row, p[static_cast<std::size_t>(rows + 1 + e)], e);
}

ReferenceTensor csr_matmul(const GraphNode& node, const ReferenceTensor& pattern, const ReferenceTensor& values,
                           const ReferenceTensor& dense) {
  const std::int64_t rows = pattern.shape[0] - 1 - values.shape[0], width = dense.shape[1];
  const auto op = attributes_of<CsrMatmul>(node);
  Sums sums(node);
  for_entries(node, pattern, rows, op.columns.value, [&](std::int64_t row, std::int64_t column, std::int64_t e) {
    if (op.transposed.value) std::swap(row, column);
    for (std::int64_t j = 0; j < width; ++j) sums.add(row * width + j, values, e, dense, column * width + j);
  });
  return sums.take();
}

ReferenceTensor sampled(const GraphNode& node, const ReferenceTensor& pattern, const ReferenceTensor& lhs,
                        const ReferenceTensor& rhs) {
  const std::int64_t width = lhs.shape[1];
  Sums sums(node);
  for_entries(node, pattern, lhs.shape[0], rhs.shape[0], [&](std::int64_t row, std::int64_t column, std::int64_t e) {
    for (std::int64_t j = 0; j < width; ++j) sums.add(e, lhs, row * width + j, rhs, column * width + j);
  });
  return sums.take();
}

/// Weight (row, position) of packed bytes.
double packed_weight(const PackedWeights& packed, const ReferenceTensor& bytes, std::int64_t row, std::int64_t k) {
  const std::int64_t block = row / PackedWeights::kBlock, lane = row % PackedWeights::kBlock;
  const auto byte = [&](std::int64_t at) {
    return static_cast<std::uint32_t>(bytes.integers[static_cast<std::size_t>(at)]);
  };
  if (packed.group == 0) {
    const std::int64_t start = block * packed.group_bytes();
    std::uint32_t scale = 0;
    for (std::int64_t i = 0; i < 4; ++i) scale |= byte(start + 4 * lane + i) << (8 * i);
    const auto code = static_cast<std::int8_t>(byte(start + PackedWeights::kBlock * (4 + k) + lane));
    return static_cast<double>(std::bit_cast<float>(scale)) * code;
  }
  const std::int64_t start = (block * packed.groups() + k / packed.group) * packed.group_bytes(), p = k % packed.group;
  const std::uint32_t scale = byte(start + 2 * lane) << 16 | byte(start + 2 * lane + 1) << 24;
  const std::uint32_t both = byte(start + PackedWeights::kBlock * (2 + p / 8 * 4) + lane * 4 + p % 8 / 2);
  const auto code = static_cast<int>(p % 2 == 0 ? both & 15u : both >> 4) - 8;
  return static_cast<double>(std::bit_cast<float>(scale)) * code;
}

ReferenceTensor matmul_weights(const GraphNode& node, const ReferenceTensor& x, const ReferenceTensor& bytes) {
  const std::int64_t depth = x.shape.back(), columns = attributes_of<MatmulWeights>(node).columns.value;
  const auto packed = *PackedWeights::of(bytes.shape, columns, depth);
  ReferenceTensor result{node.dtype, node.shape, {}, {}};
  const std::int64_t rows = columns == 0 ? 0 : element_count(node.shape) / columns;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      long double sum = 0;
      for (std::int64_t k = 0; k < depth; ++k)
        sum += static_cast<long double>(x.floats[static_cast<std::size_t>(i * depth + k)]) *
               static_cast<long double>(packed_weight(packed, bytes, j, k));
      result.floats.push_back(static_cast<double>(sum));
    }
  return result;
}

ReferenceTensor matmul_packed(const GraphNode& node, const ReferenceTensor& x, const ReferenceTensor& packed) {
  const std::int64_t k_size = x.shape.back(), columns = attributes_of<MatmulPacked>(node).columns.value,
                     groups = packed.shape[1];
  Sums sums(node);
  const std::int64_t rows = columns == 0 ? 0 : element_count(node.shape) / columns;
  for (std::int64_t i = 0; i < rows; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t k = 0; k < k_size; ++k)
        sums.add(i * columns + j, x, i * k_size + k, packed, ((j / 64 * groups + k / 4) * 64 + j % 64) * 4 + k % 4);
  return sums.take();
}

}  // namespace

ReferenceTensor CsrMatmul::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return csr_matmul(node, *operands[0], *operands[1], *operands[2]);
}
ReferenceTensor CsrSampledMatmul::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return sampled(node, *operands[0], *operands[1], *operands[2]);
}
ReferenceTensor MatmulPacked::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return matmul_packed(node, *operands[0], *operands[1]);
}
ReferenceTensor MatmulWeights::reference(const GraphNode& node, const ReferenceOperands& operands) {
  return matmul_weights(node, *operands[0], *operands[1]);
}

}  // namespace fermata::ops
