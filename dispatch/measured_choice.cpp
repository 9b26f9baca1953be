// See measured_choice.h.
#include "dispatch/measured_choice.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <utility>

#include "ir/shape.h"
#include "runtime/allocator.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// A kernel replaces the predicted one if that takes more than a tenth longer.
constexpr double kWrong = 1.1;
/// Comparisons of a kernel with the predicted one; the shortest time of each counts.
constexpr int kComparisons = 5;
/// Calls that are only timed; the first may compile a kernel.
constexpr int kCallsBefore = 4;
/// The fraction of the time of the calls that comparisons may take.
constexpr double kShare = 1.0 / 3;
/// The error of predictions without other evidence.
constexpr double kFarOff = 2.5;
/// A larger result is not computed twice.
constexpr std::size_t kMostBytes = std::size_t{64} << 20;

class Busy {
 public:
  explicit Busy(std::atomic<bool>& flag) : flag_(flag) {}
  ~Busy() { flag_.store(false, std::memory_order_release); }
  Busy(const Busy&) = delete;

 private:
  std::atomic<bool>& flag_;
};

void keep_least(std::atomic<double>& ns, double found) {
  const double known = ns.load(std::memory_order_relaxed);
  if (known == 0 || found < known) ns.store(std::max(found, 1.0), std::memory_order_relaxed);
}

}  // namespace

MeasuredChoice::MeasuredChoice(std::vector<Candidate> candidates,
                               std::function<void(const MeasuredChoice&)> when_settled, Clock clock)
    : candidates_(std::move(candidates)), when_settled_(std::move(when_settled)), clock_(clock) {}

MeasuredChoice::MeasuredChoice(std::vector<Candidate> candidates, std::size_t winner)
    : candidates_(std::move(candidates)), clock_(nullptr), is_settled_(true), winner_(winner) {}

std::int64_t MeasuredChoice::now() const {
  if (clock_ != nullptr) return clock_();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

double MeasuredChoice::time(const KernelVariant& variant, const CallArgs& args) const {
  const std::int64_t start = now();
  variant.call(args);
  return static_cast<double>(now() - start);
}

CallKernel MeasuredChoice::kernel(CallKernel predicted, const CallArgs& args) const {
  const KernelVariant* const better = winner();
  return better != nullptr && (better->fits == nullptr || better->fits(args)) ? better->call : predicted;
}

double MeasuredChoice::expected_ns(const Candidate& c) const {
  if (const double known = c.ns.load(std::memory_order_relaxed); known != 0) return known;
  const Candidate& first = candidates_.front();
  return c.predicted * first.ns.load(std::memory_order_relaxed) / first.predicted;
}

/// Whether it may be faster, by the predictions or because the first one takes longer than predicted.
bool MeasuredChoice::is_worth_a_try(const Candidate& rival) const {
  const Candidate& first = candidates_.front();
  return rival.predicted < std::max(kFarOff * first.predicted, first.ns.load(std::memory_order_relaxed));
}

MeasuredChoice::Candidate* MeasuredChoice::next_rival() {
  Candidate* next = nullptr;
  for (auto c = candidates_.begin() + 1; c != candidates_.end(); ++c)
    if (!c->is_out && c->runs < kComparisons && is_worth_a_try(*c) && (next == nullptr || c->runs < next->runs))
      next = &*c;
  return next;
}

void MeasuredChoice::run(CallKernel predicted, const CallArgs& args) {
  const Candidate& first = candidates_.front();
  if (is_settled()) return kernel(predicted, args)(args);
  // Inside a parallel loop of the pool a kernel has one thread only.
  if (predicted != first.variant->call || args.outputs.size() != 1 || in_parallel_region() ||
      is_busy_.exchange(true, std::memory_order_acquire))
    return predicted(args);
  const Busy busy(is_busy_);
  const double ns = time(*first.variant, args);
  if (++calls_ > 1) {
    keep_least(candidates_.front().ns, ns);
    call_ns_ += ns;
  }
  if (calls_ < kCallsBefore || is_settled()) return;
  Candidate* const rival = next_rival();
  if (rival == nullptr) return settle();
  const double takes = expected_ns(first) + expected_ns(*rival) * (rival->runs == 0 ? 2 : 1);
  if (comparison_ns_ + takes <= kShare * call_ns_) compare(*rival, args);
}

void MeasuredChoice::compare(Candidate& rival, const CallArgs& args) {
  const TensorView& result = args.outputs[0];
  const std::size_t bytes = static_cast<std::size_t>(result.element_count()) * byte_size(result.dtype);
  const std::int64_t start = now();
  if (bytes > kMostBytes) {
    rival.is_out = true;
    return;
  }
  try {
    struct Memory {
      explicit Memory(std::size_t bytes) : held(allocate_bytes(bytes)) {}
      ~Memory() { release_bytes(held); }
      Memory(const Memory&) = delete;
      const Allocation held;
    };
    const Memory memory(bytes);
    std::vector<TensorView> inputs(args.inputs.begin(), args.inputs.end());
    for (TensorView& v : inputs) v.buffer = nullptr;  // no packed copies are stored for a comparison
    TensorView output = result;
    output.data = memory.held.data, output.buffer = nullptr;
    CallArgs again = args;
    again.inputs = inputs, again.outputs = {&output, 1}, again.epilogue = nullptr;
    Candidate& first = candidates_.front();
    if (rival.runs == 0) rival.variant->call(again);  // may compile a kernel
    const bool goes_first = rival.runs % 2 != 0;
    if (goes_first) keep_least(rival.ns, time(*rival.variant, again));
    keep_least(first.ns, time(*first.variant, again));
    if (!goes_first) keep_least(rival.ns, time(*rival.variant, again));
    ++rival.runs;
    rival.is_out = rival.ns.load() > first.ns.load() * kWrong;
  } catch (...) {  // the call itself has succeeded: a failure here is not its error
    rival.is_out = true;
  }
  comparison_ns_ += static_cast<double>(now() - start);
  if (next_rival() == nullptr) settle();
}

void MeasuredChoice::settle() {
  std::size_t best = 0;
  for (std::size_t i = 1; i < candidates_.size(); ++i)
    if (candidates_[i].runs == kComparisons && (best == 0 || candidates_[i].ns < candidates_[best].ns)) best = i;
  winner_ = best != 0 && candidates_[best].ns * kWrong < candidates_.front().ns ? best : 0;
  is_settled_.store(true, std::memory_order_release);
  if (when_settled_) try {
      when_settled_(*this);
    } catch (const std::bad_alloc&) {}  // it is not kept for later processes: the call has been done
}

}  // namespace fermata
