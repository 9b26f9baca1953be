// The Meta backend: types without data. Its kernels infer the result types of calls. The table's ops share one kernel
// per signature; custom operators register their own, which give the types of their recorded calls.
#include "dispatch/meta.h"

#include "dispatch/call.h"
#include "dispatch/kernel_table.h"
#include "dispatch/pointwise.h"
#include "dispatch/table.h"
#include "dispatch/tuple_results.h"
#include "ir/error.h"

namespace fermata {
namespace {

constexpr DispatchKeySet kMetaKeys = DispatchKeySet(BackendKey::meta) | Functionality::dense;

Tensor meta_promoted(const Call& call, PointwiseOperands& p) {
  promote_and_broadcast(call, p);
  return meta_tensor({p.result, Shape(p.shape())});
}
Tensor meta_unary(const Call& call, const Operand& a) {
  PointwiseOperands p(a);
  return meta_promoted(call, p);
}
Tensor meta_binary(const Call& call, const Operand& a, const Operand& b) {
  PointwiseOperands p(a, b);
  return meta_promoted(call, p);
}
Tensor meta_ternary(const Call& call, const Operand& a, const Operand& b, const Operand& c) {
  PointwiseOperands p(a, b, c);
  return meta_promoted(call, p);
}
Tensor meta_general(const Call& call, std::span<const Tensor> tensors, const Attributes& attributes) {
  std::vector<TensorType> types;
  for (const Tensor& t : tensors) types.push_back({t.dtype(), t.shape()});
  return meta_tensor(result_type(call, types, attributes));
}

TensorType infer_by_meta(const OperatorEntry& entry, std::span<const TensorType> types,
                         std::span<const std::int64_t> arguments, std::source_location where) {
  const std::vector<TensorType> results = result_types(entry, types, arguments, where);
  return packed_type(results);
}

}  // namespace

Tensor meta_tensor(const TensorType& type) {
  return Tensor(make_leaf(type, Storage::nowhere(), BackendKey::meta, Node::kTensor), kMetaKeys);
}

std::vector<TensorType> result_types(const OperatorEntry& entry, std::span<const TensorType> operands,
                                     std::span<const std::int64_t> arguments, std::source_location where) {
  const OperatorEntry& kernels = entry.target != nullptr ? *entry.target : entry;
  const Schema* const schema = kernels.schema.load(std::memory_order_acquire);
  std::vector<Tensor> tensors;
  for (const TensorType& t : operands) tensors.push_back(meta_tensor(t));
  Stack stack = decode_arguments(arguments, tensors);
  check_stack(kernels, stack, where);
  std::vector<TensorType> types;
  const auto add = [&](const Tensor& t) { types.push_back({t.dtype(), t.shape()}); };
  for (const Tensor& t : written_tensors(schema, stack)) add(t);
  const std::vector<std::size_t> fresh = schema != nullptr ? new_results(*schema) : std::vector<std::size_t>{0};
  if (fresh.empty()) return types;
  const KeyGuard types_only({}, kDefaultKeys | Functionality::autograd);
  run_boxed_kernel({kernels, kMetaKeys, where}, stack);
  for (const std::size_t i : fresh) add(stack.at(i).as<Tensor>());
  return types;
}

std::function<TensorType(std::span<const TensorType>, std::span<const std::int64_t>, std::source_location)>
external_infer(const OperatorEntry& entry) {
  return [&entry](std::span<const TensorType> types, std::span<const std::int64_t> arguments,
                  std::source_location where) { return infer_by_meta(entry, types, arguments, where); };
}

void register_meta_kernels() {
  const FamilyKernels kernels{&meta_unary, &meta_binary, &meta_ternary, &meta_general};
  set_family_kernels(RegistrationKey::cell(Functionality::dense, BackendKey::meta), kernels);
  // Nothing is recorded: there is nothing to compute.
  set_family_kernels(RegistrationKey::cell(Functionality::capture, BackendKey::meta), kernels);
}

}  // namespace fermata
