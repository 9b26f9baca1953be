// The compiled loops of one instruction set, by op and dtype. Drivers (pointwise.cpp, reduce.cpp, cast.cpp, ...) know
// layouts, half dtypes and threads; the loops know one op over contiguous elements of one compute dtype.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "codegen_cpu/eager/eager.h"

namespace fermata::eager {

/// `n` elements from `in`, converted.
using CastLoop = void (*)(void* out, const void* in, std::int64_t n);
/// Elements first .. first + n of a random op.
using RandomLoop = void (*)(void* out, std::int64_t first, std::uint64_t key, std::uint64_t offset, std::int64_t n);

inline constexpr unsigned kMaxStateComponents = 2;
/// No vector of a reduction has more lanes.
inline constexpr std::int64_t kMostLanes = 64;

/// A reduction over elements of one dtype. States lie component by component: states[c] is an array of component c.
struct ReduceLoops {
  unsigned components = 0;
  std::int64_t lanes = 1;             // of a vector
  bool positions_in_vectors = false;  // rows_of_one_block() finds positions in vectors of elements
  std::array<std::uint8_t, kMaxStateComponents> component_bytes{};
  DType result = DType::f32;  // of finish
  /// Reduces up to kReductionBlock contiguous elements by lanes; `first` is the position of x[0] along the reduced
  /// axis.
  void (*row_block)(const void* x, std::int64_t n, std::int64_t first, void* const* state);
  /// The same of rows of `n` elements each from position 0 on, into states of their own.
  void (*rows_of_one_block)(const void* x, std::int64_t row_bytes, std::int64_t n, std::int64_t rows,
                            void* const* states);
  /// The same of rows of at most kReductionLanes elements from `position` on: element i of row r is element r of what
  /// is at x + i * line_bytes. Whole vectors are read and written. Beside the states, a quarter of as many lines of
  /// them as bit_ceil(n) are written, `pitch` states apart.
  void (*rows_side_by_side)(const void* x, std::int64_t line_bytes, std::int64_t n, std::int64_t position,
                            std::int64_t rows, void* const* states, std::int64_t pitch);
  /// Reduces `n` states by lanes.
  void (*row_merge)(const void* const* states, std::int64_t n, void* const* state);
  /// Combines `rows` rows of `columns` elements in order, into states of their own. Row r is at x + r * row_bytes.
  void (*column_block)(const void* x, std::int64_t row_bytes, std::int64_t rows, std::int64_t columns,
                       std::int64_t first, void* const* states);
  /// totals[i] = combine(totals[i], states[i]).
  void (*column_merge)(void* const* totals, const void* const* states, std::int64_t n);
  void (*fill_identity)(void* const* states, std::int64_t n);
  void (*finish)(const void* const* states, void* out, std::int64_t n);
};

/// Sums of integers that are narrower than their sums; `row` is null for other dtypes.
struct WideSum {
  /// Of `n` contiguous elements.
  void (*row)(const void* x, std::int64_t n, std::uint64_t* total) = nullptr;
  /// Of each of some such rows, `row_bytes` apart.
  void (*rows)(const void* x, std::int64_t row_bytes, std::int64_t n, std::int64_t rows,
               std::uint64_t* totals) = nullptr;
  /// Of each column of `rows` rows. Row r is at x + r * row_bytes.
  void (*columns)(const void* x, std::int64_t row_bytes, std::int64_t rows, std::int64_t columns,
                  std::uint64_t* totals) = nullptr;
};

struct LoopTables {
  std::array<std::array<InnerLoop, kDTypeCount>, kOpCount> pointwise{};
  std::array<std::array<CastLoop, kDTypeCount>, kDTypeCount> cast{};  // [from][to]; holes go by way of another dtype
  std::array<std::array<RandomLoop, kDTypeCount>, kOpCount> random{};
  std::array<std::array<ReduceLoops, kDTypeCount>, kOpCount> reduce{};
  std::array<WideSum, kDTypeCount> wide_sum{};
};

/// A set of compiled loops and whether this processor can run them.
struct InstructionSet {
  std::string_view name;
  bool (*supported)();
  void (*fill)(LoopTables&);
};
/// All that were compiled, the best first.
std::span<const InstructionSet> instruction_sets();

/// The tables of the best instruction set that this processor has (FERMATA_CPU=avx512|avx2|baseline limits the choice;
/// amx is avx512 here).
const LoopTables& loop_tables();

// What every instruction set compiles, one function per source file.
#define FERMATA_EAGER_SHARDS(isa)              \
  namespace isa {                              \
  void add_unary(LoopTables& tables);          \
  void add_special(LoopTables& tables);        \
  void add_binary(LoopTables& tables);         \
  void add_comparisons(LoopTables& tables);    \
  void add_integer_ops(LoopTables& tables);    \
  void add_casts(LoopTables& tables);          \
  void add_random(LoopTables& tables);         \
  void add_reductions(LoopTables& tables);     \
  void add_integer_sums(LoopTables& tables);   \
  void add_arg_reductions(LoopTables& tables); \
  }
FERMATA_EAGER_SHARDS(avx512)
FERMATA_EAGER_SHARDS(avx2)
FERMATA_EAGER_SHARDS(baseline)
#undef FERMATA_EAGER_SHARDS

}  // namespace fermata::eager
