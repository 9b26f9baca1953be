// Random ops: a function of the element's position, so any range can be made alone.
#include "codegen_cpu/eager/loop_tables.h"
#include "codegen_cpu/eager/vector.h"
#include "ir/formula_rows.h"

namespace fermata::eager::FERMATA_ISA {
namespace {

template <class Row, class T> void random_loop(void* out, std::int64_t first, std::uint64_t key, std::uint64_t offset,
                                               std::int64_t n) {
  using V = FullVector<T>;
  using Index = typename V::template Rebind<std::int64_t>;
  using Word = typename V::template Rebind<std::uint64_t>;
  typename Index::Register lanes;
  for (int i = 0; i < V::kLanes; ++i) lanes[i] = i;
  auto* to = static_cast<char*>(out);
  for (std::int64_t i = 0; i < n; i += V::kLanes) {
    const V v = Row::template apply<V>(Index::of(lanes) + Index(first + i), Word(key), Word(offset));
    auto* at = to + i * static_cast<std::int64_t>(sizeof(T));
    if (n - i >= V::kLanes) store(at, v); else store_part(at, v, static_cast<std::size_t>(n - i));
  }
}

}  // namespace

void add_random(LoopTables& tables) {
#define FERMATA_RANDOM(name, formula, doc)                                                \
  {                                                                                       \
    auto& row = tables.random[static_cast<std::size_t>(Op::name)];                        \
    row[static_cast<std::size_t>(DType::f32)] = &random_loop<name##_row, float>;          \
    row[static_cast<std::size_t>(DType::f64)] = &random_loop<name##_row, double>;         \
  }
#include "ir/ops.def"
}

}  // namespace fermata::eager::FERMATA_ISA
