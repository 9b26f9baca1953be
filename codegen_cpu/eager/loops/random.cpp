// Random ops: a function of the element's position, so any range can be made alone.
#include "codegen_cpu/eager/loop_tables.h"
#include "codegen_cpu/eager/vector.h"
#include "ir/formula_rows.h"

namespace fermata::eager::FERMATA_ISA {
namespace {

/// 64-bit words as two registers of 32-bit halves, for formulas that do nothing with them but take them apart: as many
/// lanes as there are floats, without vectors wider than a register.
template <class W> struct SplitWord {
  using Element = std::uint64_t;
  template <class> using Rebind = W;
  W low, high;

  SplitWord(W low_half, W high_half) : low(low_half), high(high_half) {}
  SplitWord(std::uint64_t value)
      : low(static_cast<std::uint32_t>(value)), high(static_cast<std::uint32_t>(value >> 32)) {}
  /// By 32 bits: philox_words() shifts by nothing else.
  friend SplitWord operator>>(SplitWord a, SplitWord) { return {a.high, W(0u)}; }
};
template <class U, class W> W convert(SplitWord<W> a) {
  static_assert(std::is_same_v<U, std::uint32_t>);
  return a.low;
}
template <class U, class W> SplitWord<W> bitcast(SplitWord<W> a) { return a; }

template <class Row, class T> [[gnu::flatten]] void random_loop(void* out, std::int64_t first, std::uint64_t key,
                                                                std::uint64_t offset, std::int64_t n) {
  using V = FullVector<T>;
  using W = typename V::template Rebind<std::uint32_t>;
  typename W::Register lanes;
  for (int i = 0; i < V::kLanes; ++i) lanes[i] = static_cast<std::uint32_t>(i);
  auto* to = static_cast<char*>(out);
  const SplitWord<W> keys(key), offsets(offset);
  for (std::int64_t i = 0; i < n; i += V::kLanes) {
    SplitWord<W> index(static_cast<std::uint64_t>(first + i));
    const W low = index.low + W::of(lanes);
    index = {low, index.high + select(low < index.low, W(1u), W(0u))};
    const V v = Row::template apply<V>(index, keys, offsets);
    auto* at = to + i * static_cast<std::int64_t>(sizeof(T));
    if (n - i >= V::kLanes)
      store(at, v);
    else
      store_part(at, v, static_cast<std::size_t>(n - i));
  }
}

}  // namespace

void add_random(LoopTables& tables) {
#define FERMATA_RANDOM(name, formula, doc)                                        \
  {                                                                               \
    auto& row = tables.random[static_cast<std::size_t>(Op::name)];                \
    row[static_cast<std::size_t>(DType::f32)] = &random_loop<name##_row, float>;  \
    row[static_cast<std::size_t>(DType::f64)] = &random_loop<name##_row, double>; \
  }
#include "ir/ops.def"
}

}  // namespace fermata::eager::FERMATA_ISA
