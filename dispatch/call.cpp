// See call.h.
#include "dispatch/call.h"

#include <algorithm>

#include "dispatch/devices.h"
#include "dispatch/op_call.h"
#include "dispatch/pointwise.h"
#include "dispatch/result_check.h"
#include "dispatch/update_in_place.h"
#include "ir/op_traits.h"
#include "ir/ops/moves.h"
#include "ir/view.h"
#include "runtime/backend_memory.h"
#include "runtime/distributed_value.h"
#include "runtime/few.h"

namespace fermata {

std::atomic<CheckResult> check_result{nullptr};
constinit DistributedCalls distributed_calls;

namespace {

/// Up to this many elements a pointwise op on dense operands goes straight to its inner loop: one thread is enough.
constexpr std::int64_t kInnerLoopLimit = 16384;

void ensure_value(Node* n, const Call& call) {
  if (n != nullptr && n->pending()) [[unlikely]]
    tensor_hooks.materialize(n, "an eager call reads a pending tensor", call.where);
}

bool is_distributed(const Node& n) {
  const Storage& storage = *n.storage.load(std::memory_order_acquire);
  return storage.data == nullptr && distributed_value(storage) != nullptr;
}

Node* pointwise_leaf(PointwiseOperands& p, StoragePtr storage) {
  void* const block = allocate_node();  // the last thing that may throw
  return ::new (block) Node{.refs{Node::kTensor},
                            .storage{storage.release()},
                            .op = Op::input,
                            .dtype = p.result,
                            .rank = p.rank,
                            .arity = 0,
                            .backend = p.backend,
                            .inline_sizes = p.sizes,
                            .where = {},
                            .inputs = {nullptr, nullptr, nullptr},
                            .scalar = 0,
                            .extra = std::exchange(p.extra, nullptr),
                            .hash = static_cast<std::uint32_t>(p.result),
                            .hint{0},
                            .depth{0},
                            .tape{0},
                            .stretched = {0, 0, 0}};  // without gaps: else g++ clears it all first
}

/// Dense operands of the result's shape, or single elements: one inner loop does it.
bool run_inner_loop(const Call& call, const PointwiseOperands& p, const BackendCell& cell, std::int64_t n, void* out) {
  const InnerLoop loop = cell.inner[static_cast<std::size_t>(p.operand)];
  if (loop == nullptr || n > kInnerLoopLimit) return false;
  const void* in[3];
  bool splat[3];
  for (unsigned k = 0; k < p.count; ++k) {
    const Node* node = p.nodes[k];
    if (node == nullptr) {
      in[k] = &p.scalar, splat[k] = true;
      continue;
    }
    if (!node->is_dense_leaf()) return false;
    splat[k] = p.stretched[k] != 0;
    if (splat[k] && element_count(node->sizes()) != 1) return false;
    in[k] = node->storage.load(std::memory_order_relaxed)->data;
  }
  // A half-width scalar is kept in f32; the inner loops of half dtypes expect their own.
  if (compute_dtype(p.operand) != p.operand && p.count > 1)
    for (unsigned k = 0; k < p.count; ++k)
      if (p.nodes[k] == nullptr) return false;
  static_cast<void>(call);
  loop(out, in, splat, n);
  return true;
}

void run_pointwise(const Call& call, const PointwiseOperands& p, void* out) {
  Shape strides[3];
  std::array<TensorView, 3> inputs;
  const std::span<const std::int64_t> shape = p.shape();
  for (unsigned k = 0; k < p.count; ++k) {
    if (p.nodes[k] == nullptr) {
      for (std::size_t i = 0; i < shape.size(); ++i) strides[k].push_back(0);
      inputs[k] = {const_cast<std::uint64_t*>(&p.scalar), scalar_dtype(p.operand), p.rank, shape.data(),
                   strides[k].data()};
      continue;
    }
    inputs[k] = view_of(*p.nodes[k], strides[k]);
    Shape full;
    const std::size_t lead = shape.size() - p.nodes[k]->rank;
    for (std::size_t i = 0; i < shape.size(); ++i)
      full.push_back(i < lead || (p.stretched[k] >> i & 1) != 0 ? 0 : inputs[k].strides[i - lead]);
    strides[k] = full;
    inputs[k].rank = p.rank, inputs[k].sizes = shape.data(), inputs[k].strides = strides[k].data();
  }
  const Shape dense = dense_strides(shape);
  const TensorView output{out, p.result, p.rank, shape.data(), dense.data()};
  const CallArgs args{call.entry.op, {inputs.data(), p.count}, {&output, 1}, {}, {&p.scalar, 1}, call.where};
  run_call(call.entry, p.backend, p.operand, args, call.where);
}

void show_pointwise(CheckResult check, const Call& call, PointwiseOperands& p, void* out) {
  if (p.backend != BackendKey::cpu) return;
  std::array<Shape, 3> strides;
  std::array<TensorView, 3> operands;
  for (unsigned k = 0; k < p.count; ++k)
    operands[k] = p.nodes[k] != nullptr ? view_of(*p.nodes[k], strides[k])
                                        : TensorView{&p.scalar, scalar_dtype(p.operand), 0, nullptr, nullptr};
  const Shape dense = dense_strides(p.shape());
  check(call.entry.op, std::span(operands).first(p.count), {out, p.result, p.rank, p.shape().data(), dense.data()},
        call.where);
}

Tensor run_promoted(const Call& call, PointwiseOperands& p) {
  promote_and_broadcast(call, p);
  for (unsigned k = 0; k < p.count; ++k) {
    ensure_value(p.nodes[k], call);
    if (p.nodes[k] != nullptr && is_distributed(*p.nodes[k])) [[unlikely]]
      return distributed_calls.pointwise(call, std::span(p.operands).first(p.count));
    if (p.nodes[k] == nullptr || p.nodes[k]->backend == p.backend) [[likely]]
      continue;
    p.held[k] = element_on(p.backend, *p.nodes[k]);
    p.nodes[k] = p.held[k].node();
  }
  const std::int64_t n = element_count(p.shape());
  StoragePtr out(allocate_on(p.backend, static_cast<std::size_t>(n) * byte_size(p.result)));
  const BackendCell* cell = call.entry.backends[static_cast<std::size_t>(p.backend)].load(std::memory_order_acquire);
  if (cell == nullptr || !run_inner_loop(call, p, *cell, n, out->data)) run_pointwise(call, p, out->data);
  if (const CheckResult check = check_result.load(std::memory_order_relaxed)) [[unlikely]]
    show_pointwise(check, call, p, out->data);
  return Tensor(pointwise_leaf(p, std::move(out)), data_keys(call.keys, p.backend));
}

Tensor call_unary(const Call& call, const Operand& a) {
  PointwiseOperands p(a);
  return run_promoted(call, p);
}
Tensor call_binary(const Call& call, const Operand& a, const Operand& b) {
  PointwiseOperands p(a, b);
  return run_promoted(call, p);
}
Tensor call_ternary(const Call& call, const Operand& a, const Operand& b, const Operand& c) {
  PointwiseOperands p(a, b, c);
  return run_promoted(call, p);
}

Tensor call_general(const Call& call, std::span<const Tensor> tensors, const Attributes& attributes) {
  const Op op = call.entry.op;
  Few<TensorType> types(tensors.size());
  for (std::size_t i = 0; i < tensors.size(); ++i) types[i] = tensors[i].node()->type();
  const TensorType type = result_type(call, types, attributes);
  const BackendKey backend = common_backend(call, tensors);
  for (const Tensor& t : tensors) ensure_value(t.node(), call);
  if (std::ranges::any_of(tensors, [](const Tensor& t) { return is_distributed(*t.node()); })) [[unlikely]]
    return distributed_calls.general(call, tensors, attributes);
  const DispatchKeySet keys = data_keys(call.keys, backend);
  if (is_view(op))
    if (Node* view = view_of_leaf(op, *tensors[0].node(), type, attributes.integers)) return Tensor(view, keys);
  Few<Shape> strides(tensors.size());
  Few<TensorView> inputs(tensors.size());
  std::vector<StoragePtr> staged;
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    const Node& n = *tensors[i].node();
    inputs[i] = view_of(n, strides[i]);
    if (n.backend == backend) [[likely]]
      continue;
    leaf_buffer(n, *n.storage.load(std::memory_order_acquire), backend, staged);
    inputs[i].data = staged.back()->data, inputs[i].buffer = nullptr;
  }
  // A reshape that is not a view is a copy in row-major order.
  const Op run = op == Op::reshape ? Op::copy : op;
  const Shape sizes = run == op ? type.shape : types[0].shape;
  const Shape dense = dense_strides(sizes);
  StoragePtr out(allocate_on(backend, static_cast<std::size_t>(element_count(type.shape)) * byte_size(type.dtype)));
  const TensorView output{out->data, type.dtype, static_cast<std::uint8_t>(sizes.rank()), sizes.data(), dense.data()};
  CallArgs args{run, inputs, {&output, 1}, attributes.integers, attributes.scalars, call.where};
  args.subgraphs = attributes.subgraphs;
  const DType operand = tensors.empty() ? type.dtype : types[0].dtype;
  run_call(operator_entry(run), backend, operand, args, call.where);
  if (const CheckResult check = check_result.load(std::memory_order_relaxed);
      check != nullptr && backend == BackendKey::cpu) [[unlikely]]
    check(op, inputs, output, call.where);
  return Tensor(make_leaf(type, out.release(), backend, Node::kTensor), keys);
}

}  // namespace

