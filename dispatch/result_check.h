// A hook called with the result of every eager call, for NaN checks. Null if none is installed.
#pragma once

#include <atomic>
#include <source_location>
#include <span>

#include "ir/op.h"
#include "runtime/tensor_view.h"

namespace fermata {

using CheckResult = void (*)(Op op, std::span<const TensorView> operands, const TensorView& result,
                             std::source_location where);
extern std::atomic<CheckResult> check_result;

}  // namespace fermata
