// See leaves.h.
#include "ir/ops/leaves.h"

namespace fermata::ops {
namespace {

constexpr std::int64_t kSizes[] = {3, 4};

}  // namespace

TensorType Full::infer(const InferCall& call) const {
  call.require_wanted_dtype(kStored, "a number or bool");
  return call.result(dtype.value, call.wanted.shape);
}

ValueId Full::emit(KernelEmitter& emitter) const {
  return emitter.rounded(emitter.scalar(0, compute_dtype(dtype.value)));
}

Example<Full> Full::example() {
  return {{}, {.value = {0x3fc00000}, .shape = {kSizes}, .dtype = {DType::f32}}};  // 1.5
}

TensorType Iota::infer(const InferCall& call) const {
  call.require_wanted_dtype(DType::i64, "i64");
  normalize_axis(name(call.op), axis.value, call.wanted, call.where);
  return call.result(DType::i64, call.wanted.shape);
}

ValueId Iota::emit(KernelEmitter& emitter) const {
  return emitter.position(static_cast<std::uint16_t>(1u << axis.value));
}

Example<Iota> Iota::example() { return {{}, {.axis = {0}, .shape = {kSizes}}, DType::i64}; }

}  // namespace fermata::ops
