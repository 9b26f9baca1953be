// Times by name, as collected by profiles of calls (dispatch/profile.h) and of plan steps (runtime/step_profile.h).
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace fermata {

class Timings {
 public:
  struct Entry {
    std::uint64_t runs = 0;
    double ns = 0;
  };
  Timings() = default;
  Timings(const Timings&) = delete;
  Timings& operator=(const Timings&) = delete;
  const std::unordered_map<std::string, Entry>& entries() const { return entries_; }
  void add(std::string name, double ns) {
    Entry& entry = entries_[std::move(name)];
    ++entry.runs, entry.ns += ns;
  }

 private:
  std::unordered_map<std::string, Entry> entries_;
};

}  // namespace fermata
