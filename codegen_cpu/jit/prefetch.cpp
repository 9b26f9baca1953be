// Prefetches of accesses: what loads ask for ahead. See accesses.h.
#include <algorithm>
#include <cstddef>
#include <vector>

#include "codegen_cpu/jit/accesses.h"

namespace fermata::jit {
namespace {

/// A group loads several cache lines at once and then computes for a while, which the processor's own prefetching does
/// not keep up with: a chain of ten operations on memory took 1.6 times as long as a copy, and as long with prefetches.
/// Shorter programs gain nothing and would pay with load slots, unless they read rows between writing others (rms_norm:
/// 0.85).
constexpr std::size_t kLeastOperations = 8;
/// Bytes that are asked for ahead, of all arrays that are read together: beyond the end of a page, where processors
/// stop by themselves, but few of each of many. Of one array on Zen 5, 16M: chain10_cheap takes 2.54 ms with 1024, 2.22
/// with 8192, sum_chain10 1.87 and 1.38; adam, which reads four, 6.74 with 1024, 6.95 with 8192.
constexpr std::int64_t kPrefetchBytes = 8192, kLeastPrefetchDistance = 1024;
/// Bytes of a row that stays in the second-level cache until it is used.
constexpr std::int64_t kShortRow = 256 << 10;

bool is_worth_prefetching(const Kernel& kernel) {
  const std::uint16_t along = static_cast<std::uint16_t>(1u << (kernel.rank - 1u));
  if (kernel.is_row_kernel() &&
      std::ranges::any_of(kernel.stores, [&](const Store& s) { return (kernel.accesses[s.access].axes & along) != 0; }))
    return true;
  const auto& instrs = kernel.program.instrs();
  return static_cast<std::size_t>(std::ranges::count_if(instrs, [](const Instr& instr) {
           return instr.prim != Prim::constant && instr.prim != Prim::scalar && instr.prim != Prim::input;
         })) >= kLeastOperations;
}

std::int64_t prefetch_distance(const Kernel& kernel) {
  std::vector<bool> is_read(kernel.accesses.size());
  for (const Instr& instr : kernel.program.instrs())
    if (instr.prim == Prim::input) is_read[instr.index] = true;
  const std::int64_t arrays = std::max<std::int64_t>(1, std::ranges::count(is_read, true));
  return std::max(kPrefetchBytes / arrays / 64 * 64, kLeastPrefetchDistance);
}

}  // namespace

void Accesses::plan_prefetches(bool may_prefetch) {
  prefetches_ = may_prefetch && is_worth_prefetching(kernel_);
  prefetch_distance_ = prefetch_distance(kernel_);
}

void Accesses::prefetch(Value* first, std::uint64_t bytes) const {
  for (std::uint64_t line = 0; line < bytes; line += 64) {
    Value* const ahead = b_.element(b_.getInt8Ty(), first, line);
    b_.CreateIntrinsic(llvm::Intrinsic::prefetch, {ahead->getType()},
                       {ahead, b_.getInt32(0), b_.getInt32(3), b_.getInt32(1)});  // a read, to keep, of data
  }
}

void Accesses::prefetch_steps(unsigned axis, std::int64_t steps) {
  prefetches_ = false;
  for (unsigned a = 0; a < kernel_.accesses.size(); ++a)
    steps_ahead_.push_back(stride(a, axis) == nullptr ? nullptr : b_.CreateMul(stride(a, axis), b_.i64(steps)));
}

void Accesses::prefetch_next(unsigned axis, const Values& addresses, const Span& span, unsigned vectors) const {
  for (const Instr& instr : kernel_.program.instrs()) {
    if (instr.prim != Prim::input) continue;
    const unsigned a = instr.index;
    const Access& access = kernel_.accesses[a];
    if (stride(a, axis) == nullptr || !access.unit_stride || !along_vector_axis(a)) continue;
    const auto bytes = static_cast<std::int64_t>(byte_size(access.dtype));
    Value* const is_short = b_.CreateICmpSLE(sizes_[vector_axis()], b_.i64(kShortRow / bytes));
    Value* const next = element_address(a, move(addresses[a], stride(a, axis)), span, 0);
    prefetch(b_.CreateSelect(is_short, next, addresses[a]), vectors * b_.lanes() * static_cast<std::uint64_t>(bytes));
  }
}

}  // namespace fermata::jit
