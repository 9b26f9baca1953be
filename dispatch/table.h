// The rows behind dispatch/registration.h. Included only by files of this folder that fill the table.
#pragma once

#include <map>
#include <mutex>
#include <unordered_map>

#include "dispatch/kernel_table.h"
#include "dispatch/registration.h"
#include "ir/custom_op.h"
#include "ir/fork.h"

namespace fermata {

struct OperatorRow {
  std::string name, doc;
  OperatorEntry entry;
  const Schema* schema = nullptr;
  std::source_location schema_where{};
  std::vector<const KernelFunction*> kernels;
  std::vector<std::pair<std::vector<const KernelFunction*>, const KernelFunction*>> choosers;
  std::vector<const KernelFunction*> streamed;  // wrappers made by the table around impure kernels
  std::array<std::vector<std::unique_ptr<BackendCell>>, kBackendCount> backends;  // the last one is active
};

struct OperatorTable {
  OperatorTable();
  OperatorRow* find(std::string_view name);
  /// Creates the row if it does not exist.
  OperatorRow& row(const std::string& name);

  ForkSafe<std::recursive_mutex> mutex;
  int batches = 0;
  std::unique_ptr<OperatorRow[]> built_in;                            // by Op
  std::array<std::atomic<OperatorRow*>, kMaxExternalOps> external{};  // by Op minus kOpCount; never freed
  std::vector<OperatorRow*> all;
  std::unordered_map<std::string, OperatorRow*> by_name;  // "fermata::add", "my::scale"
  std::array<std::vector<const KernelFunction*>, 8> family_kernels;
  std::vector<const KernelFunction*> fallbacks;
  std::map<std::string, std::source_location> namespaces;
  std::map<std::uint64_t, OperatorListener> listeners;
  std::uint64_t next_listener = 0;
};
OperatorTable& table();

/// Defers the computation of rows until the last batch is destroyed. Holds the lock.
class RegistrationBatch {
 public:
  RegistrationBatch();
  ~RegistrationBatch();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

/// Runs a kernel with its arguments on a stack.
void run_kernel(const KernelFunction& kernel, const Call& call, Stack& stack);
const SignatureOps& pointwise_signature(Family family);
/// Sets the variants of a custom operator in every backend's cell.
void set_external_variants(OperatorRow& row, std::source_location where);
/// The op under which calls of the row's kernels are recorded: its own, or that of a row created for it.
Op boxed_op(OperatorRow& row);
/// Recomputes the cells, or leaves that to the end of a batch.
void changed(OperatorRow& row);
/// Fills in the rules from the op's family and dtype rule.
void set_rules(OperatorEntry& entry);
/// The type inference of a custom operator that is not pointwise: its Meta kernel.
std::function<TensorType(std::span<const TensorType>, std::span<const std::int64_t>, std::source_location)>
external_infer(const OperatorEntry& entry);
/// A hint: "my::scale?" if the name is close to an operator's, else the command that lists them.
std::string nearest_operator(std::string_view name);

/// ValueError FM1518 unless the number and types of the arguments match the operator's schema.
void check_stack(const OperatorEntry& entry, const Stack& stack, std::source_location where);

}  // namespace fermata
