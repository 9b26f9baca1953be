// A collective in two steps: one starts it, the other one waits for its end. Steps between them that neither need its
// result nor write what it reads run while it is on its way.
#pragma once

#include <cstdint>

#include "runtime/steps/call_step.h"

namespace fermata {

/// A call whose result is there when the wait step of the same number has run.
struct StartStep {
  CallStep call;
  std::uint32_t number = 0;  // among those of the plan

  void bind(const Binding& binding, BoundSteps& bound) const;
  template <class F> void for_each_part(F&& f) const { f(call); }
};

/// Reads and writes what its call does: until then all of that stays where it is.
struct WaitStep {
  CallStep call;  // its name says "wait for"
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
