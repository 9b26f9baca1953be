// The scope of a function that is being captured by compile(fn) or control flow. Reading a value in it is an error.
// Captured tensors are collected as hidden inputs, and in-place writes to be written back. Scopes nest if control flow
// is captured inside a captured function.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "ir/error.h"
#include "runtime/operand.h"
#include "runtime/tensor.h"

namespace fermata {

struct LeafGradient;
class CaptureScope;
extern constinit thread_local CaptureScope* capture_scope;
inline bool in_capture_scope() { return capture_scope != nullptr; }

/// A function does what no capture of it can repeat: compile(fn) runs it each time.
struct NotRecordable : UnsupportedError {
  using UnsupportedError::UnsupportedError;
};

class CaptureScope {
 public:
  enum class Of : std::uint8_t { compiled_function, control_flow };
  explicit CaptureScope(Of of = Of::compiled_function);
  ~CaptureScope();
  /// Ends the capture: nothing is collected any more, and values may be read.
  void leave();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

  /// Notes an operand of a recorded call. A pending tensor from before the scope is computed first in a compiled
  /// function; in control flow it becomes an operand as it is.
  void touch(const Tensor& tensor, Location where);
  /// The same; returns what to record instead. Several captured tensors may have one value: a leaf stands for one of
  /// them, so that a replay reads each where it is then.
  const Tensor& operand(const Tensor& tensor, Location where);
  /// For all operands of a call.
  void take_operands(std::span<const Operand*> operands, Location where);
  std::span<const Tensor> take_operands(std::span<const Tensor> tensors, std::vector<Tensor>& own, Location where);
  /// Notes that a tensor is about to be assigned.
  void written(TensorImpl* impl);

  /// The captured tensors: touched but not created inside.
  const std::unordered_map<const Node*, Tensor>& hidden() const { return hidden_; }
  /// The tensor through which a leaf was first read; null for constants created inside.
  const Tensor* identity_of(const Node* leaf) const;
  struct Write {
    Tensor target;
    Node* before;  // a kTensor reference is held
  };
  const std::vector<Write>& writes() const { return writes_; }
  /// Restores written tensors to their values from before the scope.
  void undo_writes();
  /// Notes that grad() of a leaf is about to be read, cleared or accumulated into.
  void touch_gradient(const std::shared_ptr<LeafGradient>& leaf);
  struct Gradient {
    std::shared_ptr<LeafGradient> leaf;
    Tensor before;  // grad() when it was first touched
    Node* value;    // of that; null if there was none
  };
  const std::vector<Gradient>& gradients() const { return gradients_; }
  /// Restores the gradients of leaves.
  void undo_gradients();

  /// Notes that the function reads the value of a Setting, or only whether it is 0.
  void read_setting(const Tensor& cell, double value, bool only_zero);
  struct SettingRead {
    Tensor cell;
    double value;
    bool only_zero;
    bool holds() const;
  };
  const std::vector<SettingRead>& settings() const { return settings_; }

  /// Marks a node as created inside this scope.
  void mark(Node* node) const { set_mark(node, number_); }
  /// Marks a node that scopes ignore: that of a wrapper.
  static void mark_unnoticed(Node* node) { set_mark(node, kUnnoticed); }
  /// Whether the node was created inside this scope.
  bool made(const Node* node) const { return mark_of(node) == number_ || mark_of(node) == kUnnoticed; }
  /// Whether it was created inside any scope.
  static bool is_marked(const Node* node) { return mark_of(node) != 0; }

 private:
  friend class OutsideScopes;
  static constexpr std::uint32_t kUnnoticed = ~0u;
  static void set(CaptureScope* scope);
  static std::uint32_t mark_of(const Node* node) { return node->reserved | std::uint32_t{node->reserved2} << 16; }
  static void set_mark(Node* node, std::uint32_t mark) {
    node->reserved = static_cast<std::uint16_t>(mark), node->reserved2 = static_cast<std::uint16_t>(mark >> 16);
  }
  bool made_in_outer(const Node* node) const;
  bool has_own_value(const Tensor& tensor) const;
  bool made(const TensorImpl* identity) const;
  void hide(Node* node, const Tensor& identity);

  CaptureScope* outer_;
  std::uint32_t number_;
  Of of_;
  std::unordered_map<const Node*, Tensor> hidden_;
  std::vector<Tensor> values_;                               // of those, so that no later node has their address
  std::unordered_map<const TensorImpl*, Tensor> stand_ins_;  // of captured tensors that have the value of another one
  std::deque<Operand> operands_;                             // with those
  std::vector<Gradient> gradients_;
  std::vector<SettingRead> settings_;
  std::vector<Write> writes_;
};

/// While it lives this thread is in no scope: what it makes belongs to no function.
class OutsideScopes {
 public:
  OutsideScopes() : scope_(capture_scope) { CaptureScope::set(nullptr); }
  ~OutsideScopes() { CaptureScope::set(scope_); }
  OutsideScopes(const OutsideScopes&) = delete;
  OutsideScopes& operator=(const OutsideScopes&) = delete;

 private:
  CaptureScope* scope_;
};

}  // namespace fermata
