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

std::array<ComplexAccuracy, kOpCount> all_complex_rows() {
  std::array<ComplexAccuracy, kOpCount> rows;
#define FERMATA_COMPLEX_BOUND(op, c64, c128, measured, text) \
  rows[static_cast<std::size_t>(Op::op)] = {c64, c128, measured, text};
#include "ir/ops/accuracy.def"
  return rows;
}

}  // namespace

const ComplexAccuracy* complex_accuracy(Op op) {
  static const std::array<ComplexAccuracy, kOpCount> rows = all_complex_rows();
  const ComplexAccuracy& row = rows.at(static_cast<std::size_t>(op));
  return row.c64 > 0 ? &row : nullptr;
}

const Accuracy& accuracy(Op op) {
  static const std::array<Accuracy, kOpCount> rows = all_rows();
  return rows.at(static_cast<std::size_t>(op));
}

}  // namespace fermata
