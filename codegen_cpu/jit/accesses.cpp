// See accesses.h.
#include "codegen_cpu/jit/accesses.h"

#include <algorithm>
#include <bit>
#include <cstddef>

#include "codegen_cpu/jit/plugin.h"

namespace fermata::jit {
namespace {

/// Field `offset` of the launch.
Value* field(CodeBuilder& b, Value* launch, std::size_t offset, Type* type) {
  return b.CreateAlignedLoad(type, b.element(b.getInt8Ty(), launch, offset), llvm::Align(8));
}
Value* entry(CodeBuilder& b, Value* array, std::size_t index, Type* type) {
  return b.CreateAlignedLoad(type, b.element(type, array, index), llvm::Align(8));
}

}  // namespace

Accesses::Accesses(CodeBuilder& b, const Kernel& kernel, Value* launch, bool may_prefetch, bool wide)
    : b_(b), kernel_(kernel), wide_(wide), turned_(kernel.accesses.size()) {
  plan_prefetches(may_prefetch);
  plan_loads_apart();
  Type* const pointer = b.getPtrTy();
  Value* const pointers = field(b, launch, offsetof(KernelLaunch, pointers), pointer);
  Value* const sizes = field(b, launch, offsetof(KernelLaunch, sizes), pointer);
  Value* const strides = field(b, launch, offsetof(KernelLaunch, strides), pointer);
  Value* const offsets = field(b, launch, offsetof(KernelLaunch, offsets), pointer);
  for (unsigned axis = 0; axis < kernel.rank; ++axis) sizes_.push_back(entry(b, sizes, axis, b.getInt64Ty()));
  Value* const slots = field(b, launch, offsetof(KernelLaunch, scalars), pointer);
  for (std::size_t i = 0; i < kernel.scalars.size(); ++i) {
    Value* const slot = b.element(b.getInt64Ty(), slots, i);
    Type* const type = memory_type(b.getContext(), kernel.scalars[i], 1);
    Value* const bits = b.CreateAlignedLoad(type, slot, llvm::Align(8));
    scalars_.push_back(kernel.scalars[i] == DType::boolean ? b.CreateIsNotNull(bits) : bits);
  }
  if (has_positions(kernel)) failure_ = field(b, launch, offsetof(KernelLaunch, failure), pointer);
  strides_.resize(kernel.accesses.size() * kernel.rank);
  for (unsigned a = 0; a < kernel.accesses.size(); ++a) {
    const Access& access = kernel.accesses[a];
    origin_.push_back(access.address_only ? entry(b, offsets, a, b.getInt64Ty()) : entry(b, pointers, a, pointer));
    const auto unit = access.address_only ? std::int64_t{1} : static_cast<std::int64_t>(byte_size(access.dtype));
    for (unsigned axis = 0; axis < kernel.rank; ++axis) {
      if ((access.axes >> axis & 1u) == 0) continue;
      Value*& stride = strides_[a * kernel.rank + axis];
      if (axis == vector_axis() && access.is_in_order())
        stride = b.i64(access.unit_stride ? unit : 2 * unit);
      else
        stride = b.CreateMul(entry(b, strides, a * kernel.rank + axis, b.getInt64Ty()), b.i64(unit));
    }
    lane_distances_.push_back(along_vector_axis(a) ? b.CreateMul(b.splat(stride(a, vector_axis())), b.lane_numbers())
                                                   : nullptr);
  }
}

/// Slots lie one after the other, each over the reduced axes in row-major order; see scratch_bytes() in plugin.h.
void Accesses::add_slots(const std::vector<DType>& slots, Value* scratch, Value* columns) {
  if (slots.empty()) return;
  const auto reduced = static_cast<unsigned>(kernel_.reduced);
  const auto outermost = static_cast<unsigned>(std::countr_zero(reduced));
  const auto points_along = [&](unsigned axis) {
    if (axis != vector_axis()) return sizes_[axis];
    return b_.CreateAnd(b_.CreateAdd(sizes_[axis], b_.i64(kScratchGranule - 1)), b_.i64(-kScratchGranule));
  };
  Values strides(kernel_.rank, nullptr);  // in elements
  Value* points = columns;
  for (unsigned axis = kernel_.rank; axis-- > 0;) {
    if (!kernel_.is_reduced(axis)) continue;
    strides[axis] = points;
    if (axis != outermost || slots.size() > 1) points = b_.CreateMul(points, points_along(axis));
  }
  for (std::size_t slot = 0; slot < slots.size(); ++slot) {
    Value* const bytes = b_.i64(static_cast<std::int64_t>(byte_size(slots[slot])));
    origin_.push_back(scratch);
    for (Value* const stride : strides) strides_.push_back(stride == nullptr ? nullptr : b_.CreateMul(stride, bytes));
    if (slot + 1 == slots.size()) break;
    scratch = b_.CreateGEP(b_.getInt8Ty(), scratch, b_.CreateAdd(b_.CreateMul(points, bytes), b_.i64(kScratchSlack)));
  }
}

Value* Accesses::slot_address(Type* element, unsigned slot, const Values& addresses, const Span& span,
                              unsigned vector) const {
  Value* const address = addresses[kernel_.accesses.size() + slot];
  return b_.element(element, b_.CreateGEP(element, address, span.index), std::uint64_t{vector} * b_.lanes());
}

Value* Accesses::load_slot(DType dtype, unsigned slot, const Values& addresses, const Span& span,
                           unsigned vector) const {
  Value* const address = slot_address(memory_type(b_.getContext(), dtype, 1), slot, addresses, span, vector);
  Value* const memory =
      b_.CreateAlignedLoad(memory_type(b_.getContext(), dtype, b_.lanes()), address, llvm::Align(byte_size(dtype)));
  return dtype == DType::boolean ? b_.CreateIsNotNull(memory) : memory;
}

void Accesses::store_slot(DType dtype, unsigned slot, const Values& addresses, const Span& span, unsigned vector,
                          Value* value) const {
  Type* const type = memory_type(b_.getContext(), dtype, b_.lanes());
  Value* const address = slot_address(memory_type(b_.getContext(), dtype, 1), slot, addresses, span, vector);
  b_.CreateAlignedStore(dtype == DType::boolean ? b_.CreateZExt(value, type) : value, address,
                        llvm::Align(byte_size(dtype)));
}

Value* Accesses::count_of(const Span& span, unsigned vector) const {
  return span.left == nullptr ? nullptr : b_.lanes_below(span.left, vector);
}

Value* Accesses::move(Value* address, Value* distance) const {
  if (const auto* known = llvm::dyn_cast<llvm::ConstantInt>(distance); known != nullptr && known->isZero())
    return address;
  if (!address->getType()->isPointerTy()) return b_.CreateAdd(address, distance);
  return b_.CreateGEP(b_.getInt8Ty(), address, distance);
}

Values Accesses::moved(const Values& addresses, unsigned axis, Value* distance) const {
  Values result = addresses;
  for (unsigned a = 0; a < result.size(); ++a)
    if (Value* const step = stride(a, axis)) result[a] = move(result[a], b_.CreateMul(distance, step));
  return result;
}

Digit Accesses::axis_digit(unsigned axis) const {
  Digit digit{sizes_[axis], {}};
  for (unsigned a = 0; a < origin_.size(); ++a) digit.strides.push_back(stride(a, axis));
  return digit;
}

Digit Accesses::block_digit(unsigned axis, std::int64_t length) const {
  Digit digit = axis_digit(axis);
  digit.size = b_.CreateUDiv(b_.CreateAdd(digit.size, b_.i64(length - 1)), b_.i64(length));
  for (Value*& stride : digit.strides)
    if (stride != nullptr) stride = b_.CreateMul(stride, b_.i64(length));
  return digit;
}

Value* Accesses::from_memory(unsigned access, Value* memory) const {
  if (kernel_.accesses[access].dtype != DType::boolean) return memory;
  return b_.CreateICmpNE(memory, llvm::Constant::getNullValue(memory->getType()));
}

Value* Accesses::to_memory(unsigned access, Value* value) const {
  const DType dtype = kernel_.accesses[access].dtype;
  return dtype == DType::boolean ? b_.CreateZExt(value, memory_type(b_.getContext(), dtype, lanes_of(value))) : value;
}

Value* Accesses::load_uniform(unsigned access, Value* address) const {
  const DType dtype = kernel_.accesses[access].dtype;
  return from_memory(
      access, b_.CreateAlignedLoad(memory_type(b_.getContext(), dtype, 1), address, llvm::Align(byte_size(dtype))));
}

void Accesses::store_uniform(unsigned access, Value* address, Value* value) const {
  b_.CreateAlignedStore(to_memory(access, value), address, llvm::Align(byte_size(kernel_.accesses[access].dtype)));
}

Value* Accesses::element_address(unsigned access, Value* address, const Span& span, unsigned vector) const {
  const std::uint64_t first = std::uint64_t{vector} * b_.lanes();
  if (is_adjacent(access) && !kernel_.accesses[access].address_only) {
    Type* const element = memory_type(b_.getContext(), kernel_.accesses[access].dtype, 1);
    // Two steps, so that the second one becomes the displacement of an addressing mode.
    return b_.element(element, b_.CreateGEP(element, address, span.index), first);
  }
  Value* const index = b_.CreateAdd(span.index, b_.getInt64(first));
  return move(address, b_.CreateMul(index, stride(access, vector_axis())));
}

bool Accesses::has_masked(unsigned access) const {
  const Access& described = kernel_.accesses[access];
  const std::size_t bytes = byte_size(described.dtype);
  if (!b_.isa().masks) return is_adjacent(access) && bytes >= 4;
  // LLVM 19 widens narrower vectors to 16 bytes and relies on a KMOVB to clear the mask above them, but takes that for
  // a plain copy where the mask is spilled: lanes that do not exist are then stored (llc -O1 does it too).
  return is_adjacent(access) ? bytes * b_.lanes() >= 16 : bytes >= 4;
}

Value* Accesses::lane_step(unsigned access) const { return stride(access, vector_axis()); }

Value* Accesses::lane_addresses(unsigned access, Value* first) const {
  return b_.CreateGEP(b_.getInt8Ty(), first, lane_distances_[access]);
}

/// Masked loads of AVX2 take several times as long as whole ones (max over rows of 40: 4.5 ms, not 1), and lanes one by
/// one much longer; most vectors of a rest are whole.
bool Accesses::asks_for_whole_vectors(unsigned access, const Span& span) const {
  return is_adjacent(access) && !span.masks.empty() && span.may_branch && !(b_.isa().masks && has_masked(access));
}

Value* Accesses::is_whole(const Span& span, unsigned vector) const {
  return b_.CreateICmpSGE(span.left, b_.i64(std::int64_t{vector + 1} * b_.lanes()));
}

/// It is in a cache after the first row.
bool Accesses::is_same_in_all_rows(unsigned access) const {
  return kernel_.rank > 1 && kernel_.accesses[access].axes == std::uint64_t{1} << (kernel_.rank - 1u);
}

Value* Accesses::load(unsigned access, Value* address, const Span& span, unsigned vector) const {
  if (kernel_.accesses[access].half != Half::none) return load_half(access, address, span, vector);
  const DType dtype = kernel_.accesses[access].dtype;
  const bool adjacent = is_adjacent(access);
  const llvm::Align align(byte_size(dtype));
  Type* const type = memory_type(b_.getContext(), dtype, b_.lanes());
  Value* const first = element_address(access, address, span, vector);
  Value* memory = nullptr;
  const std::int64_t in_tile = tile_columns_ * static_cast<std::int64_t>(byte_size(dtype));
  // Zen 4 and 5 do not fetch ahead of masked loads: sum(a * r) over rows of 64 takes 8 times as long then.
  const bool is_masked = !span.masks.empty() && b_.isa().masks && (kernel_.reduced == 0 || kernel_.is_row_kernel());
  constexpr std::size_t kLine = 64;  // bytes: shorter vectors of narrow elements share one
  const bool begins_line = vector * b_.lanes() * byte_size(dtype) % kLine == 0;
  const bool may_prefetch = begins_line && adjacent && !turned_[access] && !kernel_.accesses[access].gathered &&
                            !kernel_.accesses[access].guarded && !is_same_in_all_rows(access);
  if (may_prefetch && (in_tile != 0 || prefetches_ || is_masked))
    prefetch(b_.element(b_.getInt8Ty(), first, static_cast<std::uint64_t>(in_tile != 0 ? in_tile : prefetch_distance_)),
             byte_size(dtype) * b_.lanes());
  else if (may_prefetch && !steps_ahead_.empty() && steps_ahead_[access] != nullptr)
    prefetch(move(first, steps_ahead_[access]), byte_size(dtype) * b_.lanes());
  if (adjacent && span.masks.empty()) {
    memory = b_.CreateAlignedLoad(type, first, align);
  } else if (asks_for_whole_vectors(access, span)) {
    memory = b_.either(
        is_whole(span, vector), [&] { return Values{b_.CreateAlignedLoad(type, first, align)}; },
        [&] {
          return Values{has_masked(access) ? b_.CreateMaskedLoad(type, first, align, span.masks[vector],
                                                                 llvm::Constant::getNullValue(type))
                                           : load_by_lane(access, first, lane_step(access), count_of(span, vector))};
        })[0];
  } else if (adjacent && has_masked(access)) {
    memory = b_.CreateMaskedLoad(type, first, align, span.masks[vector], llvm::Constant::getNullValue(type));
  } else if (adjacent) {
    memory = load_by_lane(access, first, lane_step(access), count_of(span, vector));
  } else {
    memory = load_apart(access, first, span, vector);
  }
  return from_memory(access, memory);
}

Value* Accesses::is_adjacent_along(unsigned access, unsigned axis) const {
  return b_.CreateICmpEQ(stride(access, axis),
                         b_.i64(static_cast<std::int64_t>(byte_size(kernel_.accesses[access].dtype))));
}

/// Squares of whole vectors, whose lanes change places with their numbers one bit at a time.
void Accesses::turn(unsigned access, Value* address, Value* column, Value* rows, std::int64_t columns, Value* to,
                    Value* next) const {
  const DType dtype = kernel_.accesses[access].dtype;
  const llvm::Align align(byte_size(dtype));
  const auto lanes = static_cast<std::int64_t>(b_.lanes());
  Type *const element = memory_type(b_.getContext(), dtype, 1), *const type =
                                                                    memory_type(b_.getContext(), dtype, b_.lanes());
  b_.loop(b_.i64(0), b_.i64(columns), lanes, {}, [&](Value* index, const Values&) {
    Value* const first = move(address, b_.CreateMul(b_.CreateAdd(column, index), stride(access, vector_axis())));
    Value* const target = b_.CreateGEP(element, to, index);
    return b_.loop(b_.i64(0), rows, lanes, {}, [&](Value* part, const Values&) {
      Values square;
      for (std::int64_t j = 0; j < lanes; ++j) {
        Value* const line = move(first, b_.CreateMul(b_.i64(j), stride(access, vector_axis())));
        square.push_back(b_.CreateAlignedLoad(type, b_.CreateGEP(element, line, part), align));
        prefetch(b_.CreateGEP(element, move(line, next), part), static_cast<std::uint64_t>(lanes) * byte_size(dtype));
      }
      for (std::int64_t bit = 1; bit < lanes; bit *= 2)
        for (std::int64_t i = 0; i < lanes; ++i) {
          if ((i & bit) != 0) continue;
          llvm::SmallVector<int, 16> without, with;
          for (std::int64_t lane = 0; lane < lanes; ++lane) {
            const bool has = (lane & bit) != 0;
            without.push_back(static_cast<int>(has ? lanes + lane - bit : lane));
            with.push_back(static_cast<int>(has ? lanes + lane : lane + bit));
          }
          Value *&a = square[static_cast<unsigned>(i)], *&c = square[static_cast<unsigned>(i + bit)];
          Value* const first_half = b_.CreateShuffleVector(a, c, without);
          c = b_.CreateShuffleVector(a, c, with);
          a = first_half;
        }
      Value* const first_row = b_.CreateGEP(element, target, b_.CreateMul(part, b_.i64(columns)));
      for (std::int64_t r = 0; r < lanes; ++r)
        b_.CreateAlignedStore(square[static_cast<unsigned>(r)],
                              b_.element(element, first_row, static_cast<std::uint64_t>(r * columns)), align);
      return Values{};
    });
  });
}

Value* Accesses::bounce() const {
  if (bounce_ == nullptr) bounce_ = b_.stack(b_.getInt64Ty(), b_.lanes(), 64);
  return bounce_;
}

/// All lanes are gathered in registers; some lanes through the stack by a loop, which reads only what exists.
Value* Accesses::load_by_lane(unsigned access, Value* first, Value* step, Value* count) const {
  const bool is_much = is_narrow(access) && b_.lanes() > kFewLanes && !wide_;  // to compile
  if (count == nullptr && !is_much) return load_in_registers(access, lanes_apart(first, step));
  return load_through_stack(access, count, [&](Value* lane) -> Value* {
    return b_.CreateGEP(b_.getInt8Ty(), first, b_.CreateMul(step, lane));
  });
}

bool Accesses::is_narrow(unsigned access) const {
  constexpr std::size_t kNarrow = 2;  // bytes
  return byte_size(kernel_.accesses[access].dtype) <= kNarrow;
}

/// The addresses of all lanes, of which addressing modes compute most.
Values Accesses::lanes_apart(Value* first, Value* step) const {
  constexpr unsigned kTogether = 4;
  Value* const twice = b_.CreateShl(step, 1);
  Value* const steps[kTogether + 1] = {nullptr, step, twice, b_.CreateAdd(twice, step), b_.CreateShl(step, 2)};
  Values addresses;
  for (unsigned lane = 0; lane < b_.lanes(); ++lane) {
    const unsigned which = lane % kTogether;
    if (which == 0 && lane > 0) first = b_.CreateGEP(b_.getInt8Ty(), first, steps[kTogether]);
    addresses.push_back(which == 0 ? first : b_.CreateGEP(b_.getInt8Ty(), first, steps[which]));
  }
  return addresses;
}

/// One load for each lane, put together in parts of 16. A gather of AVX-512 takes twice as long (Zen 5; f32 and f64),
/// and five times if elements are not in the first caches: it waits for all of them.
Value* Accesses::load_in_registers(unsigned access, const Values& addresses) const {
  constexpr unsigned kMost = 16;
  const DType dtype = kernel_.accesses[access].dtype;
  Type* const element = memory_type(b_.getContext(), dtype, 1);
  Type* const type = memory_type(b_.getContext(), dtype, std::min(b_.lanes(), kMost));
  Values parts;
  for (unsigned lane = 0; lane < b_.lanes(); ++lane) {
    if (lane % kMost == 0) parts.push_back(llvm::PoisonValue::get(type));
    Value* const loaded = b_.CreateAlignedLoad(element, addresses[lane], llvm::Align(byte_size(dtype)));
    parts.back() = b_.CreateInsertElement(parts.back(), loaded, std::uint64_t{lane % kMost});
  }
  return b_.joined(std::move(parts));
}

/// A loop over the lanes below `count`, or all.
Value* Accesses::load_through_stack(unsigned access, Value* count,
                                    llvm::function_ref<Value*(Value* lane)> address) const {
  const DType dtype = kernel_.accesses[access].dtype;
  Type* const element = memory_type(b_.getContext(), dtype, 1);
  const llvm::Align align(byte_size(dtype));
  b_.loop(b_.i64(0), count != nullptr ? count : b_.i64(b_.lanes()), 1, {}, [&](Value* lane, const Values&) {
    Value* const loaded = b_.CreateAlignedLoad(element, address(lane), align);
    b_.CreateAlignedStore(loaded, b_.CreateGEP(element, bounce(), lane), align);
    return Values{};
  });
  return b_.CreateAlignedLoad(memory_type(b_.getContext(), dtype, b_.lanes()), bounce(), llvm::Align(64));
}

void Accesses::store(unsigned access, Value* address, const Span& span, unsigned vector, Value* value) const {
  const bool adjacent = kernel_.accesses[access].unit_stride;
  const llvm::Align align(byte_size(kernel_.accesses[access].dtype));
  Value* const first = element_address(access, address, span, vector);
  Value* const memory = to_memory(access, value);
  if (adjacent && span.masks.empty()) {
    b_.CreateAlignedStore(memory, first, align);
  } else if (asks_for_whole_vectors(access, span)) {
    b_.either(
        is_whole(span, vector),
        [&] {
          b_.CreateAlignedStore(memory, first, align);
          return Values{};
        },
        [&] {
          if (has_masked(access))
            b_.CreateMaskedStore(memory, first, align, span.masks[vector]);
          else
            store_by_lane(access, first, lane_step(access), count_of(span, vector), memory);
          return Values{};
        });
  } else if (has_masked(access)) {
    Value* const all = llvm::ConstantInt::getTrue(llvm::FixedVectorType::get(b_.getInt1Ty(), b_.lanes()));
    Value* const mask = span.masks.empty() ? all : span.masks[vector];
    if (adjacent)
      b_.CreateMaskedStore(memory, first, align, mask);
    else
      b_.CreateMaskedScatter(memory, lane_addresses(access, first), align, mask);
  } else {
    store_by_lane(access, first, lane_step(access), count_of(span, vector), memory);
  }
}

void Accesses::stream(unsigned access, Value* address, const Span& span, unsigned vector, Value* value) const {
  Value* const memory = to_memory(access, value);
  const std::uint64_t bytes = memory->getType()->getPrimitiveSizeInBits().getFixedValue() / 8;
  const llvm::Align align(std::min<std::uint64_t>(bytes, kStreamAlignment));
  llvm::StoreInst* const store = b_.CreateAlignedStore(memory, element_address(access, address, span, vector), align);
  llvm::Metadata* const one = llvm::ConstantAsMetadata::get(b_.getInt32(1));
  store->setMetadata(llvm::LLVMContext::MD_nontemporal, llvm::MDNode::get(b_.getContext(), one));
}

Value* Accesses::unaligned_head(unsigned access, Value* address, Value* index, Value* most) const {
  const std::size_t bytes = byte_size(kernel_.accesses[access].dtype);
  Type* const element = memory_type(b_.getContext(), kernel_.accesses[access].dtype, 1);
  Value* const first = b_.CreatePtrToInt(b_.CreateGEP(element, address, index), b_.getInt64Ty());
  Value* const to_line = b_.CreateAnd(b_.CreateNeg(first), b_.i64(kStreamAlignment - 1));
  Value* const head = b_.CreateLShr(to_line, std::uint64_t(std::countr_zero(bytes)));
  return b_.CreateBinaryIntrinsic(llvm::Intrinsic::smin, head, most);
}

void Accesses::store_by_lane(unsigned access, Value* first, Value* step, Value* count, Value* memory) const {
  const DType dtype = kernel_.accesses[access].dtype;
  Type* const element = memory_type(b_.getContext(), dtype, 1);
  const llvm::Align align(byte_size(dtype));
  b_.CreateAlignedStore(memory, bounce(), llvm::Align(64));
  b_.loop(b_.i64(0), count != nullptr ? count : b_.i64(b_.lanes()), 1, {}, [&](Value* lane, const Values&) {
    Value* const at = b_.CreateGEP(b_.getInt8Ty(), first, b_.CreateMul(step, lane));
    b_.CreateAlignedStore(b_.CreateAlignedLoad(element, b_.CreateGEP(element, bounce(), lane), align), at, align);
    return Values{};
  });
}

/// Distances from the origin in bytes become elements, where there is a pointer.
Value* Accesses::as_offset(unsigned access, Value* distance) const {
  if (kernel_.accesses[access].address_only) return distance;
  return b_.CreateAShr(distance, std::uint64_t(std::countr_zero(byte_size(kernel_.accesses[access].dtype))));
}

Value* Accesses::distance(unsigned access, Value* address) const {
  if (kernel_.accesses[access].address_only) return address;
  Type* const i64 = b_.getInt64Ty();
  return b_.CreateSub(b_.CreatePtrToInt(address, i64), b_.CreatePtrToInt(origin_[access], i64));
}

Value* Accesses::offset(unsigned access, Value* address) const { return as_offset(access, distance(access, address)); }

Value* Accesses::offsets(unsigned access, Value* address, const Span& span, unsigned vector) const {
  Value* const first = distance(access, element_address(access, address, span, vector));
  return as_offset(access, b_.CreateAdd(b_.splat(first), lane_distances_[access]));
}

std::pair<Value*, Value*> Accesses::first_and_last_offset(unsigned access, Value* address, const Span& span,
                                                          unsigned vector) const {
  Value* const first = distance(access, element_address(access, address, span, vector));
  Value* const step = b_.CreateMul(lane_step(access), b_.i64(std::int64_t{b_.lanes()} - 1));
  return {as_offset(access, first), as_offset(access, b_.CreateAdd(first, step))};
}

Values Accesses::linear_loop(const llvm::SmallVector<Digit, 4>& digits, Value* begin, Value* end,
                             const Values& addresses, const Values& carried, LinearBody body) const {
  if (digits.empty()) {  // one point, if the range holds it
    return b_.loop(begin, end, 1, carried,
                   [&](Value* linear, const Values& now) { return body(addresses, linear, linear, now); });
  }
  const std::size_t inner = digits.size() - 1;
  Values index(digits.size());  // the digits of `begin`; the outermost one is never needed
  Value* rest = begin;
  for (std::size_t d = inner; d > 0; --d) {
    Value* const size = b_.CreateBinaryIntrinsic(llvm::Intrinsic::umax, digits[d].size, b_.i64(1));
    index[d] = b_.CreateURem(rest, size);
    rest = b_.CreateUDiv(rest, size);
  }
  index[0] = rest;

  Values start = addresses;
  llvm::SmallVector<unsigned, 8> moving;
  for (unsigned a = 0; a < addresses.size(); ++a) {
    bool moves = false;
    for (std::size_t d = 0; d <= inner; ++d)
      if (Value* const stride = digits[d].strides[a]) {
        const bool at_start =
            llvm::isa<llvm::ConstantInt>(index[d]) && llvm::cast<llvm::ConstantInt>(index[d])->isZero();
        if (!at_start) start[a] = move(start[a], b_.CreateMul(index[d], stride));
        moves = true;
      }
    if (moves) moving.push_back(a);
  }
  // What a step adds to an address: the inner stride, or where digit d wraps, back to its start and one step outwards.
  const auto stride_of = [&](std::size_t d, unsigned a) -> Value* {
    return digits[d].strides[a] != nullptr ? digits[d].strides[a] : b_.i64(0);
  };
  const auto wrap = [&](std::size_t d, unsigned a) {
    return b_.CreateSub(stride_of(d - 1, a), b_.CreateMul(digits[d].size, stride_of(d, a)));
  };
  std::vector<Values> wraps(digits.size());
  for (std::size_t d = inner; d > 0; --d)
    for (const unsigned a : moving) wraps[d].push_back(wrap(d, a));

  Values state(index.begin() + 1, index.end());
  for (const unsigned a : moving) state.push_back(start[a]);
  state.append(carried.begin(), carried.end());
  const Values last = b_.loop(begin, end, 1, state, [&](Value* linear, const Values& now) {
    Values at = addresses;
    for (std::size_t m = 0; m < moving.size(); ++m) at[moving[m]] = now[inner + m];
    const Values user(now.begin() + static_cast<std::ptrdiff_t>(inner + moving.size()), now.end());
    const Values result = body(at, linear, inner == 0 ? linear : now[inner - 1], user);

    Values next(inner);
    Values steps;
    for (const unsigned a : moving) steps.push_back(stride_of(inner, a));
    Value* carry = b_.getInt64(1);
    for (std::size_t d = inner; d > 0; --d) {
      Value* const advanced = b_.CreateAdd(now[d - 1], carry);
      Value* const wrapped = b_.CreateICmpEQ(advanced, digits[d].size);
      next[d - 1] = b_.CreateSelect(wrapped, b_.i64(0), advanced);
      for (std::size_t m = 0; m < moving.size(); ++m)
        steps[m] = b_.CreateAdd(steps[m], b_.CreateSelect(wrapped, wraps[d][m], b_.i64(0)));
      carry = b_.CreateZExt(wrapped, b_.getInt64Ty());
    }
    for (std::size_t m = 0; m < moving.size(); ++m) next.push_back(move(at[moving[m]], steps[m]));
    next.append(result.begin(), result.end());
    return next;
  });
  return Values(last.begin() + static_cast<std::ptrdiff_t>(inner + moving.size()), last.end());
}

}  // namespace fermata::jit
