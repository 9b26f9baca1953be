// The scope of a function that is being captured, by compile(fn) or by control flow: reading a value in it is an error, what
// it touches without taking it as an argument is noted as a hidden input, and what it writes in place is noted to be written
// back. Scopes nest where control flow is captured inside one.
#pragma once

#include <cstdint>
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
  enum class Of : std::uint8_t { compiled_function, control_flow };
  explicit CaptureScope(Of of = Of::compiled_function);
  ~CaptureScope();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

  /// An operand of a recorded call. A pending one from before the scope of a compiled function is computed first; that of
  /// control flow becomes an operand as it is.
  void touch(const Tensor& tensor, Location where);
  /// An identity is about to get another value.
  void written(TensorImpl* impl);

  /// All that was touched and not made inside.
  const std::unordered_map<const Node*, Tensor>& hidden() const { return hidden_; }
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

  /// Marks a node as made inside this scope.
  void mark(Node* node) const { set_mark(node, number_); }
  /// Marks a node that no scope has to know of: that of a wrapper.
  static void mark_unnoticed(Node* node) { set_mark(node, kUnnoticed); }
  /// Was the node made inside this scope?
  bool made(const Node* node) const { return mark_of(node) == number_ || mark_of(node) == kUnnoticed; }
  /// Was it made inside any?
  static bool is_marked(const Node* node) { return mark_of(node) != 0; }

 private:
  static constexpr std::uint32_t kUnnoticed = ~0u;
  static std::uint32_t mark_of(const Node* node) { return node->reserved | std::uint32_t{node->reserved2} << 16; }
  static void set_mark(Node* node, std::uint32_t mark) {
    node->reserved = static_cast<std::uint16_t>(mark), node->reserved2 = static_cast<std::uint16_t>(mark >> 16);
  }
  bool made_in_outer(const Node* node) const;

  CaptureScope* outer_;
  std::uint32_t number_;
  Of of_;
  std::unordered_map<const Node*, Tensor> hidden_;
  std::vector<std::pair<Tensor, Tensor>> gradients_;  // leaves that want one, and what it was
  std::vector<Write> writes_;
};

}  // namespace fermata
