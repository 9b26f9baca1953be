// Operands that lie across memory as dense copies: what a call reads along rows.
#pragma once

#include <algorithm>
#include <optional>
#include <span>

#include "codegen_cpu/irregular/dense_elements.h"
#include "ir/error.h"
#include "ir/shape.h"

namespace fermata {

/// Whether an operand lies along another axis than its last one, and is so large that copying it, by squares in
/// registers, costs less than gathering its elements.
bool lies_across(const TensorView& x);

/// A view, or one of a copy in row-major order if it lies across memory and there is room for a copy.
class OperandInOrder {
 public:
  explicit OperandInOrder(const TensorView& x) : view_(x) {
    if (!lies_across(x)) return;
    try {
      copy_.emplace(x);
    } catch (const OutOfMemoryError&) { return; }
    strides_ = dense_strides({x.sizes, x.rank});
    view_.data = const_cast<void*>(copy_->data()), view_.strides = strides_.data();
  }
  OperandInOrder(const OperandInOrder&) = delete;
  OperandInOrder& operator=(const OperandInOrder&) = delete;
  const TensorView& view() const { return view_; }

 private:
  TensorView view_;
  std::optional<DenseElements> copy_;
  Shape strides_;
};

/// Calls `call` with the operands of a call in order.
template <class F> void with_operands_in_order(const CallArgs& args, F&& call) {
  constexpr std::size_t kMost = 3;
  if (args.inputs.size() > kMost || std::ranges::none_of(args.inputs, &lies_across)) return call(args);
  std::optional<OperandInOrder> operands[kMost];
  TensorView views[kMost];
  for (std::size_t i = 0; i < args.inputs.size(); ++i) views[i] = operands[i].emplace(args.inputs[i]).view();
  CallArgs in_order = args;
  in_order.inputs = {views, args.inputs.size()};
  call(in_order);
}

}  // namespace fermata
