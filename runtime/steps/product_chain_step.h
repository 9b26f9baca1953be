// A chain of products: a product, a kernel on its rows, and a product of the kernel's result, which may have its own
// epilogue, such as attention. If it pays, they run by blocks of rows, or as one launch of a device, and the
// intermediate results are never in memory as a whole. Else each runs separately.
#pragma once

#include <variant>

#include "runtime/steps/epilogue_step.h"

namespace fermata {

struct ProductChainStep {
  EpilogueStep first;  // the first product and the kernel
  std::variant<CallStep, EpilogueStep> last;

  const CallStep& second() const {
    const auto* const with_epilogue = std::get_if<EpilogueStep>(&last);
    return with_epilogue != nullptr ? with_epilogue->call : std::get<CallStep>(last);
  }
  const KernelStep* epilogue() const {
    const auto* const with_epilogue = std::get_if<EpilogueStep>(&last);
    return with_epilogue != nullptr ? &with_epilogue->epilogue : nullptr;
  }

  void bind(const Binding& binding, BoundSteps& bound) const;
  template <class F> void for_each_part(F&& f) const {
    first.for_each_part(f);
    std::visit([&](const auto& step) { step.for_each_part(f); }, last);
  }
};

class BoundProductChain {
 public:
  /// Binds the chain; returns whether it is valid and pays for these sizes.
  bool bind(const ProductChainStep& step, const Binding& binding);
  void locate(std::span<const Node* const> records) { first_.locate(records), second_.locate(records); }
  void run(Run& run) { in_one_launch_ ? run_in_one_launch(run) : run_by_rows(run); }
  std::string description() const;
  StepWork work() const;
  static constexpr std::size_t calls() { return 1; }
  template <class F> void for_each_part(F&& f) const {
    first_.for_each_part(f), between_.for_each_part(f), second_.for_each_part(f);
  }

 private:
  bool runs_in_one_launch(const Binding& binding) const;
  std::int64_t rows_of_block() const;
  void run_in_one_launch(Run& run);
  void run_by_rows(Run& run);

  BoundCall first_, second_;
  BoundKernel between_;
  bool in_one_launch_ = false;
  std::int64_t block_rows_ = 0;
};

}  // namespace fermata
