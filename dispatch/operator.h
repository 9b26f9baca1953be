// Operators: rows of the kernel table, and dispatch.
//
// A row has one cell per (functionality, backend). Every cell is callable (a missing kernel is a function that throws),
// so a call is: union the keys, mask, index, load, jump. Kernels are called through typed pointers whose signature was
// checked at registration.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <optional>
#include <source_location>
#include <span>
#include <string>
#include <typeinfo>
#include <vector>

#include "ir/op.h"
#include "ir/subgraph.h"
#include "runtime/operand.h"

namespace fermata {

struct OperatorEntry;
struct KernelFunction;
struct Schema;
struct SignatureOps;
class Value;
using Stack = std::vector<Value>;

/// Information about a call besides its arguments. `keys` selected the cell.
struct Call {
  const OperatorEntry& entry;
  DispatchKeySet keys;
  std::source_location where;
  const KernelFunction* kernel = nullptr;  // the running kernel, if it was not called through its cell
  bool is_last_use = false;                // the operands are not used after the kernel: it may reuse expiring ones
};

/// Non-tensor arguments of ops that are not pointwise; ir/graph.h lists attributes and scalars by op.
struct Attributes {
  TensorType wanted;  // if the result type is an argument, or if `is_inferred`
  std::span<const std::int64_t> integers;
  std::span<const std::uint64_t> scalars;
  BackendKey backend = BackendKey::cpu;  // the backend of ops without operands
  const Subgraphs* subgraphs = nullptr;  // functions for the node to own; none in boxed calls
  bool is_inferred = false;              // the caller has the type of the result, `wanted`, from infer()
};

/// The four signatures of the built-in ops.
using UnaryCall = Tensor(const Operand&);
using BinaryCall = Tensor(const Operand&, const Operand&);
using TernaryCall = Tensor(const Operand&, const Operand&, const Operand&);
using GeneralCall = Tensor(std::span<const Tensor>, const Attributes&);

using ErasedKernel = void (*)();
struct BackendCell;

struct OperatorEntry {
  std::string_view name;
  Op op = Op::count;
  bool has_condition = false;  // the first operand is a bool condition
  /// The op's dtype rule per promoted dtype; `result` is kRefused for an error.
  std::array<RuleResult, kDTypeCount> rules{};
  std::atomic<const SignatureOps*> signature{nullptr};  // null while only boxed kernels are known
  std::atomic<const Schema*> schema{nullptr};           // null while only kernels are known
  /// The keys that are not fallthrough, by column (highest backend).
  std::array<std::atomic<std::uint64_t>, 8> not_fallthrough{};
  std::array<std::atomic<ErasedKernel>, kCells> cells{};             // targets of typed calls, never null
  std::array<std::atomic<const KernelFunction*>, kCells> kernels{};  // their kernels; null if none
  std::array<std::atomic<BackendCell*>, kBackendCount> backends{};   // variants of the backend cells, null if none
  /// The op of nodes of recorded kernel calls; Op::count if nodes have `op` itself.
  std::atomic<Op> boxed{Op::count};
  const OperatorEntry* target = nullptr;  // for such an op: the operator whose kernels it calls
};

inline constexpr RuleResult kRefused{static_cast<DType>(0xff), static_cast<DType>(0xff)};

/// The row of a built-in op.
OperatorEntry& operator_entry(Op op);

/// The keys of an argument: those of its tensors or device; other arguments have none.
template <class T> constexpr DispatchKeySet keys_of(const T&) { return {}; }
inline DispatchKeySet keys_of(const Operand& o) { return o.keys(); }
inline DispatchKeySet keys_of(const Tensor& t) { return t.defined() ? t.keys() : DispatchKeySet(); }
inline DispatchKeySet keys_of(const std::optional<Tensor>& t) { return t ? keys_of(*t) : DispatchKeySet(); }
inline DispatchKeySet keys_of(std::span<const Tensor> tensors) {
  DispatchKeySet all;
  for (const Tensor& t : tensors) all = all | keys_of(t);
  return all;
}
inline DispatchKeySet keys_of(Device d) { return DispatchKeySet(d.backend()) | Functionality::dense; }
inline DispatchKeySet keys_of(const std::optional<Device>& d) { return d ? keys_of(*d) : DispatchKeySet(); }
/// The backend counts even without tensors; a higher one among the operands takes precedence.
inline DispatchKeySet keys_of(const Attributes& a) { return DispatchKeySet(a.backend) | Functionality::dense; }

/// Incremented by every change of a cell; functions captured before are captured again.
extern std::atomic<std::uint64_t> table_generation;

/// Set while calls are traced or profiled; costs one relaxed load per call if off.
extern std::atomic<bool> watch_calls;
void watch_call(const Call& call, bool entering);
/// Prints every call to standard error: op, cell, source line, nesting. FERMATA_TRACE_DISPATCH=1 enables it at start.
void set_trace_dispatch(bool on);

/// Calls an operator with its arguments on a stack, which holds the results afterwards.
void call_boxed(const OperatorEntry& entry, Stack& stack, std::source_location where);
/// Redispatches a call from inside a kernel, below functionality `f`.
void redispatch_boxed(const Call& call, Functionality f, Stack& stack);
/// Runs the kernel selected by `call.keys` with the arguments on a stack.
void run_boxed_kernel(const Call& call, Stack& stack);
/// Throws the error of a cell without a kernel.
[[noreturn]] void throw_missing_kernel(const Call& call);

template <class Signature> struct Dispatcher;
template <class R, class... A> struct Dispatcher<R(A...)> {
  using Kernel = R (*)(const Call&, A...);

  /// Calls the kernel of the highest key in `keys`.
  static R call_with(const OperatorEntry& entry, DispatchKeySet keys, std::source_location where, A... args) {
    return run(entry, keys, where, false, args...);
  }
  static R call(const OperatorEntry& entry, std::source_location where, A... args) {
    return run(entry, keys_for(args...), where, false, args...);
  }
  /// As call(), but the caller does not use its arguments afterwards.
  static R last_call(const OperatorEntry& entry, std::source_location where, A... args) {
    return run(entry, keys_for(args...), where, true, args...);
  }
  /// Redispatches a call from inside a wrapper kernel, below functionality `f`.
  static R redispatch(const Call& call, Functionality f, A... args) {
    return call_with(call.entry, call.keys.below(f), call.where, args...);
  }

 private:
  static DispatchKeySet keys_for(const std::remove_reference_t<A>&... args) {
    const ThreadKeys& thread = thread_keys;
    return ((DispatchKeySet() | ... | keys_of(args)) | thread.included) - thread.excluded;
  }
  static R run(const OperatorEntry& entry, DispatchKeySet keys, std::source_location where, bool is_last_use,
               A... args) {
    keys = keys & DispatchKeySet(entry.not_fallthrough[keys.column()].load(std::memory_order_relaxed));
    const auto kernel = reinterpret_cast<Kernel>(entry.cells[keys.cell()].load(std::memory_order_acquire));
    const Call call{entry, keys, where, nullptr, is_last_use};
    if (watch_calls.load(std::memory_order_relaxed)) [[unlikely]]
      return watched(kernel, call, args...);
    return kernel(call, args...);
  }
  static R watched(Kernel kernel, const Call& call, A... args) {
    struct Leave {
      const Call& call;
      ~Leave() { watch_call(call, false); }
    } leave{call};
    watch_call(call, true);
    return kernel(call, args...);
  }
};

}  // namespace fermata
