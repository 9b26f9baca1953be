// Kernels as those of programs that run for long: compiled at once, optimized for speed, on one thread that waits for
// them.
#pragma once

#include "fermata/fermata.h"
#include "runtime/thread_pool.h"
#include "runtime/warm_up.h"

namespace fermata::testing {

class FastCode {
 public:
  FastCode() {
    set_thread_count(1);
    is_warming_up = true;
  }
  ~FastCode() {
    is_warming_up = false;
    set_thread_count(threads_);
    set_compile_policy(policy_);
  }
  FastCode(const FastCode&) = delete;
  FastCode& operator=(const FastCode&) = delete;

 private:
  const int threads_ = thread_count();
  const CompilePolicy policy_ = set_compile_policy(CompilePolicy::immediate);
};

}  // namespace fermata::testing
