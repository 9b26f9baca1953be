// Loads of elements that lie apart, as those of x[::-1], x[::2] and of one channel of many. See accesses.h.
//
// A gather, or an insertion, is a load for each lane. Elements that are a few places apart are taken from whole vectors
// by shuffles. Strides are known at a launch, so each load branches.
#include <algorithm>

#include "codegen_cpu/jit/accesses.h"

namespace fermata::jit {
namespace {

/// Channels of pixels and coordinates of points. Each step is code for every load: no more than for so many accesses,
/// of which code that is compiled at once has fewer. More of them have two, as pools of what is computed at each place.
constexpr unsigned kMostApart = 4, kMostAccesses = 6, kMostAccessesAtOnce = 2, kMostOfTwo = 16;

}  // namespace

void Accesses::plan_loads_apart() {
  unsigned apart = 0;
  for (unsigned a = 0; a < kernel_.accesses.size(); ++a)
    if (along_vector_axis(a) && !kernel_.accesses[a].is_in_order() && !kernel_.accesses[a].address_only) ++apart;
  if (apart <= (wide_ ? kMostAccesses : kMostAccessesAtOnce))
    most_apart_ = kMostApart;
  else if (wide_ && apart <= kMostOfTwo)
    most_apart_ = 2;
}

Value* Accesses::has_step(unsigned access, std::int64_t elements) const {
  return b_.CreateICmpEQ(lane_step(access),
                         b_.i64(elements * static_cast<std::int64_t>(byte_size(kernel_.accesses[access].dtype))));
}

Value* Accesses::gather_all(unsigned access, Value* first) const {
  const DType dtype = kernel_.accesses[access].dtype;
  Type* const type = memory_type(b_.getContext(), dtype, b_.lanes());
  Value* const all = llvm::ConstantInt::getTrue(llvm::FixedVectorType::get(b_.getInt1Ty(), b_.lanes()));
  return b_.CreateMaskedGather(type, lane_addresses(access, first), llvm::Align(byte_size(dtype)), all,
                               llvm::Constant::getNullValue(type));
}

/// Most vectors are whole. Without a branch to code for these, processors do not fetch ahead of masked loads (Zen 4 and
/// 5), and a gather takes longer there than one load for each lane.
Value* Accesses::load_apart(unsigned access, Value* first, const Span& span, unsigned vector) const {
  const auto by_lane = [&](Value* count) -> Value* {
    if (count == nullptr && b_.isa().gathers && has_gather(access)) return gather_all(access, first);
    return load_by_lane(access, first, lane_step(access), count);
  };
  const auto all = [&] {
    return Values{load_by_step(access, first, nullptr, nullptr, [&] { return by_lane(nullptr); })};
  };
  if (span.masks.empty()) return all()[0];
  const auto some = [&] {
    constexpr std::size_t kNarrowest = 16;  // bytes of a vector
    const std::size_t bytes = byte_size(kernel_.accesses[access].dtype);
    Value *const mask = span.masks[vector], *const count = count_of(span, vector);
    if (has_masked(access)) {
      Type* const type = memory_type(b_.getContext(), kernel_.accesses[access].dtype, b_.lanes());
      Value* const zeros = llvm::Constant::getNullValue(type);
      const auto gathered = [&] {
        return b_.when(b_.CreateICmpSGT(count, b_.i64(0)), {zeros}, [&] {
          return Values{b_.CreateMaskedGather(type, lane_addresses(access, first), llvm::Align(bytes), mask, zeros)};
        });
      };
      if (!wide_) return gathered();
      return b_.either(
          has_step(access, -1), [&] { return Values{load_reversed(access, first, mask)}; }, gathered);
    }
    if (!b_.isa().masks || bytes * b_.lanes() < kNarrowest) return Values{by_lane(count)};
    return Values{load_by_step(access, first, mask, count, [&] { return by_lane(count); })};
  };
  return b_.either(is_whole(span, vector), all, some)[0];
}

/// Lanes of `mask`, or all without one; `count` is how many these are, null for all.
Value* Accesses::load_by_step(unsigned access, Value* first, Value* mask, Value* count,
                              llvm::function_ref<Value*()> one_by_one) const {
  return b_.either(
      has_step(access, -1), [&] { return Values{load_reversed(access, first, mask)}; },
      [&] { return Values{load_few_apart(access, first, count, 2, one_by_one)}; })[0];
}

/// Each is more to compile: code that is compiled at once has the most only where one by one means a loop.
unsigned Accesses::most_steps(unsigned access, Value* count) const {
  const bool is_loop = is_narrow(access) && count == nullptr;
  if (!wide_ && !is_loop) return is_narrow(access) ? 1 : 2;
  return has_masked(access) ? std::max(2u, most_apart_) : most_apart_;
}

/// `step` elements apart, or more.
Value* Accesses::load_few_apart(unsigned access, Value* first, Value* count, unsigned step,
                                llvm::function_ref<Value*()> one_by_one) const {
  if (step > most_steps(access, count)) return one_by_one();
  const auto picked = [&] {
    Values masks;
    if (count != nullptr) {  // nothing behind the last lane is read
      Value* const elements = b_.CreateAdd(b_.CreateMul(b_.CreateSub(count, b_.i64(1)), b_.i64(step)), b_.i64(1));
      masks = b_.masks_below(b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, elements, b_.i64(0)), step);
    }
    constexpr std::size_t kNarrow = 2;
    const bool truncates = count == nullptr && byte_size(kernel_.accesses[access].dtype) <= kNarrow &&
                           (step & (step - 1)) == 0 && b_.lanes() >= 4;
    return Values{truncates ? load_and_truncate(access, first, step) : load_and_pick(access, first, step, 0, masks)};
  };
  return b_.either(has_step(access, step), picked,
                   [&] { return Values{load_few_apart(access, first, count, step + 1, one_by_one)}; })[0];
}

