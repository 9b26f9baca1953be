// See operation_count.h.
#include "ir/operation_count.h"

#include <algorithm>

namespace fermata {
namespace {

double elements(std::span<const std::int64_t> sizes) {
  double count = 1;
  for (const std::int64_t size : sizes) count *= static_cast<double>(size);
  return count;
}

/// Of a weight [O, C / groups, ...]: those that one output channel reads.
double per_channel(std::span<const std::int64_t> weight) {
  return weight.empty() || weight[0] == 0 ? 0 : elements(weight) / static_cast<double>(weight[0]);
}

/// Below zero if it is none.
double operations_of_product(Op op, std::span<const std::span<const std::int64_t>> operands,
                             std::span<const std::int64_t> result) {
  switch (op) {
    case Op::matmul:
    case Op::matmul_i32:
    case Op::matmul_packed:
    case Op::matmul_weights:
      return operands.empty() || operands[0].empty() ? 0
                                                     : 2 * elements(result) * static_cast<double>(operands[0].back());
    case Op::convolution: return operands.size() < 2 ? 0 : 2 * elements(result) * per_channel(operands[1]);
    case Op::convolution_data_gradient:
      return operands.size() < 2 ? 0 : 2 * elements(operands[0]) * per_channel(operands[1]);
    case Op::convolution_weight_gradient:
      return operands.size() < 2 ? 0 : 2 * elements(operands[1]) * per_channel(result);
    default: return -1;
  }
}

}  // namespace

bool is_product(Op op) { return operations_of_product(op, {}, {}) >= 0; }

double operation_count(Op op, std::span<const std::span<const std::int64_t>> operands,
                       std::span<const std::int64_t> result) {
  if (const double operations = operations_of_product(op, operands, result); operations >= 0) return operations;
  double most = elements(result);
  for (const auto& sizes : operands) most = std::max(most, elements(sizes));
  return most;
}

}  // namespace fermata
