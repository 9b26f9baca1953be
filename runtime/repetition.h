// Many runs of a plan, one after the other.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "runtime/function_ref.h"

namespace fermata {

struct Repetition {
  static constexpr std::size_t kNone = ~std::size_t{0};
  /// A leaf of the plan: the elements of a buffer, which lie `bytes` further at each step.
  struct Leaf {
    void* data;
    std::int64_t bytes = 0;
  };
  /// An output: an element of a buffer for each step, or the leaf that the next step reads (kNone: none does).
  struct Output {
    void* data;
    std::int64_t bytes = 0;
    bool is_carried = false;
    std::size_t leaf = kNone;
  };
  std::int64_t steps = 0;
  std::vector<Leaf> leaves;  // what is carried lies where its output does
  std::vector<Output> outputs;
  FunctionRef<void()> begin;  // called before the first step
};

}  // namespace fermata
