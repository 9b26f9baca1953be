// Calls with their arguments in a stack, and the error of a missing kernel.
#include <fmt/format.h>

#include "dispatch/table.h"
#include "ir/error.h"

namespace fermata {
namespace {

DispatchKeySet keys_of_stack(const Stack& stack) {
  DispatchKeySet keys;
  for (const Value& value : stack) {
    if (value.is<Device>()) keys = keys | keys_of(value.as<Device>());
    const_cast<Value&>(value).for_each_tensor([&](Tensor& t) { keys = keys | keys_of(t); });
  }
  return keys;
}

void call_with(const OperatorEntry& entry, DispatchKeySet keys, Stack& stack, std::source_location where) {
  keys = keys & DispatchKeySet(entry.not_fallthrough[keys.column()].load(std::memory_order_relaxed));
  const Call call{entry, keys, where};
  if (!watch_calls.load(std::memory_order_relaxed)) [[likely]]
    return run_boxed_kernel(call, stack);
  struct Leave {
    const Call& call;
    ~Leave() { watch_call(call, false); }
  } leave{call};
  watch_call(call, true);
  run_boxed_kernel(call, stack);
}

/// The backends that have a kernel of their own.
std::string backends_with_kernels(const OperatorEntry& entry) {
  std::string names;
  for (std::size_t b = 0; b < kBackendCount; ++b)
    if (entry.kernels[cell_of(Functionality::dense, static_cast<BackendKey>(b))].load() != nullptr)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", kBackendNames[b]);
  return names;
}

std::string_view next_step(Functionality f) {
  switch (f) {
    case Functionality::quantized: return "dequantize() returns a tensor that every op accepts; ";
    case Functionality::sparse_coo:
    case Functionality::sparse_csr: return "to_dense() returns a tensor that every op accepts; ";
    default: return "";
  }
}

}  // namespace

void check_stack(const OperatorEntry& entry, const Stack& stack, std::source_location where) {
  const Schema* schema = entry.schema.load(std::memory_order_acquire);
  if (schema == nullptr) return;
  const auto fail = [&](const std::string& what) {
    throw ValueError(1518, format_error(1518, "ValueError", fmt::format("{}: {}", entry.name, what),
                                        {{"schema", to_string(*schema), ""}}, where));
  };
  if (stack.size() != schema->arguments.size())
    fail(fmt::format("{} arguments, not {}", stack.size(), schema->arguments.size()));
  for (std::size_t i = 0; i < stack.size(); ++i)
    if (!stack[i].fits(schema->arguments[i].type))
      fail(fmt::format("argument {} is {}, not of type {}", schema->arguments[i].name, to_string(stack[i]),
                       to_string(schema->arguments[i].type)));
}

Call inner_call(const Call& call, ErasedKernel& kernel) {
  const KernelFunction* k = call.kernel;
  if (k == nullptr) k = call.entry.kernels[call.keys.cell()].load(std::memory_order_acquire);
  const KernelFunction* const inner = k == nullptr ? nullptr : k->inner;
  kernel = inner == nullptr ? nullptr : inner->typed;
  return {call.entry, call.keys, call.where, inner};
}

void run_kernel(const KernelFunction& kernel, const Call& call, Stack& stack) {
  const Call own{call.entry, call.keys, call.where, &kernel};
  if (kernel.typed != nullptr)
    kernel.signature->unboxed(own, stack, kernel.typed);
  else
    kernel.boxed(own, stack);
}

void run_boxed_kernel(const Call& call, Stack& stack) {
  const KernelFunction* kernel = call.entry.kernels[call.keys.cell()].load(std::memory_order_acquire);
  if (kernel == nullptr) throw_missing_kernel(call);
  run_kernel(*kernel, call, stack);
}

void call_boxed(const OperatorEntry& entry, Stack& stack, std::source_location where) {
  check_stack(entry, stack, where);
  const ThreadKeys& thread = thread_keys;
  call_with(entry, (keys_of_stack(stack) | thread.included) - thread.excluded, stack, where);
}

void redispatch_boxed(const Call& call, Functionality f, Stack& stack) {
  call_with(call.entry, call.keys.below(f), stack, call.where);
}

void throw_missing_kernel(const Call& call) {
  const std::size_t row = call.keys.cell() / 8, column = call.keys.column();
  const std::string kernels = backends_with_kernels(call.entry);
  if (row == 0 || (column == 0 && row == 1 + static_cast<std::size_t>(Functionality::dense)))
    throw UnsupportedError(
        2001,
        format_error(2001, "UnsupportedError",
                     fmt::format("{}: no tensor argument determines the backend", call.entry.name), {}, call.where,
                     fmt::format("register a kernel for BackendSelect; kernels exist for: {}",
                                 kernels.empty() ? "nothing" : kernels)));
  const auto f = static_cast<Functionality>(row - 1);
  const std::string key = column == 0 ? std::string(kFunctionalityNames[row - 1])
                                      : to_string(RegistrationKey::cell(f, static_cast<BackendKey>(column - 1)));
  throw UnsupportedError(2001, format_error(2001, "UnsupportedError",
                                            fmt::format("{}: no kernel for {}", call.entry.name, key), {}, call.where,
                                            fmt::format("{}kernels exist for: {}; see `fermata ops {}`", next_step(f),
                                                        kernels.empty() ? "nothing" : kernels, call.entry.name)));
}

}  // namespace fermata
