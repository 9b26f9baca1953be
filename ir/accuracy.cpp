// See accuracy.h.
#include "ir/accuracy.h"

#include <array>

namespace fermata {
namespace {

std::array<Accuracy, kOpCount> all_rows() {
  std::array<Accuracy, kOpCount> rows;
  const auto row = [&](Op op) -> Accuracy& { return rows[static_cast<std::size_t>(op)]; };
#define FERMATA_ULP_BOUND(op, f32, f64, measured) row(Op::op) = {f32, f64, measured, {}, true};
#define FERMATA_ERROR_BOUND(op, text) row(Op::op) = {0, 0, 0, text, true};
#include "ir/ops/accuracy.def"
  return rows;
}

}  // namespace

const Accuracy& accuracy(Op op) {
  static const std::array<Accuracy, kOpCount> rows = all_rows();
  return rows.at(static_cast<std::size_t>(op));
}

}  // namespace fermata
