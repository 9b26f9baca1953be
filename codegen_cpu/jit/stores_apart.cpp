// Stores of elements that lie apart in one tensor with those of other stores between them, as the coordinates of points
// and the channels of pixels that a stack along the last axis joins. See accesses.h.
//
// A scatter is a store for each lane. Vectors that lie element by element between each other are shuffled into whole
// ones. Strides and addresses are known at a launch, so these are compared there.
#include "codegen_cpu/jit/accesses.h"

namespace fermata::jit {

bool Accesses::may_interleave(unsigned access, unsigned next) const {
  const Access &a = kernel_.accesses[access], &b = kernel_.accesses[next];
  return along_vector_axis(access) && !a.is_in_order() && a == b;
}

/// Access number i of `accesses` has element i of as many that lie side by side.
Value* Accesses::lie_between_each_other(llvm::ArrayRef<unsigned> accesses) const {
  const auto bytes = static_cast<std::int64_t>(byte_size(kernel_.accesses[accesses[0]].dtype));
  Value* all = has_step(accesses[0], static_cast<std::int64_t>(accesses.size()));
  for (std::size_t i = 1; i < accesses.size(); ++i) {
    for (unsigned axis = 0; axis < kernel_.rank; ++axis)
      if (Value* const step = stride(accesses[0], axis))
        all = b_.CreateAnd(all, b_.CreateICmpEQ(step, stride(accesses[i], axis)));
    Value* const behind = b_.element(b_.getInt8Ty(), origin_[accesses[0]], static_cast<std::uint64_t>(bytes) * i);
    all = b_.CreateAnd(all, b_.CreateICmpEQ(behind, origin_[accesses[i]]));
  }
  return all;
}

bool Accesses::has_masked_interleaved(unsigned access) const {
  constexpr std::size_t kNarrowest = 16;  // see has_masked()
  return b_.isa().masks && byte_size(kernel_.accesses[access].dtype) * b_.lanes() >= kNarrowest;
}

void Accesses::store_interleaved(unsigned first_access, Value* address, const Span& span, unsigned vector,
                                 const Values& values) const {
  const DType dtype = kernel_.accesses[first_access].dtype;
  Type* const element = memory_type(b_.getContext(), dtype, 1);
  Value* const first = element_address(first_access, address, span, vector);
  Values parts;
  for (Value* const value : values) parts.push_back(to_memory(first_access, value));
  const Values whole = b_.interleaved(parts);
  const llvm::Align align(byte_size(dtype));
  const auto count = static_cast<unsigned>(whole.size());
  Values masks;
  if (!span.masks.empty()) masks = b_.masks_below(b_.CreateMul(count_of(span, vector), b_.i64(count)), count);
  for (unsigned i = 0; i < count; ++i) {
    Value* const place = b_.element(element, first, std::uint64_t{i} * b_.lanes());
    if (masks.empty())
      b_.CreateAlignedStore(whole[i], place, align);
    else
      b_.CreateMaskedStore(whole[i], place, align, masks[i]);
  }
}

}  // namespace fermata::jit
