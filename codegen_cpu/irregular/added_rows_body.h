// The body of added_rows_*.cpp, for vectors of FERMATA_VECTOR_BYTES. Everything here has internal linkage and nothing
// of the standard library is called: a function shared with other files could run there with instructions that the
// machine lacks.
#include "codegen_cpu/irregular/added_rows.h"

namespace fermata {
namespace {

/// Elements [0, count) in vectors of kBytes, and then in smaller ones.
template <std::int64_t kBytes, class T>
[[gnu::always_inline]] inline void add_row(T* to, const T* from, std::int64_t count) {
  constexpr std::int64_t kLanes = kBytes / static_cast<std::int64_t>(sizeof(T));
  if constexpr (kLanes < 2) {
    if (count != 0) *to += *from;
  } else {
    typedef T Lanes __attribute__((vector_size(kBytes)));
    while (count >= kLanes) {
      Lanes a, b;
      __builtin_memcpy(&a, to, sizeof(a)), __builtin_memcpy(&b, from, sizeof(b));
      a += b;
      __builtin_memcpy(to, &a, sizeof(a));
      to += kLanes, from += kLanes, count -= kLanes;
    }
    add_row<kBytes / 2>(to, from, count);
  }
}

/// Of result rows that may lie anywhere, those of some positions ahead are asked for. kOrdered: the range has an order;
/// kColumns: how many columns there are, if they are that few, or 0.
template <bool kOrdered, bool kFar, std::int64_t kColumns, class T>
[[gnu::always_inline]] inline void add_rows(const AddedRows<T>& a, const TargetRange& r) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  T* const out = a.out + r.outer * a.size * a.inner + r.begin;
  const T* const source = a.source + r.outer * a.count * a.inner + r.begin;
  const std::int64_t* const order = r.order;
  const std::int64_t* const positions = a.positions;
  const std::int64_t columns = kColumns != 0 ? kColumns : r.end - r.begin, inner = kColumns != 0 ? kColumns : a.inner;
  const std::int64_t last = r.last, count = r.count;
  const auto number = [&](std::int64_t at) { return kOrdered ? order[at] : at; };
  for (std::int64_t at = r.first; at < last; ++at) {
    if (kFar && at + kRowsAhead < count) {
      T* const next = out + positions[number(at + kRowsAhead)] * inner;
      for (std::int64_t j = 0; j < columns; j += kLine) __builtin_prefetch(next + j, 1);
    }
    const std::int64_t i = number(at);
    add_row<FERMATA_VECTOR_BYTES>(out + positions[i] * inner, source + i * inner, columns);
  }
}

template <bool kOrdered, bool kFar, class T>
[[gnu::always_inline]] inline void add_rows_of_width(const AddedRows<T>& a, const TargetRange& r) {
  if (r.begin == 0 && r.end == a.inner) {
    if (a.inner == 8) return add_rows<kOrdered, kFar, 8>(a, r);
    if (a.inner == 16) return add_rows<kOrdered, kFar, 16>(a, r);
  }
  add_rows<kOrdered, kFar, 0>(a, r);
}

template <class T> void add_rows(const AddedRows<T>& a, const TargetRange& r) {
  if (r.order != nullptr) return add_rows_of_width<true, true>(a, r);
  if (a.size * a.inner * static_cast<std::int64_t>(sizeof(T)) > kNearBytes) return add_rows_of_width<false, true>(a, r);
  add_rows_of_width<false, false>(a, r);
}

constexpr AddRowsTable kTable{
    {&add_rows<std::uint32_t>}, {&add_rows<std::uint64_t>}, {&add_rows<float>}, {&add_rows<double>}};

}  // namespace
}  // namespace fermata
