// Timing of calls while they run: which op took how long in eager mode.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>

namespace fermata {

/// Collects the time of every backend kernel that this thread calls while it exists.
class CallProfile {
 public:
  struct Entry {
    std::uint64_t calls = 0;
    double ns = 0;
  };
  CallProfile();
  ~CallProfile();
  CallProfile(const CallProfile&) = delete;
  CallProfile& operator=(const CallProfile&) = delete;
  const std::unordered_map<std::string, Entry>& entries() const { return entries_; }
  void add(std::string_view op, double ns);

 private:
  std::unordered_map<std::string, Entry> entries_;
  CallProfile* outer_;
};

}  // namespace fermata
