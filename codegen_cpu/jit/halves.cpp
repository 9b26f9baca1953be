// Complex numbers that lie one after the other: pairs of elements, read and written as two vectors and a shuffle.
#include "codegen_cpu/jit/accesses.h"

namespace fermata::jit {

/// Where the pairs begin that hold the lanes of a vector.
Value* Accesses::first_of_pair(unsigned access, Value* address, const Span& span, unsigned vector) const {
  Value* const first = element_address(access, address, span, vector);
  if (kernel_.accesses[access].half == Half::real) return first;
  const auto bytes = static_cast<std::int64_t>(byte_size(kernel_.accesses[access].dtype));
  return b_.CreateGEP(b_.getInt8Ty(), first, b_.i64(-bytes));
}

bool Accesses::has_masked_pairs(unsigned access) const {
  return b_.isa().masks && byte_size(kernel_.accesses[access].dtype) * b_.lanes() >= 16;
}

/// Of the two vectors that hold the pairs of the active lanes.
Values Accesses::pair_masks(const Span& span, unsigned vector) const {
  Value* const left = b_.CreateBinaryIntrinsic(llvm::Intrinsic::smax, count_of(span, vector), b_.i64(0));
  return b_.masks_below(b_.CreateShl(left, 1), 2);
}

Value* Accesses::load_half(unsigned access, Value* address, const Span& span, unsigned vector) const {
  Value* const first = first_of_pair(access, address, span, vector);
  const unsigned which = kernel_.accesses[access].half == Half::real ? 0 : 1;
  const auto whole = [&] { return load_and_pick(access, first, 2, which, {}); };
  if (span.masks.empty()) return whole();
  const auto rest = [&] {
    return has_masked_pairs(access) ? load_and_pick(access, first, 2, which, pair_masks(span, vector))
                                    : load_by_lane(access, element_address(access, address, span, vector),
                                                   lane_step(access), count_of(span, vector));
  };
  if (has_masked_pairs(access) || !span.may_branch) return rest();
  return b_.either(
      is_whole(span, vector), [&] { return Values{whole()}; }, [&] { return Values{rest()}; })[0];
}

void Accesses::store_halves(unsigned access, Value* address, const Span& span, unsigned vector, Value* re,
                            Value* im) const {
  const DType dtype = kernel_.accesses[access].dtype;
  const llvm::Align align(byte_size(dtype));
  const unsigned lanes = b_.lanes();
  Type* const element = memory_type(b_.getContext(), dtype, 1);
  Value* const first = element_address(access, address, span, vector);
  Value* const second = b_.element(element, first, lanes);
  const Values both = b_.interleaved({re, im});
  const auto whole = [&] {
    b_.CreateAlignedStore(both[0], first, align);
    b_.CreateAlignedStore(both[1], second, align);
  };
  if (span.masks.empty()) return whole();
  const auto rest = [&] {
    if (has_masked_pairs(access)) {
      const Values masks = pair_masks(span, vector);
      b_.CreateMaskedStore(both[0], first, align, masks[0]);
      b_.CreateMaskedStore(both[1], second, align, masks[1]);
      return;
    }
    store_by_lane(access, first, lane_step(access), count_of(span, vector), re);
    store_by_lane(access, b_.element(element, first, 1), lane_step(access), count_of(span, vector), im);
  };
  if (has_masked_pairs(access) || !span.may_branch) return rest();
  b_.either(
      is_whole(span, vector),
      [&] {
        whole();
        return Values{};
      },
      [&] {
        rest();
        return Values{};
      });
}

}  // namespace fermata::jit
