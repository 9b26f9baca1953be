// The lines of tensors along an axis, for kernels that take one line after another: scans, sorts.
#pragma once

#include "codegen_cpu/irregular/positions.h"

namespace fermata {

/// Where each line of a view along an axis starts. Lines are numbered in row-major order of the other axes.
class LineStarts {
 public:
  LineStarts(const TensorView& view, unsigned axis)
      : outer_(view, 0, axis), inner_(view, axis + 1, view.rank), stride_(view.strides[axis]) {}
  std::int64_t count() const { return outer_.size() * inner_.size(); }
  std::int64_t inner() const { return inner_.size(); }
  std::int64_t stride() const { return stride_; }
  std::int64_t operator[](std::int64_t line) const {
    return inner_.size() == 1 ? outer_[line] : outer_[line / inner_.size()] + inner_[line % inner_.size()];
  }

  /// How many lines from `line` on are known to lie evenly.
  std::int64_t even_run(std::int64_t line) const {
    if (inner_.size() == 1) return outer_.are_even() ? count() - line : 1;
    return inner_.are_even() ? inner_.size() - line % inner_.size() : 1;
  }

 private:
  Offsets outer_, inner_;
  std::int64_t stride_;
};

}  // namespace fermata
