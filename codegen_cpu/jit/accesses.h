// Element access: addresses per access, vector loads and stores along the vector axis, and loops that advance
// addresses.
//
// An address is a pointer, with strides in bytes; for address_only accesses it is an element offset, with strides in
// elements. Along the vector axis an access is uniform (the same element for all lanes), contiguous or strided.
#pragma once

#include <utility>

#include "codegen_cpu/jit/code_builder.h"
#include "ir/kernel.h"

namespace fermata::jit {

/// Streaming stores write whole cache lines.
inline constexpr std::int64_t kStreamAlignment = 64;

/// Lanes from `index` on along the vector axis. Either all lanes are active, or only the first `left`.
struct Span {
  Value* index;
  Value* left = nullptr;
  Values masks{};                   // `left` as masks
  bool may_branch = true;           // if masks are slow: may branch to unmasked code for whole vectors
  bool aligned = false;             // streaming stores are aligned to kStreamAlignment
  const Values* decided = nullptr;  // between edges: what comparisons are, per value (Evaluator::decide)
};

/// One digit of a linear index: an axis, or the blocks of one.
struct Digit {
  Value* size;
  Values strides;  // per access; null if its address does not change
};

class Accesses {
 public:
  /// Loads pointers, sizes and strides from the KernelLaunch, at the builder's insertion point in the entry block. With
  /// `may_prefetch`, loads prefetch where that is profitable; `wide` code has more ways to load elements that lie
  /// apart.
  Accesses(CodeBuilder& b, const Kernel& kernel, Value* launch, bool may_prefetch, bool wide);
  /// Lays out slots for kept values (spilled_values.h) at `scratch`, for a row or `columns` columns. They become
  /// accesses after those of the kernel, with advancing addresses, and are accessed only by load_slot() and
  /// store_slot().
  void add_slots(const std::vector<DType>& slots, Value* scratch, Value* columns);

  Value* size(unsigned axis) const { return sizes_[axis]; }
  Value* scalar(unsigned index) const { return scalars_[index]; }
  /// Addresses at the origin of the loop nest.
  const Values& origin() const { return origin_; }
  bool along_vector_axis(unsigned access) const {
    return (kernel_.accesses[access].axes >> (kernel_.rank - 1u) & 1u) != 0;
  }
  /// Whether the target has masked loads and stores for an access.
  bool has_masked(unsigned access) const;
  /// Advances addresses by `distance` steps along an axis.
  Values moved(const Values& addresses, unsigned axis, Value* distance) const;
  Digit axis_digit(unsigned axis) const;
  /// The digit of an axis cut into blocks of `length` steps.
  Digit block_digit(unsigned axis, std::int64_t length) const;

  /// Loads or stores one element for all lanes.
  Value* load_uniform(unsigned access, Value* address) const;
  void store_uniform(unsigned access, Value* address, Value* value) const;
  /// Loads or stores vector number `vector` of a span. Inactive lanes are unspecified.
  Value* load(unsigned access, Value* address, const Span& span, unsigned vector) const;
  void store(unsigned access, Value* address, const Span& span, unsigned vector, Value* value) const;
  /// Stores both halves of complex numbers that lie one after the other; `access` is the one of the real parts.
  void store_halves(unsigned access, Value* address, const Span& span, unsigned vector, Value* re, Value* im) const;
  /// Whether stores of two accesses may lie between each other, as far as the kernel says; and whether those of several
  /// do, at a launch: to be called at the entry.
  bool may_interleave(unsigned access, unsigned next) const;
  Value* lie_between_each_other(llvm::ArrayRef<unsigned> accesses) const;
  /// Stores what lies so; all lanes, or where the target has masked stores for it.
  bool has_masked_interleaved(unsigned access) const;
  void store_interleaved(unsigned first_access, Value* address, const Span& span, unsigned vector,
                         const Values& values) const;
  /// Non-temporal store; requires unit stride, and all lanes active and aligned.
  void stream(unsigned access, Value* address, const Span& span, unsigned vector, Value* value) const;
  /// The number of elements from `index` on, at most `most`, up to one that is aligned for streaming.
  Value* unaligned_head(unsigned access, Value* address, Value* index, Value* most) const;
  /// Loads or stores vector number `vector` of a span in a slot, unmasked: slots have space for inactive lanes.
  Value* load_slot(DType dtype, unsigned slot, const Values& addresses, const Span& span, unsigned vector) const;
  void store_slot(DType dtype, unsigned slot, const Values& addresses, const Span& span, unsigned vector,
                  Value* value) const;
  /// Prim::offset, uniform or along the vector axis.
  Value* offset(unsigned access, Value* address) const;
  Value* offsets(unsigned access, Value* address, const Span& span, unsigned vector) const;
  /// Those of the first and the last lane, active or not.
  std::pair<Value*, Value*> first_and_last_offset(unsigned access, Value* address, const Span& span,
                                                  unsigned vector) const;

