// The scope of a function that is being captured, by compile(fn) or by control flow: reading a value in it is an error,
// what it touches without taking it as an argument is noted as a hidden input, and what it writes in place is noted to
// be written back. Scopes nest where control flow is captured inside one.
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "ir/error.h"
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
  /// The function has run: nothing is noted any more, and values may be read.
  void leave();
  CaptureScope(const CaptureScope&) = delete;
  CaptureScope& operator=(const CaptureScope&) = delete;

  /// An operand of a recorded call. A pending one from before the scope of a compiled function is computed first; that
  /// of control flow becomes an operand as it is.
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
  /// grad() of a leaf is about to be read, cleared or added to.
  void touch_gradient(const std::shared_ptr<LeafGradient>& leaf);
  struct Gradient {
    std::shared_ptr<LeafGradient> leaf;
    Tensor before;  // grad() when it was first touched
    Node* value;    // of that; null if there was none
  };
  const std::vector<Gradient>& gradients() const { return gradients_; }
  /// Gives the leaves back the gradients that they had.
  void undo_gradients();

  /// The function asks for the value of a Setting, or only whether that is 0.
  void read_setting(const Tensor& cell, double value, bool only_zero);
  struct SettingRead {
    Tensor cell;
    double value;
    bool only_zero;
    bool holds() const;
  };
  const std::vector<SettingRead>& settings() const { return settings_; }

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
  std::vector<Gradient> gradients_;
  std::vector<SettingRead> settings_;
  std::vector<Write> writes_;
};

}  // namespace fermata
