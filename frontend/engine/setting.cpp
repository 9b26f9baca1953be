// See fermata/setting.h.
#include "fermata/setting.h"

#include <mutex>

#include "fermata/ops.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/ops/calls.h"
#include "ir/error.h"
#include "ir/fork.h"

namespace fermata {
namespace {

Node* leaf_of(double value) {
  StoragePtr storage(Storage::allocate(sizeof value));
  *static_cast<double*>(storage->data) = value;
  return make_leaf({DType::f64, {}}, storage.release(), BackendKey::cpu, Node::kTensor);
}

}  // namespace

Setting& Setting::operator=(const Setting& other) {
  if (in_capture_scope())
    throw UserError(
        1703, format_error(1703, "UserError", "a Setting is assigned inside a function that is being compiled", {},
                           other.where_, "set it before or after the call, or keep the number in a tensor"));
  value_ = other.value_, where_ = other.where_;
  if (cell_.defined()) cell_.set_node(leaf_of(value_));
  return *this;
}

double Setting::read(bool only_zero) const {
  if (in_capture_scope()) [[unlikely]]
    capture_scope->read_setting(tensor(), value_, only_zero);
  return value_;
}

const Tensor& Setting::tensor() const {
  static auto& mutex = *new ForkSafeMutex;  // of all: threads may record functions that share one
  const std::lock_guard lock(mutex);
  if (!cell_.defined()) cell_ = Tensor(leaf_of(value_), DispatchKeySet(BackendKey::cpu) | Functionality::dense);
  return cell_;
}

/// A call on a tensor and a Setting, which counts as a host number in promotion. f16 and bf16 are computed in f32 and
/// rounded once, as they are beside a plain number.
Tensor detail::call_with_setting(Op op, const TensorWithLocation& x, const Setting& s, bool setting_first) {
  require_defined(op, {x.tensor, x.where});
  const OperatorEntry& entry = operator_entry(op);
  const auto run = [&](const Operand& a, const Operand& b) {
    return setting_first ? Dispatcher<BinaryCall>::call(entry, x.where, b, a)
                         : Dispatcher<BinaryCall>::call(entry, x.where, a, b);
  };
  if (!in_capture_scope()) return run({x.tensor, x.where}, {static_cast<double>(s), x.where});
  const DType t = promote_scalar(x.tensor.dtype(), DTypeKind::floating);
  const Tensor wide = astype(x.tensor, compute_dtype(t), x.where), value = astype(s.tensor(), scalar_dtype(t), x.where);
  return astype(run({wide, x.where}, {value, x.where}), t, x.where);
}

}  // namespace fermata
