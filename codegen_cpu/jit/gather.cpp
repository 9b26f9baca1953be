// Elements at positions that a kernel computes (Prim::position and Prim::gather), and under conditions
// (Prim::guarded_input): the part of Accesses that reads them.
#include <cstddef>

#include "codegen_cpu/jit/accesses.h"

namespace fermata::jit {

/// One branch for all vectors: that a position is out of range is rare. Lanes that do not exist are at 0 before they
/// are compared: a mask in the form of bits, combined with a comparison and made bits again, keeps LLVM 19 busy for
/// ever.
void Accesses::check_positions(Values& given, Value* size, const Values& masks) const {
  Value* any_outside = nullptr;
  for (std::size_t i = 0; i < given.size(); ++i) {
    Value*& at = given[i];
    Value* const zero = llvm::Constant::getNullValue(at->getType());
    at = b_.CreateSelect(b_.CreateICmpSLT(at, zero), b_.CreateAdd(at, size), at);
    if (!masks.empty()) at = b_.CreateSelect(masks[i], at, zero);
    Value* const outside = b_.CreateICmpUGE(at, size);
    at = b_.CreateSelect(outside, zero, at);
    any_outside = any_outside == nullptr ? outside : b_.CreateOr(any_outside, outside);
  }
  if (any_outside->getType()->isVectorTy()) any_outside = b_.CreateOrReduce(any_outside);
  b_.when(any_outside, {}, [&] {
    static_assert(offsetof(LaunchFailure, failed) == 0 && sizeof(LaunchFailure::failed) == 1);
    b_.CreateAlignedStore(b_.getInt8(1), failure_, llvm::Align(1));
    return Values{};
  });
}

Value* Accesses::behind(unsigned access, Value* address, Value* offset) const {
  return b_.CreateGEP(memory_type(b_.getContext(), kernel_.accesses[access].dtype, 1), address, offset);
}

bool Accesses::has_gather(unsigned access) const {
  return b_.isa().masks && byte_size(kernel_.accesses[access].dtype) >= 4;
}

Value* Accesses::gather(unsigned access, Value* address, Value* offsets, const Span& span, unsigned vector) const {
  const DType dtype = kernel_.accesses[access].dtype;
  const bool along = along_vector_axis(access);
  Value* const first = along ? element_address(access, address, span, vector) : address;
  Type* const element = memory_type(b_.getContext(), dtype, 1);
  // One load for each lane takes 0.26 ns an element where a gather takes 0.49 (Zen 5), and more to compile. On Emerald
  // Rapids a gather takes 0.19 and loads 0.33 (gather_speed.h).
  if (!has_gather(access) || (wide_ && span.masks.empty() && !b_.isa().gathers)) {
    Value* const bytes = CodeBuilder::integer_like(offsets, byte_size(dtype));
    Value* distances = b_.CreateMul(offsets, bytes);
    if (along) distances = b_.CreateAdd(distances, lane_distances_[access]);
    return from_memory(access, gather_by_lane(access, first, distances, count_of(span, vector)));
  }
  Type* const type = memory_type(b_.getContext(), dtype, b_.lanes());
  Value* const all = llvm::ConstantInt::getTrue(llvm::FixedVectorType::get(b_.getInt1Ty(), b_.lanes()));
  Value* const mask = span.masks.empty() ? all : span.masks[vector];
  Value* const addresses = b_.CreateGEP(element, along ? lane_addresses(access, first) : first, offsets);
  return from_memory(access, b_.CreateMaskedGather(type, addresses, llvm::Align(byte_size(dtype)), mask,
                                                   llvm::Constant::getNullValue(type)));
}

/// Elements at distances in bytes: all lanes are put together in registers, some lanes by a loop. Distances lie on the
/// stack; only from short vectors it takes less to extract them.
Value* Accesses::gather_by_lane(unsigned access, Value* first, Value* distances, Value* count) const {
  constexpr unsigned kShortBits = 256;
  Type* const word = b_.getInt64Ty();
  const bool in_registers = count == nullptr && (b_.lanes() <= kFewLanes || !is_narrow(access));
  const bool extracts = in_registers && b_.lanes() <= kFewLanes && b_.isa().vector_bits <= kShortBits;
  const auto behind = [&](Value* distance) { return b_.CreateGEP(b_.getInt8Ty(), first, distance); };
  if (!extracts) {
    if (distances_ == nullptr) distances_ = b_.stack(word, b_.lanes(), 64);
    b_.CreateAlignedStore(distances, distances_, llvm::Align(64));
  }
  const auto kept = [&](Value* at) { return b_.CreateAlignedLoad(word, at, llvm::Align(8)); };
  if (!in_registers)
    return load_through_stack(access, count,
                              [&](Value* lane) { return behind(kept(b_.CreateGEP(word, distances_, lane))); });
  Values addresses;
  for (std::uint64_t lane = 0; lane < b_.lanes(); ++lane)
    addresses.push_back(
        behind(extracts ? b_.CreateExtractElement(distances, lane) : kept(b_.element(word, distances_, lane))));
  return load_in_registers(access, addresses);
}

/// Where no lane exists, the stack is read under the mask: of memory that is not mapped, a processor takes a hundred
/// cycles to find out that nothing is to be read.
Value* Accesses::load_guarded(unsigned access, Value* address, const Span& span, unsigned vector, Value* guard,
                              Value* may_exist) const {
  if (!along_vector_axis(access)) {  // the same element for all lanes, which exists if there is a lane
    Value* const elements = b_.splat(load_uniform(access, address));
    return b_.CreateSelect(guard, elements, llvm::Constant::getNullValue(elements->getType()));
  }
  const DType dtype = kernel_.accesses[access].dtype;
  Value* const first = element_address(access, address, span, vector);
  if (!has_masked(access))
    return from_memory(access, load_guarded_by_lane(access, first, count_of(span, vector), guard));
  Type* const type = memory_type(b_.getContext(), dtype, b_.lanes());
  Value *const mask = span.masks.empty() ? guard : b_.CreateAnd(guard, span.masks[vector]),
               *const zeros = llvm::Constant::getNullValue(type);
  const llvm::Align align(byte_size(dtype));
  if (!is_adjacent(access))
    return from_memory(access, b_.CreateMaskedGather(type, lane_addresses(access, first), align, mask, zeros));
  Value* const place = may_exist == nullptr ? first : b_.CreateSelect(may_exist, first, bounce());
  return from_memory(access, b_.CreateMaskedLoad(type, place, align, mask, zeros));
}

/// A vector of zeros, written at the entry.
Value* Accesses::zeros() const {
  if (zeros_ == nullptr) {
    zeros_ = b_.stack(b_.getInt64Ty(), b_.lanes(), 64);
    llvm::IRBuilder<> after(zeros_->getNextNode());
    const std::uint64_t words = b_.isa().vector_bits / 64;
    Type* const vector = llvm::FixedVectorType::get(b_.getInt64Ty(), static_cast<unsigned>(words));
    for (std::uint64_t word = 0; word < b_.lanes(); word += words)
      after.CreateAlignedStore(llvm::Constant::getNullValue(vector),
                               after.CreateConstGEP1_64(b_.getInt64Ty(), zeros_, word), llvm::Align(64));
  }
  return zeros_;
}

Value* Accesses::place(unsigned access, Value* address, const Span& span, unsigned vector, Value* exist) const {
  return b_.CreateSelect(exist, element_address(access, address, span, vector), zeros());
}

Value* Accesses::load_place(unsigned access, Value* place) const {
  const DType dtype = kernel_.accesses[access].dtype;
  return from_memory(access, b_.CreateAlignedLoad(memory_type(b_.getContext(), dtype, b_.lanes()), place,
                                                  llvm::Align(byte_size(dtype))));
}

/// Lanes that are not read read a zero on the stack.
Value* Accesses::load_guarded_by_lane(unsigned access, Value* first, Value* count, Value* guard) const {
  Type* const byte = b_.getInt8Ty();
  if (guards_ == nullptr) guards_ = b_.stack(b_.getInt64Ty(), b_.lanes() / 8 + 2, 64);
  Value* const zero = b_.element(byte, guards_, std::uint64_t{(b_.lanes() + 7) / 8} * 8);
  b_.CreateAlignedStore(b_.getInt64(0), zero, llvm::Align(8));
  b_.CreateAlignedStore(b_.CreateZExt(guard, llvm::FixedVectorType::get(byte, b_.lanes())), guards_, llvm::Align(1));
  return load_through_stack(access, count, [&](Value* lane) -> Value* {
    Value* const reads = b_.CreateAlignedLoad(byte, b_.CreateGEP(byte, guards_, lane), llvm::Align(1));
    Value* const at = b_.CreateGEP(byte, first, b_.CreateMul(lane_step(access), lane));
    return b_.CreateSelect(b_.CreateIsNotNull(reads), at, zero);
  });
}

}  // namespace fermata::jit
