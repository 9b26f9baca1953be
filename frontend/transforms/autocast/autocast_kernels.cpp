// The kernels of the Autocast key: cast the operands as the op's policy says, then run the call below.
//
// The key is excluded for the rest of the call, so a composite is cast as a whole and its parts compute in what they
// are given. Casts go through the table like any call: they are differentiated, recorded and fused.
#include <algorithm>

#include "dispatch/kernel_table.h"
#include "frontend/ops/calls.h"
#include "frontend/transforms/autocast/autocast.h"

namespace fermata {
namespace {

class WithoutAutocast : KeyGuard {
 public:
  WithoutAutocast() : KeyGuard({}, Functionality::autocast) {}
};

/// The dtype that a policy wants f32, f16 and bf16 operands in.
DType wanted_by(AutocastPolicy policy, BackendKey backend) {
  return policy == AutocastPolicy::lower ? autocast_dtype(backend) : DType::f32;
}

Tensor cast_pointwise(const Operand& o, DType dtype, Location where) {
  return is_defined_tensor(o) ? cached_cast(o.tensor(), dtype, where) : Tensor();
}

template <class... Operands> Tensor autocast_pointwise(const Call& call, const Operands&... operands) {
  const WithoutAutocast below;
  const DType dtype = wanted_by(autocast_policy(call.entry.op), call.keys.backend());
  const auto run = [&](const auto&... cast) {  // handles of what the operands refer to
    const auto pick = [](const Tensor& t, const Operand& o) { return t.defined() ? Operand(t, o.where()) : o; };
    return Dispatcher<Tensor(const Operands&...)>::redispatch(call, Functionality::autocast, pick(cast, operands)...);
  };
  return run(cast_pointwise(operands, dtype, call.where)...);
}

Tensor autocast_unary(const Call& call, const Operand& a) { return autocast_pointwise(call, a); }
Tensor autocast_binary(const Call& call, const Operand& a, const Operand& b) { return autocast_pointwise(call, a, b); }
Tensor autocast_ternary(const Call& call, const Operand& a, const Operand& b, const Operand& c) {
  return autocast_pointwise(call, a, b, c);
}

Tensor autocast_general(const Call& call, std::span<const Tensor> tensors, const Attributes& attributes) {
  const WithoutAutocast below;
  const AutocastPolicy policy = autocast_policy(call.entry.op);
  const DType dtype = wanted_by(policy, call.keys.backend());
  // Beside f64 nothing is narrowed: promotion is going to widen it all.
  if (policy == AutocastPolicy::lower &&
      std::ranges::any_of(tensors, [](const Tensor& t) { return t.dtype() == DType::f64; }))
    return Dispatcher<GeneralCall>::redispatch(call, Functionality::autocast, tensors, attributes);
  std::vector<Tensor> cast;
  cast.reserve(tensors.size());
  for (const Tensor& t : tensors) cast.push_back(cached_cast(t, dtype, call.where));
  return Dispatcher<GeneralCall>::redispatch(call, Functionality::autocast, cast, attributes);
}

void set_autocast(Op op) {
  const RegistrationKey key = RegistrationKey::everywhere(Functionality::autocast);
  switch (family(op)) {
    case Family::unary: return set_kernel<UnaryCall>(op, key, &autocast_unary);
    case Family::binary: return set_kernel<BinaryCall>(op, key, &autocast_binary);
    case Family::ternary: return set_kernel<TernaryCall>(op, key, &autocast_ternary);
    default: return set_kernel<GeneralCall>(op, key, &autocast_general);
  }
}

bool casts(AutocastPolicy policy) { return policy == AutocastPolicy::lower || policy == AutocastPolicy::f32; }

}  // namespace

void register_autocast_kernels() {
  // The others pass the key over: they have no kernel for it.
  for (std::size_t i = 0; i < kOpCount; ++i)
    if (const Op op = static_cast<Op>(i); casts(autocast_policy(op))) set_autocast(op);
}

Tensor autocast_operand(Op op, const Tensor& x, Location where) {
  const AutocastPolicy policy = autocast_policy(op);
  if (!autocast_enabled() || !casts(policy)) return x;
  const WithoutAutocast below;
  return cached_cast(x, wanted_by(policy, x.keys().backend()), where);
}

}  // namespace fermata
