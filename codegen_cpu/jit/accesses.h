// How tensor elements are reached: addresses per access, vector loads and stores along the vector axis, and loops that
// move the addresses.
//
// An address is a pointer, or an element offset where the access is address_only; strides are in bytes, or in elements
// there. Along the vector axis an access is one of: the same element for all lanes, adjacent elements, or strided.
#pragma once

#include "codegen_cpu/jit/code_builder.h"
#include "ir/kernel.h"

namespace fermata::jit {

/// Streamed stores are of whole cache lines.
inline constexpr std::int64_t kStreamAlignment = 64;

/// Lanes at `index` and on along the vector axis. Either all of them exist, or the first `left` of its vectors.
struct Span {
  Value* index;
  Value* left = nullptr;
  Values masks{};          // the same as masks
  bool may_branch = true;  // where masks are slow, to a copy of a load or store for whole vectors
  bool aligned = false;    // streamed stores of it are at multiples of kStreamAlignment
};

/// One digit of a linear index: an axis, or the blocks of one.
struct Digit {
  Value* size;
  Values strides;  // per access; null where its address does not move
};

class Accesses {
 public:
  /// Reads pointers, sizes and strides out of the KernelLaunch, at the builder's place in the entry block. Loads of the
  /// code ask for memory ahead where that pays and `may_prefetch`.
  Accesses(CodeBuilder& b, const Kernel& kernel, Value* launch, bool may_prefetch);
  /// Lays out slots for kept values (spilled_values.h) from `room` on, for a row or so many columns. From here on they
  /// are accesses too, after those of the kernel, with addresses that move, and reached by load_slot() and store_slot()
  /// only.
  void add_slots(const std::vector<DType>& slots, Value* room, Value* columns);

  Value* size(unsigned axis) const { return sizes_[axis]; }
  Value* scalar(unsigned index) const { return scalars_[index]; }
  /// Addresses at the origin of the loop nest.
  const Values& origin() const { return origin_; }
  bool along_vector_axis(unsigned access) const {
    return (kernel_.accesses[access].axes >> (kernel_.rank - 1u) & 1u) != 0;
  }
  /// Whether the processor can load and store some of the lanes of an access.
  bool has_masked(unsigned access) const;
  /// Moves addresses by `distance` steps of an axis.
  Values moved(const Values& addresses, unsigned axis, Value* distance) const;
  Digit axis_digit(unsigned axis) const;
  /// An axis in blocks of `length` steps.
  Digit block_digit(unsigned axis, std::int64_t length) const;

  /// One element, for all lanes alike.
  Value* load_uniform(unsigned access, Value* address) const;
  void store_uniform(unsigned access, Value* address, Value* value) const;
  /// Vector number `vector` of a span. Lanes that do not exist hold anything.
  Value* load(unsigned access, Value* address, const Span& span, unsigned vector) const;
  void store(unsigned access, Value* address, const Span& span, unsigned vector, Value* value) const;
  /// The same past the caches; the access is of unit stride and all lanes of the span exist and are aligned.
  void stream(unsigned access, Value* address, const Span& span, unsigned vector, Value* value) const;
  /// Elements from `index` on, at most `most`, before one that is aligned for streaming.
  Value* unaligned_head(unsigned access, Value* address, Value* index, Value* most) const;
  /// Vector number `vector` of a span in a slot of the room, whole: lanes that do not exist have their place there.
  Value* load_slot(DType dtype, unsigned slot, const Values& addresses, const Span& span, unsigned vector) const;
  void store_slot(DType dtype, unsigned slot, const Values& addresses, const Span& span, unsigned vector,
                  Value* value) const;
  /// Prim::offset, for all lanes alike or along the vector axis.
  Value* offset(unsigned access, Value* address) const;
  Value* offsets(unsigned access, Value* address, const Span& span, unsigned vector) const;

  /// Whether neighbors along an axis of an access are adjacent.
  Value* is_adjacent_along(unsigned access, unsigned axis) const;
  /// Brings a tile of an access that is adjacent along the axis before the vector axis to `to`, row after row: rows
  /// from `address` on and columns from `column` on, both multiples of the lanes of a vector.
  void turn(unsigned access, Value* address, Value* column, Value* rows, std::int64_t columns, Value* to) const;
  /// Loads of an access find it adjacent along the vector axis, as after turn(), or as the kernel says.
  void set_turned(unsigned access, bool turned) { turned_[access] = turned; }
  /// What is read in order is read by tiles of so many columns, each beside the last: that of the next one is asked
  /// for.
  void set_tile_columns(std::int64_t columns) { tile_columns_ = columns; }

  /// Asks for the lanes of a span in the next row, one step of `axis` further, of all that is read in order along the
  /// vector axis; of rows that are too long to be kept until they are used for nothing.
  void prefetch_next(unsigned axis, const Values& addresses, const Span& span, unsigned vectors) const;

  using LinearBody =
      llvm::function_ref<Values(const Values& addresses, Value* linear, Value* last_digit, const Values& carried)>;
  /// Runs over [begin, end) of the row-major linear index over digits, outer to inner. Returns what is carried.
  Values linear_loop(const llvm::SmallVector<Digit, 4>& digits, Value* begin, Value* end, const Values& addresses,
                     const Values& carried, LinearBody body) const;

 private:
  bool is_adjacent(unsigned access) const { return kernel_.accesses[access].unit_stride || turned_[access]; }
  Value* slot_address(Type* element, unsigned slot, const Values& addresses, const Span& span, unsigned vector) const;
  Value* move(Value* address, Value* distance) const;
  bool asks_for_whole_vectors(unsigned access, const Span& span) const;
  Value* is_whole(const Span& span, unsigned vector) const;
  /// Lanes of a vector that exist; null where all do.
  Value* count_of(const Span& span, unsigned vector) const;
  /// Room on the stack for one vector, for what has no masked form.
  Value* bounce() const;
  void prefetch(Value* first, std::uint64_t bytes) const;
  Value* distance(unsigned access, Value* address) const;
  Value* as_offset(unsigned access, Value* distance) const;
  Value* element_address(unsigned access, Value* address, const Span& span, unsigned vector) const;
  Value* load_by_lane(unsigned access, Value* first, Value* step, Value* count) const;
  void store_by_lane(unsigned access, Value* first, Value* step, Value* count, Value* memory) const;
  Value* load_every_other(unsigned access, Value* first, Value* count) const;
  Value* skips_one(unsigned access) const;
  Value* lane_addresses(unsigned access, Value* first) const;
  Value* lane_step(unsigned access) const;
  Value* from_memory(unsigned access, Value* memory) const;
  Value* to_memory(unsigned access, Value* value) const;
  unsigned vector_axis() const { return kernel_.rank - 1u; }
  Value* stride(unsigned access, unsigned axis) const { return strides_[access * kernel_.rank + axis]; }

  CodeBuilder& b_;
  const Kernel& kernel_;
  Values sizes_, scalars_, origin_;
  std::vector<Value*> strides_;  // [access][axis], null where an access does not vary
  const bool prefetches_;
  const std::int64_t prefetch_distance_;
  std::int64_t tile_columns_ = 0;
  Values lane_distances_;                       // per access along the vector axis: lane * stride
  std::vector<bool> turned_;                    // per access
  mutable llvm::AllocaInst* bounce_ = nullptr;  // made when first needed
};

}  // namespace fermata::jit
