// See fermata/device.h and fermata/backend.h. Moving is implemented like a custom operator, fermata::to: it is never
// part of a plan, and its derivative moves back.
#include "fermata/device.h"

#include <fmt/format.h>

#include <algorithm>

#include "dispatch/emit.h"
#include "dispatch/library.h"
#include "dispatch/meta.h"
#include "fermata/backend.h"
#include "fermata/library.h"
#include "fermata/views.h"
#include "frontend/engine/capture.h"
#include "frontend/engine/capture_scope.h"
#include "frontend/engine/control_step.h"
#include "frontend/engine/startup.h"
#include "frontend/layouts/quantized_weights.h"
#include "frontend/ops/calls.h"
#include "frontend/tensor/device_scope.h"
#include "frontend/tensor/host_elements.h"
#include "ir/error.h"
#include "ir/infer.h"
#include "runtime/backend_memory.h"

namespace fermata {
namespace {

/// The backend of a device that is not Meta.
Backend& backend_of(std::string_view function, BackendKey device, Location where) {
  if (Backend* known = backend(device)) {
    known->require(function, where);
    return *known;
  }
  throw DeviceError(1403, format_error(1403, "DeviceError",
                                       fmt::format("{}: no backend for {}", function,
                                                   kBackendNames[static_cast<std::size_t>(device)]),
                                       {}, where));
}

Tensor run_to(const Call& call, const Tensor& x, Device target) {
  if (device(x, call.where) == target) return x;
  if (target == BackendKey::meta) return meta_tensor(type_of(x));
  Backend& backend = backend_of("to", target.backend(), call.where);
  if (in_capture_scope())
    throw UserError(1701, format_error(1701, "UserError", "a tensor is moved inside a function that is being compiled",
                                       {}, call.where, "move it before, and pass it as an argument"));
  const HostElements elements(x, "to", call.where);
  const DeviceScope there("to", target, call.where);
  const std::size_t bytes = static_cast<std::size_t>(elements.count()) * byte_size(elements.dtype());
  StoragePtr storage(allocate_on(target.backend(), bytes));
  if (bytes != 0) backend.copy_from_host(storage->data, elements.data(), bytes);
  Node* leaf = make_leaf(type_of(x), storage.get(), target.backend(), Node::kTensor);
  static_cast<void>(storage.release());
  return Tensor(leaf, DispatchKeySet(target.backend()) | Functionality::dense);
}

Tensor filled(std::string_view function, const IntegerList& sizes, const Scalar& value, DType dtype, Device device,
              Location where) {
  check_shape(function, sizes, dtype, where);
  const std::uint64_t bits = checked_scalar_bits(function, value, dtype, where);
  if (device == BackendKey::meta) return meta_tensor({dtype, Shape(sizes)});
  backend_of(function, device.backend(), where);
  const Shape shape(sizes);
  const ops::Full full{.value = {bits}, .shape = {shape}, .dtype = {dtype}};
  const EncodedAttributes attributes(full, dtype, device.backend());
  return make_on(
      function, device, [&] { return general_call(Op::full, {}, attributes, where); }, where);
}

}  // namespace

DeviceScope::DeviceScope(std::string_view function, Device device, Location where) {
  Backend* const known = backend(device.backend());
  DeviceUnits* const units = known != nullptr ? known->units() : nullptr;
  const int count = units != nullptr ? units->count() : 1;
  if (device.index() < 0 || device.index() >= std::max(count, 1))
    throw DeviceError(1406, format_error(1406, "DeviceError",
                                         fmt::format("{}: no device {}: devices of this kind are {}", function,
                                                     to_string(device), count == 1 ? "one" : std::to_string(count)),
                                         {}, where));
  if (count < 2 || units->current() == device.index()) return;
  units_ = units, before_ = units->current(), queue_ = units->current_queue();
  units_->choose(device.index());
}
DeviceScope::~DeviceScope() {
  if (units_ == nullptr) return;
  units_->choose(before_);
  units_->choose_queue(queue_);
}

Device chosen_device(BackendKey of) {
  Backend* const known = backend(of);
  DeviceUnits* const units = known != nullptr ? known->units() : nullptr;
  return {of, units != nullptr && units->count() > 1 ? units->current() : 0};
}

Tensor make_on(std::string_view function, Device device, FunctionRef<Tensor()> make, Location where) {
  const DeviceScope there(function, device, where);
  Tensor made = make();
  if (there.is_elsewhere()) made.sync(where);
  return made;
}

Device device(const Tensor& x, Location where) {
  require_defined("device", x, where);
  if (x.impl()->payload != nullptr) return x.keys().backend();
  const Node& node = *x.node();
  if (node.backend == BackendKey::cpu) [[likely]]
    return {};
  Backend* const known = backend(node.backend);
  DeviceUnits* const units = known != nullptr ? known->units() : nullptr;
  const Storage* const storage = node.storage.load(std::memory_order_acquire);
  if (storage == nullptr || units == nullptr || units->count() < 2) return chosen_device(node.backend);
  return {node.backend, units->unit_of(*storage)};
}

Tensor to(const Tensor& x, Device device, Location where) {
  require_defined("to", x, where);
  if (const WeightPayload* weights = weight_payload(x))
    return make_weights(to(weights->bytes, device, where), weights->form, x.dtype());
  static const OperatorEntry& entry = operator_named("fermata::to", where);
  return Dispatcher<Tensor(const Tensor&, Device)>::call(entry, where, x, device);
}

Tensor zeros(const IntegerList& sizes, DType dtype, Device device, Location where) {
  return filled("zeros", sizes, 0, dtype, device, where);
}
Tensor ones(const IntegerList& sizes, DType dtype, Device device, Location where) {
  return filled("ones", sizes, 1, dtype, device, where);
}
Tensor full(const IntegerList& sizes, Scalar value, std::optional<DType> dtype, Device device, Location where) {
  const DType natural = value.kind == DTypeKind::boolean    ? DType::boolean
                        : value.kind == DTypeKind::floating ? DType::f32
                                                            : DType::i64;
  return filled("full", sizes, value, dtype.value_or(natural), device, where);
}
Tensor iota(const IntegerList& sizes, std::int64_t axis, Device device, Location where) {
  check_shape("iota", sizes, DType::i64, where);
  const TensorType type{DType::i64, Shape(sizes)};
  axis = normalize_axis("iota", axis, type, where);
  if (device == BackendKey::meta) return meta_tensor(type);
  backend_of("iota", device.backend(), where);
  const ops::Iota iota{.axis = {axis}, .shape = {type.shape}};
  const EncodedAttributes attributes(iota, DType::i64, device.backend());
  return make_on(
      "iota", device, [&] { return general_call(Op::iota, {}, attributes, where); }, where);
}

void register_device(BackendKey key, std::unique_ptr<Backend> backend, const DeviceOptions& options) {
  const bool compiles = backend->can_compile(nullptr);
  const std::string name(backend->name());
  register_backend(key, std::move(backend));
  if (compiles) add_emit_variants(key, name, /*complex_parts=*/false, /*picks=*/false), add_one_op_variants(key);
  require_control_kernels(key);
  if (options.missing_on_cpu) add_cpu_fallback(key);
  register_kernels_at_once(key);
}

void register_device_operators() {
  Library moves(Library::Kind::fragment, "fermata");
  moves.def("pure to(Tensor x, Device device) -> Tensor", "A tensor on another device.");
  moves.keep();
  Library kernel(Library::Kind::implementation, "fermata", "CompositeExplicit");
  kernel.impl("to", &run_to);
  kernel.keep();
  Library back(Library::Kind::implementation, "fermata", "Autograd");
  back.impl_boxed("to", derivative([](const DerivativeArguments& d) {
                    const Device from = device(d.arguments[0].as<Tensor>());
                    return std::vector<Tensor>{d.gradients[0].defined() ? to(d.gradients[0], from) : Tensor()};
                  }));
  back.keep();
  Library batched(Library::Kind::implementation, "fermata", "Batched");
  batched.impl_boxed("to", batching_rule([](const BatchedArguments& b) -> std::vector<Tensor> {
                       const Tensor moved = to(b.arguments[0].as<Tensor>(), b.arguments[1].as<Device>());
                       if (b.batched[0]) return {moved};
                       Shape sizes{b.size};  // the same for the whole batch
                       for (const std::int64_t s : moved.shape()) sizes.push_back(s);
                       return {broadcast_to(moved, sizes)};
                     }));
  batched.keep();
}

}  // namespace fermata
