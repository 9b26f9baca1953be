// What public functions share on their way to the kernel table.
#pragma once

#include <string_view>
#include <vector>

#include "dispatch/op_call.h"
#include "ir/error.h"
#include "ir/ops/structures.h"

namespace fermata {

inline bool is_defined_tensor(const Operand& o) { return o.is_tensor() && o.tensor().defined(); }
inline TensorType type_of(const Tensor& t) { return {t.dtype(), t.shape()}; }

/// ValueError FM1306 for a tensor that was never given a value.
void require_defined(Op op, const Operand& operand);
/// The same for functions that are no op of their own.
void require_defined(std::string_view function, const Tensor& x, Location where);

/// Calls an op that takes tensors and attributes; undefined tensors are an error.
Tensor general_call(Op op, std::span<const Tensor> tensors, const Attributes& attributes, Location where);
/// The same with the attributes by name: general_call<Op::sort>({.axis = {0}, .descending = {true}}, {&x, 1}, where).
template <Op op> Tensor general_call(const OpStruct<op>& attributes, std::span<const Tensor> tensors, Location where,
                                     DType dtype = DType::f32) {
  return general_call(op, tensors, EncodedAttributes(attributes, dtype), where);
}
/// One of several ops that share a struct.
template <AttributeStruct O>
Tensor general_call(Op op, const O& attributes, std::span<const Tensor> tensors, Location where) {
  return general_call(op, tensors, EncodedAttributes(attributes), where);
}

/// All in the promotion of their dtypes, for an op that takes any number of tensors of one dtype.
std::vector<Tensor> promoted(Op op, std::span<const Tensor> tensors, Location where);

/// Operands of a call side by side, without a reference to each: for as long as the tensors that it was made from.
template <std::size_t kCount> class BorrowedTensors {
 public:
  template <class... T> explicit BorrowedTensors(const T&... tensors) : tensors_{Tensor(tensors.impl())...} {
    static_assert(sizeof...(T) == kCount);
  }
  ~BorrowedTensors() {}  // they are not dropped
  BorrowedTensors(const BorrowedTensors&) = delete;
  operator std::span<const Tensor>() const { return tensors_; }

 private:
  union {
    Tensor tensors_[kCount];
  };
};
template <class... T> BorrowedTensors(const T&...) -> BorrowedTensors<sizeof...(T)>;

/// Operands as lines of an error: "x  f32[4, 8]", or lhs and rhs.
std::vector<ErrorOperand> describe(const Tensor& x);
std::vector<ErrorOperand> describe(const Tensor& lhs, const Tensor& rhs);

}  // namespace fermata