/// The first of each `step` narrow elements, which together are an integer: what AVX-512 truncates in one instruction,
/// where it has no shuffle of bytes. The last vector ends with the element of the last lane, so that nothing behind it
/// is read.
Value* Accesses::load_and_truncate(unsigned access, Value* first, unsigned step) const {
  const DType dtype = kernel_.accesses[access].dtype;
  const auto bytes = static_cast<unsigned>(byte_size(dtype)), together = bytes * step;
  const unsigned most = b_.isa().vector_bits / 8 / together, lanes = std::min(most, b_.lanes() / 2);
  Type* const element = memory_type(b_.getContext(), dtype, 1);
  Type* const wide = llvm::FixedVectorType::get(b_.getIntNTy(8 * together), lanes);
  Type* const narrow = llvm::FixedVectorType::get(b_.getIntNTy(8 * bytes), lanes);
  Values parts;
  for (unsigned lane = 0; lane < b_.lanes(); lane += lanes) {
    const bool is_last = lane + lanes == b_.lanes();
    const std::uint64_t begin = std::uint64_t{lane} * step - (is_last ? step - 1 : 0);
    Value* loaded = b_.CreateAlignedLoad(wide, b_.element(element, first, begin), llvm::Align(bytes));
    if (is_last) loaded = b_.CreateLShr(loaded, std::uint64_t{8} * bytes * (step - 1));
    parts.push_back(b_.CreateTrunc(loaded, narrow));
  }
  return b_.CreateBitCast(b_.joined(std::move(parts)), memory_type(b_.getContext(), dtype, b_.lanes()));
}

/// Element number `which` of each `step` elements from `first` on. Without masks, the last vector ends with the element
/// of the last lane, so that nothing behind it is read.
Value* Accesses::load_and_pick(unsigned access, Value* first, unsigned step, unsigned which,
                               const Values& masks) const {
  const DType dtype = kernel_.accesses[access].dtype;
  const unsigned lanes = b_.lanes();
  Type* const element = memory_type(b_.getContext(), dtype, 1);
  Type* const type = memory_type(b_.getContext(), dtype, lanes);
  const llvm::Align align(byte_size(dtype));
  const unsigned last = masks.empty() ? (lanes - 1) * step + which + 1 - lanes : (step - 1) * lanes;
  const auto begin_of = [&](unsigned part) { return part + 1 == step ? last : part * lanes; };
  Value* result = nullptr;
  for (unsigned part = 0; part < step; ++part) {
    Value* const begin = b_.element(element, first, begin_of(part));
    Value* const loaded =
        masks.empty() ? static_cast<Value*>(b_.CreateAlignedLoad(type, begin, align))
                      : b_.CreateMaskedLoad(type, begin, align, masks[part], llvm::Constant::getNullValue(type));
    llvm::SmallVector<int, 64> order;
    for (unsigned lane = 0; lane < lanes; ++lane) {
      const unsigned at = step * lane + which, of = std::min(at / lanes, step - 1);
      const auto there = static_cast<int>(at - begin_of(of));
      order.push_back(of == part  ? (part == 0 ? there : static_cast<int>(lanes) + there)
                      : of < part ? static_cast<int>(lane)
                                  : -1);
    }
    result = part == 0 ? b_.CreateShuffleVector(loaded, order) : b_.CreateShuffleVector(result, loaded, order);
  }
  return result;
}

/// The vector that ends with the element at `first`, of whose lanes `mask`, if any, has those that are read.
Value* Accesses::load_reversed(unsigned access, Value* first, Value* mask) const {
  const DType dtype = kernel_.accesses[access].dtype;
  const auto lanes = static_cast<int>(b_.lanes());
  Type *const element = memory_type(b_.getContext(), dtype, 1), *const type =
                                                                    memory_type(b_.getContext(), dtype, b_.lanes());
  const llvm::Align align(byte_size(dtype));
  llvm::SmallVector<int, 64> reversed;
  for (int lane = 0; lane < lanes; ++lane) reversed.push_back(lanes - 1 - lane);
  Value* const begin = b_.CreateConstGEP1_64(element, first, static_cast<std::uint64_t>(std::int64_t{1} - lanes));
  // Processors do not fetch ahead of reads that go down through rows.
  if (kernel_.is_row_kernel() && kernel_.rank > 1 && mask == nullptr)
    if (Value* const row = stride(access, vector_axis() - 1)) {
      Value* const goes_on = b_.CreateICmpSGT(sizes_[vector_axis() - 1], b_.i64(1));
      prefetch(move(begin, b_.CreateSelect(goes_on, b_.CreateShl(row, 1), b_.i64(0))), byte_size(dtype) * b_.lanes());
    }
  Value* const vector = mask == nullptr
                            ? static_cast<Value*>(b_.CreateAlignedLoad(type, begin, align))
                            : b_.CreateMaskedLoad(type, begin, align, b_.CreateShuffleVector(mask, reversed),
                                                  llvm::Constant::getNullValue(type));
  return b_.CreateShuffleVector(vector, reversed);
}

}  // namespace fermata::jit
