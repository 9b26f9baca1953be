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

/// Says how calls of a custom operator with one result work on divided tensors (fermata/mesh.h). Without a rule it is
/// called with whole operands, which are gathered.
///
///   sharding_rule("my::attend", "... h q d, ... h k d -> ... h q k; sum d");
///
/// Axes by name, in order, of each tensor argument and then of the result: axes of one name are divided together, so
/// that the operator gives a block of the result for blocks of its operands. `_` is an axis that it needs whole, `...`
/// any axes in front. After `;` are axes that the result does not have: on parts of these the operator gives results
/// that are combined by sum, max, min or prod. Arguments that are no tensors are the same for blocks. Calls with other
/// numbers of axes have no rule. An empty rule removes it.
///
/// Errors   UnsupportedError FM2006 if there is no such operator; ValueError FM7113 if it cannot be a rule;
///          ShapeError FM7114 in a call where the operator gives another shape on blocks than the rule says.
void sharding_rule(std::string_view op, std::string_view rule, Location where = Location::current());

}  // namespace fermata
