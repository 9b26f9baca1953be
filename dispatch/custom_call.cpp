// Custom operators as steps of a plan: their kernels take and return tensors, while steps have views and a buffer.
#include "dispatch/custom_call.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "dispatch/call.h"
#include "dispatch/call_context.h"
#include "dispatch/kernel_cache.h"
#include "dispatch/kernel_table.h"
#include "dispatch/meta.h"
#include "dispatch/table.h"
#include "dispatch/tuple_results.h"
#include "ir/error.h"
#include "ir/per_thread.h"
#include "runtime/backend_memory.h"
#include "runtime/effects.h"

namespace fermata {
namespace {

/// An argument: a tensor that owns what it looks at for as long as a kernel keeps it.
Tensor argument(const TensorView& v, BackendKey backend) {
  const Shape sizes(std::span(v.sizes, v.rank)), strides(std::span(v.strides, v.rank));
  const DispatchKeySet keys = DispatchKeySet(backend) | Functionality::dense;
  if (v.buffer == nullptr) {  // a place in memory that somebody else uses again: the kernel gets a copy
    StoragePtr own(allocate_on(backend, static_cast<std::size_t>(v.element_count()) * byte_size(v.dtype)));
    const Shape dense = dense_strides(sizes);
    const TensorView out{own->data, v.dtype, v.rank, v.sizes, dense.data()};
    const CallArgs copy{Op::copy, {&v, 1}, {&out, 1}, {}, {}};
    run_call(operator_entry(Op::copy), backend, v.dtype, copy, {});
    return Tensor(make_leaf({v.dtype, sizes}, own.release(), backend, Node::kTensor), keys);
  }
  v.buffer->retain();
  const std::int64_t offset = (static_cast<std::byte*>(v.data) - static_cast<std::byte*>(v.buffer->data)) /
                              static_cast<std::int64_t>(byte_size(v.dtype));
  Node* const leaf = offset == 0 && is_dense(sizes, strides)
                         ? make_leaf({v.dtype, sizes}, v.buffer, backend, Node::kTensor)
                         : make_strided_leaf({v.dtype, sizes}, strides, offset, v.buffer, backend, Node::kTensor);
  return Tensor(leaf, keys);
}

/// An argument that the kernel writes gets elements of its own.
void separate(const Tensor& t, std::source_location where) {
  Node& n = *t.node();
  StoragePtr own(allocate_on(n.backend, static_cast<std::size_t>(element_count(n.sizes())) * byte_size(n.dtype)));
  Shape strides;
  const Shape dense = dense_strides(n.sizes());
  const TensorView from = view_of(n, strides), to{own->data, n.dtype, n.rank, n.sizes().data(), dense.data()};
  const CallArgs copy{Op::copy, {&from, 1}, {&to, 1}, {}, {}, where};
  run_call(operator_entry(Op::copy), n.backend, n.dtype, copy, where);
  t.set_node(make_leaf(n.type(), own.release(), n.backend, Node::kTensor));
}

void check_type(const Node& result, const TensorView& out, const Call& call) {
  if (result.dtype == out.dtype && std::ranges::equal(result.sizes(), std::span(out.sizes, out.rank))) return;
  throw UnsupportedError(2008,
                         format_error(2008, "UnsupportedError",
                                      std::string(call.entry.name) + ": the result does not match the Meta kernel",
                                      {{"result", to_string(result.dtype, result.sizes()), ""},
                                       {"Meta", to_string(out.dtype, std::span(out.sizes, out.rank)), ""}},
                                      call.where));
}

/// Whether nothing can write to the buffer of a result: it is no operand's, and no address in it that was returned is
/// kept.
bool may_be_taken(const Tensor& result, const Storage& buffer, const CallArgs& args) {
  const auto is_operand = [&](const TensorView& v) { return v.buffer == &buffer; };
  return !buffer.has_no_buffer() && std::ranges::none_of(args.inputs, is_operand) &&
         (result.impl()->pinned == nullptr ||
          (result.impl()->refs.load() == 1 && result.node()->refs.load() == Node::kTensor));
}

/// A result, where the step wants it: its buffer where that may be taken, or else its elements.
void deliver(const Tensor& result, const CallArgs& args, const Call& call) {
  Node* node = result.node();
  const TensorView& out = args.outputs[0];
  check_type(*node, out, call);
  if (node->pending()) tensor_hooks.materialize(node, "a custom kernel returns a pending tensor", call.where);
  Storage* const buffer = node->storage.load(std::memory_order_acquire);
  if (args.result != nullptr && node->is_dense_leaf() && may_be_taken(result, *buffer, args)) {
    buffer->retain();
    args.result->reset(buffer);
    return;
  }
  TensorView to = out;
  if (args.result != nullptr) {
    args.result->reset(
        allocate_on(node->backend, static_cast<std::size_t>(out.element_count()) * byte_size(out.dtype)));
    to.data = (*args.result)->data;
  }
  Shape strides;
  const TensorView from = view_of(*node, strides);
  const CallArgs copy{Op::copy, {&from, 1}, {&to, 1}, {}, {}, call.where};
  run_call(operator_entry(Op::copy), node->backend, out.dtype, copy, call.where);
}

/// The context of a call that was not recorded by a thread: one of text.
CallContext plain_context(const OperatorEntry& entry, BackendKey backend) {
  return {entry.kernels[cell_of(Functionality::dense, backend)].load(std::memory_order_acquire),
          {kDefaultKeys, Functionality::autograd},
          0};
}

/// Several results, one after another in the buffer of the node.
void deliver_packed(std::span<const Tensor> results, const CallArgs& args, const Call& call) {
  std::vector<TensorType> operands;
  for (const TensorView& v : args.inputs) operands.push_back({v.dtype, Shape(std::span(v.sizes, v.rank))});
  const std::vector<TensorType> types = result_types(call.entry, operands, args.attributes, call.where);
  const TupleLayout layout = tuple_layout(types);
  TensorView packed = args.outputs[0];
  if (types.size() != results.size() || layout.bytes != packed.element_count())
    throw_internal("the results of a recorded call are not those of its schema", call.where);
  const BackendKey backend = call.keys.backend();
  if (args.result != nullptr) {
    args.result->reset(allocate_on(backend, static_cast<std::size_t>(layout.bytes)));
    packed.data = (*args.result)->data;
  }
  for (std::size_t i = 0; i < results.size(); ++i) {
    const Shape dense = dense_strides(types[i].shape);
    const TensorView out{static_cast<std::byte*>(packed.data) + layout.offsets[i], types[i].dtype,
                         static_cast<std::uint8_t>(types[i].shape.rank()), types[i].shape.data(), dense.data()};
    CallArgs one = args;
    one.outputs = {&out, 1}, one.result = nullptr;
    deliver(results[i], one, call);
  }
}

/// What a recorded call gives: see result_types().
std::vector<Tensor> results_of(const Schema* schema, std::vector<Tensor> written, const Stack& stack) {
  if (schema == nullptr) return {stack.at(0).as<Tensor>()};
  for (const std::size_t i : new_results(*schema)) written.push_back(stack.at(i).as<Tensor>());
  return written;
}

/// Calls of kernels inside of a plan: a kernel may record and compute whatever it likes.
template <BackendKey B> void run_external(const CallArgs& args) {
  const OperatorEntry &own = operator_entry(args.op), &entry = own.target != nullptr ? *own.target : own;
  const CallContext context = args.context != 0 ? context_of(args.context) : plain_context(entry, B);
  const DispatchKeySet keys = DispatchKeySet(B) | Functionality::dense;
  if (context.kernel == nullptr) throw_missing_kernel({entry, keys, args.where});
  std::vector<Tensor> tensors;
  for (const TensorView& v : args.inputs) tensors.push_back(argument(v, B));
  Stack stack = decode_arguments(args.attributes, tensors);
  tensors.clear();
  const Schema* const schema = entry.schema.load(std::memory_order_acquire);
  std::vector<Tensor> written = written_tensors(schema, stack);
  for (const Tensor& t : written) separate(t, args.where);
  const ContextScope scope(context);
  const EffectScope effects;
  const Call call{entry, keys, args.where};
  const bool has_stream = context.kernel->inner != nullptr && args.scalars.size() >= 2;
  {
    const std::optional<StreamScope> stream(
        has_stream ? std::optional<StreamScope>(std::in_place, DrawStream{args.scalars[0], args.scalars[1]})
                   : std::nullopt);
    run_kernel(has_stream ? *context.kernel->inner : *context.kernel, call, stack);
  }
  run_effects(args.where);
  const std::vector<Tensor> results = results_of(schema, std::move(written), stack);
  if (results.size() == 1) return deliver(results[0], args, call);
  deliver_packed(results, args, call);
}

constexpr auto kRunExternal = []<std::size_t... B>(std::index_sequence<B...>) {
  return std::array<CallKernel, sizeof...(B)>{&run_external<static_cast<BackendKey>(B)>...};
}
(std::make_index_sequence<kBackendCount>{});

/// Operands that were host numbers: their elements are slots of the call's scalars, and in host memory on every device.
bool is_host_number(const TensorView& v, const CallArgs& args) {
  const auto* slot = static_cast<const std::uint64_t*>(v.data);
  return std::ranges::any_of(args.scalars, [slot](const std::uint64_t& s) { return &s == slot; });
}

/// The result of the op over its operands as they are loaded.
ValueId op_result(ScalarProgram& program, const CallArgs& args, std::vector<ValueId> operands) {
  const DType out = args.outputs[0].dtype;
  const auto convert = [&](ValueId v, DType to) {
    return program[v].type == to ? v : program.add({.prim = Prim::convert, .type = to, .a = v});
  };
  if (!is_pointwise(args.op)) return convert(operands[0], out);  // a cast or a copy
  const DType operand = args.inputs.back().dtype;
  const DType compute = compute_dtype(apply_rule(info(args.op).rule, operand)->operand);
  const Formula& formula = pointwise_formula(args.op, compute);
  for (std::size_t i = 0; i < operands.size(); ++i)
    operands[i] = convert(operands[i], program[operands[i]].type == DType::boolean ? DType::boolean : compute);
  return convert(program.inline_program(formula.program, operands, formula.results)[0], out);
}

/// The description of one op over operands that are broadcast already.
Kernel one_op_kernel(const CallArgs& args) {
  Kernel k;
  const TensorView& out = args.outputs[0];
  k.rank = std::max<std::uint8_t>(out.rank, 1);
  const auto all = static_cast<std::uint16_t>((1u << k.rank) - 1u);
  std::vector<ValueId> operands;
  for (const TensorView& in : args.inputs) {
    if (is_host_number(in, args)) {
      k.scalars.push_back(in.dtype);
      operands.push_back(k.program.add(
          {.prim = Prim::scalar, .type = in.dtype, .index = static_cast<std::uint16_t>(k.scalars.size() - 1)}));
      continue;
    }
    k.accesses.push_back({in.dtype, all, false, false});
    operands.push_back(k.program.add(
        {.prim = Prim::input, .type = in.dtype, .index = static_cast<std::uint16_t>(k.accesses.size() - 1)}));
  }
  const ValueId result = op_result(k.program, args, std::move(operands));
  k.accesses.push_back({out.dtype, all, false, false});
  k.stores.push_back({static_cast<std::uint16_t>(k.accesses.size() - 1), result});
  return k;
}

/// All that the description of one op is made from.
struct OneOp {
  OneOp() = default;
  OneOp(const Backend* of, const CallArgs& args)
      : device(of),
        op(args.op),
        generation(op_generation(args.op)),
        clears(kernel_cache_clears.load(std::memory_order_relaxed)),
        result(args.outputs[0].dtype),
        rank(args.outputs[0].rank) {
    for (const TensorView& in : args.inputs)
      operands[count] = in.dtype, is_number[count] = is_host_number(in, args), ++count;
  }
  bool operator==(const OneOp&) const = default;
  const Backend* device = nullptr;
  Op op{};
  std::uint32_t generation = 0, clears = 0;
  DType result{};
  std::uint8_t rank = 0, count = 0;
  std::array<DType, 3> operands{};
  std::array<bool, 3> is_number{};
};

/// What this thread has run lately. Writing the description of a long formula and finding what was compiled for it
/// takes 100 us and more, which is far more than a small call.
struct RecentKernels {
  std::shared_ptr<const Executable> find(const OneOp& key) const {
    for (const auto& [known, executable] : entries)
      if (executable != nullptr && known == key) return executable;
    return nullptr;
  }
  void add(const OneOp& key, std::shared_ptr<const Executable> executable) {
    entries[next] = {key, std::move(executable)};
    next = (next + 1) % entries.size();
  }
  std::array<std::pair<OneOp, std::shared_ptr<const Executable>>, 16> entries;
  std::size_t next = 0;
};
RecentKernels& recent_kernels() {
  static constinit thread_local PerThread<RecentKernels> mine;
  return mine.get();
}

template <BackendKey B> void run_formula(const CallArgs& args) {
  const TensorView& out = args.outputs[0];
  std::vector<void*> pointers;
  std::vector<std::int64_t> sizes(out.sizes, out.sizes + out.rank), strides, offsets;
  if (sizes.empty()) sizes.push_back(1);
  const auto add = [&](const TensorView& v) {
    pointers.push_back(v.data), offsets.push_back(0);
    if (v.rank == 0)
      strides.push_back(0);
    else
      strides.insert(strides.end(), v.strides, v.strides + v.rank);
  };
  std::vector<std::uint64_t> scalars;
  for (const TensorView& v : args.inputs)
    if (is_host_number(v, args))
      scalars.push_back(*static_cast<const std::uint64_t*>(v.data));
    else
      add(v);
  add(out);
  std::int64_t rows = 1;
  for (std::size_t i = 0; i + 1 < sizes.size(); ++i) rows *= sizes[i];
  const KernelLaunch launch{.pointers = pointers.data(),
                            .sizes = sizes.data(),
                            .strides = strides.data(),
                            .offsets = offsets.data(),
                            .scalars = scalars.data(),
                            .row_begin = 0,
                            .row_end = rows,
                            .column_begin = 0,
                            .column_end = sizes.back()};
  const Backend* device = backend(B);
  if (device != nullptr && device->can_compile(nullptr)) {
    const OneOp key(device, args);
    std::shared_ptr<const Executable> executable = recent_kernels().find(key);
    try {
      if (executable == nullptr) {
        executable = compile_cached(B, one_op_kernel(args));
        recent_kernels().add(key, executable);
      }
      return executable->launch(launch);
    } catch (const Error&) {  // interpreted instead, where the elements can be reached
      if (B != BackendKey::cpu) throw;
    }
  }
  interpret(one_op_kernel(args), launch);
}

constexpr auto kRunFormula = []<std::size_t... B>(std::index_sequence<B...>) {
  return std::array<CallKernel, sizeof...(B)>{&run_formula<static_cast<BackendKey>(B)>...};
}
(std::make_index_sequence<kBackendCount>{});

DTypeSet every_dtype() {
  DTypeSet all;
  for (std::size_t t = 0; t < kDTypeCount; ++t) all = all | static_cast<DType>(t);
  return all;
}
/// The dtypes that a pointwise op computes in.
DTypeSet operand_dtypes(DTypeRule rule) {
  DTypeSet set;
  for (std::size_t t = 0; t < kDTypeCount; ++t)
    if (const auto accepted = apply_rule(rule, static_cast<DType>(t))) set = set | accepted->operand;
  return set;
}

}  // namespace

CallKernel one_op_call(BackendKey backend) { return kRunFormula[static_cast<std::size_t>(backend)]; }

std::vector<KernelVariant> external_variants(const OperatorEntry& entry, BackendKey backend,
                                             std::source_location where) {
  const auto b = static_cast<std::size_t>(backend);
  if (family(entry.op) == Family::external)
    return {{.name = "kernel", .dtypes = every_dtype(), .call = kRunExternal[b], .is_boxed = true, .where = where}};
  const DTypeSet dtypes = operand_dtypes(info(entry.op).rule);
  return {{.name = "formula", .form = KernelForm::emit, .dtypes = dtypes, .where = where},
          {.name = "one_op", .dtypes = dtypes, .call = kRunFormula[b], .where = where}};
}

}  // namespace fermata
