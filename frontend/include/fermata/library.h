// Operators of your own: definitions, kernels for any key, and what kernels need to reach elements.
//
// Not part of fermata/fermata.h: only files that define operators include it. docs/adding-an-op.md goes through an
// example, docs/dispatch.md has the rules.
#pragma once

#include "dispatch/library.h"
#include "dispatch/meta.h"
#include "fermata/custom_function.h"
#include "fermata/integer_list.h"
#include "runtime/tensor_view.h"

namespace fermata {

/// A tensor's elements, for a kernel: computed if they were pending. `view` says where they are; strides are in
/// elements.
class Elements {
 public:
  explicit Elements(const Tensor& x, Location where = Location::current());
  const TensorView& view() const { return view_; }
  std::int64_t count() const { return view_.element_count(); }
  /// Are they in row-major order without gaps?
  bool dense() const;
  template <class T> const T* data() const { return static_cast<const T*>(view_.data); }

 private:
  Tensor keep_;
  Shape strides_;
  TensorView view_;
};

/// The elements of a new tensor that a kernel fills, such as empty() makes: nobody has read them yet. Computes it if it
/// is pending.
template <class T> T* elements_to_fill(const Tensor& fresh, Location where = Location::current()) {
  return static_cast<T*>(fresh.sync(where).node()->storage.load()->data);
}

/// What the batching rule of an operator is given: a call inside vmap, with one level taken off.
struct BatchedArguments {
  Stack arguments;            // of the call; tensors that are batched have the batch as axis 0
  std::vector<bool> batched;  // per tensor among them, in order: does it have a batch, or is it the same for all?
  std::int64_t size;          // of the batch
};
/// The Batched kernel of an operator from its rule: the results in order, each with the batch as axis 0 (ShapeError
/// FM1031 otherwise). For impl_boxed in a FERMATA_LIBRARY_IMPL(ns, Batched, m). Without one vmap calls the operator in
/// a loop.
std::function<void(const Call&, Stack&)> batching_rule(
    std::function<std::vector<Tensor>(const BatchedArguments&)> rule);

}  // namespace fermata
