// Operators: rows of the kernel table, and what a call through one costs.
//
// A row has one cell per (functionality, backend). Every cell can be called (a missing kernel is a function that
// throws), so a call is: union the keys, mask, index, load, jump. Kernels are reached through a typed handle whose
// signature was checked when the kernel was registered.
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

/// What a kernel may want to know about a call besides its arguments. `keys` are those that picked the cell.
struct Call {
  const OperatorEntry& entry;
  DispatchKeySet keys;
  std::source_location where;
  const KernelFunction* kernel = nullptr;  // the one that runs, where it was not reached through its cell
  bool is_last_use = false;                // nobody reads the operands after the kernel: it may take those that expire
};

/// Arguments of ops that are not pointwise, beyond their tensors: see ir/graph.h for attributes and scalars by op.
struct Attributes {
  TensorType wanted;  // where the result type is an argument
  std::span<const std::int64_t> integers;
  std::span<const std::uint64_t> scalars;
  BackendKey backend = BackendKey::cpu;  // where ops without operands make their result
  const Subgraphs* subgraphs = nullptr;  // functions that the node is to own; a boxed call has none
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
  bool has_condition = false;  // the first operand is a condition: bool, whatever the others are
  /// What the op's dtype rule makes of each promoted dtype; `result` is kRefused where it is an error.
  std::array<RuleResult, kDTypeCount> rules{};
  std::atomic<const SignatureOps*> signature{nullptr};  // null while only boxed kernels are known
  std::atomic<const Schema*> schema{nullptr};           // null while only kernels are known
  /// The keys that lead somewhere, by column (highest backend): the others are passed over.
  std::array<std::atomic<std::uint64_t>, 8> not_fallthrough{};
  std::array<std::atomic<ErasedKernel>, kCells> cells{};             // what typed calls jump to, never null
  std::array<std::atomic<const KernelFunction*>, kCells> kernels{};  // what stands behind it; null where none
  std::array<std::atomic<BackendCell*>, kBackendCount> backends{};   // variants of the backend cells, null where none
  /// The op that recorded calls of a kernel are nodes of; Op::count where calls are nodes of `op` itself.
  std::atomic<Op> boxed{Op::count};
  const OperatorEntry* target = nullptr;  // of such an op: whose kernels it calls
};

inline constexpr RuleResult kRefused{static_cast<DType>(0xff), static_cast<DType>(0xff)};

/// The row of a built-in op.
OperatorEntry& operator_entry(Op op);

/// The keys that an argument brings: those of its tensors, and of a device. Other arguments bring none.
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
/// A backend takes part even where there are no tensors; a higher one among the operands still wins.
inline DispatchKeySet keys_of(const Attributes& a) { return DispatchKeySet(a.backend) | Functionality::dense; }

/// Moves on with every change of what the cells of any row hold: a function that was captured before is captured again.
extern std::atomic<std::uint64_t> table_generation;

/// Set while somebody watches calls (a trace or a profile): one relaxed load per call when off.
extern std::atomic<bool> watch_calls;
void watch_call(const Call& call, bool entering);
/// Prints every call on standard error: op, cell, source line, nesting. FERMATA_TRACE_DISPATCH=1 turns it on at start.
void set_trace_dispatch(bool on);

/// Calls an operator with its arguments in a stack, which has the results afterwards.
void call_boxed(const OperatorEntry& entry, Stack& stack, std::source_location where);
/// From inside a kernel: the same call below functionality `f`.
void redispatch_boxed(const Call& call, Functionality f, Stack& stack);
/// The kernel that `call.keys` leads to, with the arguments in a stack.
void run_boxed_kernel(const Call& call, Stack& stack);
/// The error of a cell that has no kernel.
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
  /// As call(), by a caller that does nothing with its arguments afterwards.
  static R last_call(const OperatorEntry& entry, std::source_location where, A... args) {
    return run(entry, keys_for(args...), where, true, args...);
  }
  /// From inside a wrapper kernel: the same call below functionality `f`.
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