  /// Positions on an axis of `size` elements from those that are `given`, for several vectors or one scalar: see
  /// Prim::position. Only lanes of `masks`, if there are any, make the launch fail.
  void check_positions(Values& given, Value* size, const Values& masks) const;
  /// Elements at offsets (Prim::gather): the address behind one offset for all lanes, and vector number `vector` of a
  /// span with an offset for each lane.
  Value* behind(unsigned access, Value* address, Value* offset) const;
  Value* gather(unsigned access, Value* address, Value* offsets, const Span& span, unsigned vector) const;
  /// Loads vector number `vector` of a span, only lanes of `guard` (Prim::guarded_input); the others are 0. `may_exist`
  /// is null, or false where no lane exists.
  Value* load_guarded(unsigned access, Value* address, const Span& span, unsigned vector, Value* guard,
                      Value* may_exist) const;
  /// Where vector number `vector` of a span is to be read, of elements that all `exist` or are all 0; and that vector.
  Value* place(unsigned access, Value* address, const Span& span, unsigned vector, Value* exist) const;
  Value* load_place(unsigned access, Value* place) const;
  /// Whether the target reads elements at different offsets in one instruction.
  bool has_gather(unsigned access) const;

  /// Whether an access is contiguous along an axis.
  Value* is_adjacent_along(unsigned access, unsigned axis) const;
  /// Transposes a tile of an access that is contiguous along another axis than the vector axis into `to`, row-major:
  /// rows from `address` on and columns from `column` on, both in multiples of the vector length. Prefetches the tile
  /// that begins `next` bytes later.
  void turn(unsigned access, Value* address, Value* column, Value* rows, std::int64_t columns, Value* to,
            Value* next) const;
  /// In bytes, from one lane to the next.
  Value* lane_step(unsigned access) const;
  /// Whether loads treat an access as contiguous along the vector axis, as after turn().
  void set_turned(unsigned access, bool turned) { turned_[access] = turned; }
  /// Contiguous accesses are read in tiles of `columns` columns, side by side; enables prefetching of the next tile.
  void set_tile_columns(std::int64_t columns) { tile_columns_ = columns; }

  /// Loads prefetch what they will read so many steps along an axis later, where they vary along it, and nothing else.
  /// To be called at the entry.
  void prefetch_steps(unsigned axis, std::int64_t steps);
  /// Prefetches the lanes of a span in the next row, one step along `axis`, for all accesses that are contiguous along
  /// the vector axis. Rows too long to stay in the cache are not prefetched.
  void prefetch_next(unsigned axis, const Values& addresses, const Span& span, unsigned vectors) const;

  using LinearBody =
      llvm::function_ref<Values(const Values& addresses, Value* linear, Value* last_digit, const Values& carried)>;
  /// Loops over [begin, end) of the row-major linear index of digits, outer to inner. Returns the carried values.
  Values linear_loop(const llvm::SmallVector<Digit, 4>& digits, Value* begin, Value* end, const Values& addresses,
                     const Values& carried, LinearBody body) const;

