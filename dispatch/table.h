// The rows behind dispatch/registration.h. Only the files of this folder that fill the table include it.
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
  std::vector<const KernelFunction*> streamed;  // made by the table around kernels that are not pure
  std::array<std::vector<std::unique_ptr<BackendCell>>, kBackendCount> backends;  // the last one is in force
};

struct OperatorTable {
  OperatorTable();
  OperatorRow* find(std::string_view name);
  /// Makes the row if there is none.
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

/// While one exists rows are not computed; they are when the last one goes. Holds the lock.
class RegistrationBatch {
 public:
  RegistrationBatch();
  ~RegistrationBatch();

 private:
  std::unique_lock<std::recursive_mutex> lock_;
};

/// Runs a kernel with its arguments in a stack.
void run_kernel(const KernelFunction& kernel, const Call& call, Stack& stack);
const SignatureOps& pointwise_signature(Family family);
/// The variants of an operator from outside, in every backend's cell.
void set_external_variants(OperatorRow& row, std::source_location where);
/// The op that calls of the row's kernels are recorded as: its own, or that of a row made for it.
Op boxed_op(OperatorRow& row);
/// Computes the cells anew, unless a batch does so at its end.
void changed(OperatorRow& row);
/// Fills in what the op's family and dtype rule say.
void set_rules(OperatorEntry& entry);
/// How the result of an operator that is not pointwise gets its type: by its Meta kernel.
std::function<TensorType(std::span<const TensorType>, std::span<const std::int64_t>, std::source_location)>
external_infer(const OperatorEntry& entry);
/// "my::scale?" where a name is nearly that of an operator, else what lists them.
std::string nearest_operator(std::string_view name);

/// ValueError FM1518 unless the number and the types of the arguments are those of the operator's schema.
void check_stack(const OperatorEntry& entry, const Stack& stack, std::source_location where);

}  // namespace fermata
