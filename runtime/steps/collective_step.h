// A collective as two steps: one starts it, the other waits for its end. Steps between them that neither need its
// result nor write its operands run while it is in flight.
#pragma once

#include <cstdint>

#include "runtime/steps/call_step.h"

namespace fermata {

/// A call whose result is available after the wait step of the same number.
struct StartStep {
  CallStep call;
  std::uint32_t number = 0;  // identifies the collective within the plan

  void bind(const Binding& binding, BoundSteps& bound) const;
  template <class F> void for_each_part(F&& f) const { f(call); }
};

/// Reads and writes the buffers of its call, so they stay in place until then.
struct WaitStep {
  CallStep call;  // with "wait for" in its name
  std::uint32_t number = 0;

  void bind(const Binding& binding, BoundSteps& bound) const;
  template <class F> void for_each_part(F&& f) const { f(call); }
};

class BoundStart : public BoundCall {
 public:
  void bind(const StartStep& step, const Binding& binding);
  void run(Run& run);

 private:
  std::uint32_t number_ = 0;
};

class BoundWait {
 public:
  void bind(const WaitStep& step, const Binding& binding);
  void locate(std::span<const Node* const> records) { where_ = records[step_->call.record]->where; }
  void run(Run& run);
  std::string description() const { return step_->call.name; }
  StepWork work() const { return {}; }
  static constexpr std::size_t calls() { return 1; }
  template <class F> void for_each_part(F&& f) const { f(step_->call, where_); }

 private:
  const WaitStep* step_ = nullptr;
  std::source_location where_;
};

}  // namespace fermata
