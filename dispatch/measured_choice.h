// Measures which of several library kernels is fastest for calls of one kind.
//
// Costs (KernelVariant::cost) are predictions. The first calls of a kind are timed; then kernels that may be faster do
// the same work as well, into separate memory, so that no result depends on a comparison. Comparisons take at most
// a third of the time that the calls have taken. If a kernel is faster by more than a tenth, the calls that
// follow use it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "dispatch/kernel_table.h"
#include "runtime/steps/open_choice.h"

namespace fermata {

class MeasuredChoice final : public OpenChoice {
 public:
  struct Candidate {
    const KernelVariant* variant;
    double predicted;           // ns on one core
    std::atomic<double> ns{0};  // the shortest time measured; 0: none yet
    int runs = 0;               // compared with the predicted choice
    bool is_out = false;        // known to be no faster
    Candidate(const KernelVariant& v, double cost) : variant(&v), predicted(cost) {}
    Candidate(const Candidate& c)
        : variant(c.variant), predicted(c.predicted), ns(c.ns.load()), runs(c.runs), is_out(c.is_out) {}
  };
  using Clock = std::int64_t (*)();  // ns

  /// The first candidate is the predicted one. `when_settled` is called once, by the thread
  /// that ends the comparison.
  MeasuredChoice(std::vector<Candidate> candidates, std::function<void(const MeasuredChoice&)> when_settled,
                 Clock clock = nullptr);
  /// Of an earlier process: settled, with the winner's number.
  MeasuredChoice(std::vector<Candidate> candidates, std::size_t winner);

  void run(CallKernel kernel, const CallArgs& args) override;
  bool is_settled() const override { return is_settled_.load(std::memory_order_acquire); }
  CallKernel kernel(CallKernel predicted, const CallArgs& args) const override;

  /// The kernel that replaces the predicted one; null if it stays.
  const KernelVariant* winner() const { return is_settled() && winner_ != 0 ? candidates_[winner_].variant : nullptr; }
  const std::vector<Candidate>& candidates() const { return candidates_; }

 private:
  std::int64_t now() const;
  double time(const KernelVariant& variant, const CallArgs& args) const;
  bool is_worth_a_try(const Candidate& rival) const;
  double expected_ns(const Candidate& c) const;
  Candidate* next_rival();
  void compare(Candidate& rival, const CallArgs& args);
  void settle();

  std::vector<Candidate> candidates_;
  const std::function<void(const MeasuredChoice&)> when_settled_;
  const Clock clock_;
  std::atomic<bool> is_settled_{false}, is_busy_{false};
  std::size_t winner_ = 0;  // written before is_settled_
  // Owned by the thread that is busy:
  int calls_ = 0;
  double call_ns_ = 0, comparison_ns_ = 0;  // spent so far
};

}  // namespace fermata
