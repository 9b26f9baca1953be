// What a name in a model stands for while it runs: a tensor, a sequence of values, or nothing.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "runtime/tensor.h"

namespace fermata::onnx {

class Value {
 public:
  enum class Kind : std::uint8_t { absent, tensor, sequence, nothing };

  /// An input that is left out.
  Value() = default;
  Value(Tensor tensor, bool known = false) : kind_(Kind::tensor), known_(known), tensor_(std::move(tensor)) {}
  static Value sequence(std::vector<Value> values) {
    Value v;
    v.kind_ = Kind::sequence;
    v.sequence_ = std::make_shared<const std::vector<Value>>(std::move(values));
    return v;
  }
  /// An optional that holds nothing.
  static Value nothing() {
    Value v;
    v.kind_ = Kind::nothing;
    return v;
  }

  Kind kind() const { return kind_; }
  bool is_there() const { return kind_ != Kind::absent; }
  const Tensor& tensor() const { return tensor_; }
  const std::vector<Value>& sequence() const { return *sequence_; }
  /// Whether the elements follow from the file and from sizes of inputs alone: a small tensor on the CPU that has been
  /// computed. Nodes of such operands run at once (model.cpp).
  bool known() const { return known_; }

 private:
  Kind kind_ = Kind::absent;
  bool known_ = false;
  Tensor tensor_;
  std::shared_ptr<const std::vector<Value>> sequence_;
};

}  // namespace fermata::onnx
