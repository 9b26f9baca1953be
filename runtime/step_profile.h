// Timing of plans while they run: which step took how long.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace fermata {

/// Collects the time of every step of every plan that this thread runs on the CPU while it exists.
class StepProfile {
 public:
  struct Entry {
    std::uint64_t runs = 0;
    double ns = 0;
  };
  StepProfile() : outer_(current_) { current_ = this; }
  ~StepProfile() { current_ = outer_; }
  StepProfile(const StepProfile&) = delete;
  StepProfile& operator=(const StepProfile&) = delete;

  /// That of this thread; null where nobody asks.
  static StepProfile* current() { return current_; }
  /// By the name of the step and the sizes it worked on.
  const std::unordered_map<std::string, Entry>& entries() const { return entries_; }
  void add(std::string step, double ns) {
    Entry& entry = entries_[std::move(step)];
    ++entry.runs, entry.ns += ns;
  }

 private:
  static inline constinit thread_local StepProfile* current_ = nullptr;
  std::unordered_map<std::string, Entry> entries_;
  StepProfile* outer_;
};

}  // namespace fermata
