// A function of an exported program, as a call of control flow runs it. It belongs to one table of records, and so to
// one run at a time.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "frontend/run/program_file.h"
#include "frontend/run/record_table.h"
#include "runtime/bound_plan.h"
#include "runtime/runnable_subgraph.h"

namespace fermata {

class ShippedFunction final : public RunnableSubgraph {
 public:
  ShippedFunction(const ProgramFile& program, const ProgramFunction& function, const std::string& path)
      : function_(function), path_(path), records_(program, function, path) {}

  /// For the sizes at hand: FM2201 where the arguments are not those of the function.
  void set(std::span<const std::int64_t> symbols, std::span<const TensorType> arguments);
  void run(std::span<const TensorView> arguments, std::span<void* const> results, std::uint64_t key) const override;
  Graph graph() const override;
  /// The functions that it calls itself.
  std::vector<const ShippedFunction*> functions() const { return records_.functions(); }

 private:
  LeafBuffer buffer_of(const ProgramLeaf& leaf, const TensorView& argument, std::vector<StoragePtr>& copies) const;

  const ProgramFunction& function_;
  const std::string& path_;
  RecordTable records_;
  std::vector<std::int64_t> symbols_;
  bool is_bound_ = false;
  mutable BoundPlan bound_;
  mutable std::vector<LeafBuffer> leaves_;
  mutable std::vector<void*> buffers_;
};

}  // namespace fermata