 private:
  bool is_adjacent(unsigned access) const { return kernel_.accesses[access].unit_stride || turned_[access]; }
  Value* slot_address(Type* element, unsigned slot, const Values& addresses, const Span& span, unsigned vector) const;
  Value* move(Value* address, Value* distance) const;
  bool is_same_in_all_rows(unsigned access) const;
  bool asks_for_whole_vectors(unsigned access, const Span& span) const;
  Value* is_whole(const Span& span, unsigned vector) const;
  /// The number of active lanes of a vector; null if all are.
  Value* count_of(const Span& span, unsigned vector) const;
  /// A stack buffer for one vector, for accesses without masked instructions.
  Value* bounce() const;
  Value* zeros() const;
  void plan_prefetches(bool may_prefetch);
  void prefetch(Value* first, std::uint64_t bytes) const;
  Value* distance(unsigned access, Value* address) const;
  Value* as_offset(unsigned access, Value* distance) const;
  Value* element_address(unsigned access, Value* address, const Span& span, unsigned vector) const;
  Value* load_by_lane(unsigned access, Value* first, Value* step, Value* count) const;
  static constexpr unsigned kFewLanes = 16;
  bool is_narrow(unsigned access) const;
  Values lanes_apart(Value* first, Value* step) const;
  Value* load_in_registers(unsigned access, const Values& addresses) const;
  void store_by_lane(unsigned access, Value* first, Value* step, Value* count, Value* memory) const;
  Value* load_half(unsigned access, Value* address, const Span& span, unsigned vector) const;
  Value* first_of_pair(unsigned access, Value* address, const Span& span, unsigned vector) const;
  bool has_masked_pairs(unsigned access) const;
  Values pair_masks(const Span& span, unsigned vector) const;
  // Elements that lie apart (loads_apart.cpp).
  void plan_loads_apart();
  unsigned most_steps(unsigned access, Value* count) const;
  /// Elements that lie apart, of all lanes.
  Value* gather_all(unsigned access, Value* first) const;
  Value* load_apart(unsigned access, Value* first, const Span& span, unsigned vector) const;
  Value* load_by_step(unsigned access, Value* first, Value* mask, Value* count,
                      llvm::function_ref<Value*()> one_by_one) const;
  Value* load_few_apart(unsigned access, Value* first, Value* count, unsigned step,
                        llvm::function_ref<Value*()> one_by_one) const;
  Value* load_and_pick(unsigned access, Value* first, unsigned step, unsigned which, const Values& masks) const;
  Value* load_and_truncate(unsigned access, Value* first, unsigned step) const;
  Value* load_reversed(unsigned access, Value* first, Value* mask) const;
  Value* has_step(unsigned access, std::int64_t elements) const;
  Value* lane_addresses(unsigned access, Value* first) const;
  Value* load_through_stack(unsigned access, Value* count, llvm::function_ref<Value*(Value* lane)> address) const;
  Value* load_guarded_by_lane(unsigned access, Value* first, Value* count, Value* guard) const;
  Value* gather_by_lane(unsigned access, Value* first, Value* distances, Value* count) const;
  Value* from_memory(unsigned access, Value* memory) const;
  Value* to_memory(unsigned access, Value* value) const;
  unsigned vector_axis() const { return kernel_.rank - 1u; }
  Value* stride(unsigned access, unsigned axis) const { return strides_[access * kernel_.rank + axis]; }

  CodeBuilder& b_;
  const Kernel& kernel_;
  const bool wide_;
  Values sizes_, scalars_, origin_;
  Value* failure_ = nullptr;     // of the launch, if it may fail
  std::vector<Value*> strides_;  // [access][axis], null if the access does not vary
  bool prefetches_ = false;      // along the vector axis, so many bytes
  std::int64_t prefetch_distance_ = 0;
  std::vector<Value*> steps_ahead_;  // of accesses: the distance of what is prefetched, null for nothing
  std::int64_t tile_columns_ = 0;
  Values lane_distances_;     // per access along the vector axis: lane * stride
  std::vector<bool> turned_;  // per access
  unsigned most_apart_ = 1;   // elements from one lane to the next that there is code for
  // Made when first needed: a vector, distances for its lanes, a byte for each of them and a zero, and a vector of
  // zeros.
  mutable llvm::AllocaInst *bounce_ = nullptr, *distances_ = nullptr, *guards_ = nullptr, *zeros_ = nullptr;
};

}  // namespace fermata::jit
