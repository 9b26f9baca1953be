// Code for kernels that are launched once for each of many steps, each of which reads what the one before has written.
//
// The steps become an axis in front of the others, along which compiled code goes in order. What is carried from one
// step to the next is one access then, read and written in place, that lies still along that axis.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "ir/kernel.h"
#include "runtime/executable.h"

namespace fermata {

/// The kernel of all steps. Accesses keep their numbers; those that are carried from are not used. nullopt if what is
/// carried is read in another order than it is written, or again after it was written.
std::optional<Kernel> repeated_kernel(const Kernel& kernel, std::span<const Carried> carried);

/// The code of a kernel for many steps, compiled when launches have had so many that it pays.
class RepeatedCode {
 public:
  RepeatedCode(std::string_view target, std::string_view name) : target_(target), name_(name) {}
  /// Null as long as there is none.
  const Executable* find(const Kernel& kernel, std::span<const Carried> carried, std::int64_t steps) const;

 private:
  struct Entry {
    std::vector<Carried> carried;
    std::int64_t steps = 0;  // so far; under the mutex
    bool is_started = false;
    std::shared_ptr<const Executable> code;
    std::atomic<const Executable*> ready{nullptr};
    void keep(std::shared_ptr<const Executable> made) {
      code = std::move(made);
      ready.store(code.get(), std::memory_order_release);
    }
  };
  void start(const Kernel& kernel, const std::shared_ptr<Entry>& entry, bool may_compile) const;

  const std::string target_, name_;
  mutable std::mutex mutex_;
  mutable std::vector<std::shared_ptr<Entry>> entries_;
};

}  // namespace fermata