InnerLoop inner_loop(Op op, BackendKey backend, DType operand, std::int64_t elements) {
  if (elements > kInnerLoopLimit) return nullptr;
  const BackendCell* cell = backend_cell(op, backend);
  return cell == nullptr ? nullptr : cell->inner[static_cast<std::size_t>(operand)];
}

TensorView view_of(const Node& node, Shape& strides) {
  Storage* const storage = node.storage.load(std::memory_order_acquire);
  std::int64_t offset = 0;
  if (node.is_dense_leaf())
    strides = dense_strides(node.sizes());
  else
    strides = node.extra->strides, offset = node.extra->offset;
  return {static_cast<std::byte*>(storage->data) + offset * static_cast<std::int64_t>(byte_size(node.dtype)),
          node.dtype,
          node.rank,
          node.sizes().data(),
          strides.data(),
          storage};
}

Node* view_of_leaf(Op op, const Node& x, const TensorType& type, std::span<const std::int64_t> attributes) {
  Storage* storage = x.storage.load(std::memory_order_acquire);
  if (storage == nullptr || distributed_value(*storage) != nullptr) return nullptr;
  Shape strides = x.is_dense_leaf() ? dense_strides(x.sizes()) : x.extra->strides;
  std::int64_t offset = x.is_dense_leaf() ? 0 : x.extra->offset;
  Shape sizes(x.sizes());
  if (!apply_view(op, attributes, type.shape, sizes, strides, offset)) return nullptr;
  storage->retain();
  return make_strided_leaf(type, strides, offset, storage, x.backend, Node::kTensor);
}

