// Rows that are added at positions: the innermost loops, compiled once per instruction set (added_rows_*.cpp).
#pragma once

#include <cstdint>

#include "codegen_cpu/irregular/rows_by_target.h"

namespace fermata {

/// out[o, positions[i], :] += source[o, i, :]; `source` is dense, [outer, count, inner].
template <class T> struct AddedRows {
  T* out;
  const T* source;
  const std::int64_t* positions;
  std::int64_t size, count, inner;
};

template <class T> struct AddRows {
  /// Columns of the positions of a range, one position after the other.
  void (*add)(const AddedRows<T>&, const TargetRange&);
};

/// A base for each element; integers are added as unsigned ones, so they wrap.
struct AddRowsTable : AddRows<std::uint32_t>, AddRows<std::uint64_t>, AddRows<float>, AddRows<double> {};
extern const AddRowsTable kAddRowsBaseline;
#if defined(__x86_64__)
extern const AddRowsTable kAddRowsAvx2;
extern const AddRowsTable kAddRowsAvx512;
#endif

}  // namespace fermata
