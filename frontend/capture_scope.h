// The scope of a function that is being captured by compile(fn): reading a value in it is an error, what it touches
// without taking it as an argument is noted as a hidden input, and what it writes in place is noted to be written back.
#pragma once

#include <unordered_map>
#include <utility>
#include <vector>

#include "runtime/tensor.h"

namespace fermata {

class CaptureScope;
extern constinit thread_local CaptureScope* capture_scope;
inline bool in_capture_scope() { return capture_scope != nullptr; }

class CaptureScope {
 public:
  CaptureScope() { capture_scope = this; }
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

  /// An operand of a recorded call. A pending one from before the scope is computed first.
  void touch(const Tensor& tensor, Location where);
  /// An identity is about to get another value.
  void written(TensorImpl* impl);

  /// The identity that a leaf was first read through; null for constants made inside.
  const Tensor* identity_of(const Node* leaf) const;
  struct Write {
    Tensor target;
    Node* before;  // a kTensor reference is held
  };
  const std::vector<Write>& writes() const { return writes_; }
  /// Puts the identities back to their values from before the scope.
  void undo_writes();
  /// A leaf from outside whose grad() is another one than when it was first touched: a backward pass inside added to it.
  const Tensor* changed_gradient() const;

  /// Marks nodes recorded inside a scope (Node::reserved).
  static constexpr std::uint16_t kInside = 1;

 private:
  std::unordered_map<const Node*, Tensor> hidden_;
  std::vector<std::pair<Tensor, Tensor>> gradients_;  // leaves that want one, and what it was
  std::vector<Write> writes_;
};

}  // namespace fermata