ChosenKernel select_step(const CallStep& step, const CallArgs& args) {
  return select_call(operator_entry(step.op), step.backend, step.operand_dtype, args, step.where);
}

namespace {

/// Whether a call would run call_general() on the CPU, unwatched.
bool runs_general_kernel(Op op, DispatchKeySet operands) {
  if (watch_calls.load(std::memory_order_relaxed) || check_result.load(std::memory_order_relaxed) != nullptr)
    return false;
  const OperatorEntry& entry = operator_entry(op);
  DispatchKeySet keys = (operands | thread_keys.included) - thread_keys.excluded;
  keys = keys & DispatchKeySet(entry.not_fallthrough[keys.column()].load(std::memory_order_relaxed));
  return keys.backend() == BackendKey::cpu &&
         entry.cells[keys.cell()].load(std::memory_order_acquire) == reinterpret_cast<ErasedKernel>(&call_general);
}

/// Whether only one tensor, which need not be this handle of it, refers to the buffer.
bool is_only_reader(const Tensor& x) {
  const TensorImpl& impl = *x.impl();
  if (impl.view != nullptr || impl.slot != nullptr || impl.pinned != nullptr || impl.payload != nullptr) return false;
  const Node& n = *impl.value;
  if (n.refs.load(std::memory_order_acquire) != Node::kTensor || n.pending() || !n.is_dense_leaf()) return false;
  const Storage& storage = *n.storage.load(std::memory_order_acquire);
  return storage.unique() && storage.is_own() && storage.data != nullptr;
}

}  // namespace

bool update_in_place(const Tensor& target, const Tensor& values, std::int64_t offset,
                     std::span<const std::int64_t> strides, std::source_location where) {
  const Node *const to = target.node(), *const from = values.node();
  if (!runs_general_kernel(Op::update, target.keys() | values.keys()) || !is_only_reader(target) || from->pending() ||
      from->backend != BackendKey::cpu || to->backend != BackendKey::cpu || is_distributed(*from))
    return false;
  const TensorType types[] = {to->type(), from->type()};
  const EncodedAttributes attributes(ops::Update{.offset = {offset}, .strides = {{strides.begin(), strides.end()}}});
  const std::span<const std::int64_t> integers = static_cast<const Attributes&>(attributes).integers;
  infer(Op::update, types, integers, types[0], where);
  Shape own_strides, value_strides;
  to->storage.load(std::memory_order_acquire)->forget_packed();
  const TensorView inputs[] = {view_of(*to, own_strides), view_of(*from, value_strides)};
  const CallArgs args{Op::update, inputs, {inputs, 1}, integers, {}, where};
  run_call(operator_entry(Op::update), BackendKey::cpu, to->dtype, args, where);
  return true;
}

void register_call_kernels(BackendKey backend) {
  set_family_kernels(RegistrationKey::cell(Functionality::dense, backend),
                     {&call_unary, &call_binary, &call_ternary, &call_general});
}

}  // namespace fermata
