// The opt-in fallback of a device: an op that it has no kernel for runs on the CPU, with its operands copied there and
// the result copied back. See emit.h.
#include <algorithm>
#include <array>
#include <cstring>

#include "dispatch/emit.h"
#include "ir/ops/reduce.h"
#include "runtime/backend_memory.h"
#include "runtime/call_attributes.h"
#include "runtime/stats.h"

namespace fermata {
namespace {

/// The elements between the first and the last that a view reaches, on the host.
class HostCopy {
 public:
  HostCopy(BackendKey from, const TensorView& v) : view_(v) {
    if (v.element_count() == 0) return;
    std::int64_t lowest = 0, highest = 0;
    for (unsigned i = 0; i < v.rank; ++i) {
      const std::int64_t reach = (v.sizes[i] - 1) * v.strides[i];
      (reach < 0 ? lowest : highest) += reach;
    }
    const auto size = static_cast<std::int64_t>(byte_size(v.dtype));
    const auto bytes = static_cast<std::size_t>((highest - lowest + 1) * size);
    storage_.reset(Storage::allocate(bytes));
    backend(from)->copy_to_host(storage_->data, static_cast<const std::byte*>(v.data) + lowest * size, bytes);
    view_.data = static_cast<std::byte*>(storage_->data) - lowest * size, view_.buffer = nullptr;
  }
  const TensorView& view() const { return view_; }

 private:
  StoragePtr storage_;
  TensorView view_;
};

bool is_host_scalar(const TensorView& v, const CallArgs& args) {
  const auto* slot = static_cast<const std::uint64_t*>(v.data);
  return std::ranges::any_of(args.scalars, [slot](const std::uint64_t& s) { return &s == slot; });
}

/// What a kernel is chosen by, as for a node of a graph (ir/graph.h).
DType operand_dtype(const CallArgs& args) {
  const DType result = args.outputs[0].dtype;
  if (info(args.op).rule == DTypeRule::choose) return result;
  const auto tensor = std::ranges::find_if(args.inputs, [&](const TensorView& v) { return !is_host_scalar(v, args); });
  if (tensor == args.inputs.end()) return result;
  const auto rule = apply_rule(info(args.op).rule, tensor->dtype);
  return rule && !(family(args.op) == Family::reduce && is_complex(tensor->dtype)) ? rule->operand : tensor->dtype;
}

template <BackendKey B> void run_on_cpu(const CallArgs& args) {
  std::vector<HostCopy> copies;
  copies.reserve(args.inputs.size());
  std::vector<TensorView> inputs;
  for (const TensorView& v : args.inputs)
    inputs.push_back(is_host_scalar(v, args) ? v : copies.emplace_back(B, v).view());
  count_sync("CPU fallback for a device without a kernel");
  TensorView out = args.outputs[0];
  const auto bytes = static_cast<std::size_t>(out.element_count()) * byte_size(out.dtype);
  const StoragePtr result(Storage::allocate(bytes));
  out.data = result->data;
  CallArgs here = args;
  here.inputs = inputs, here.outputs = {&out, 1};
  run_call(operator_entry(args.op), BackendKey::cpu, operand_dtype(args), here, args.where);
  backend(B)->copy_from_host(args.outputs[0].data, out.data, bytes);
}

/// More than any kernel of the device's own.
double cost_on_cpu(const CallArgs&) { return 1e12; }

bool reduces_otherwise(const CallArgs& args) {
  return attributes_of<ops::Reduction>(args).axes.value == 0 || is_complex(args.inputs[0].dtype);
}

constexpr auto kRunOnCpu = []<std::size_t... B>(std::index_sequence<B...>) {
  return std::array<CallKernel, sizeof...(B)>{&run_on_cpu<static_cast<BackendKey>(B)>...};
}
(std::make_index_sequence<kBackendCount>{});

}  // namespace

void add_cpu_fallback(BackendKey backend, std::source_location where) {
  for (std::size_t i = 0; i < kOpCount; ++i) {
    const Op op = static_cast<Op>(i);
    const BackendCell *own = backend_cell(op, backend), *host = backend_cell(op, BackendKey::cpu);
    if (host == nullptr) continue;
    DTypeSet here, there;
    for (const KernelVariant& v : host->variants)
      if (v.call != nullptr) there = there | v.dtypes;
    if (own != nullptr)
      for (const KernelVariant& v : own->variants) here = here | v.dtypes;
    KernelVariant variant{.name = "on_cpu",
                          .dtypes = DTypeSet(there.bits & ~here.bits),
                          .call = kRunOnCpu[static_cast<std::size_t>(backend)],
                          .cost = &cost_on_cpu,
                          .where = where};
    // Kernel descriptions are of real numbers, and reduce at least one axis.
    if (op == Op::cast) variant.dtypes = there;
    if (family(op) == Family::reduce && here.bits != 0)
      variant.dtypes = there, variant.fits = &reduces_otherwise,
      variant.fits_text = "no axis to reduce, or complex numbers";
    if (variant.dtypes.bits != 0) add_variant(op, backend, std::move(variant));
  }
}

}  // namespace fermata
