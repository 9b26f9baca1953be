// Operators from outside as steps of a plan: their kernels take tensors and give tensors, steps have views and a buffer.
#include "dispatch/external_call.h"

#include <algorithm>
#include <cstring>

#include "dispatch/call.h"
#include "dispatch/kernel_cache.h"
#include "dispatch/kernel_table.h"
#include "dispatch/table.h"
#include "ir/error.h"

namespace fermata {
namespace {

/// A tensor that looks at the elements of a view while a call lasts.
Tensor borrowed(const TensorView& v, BackendKey backend) {
  const Shape sizes(std::span(v.sizes, v.rank)), strides(std::span(v.strides, v.rank));
  StoragePtr storage(Storage::adopt(
      v.data, 0, [](Storage*) {}, nullptr));
  Node* leaf = make_strided_leaf({v.dtype, sizes}, strides, 0, storage.get(), backend, Node::kTensor);
  static_cast<void>(storage.release());
  return Tensor(leaf, DispatchKeySet(backend) | Functionality::dense);
}

/// The elements of a result, where the step wants them.
void deliver(const Tensor& result, const TensorView& out, const Call& call) {
  Node* node = result.node();
  if (node->dtype != out.dtype || !std::ranges::equal(node->sizes(), std::span(out.sizes, out.rank)))
    throw UnsupportedError(2008,
                           format_error(2008, "UnsupportedError",
                                        std::string(call.entry.name) + ": the result is not what the Meta kernel said",
                                        {{"result", to_string(node->dtype, node->sizes()), ""},
                                         {"Meta", to_string(out.dtype, std::span(out.sizes, out.rank)), ""}},
                                        call.where));
  if (node->pending()) tensor_hooks.materialise(node, "a kernel from outside returns a pending tensor", call.where);
  Shape strides;
  const TensorView from = view_of(*node, strides);
  const CallArgs copy{Op::copy, {&from, 1}, {&out, 1}, {}, {}, call.where};
  select_call(operator_entry(Op::copy), node->backend, out.dtype, copy, call.where).call(copy);
}

template <BackendKey B> void run_external(const CallArgs& args) {
  const OperatorEntry& entry = operator_entry(args.op);
  std::vector<Tensor> tensors;
  for (const TensorView& v : args.inputs) tensors.push_back(borrowed(v, B));
  Stack stack = decode_arguments(args.attributes, tensors);
  // The step is a value: what its kernel calls runs now, and is part of no history.
  const KeyGuard plain({}, kDefaultKeys | Functionality::autograd);
  const Call call{entry, DispatchKeySet(B) | Functionality::dense, args.where};
  run_boxed_kernel(call, stack);
  deliver(stack.at(0).as<Tensor>(), args.outputs[0], call);
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

template <BackendKey B> void run_formula(const CallArgs& args) {
  const Kernel kernel = one_op_kernel(args);
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
    try {
      return compile_cached(B, kernel)->launch(launch);
    } catch (const Error&) {  // interpreted instead, where the elements can be reached
      if (B != BackendKey::cpu) throw;
    }
  }
  interpret(kernel, launch);
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
    return {{.name = "kernel", .dtypes = every_dtype(), .call = kRunExternal[b], .where = where}};
  const DTypeSet dtypes = operand_dtypes(info(entry.op).rule);
  return {{.name = "formula", .form = KernelForm::emit, .dtypes = dtypes, .where = where},
          {.name = "one_op", .dtypes = dtypes, .call = kRunFormula[b], .where = where}};
}

}  // namespace fermata
