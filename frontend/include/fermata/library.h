// Custom operators: schemas, kernels for any dispatch key, and element access for kernels.
//
// Not part of fermata/fermata.h: only files that define operators include it. docs/adding-an-op.md walks through an
// example; docs/dispatch.md has the rules.
#pragma once

#include "dispatch/library.h"
#include "dispatch/meta.h"
#include "fermata/custom_function.h"
#include "fermata/integer_list.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// Gives a kernel access to a tensor's elements; computes the tensor if it is pending. Strides are in elements.
class Elements {
 public:
  explicit Elements(const Tensor& x, Location where = Location::current());
  const TensorView& view() const { return view_; }
  std::int64_t count() const { return view_.element_count(); }
  /// Whether the elements are in row-major order without gaps.
  bool dense() const;
  template <class T> const T* data() const { return static_cast<const T*>(view_.data); }

 private:
  Tensor keep_;
  Shape strides_;
  TensorView view_;
};

/// Returns the elements of a fresh tensor, such as one from empty(), for a kernel to write. Computes the tensor if it
/// is pending.
template <class T> T* elements_to_fill(const Tensor& fresh, Location where = Location::current()) {
  return static_cast<T*>(fresh.sync(where).node()->storage.load()->data);
}

/// The arguments of an operator's batching rule: a call inside vmap with one level removed.
struct BatchedArguments {
  Stack arguments;            // of the call; batched tensors have the batch as axis 0
  std::vector<bool> batched;  // per tensor argument, in order: whether it has a batch axis
  std::int64_t size;          // of the batch
};
/// Makes the Batched kernel of an operator from `rule`, which returns the results in order, each with the batch as axis
/// 0 (ShapeError FM1031 otherwise). Register it with impl_boxed in a FERMATA_LIBRARY_IMPL(ns, Batched, m). Without one,
/// vmap calls the operator in a loop.
std::function<void(const Call&, Stack&)> batching_rule(
    std::function<std::vector<Tensor>(const BatchedArguments&)> rule);

}  // namespace fermata
