// A materialized tensor as a kernel sees it, and the calling convention of `call` kernels.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <span>

#include "ir/dtype.h"
#include "ir/op.h"
#include "runtime/function_ref.h"

namespace fermata {

struct Storage;
struct ReleaseStorage;
using StoragePtr = std::unique_ptr<Storage, ReleaseStorage>;

/// Strides are in elements and may be zero or negative; `data` points to element [0, ..., 0].
struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  std::uint8_t rank = 0;
  const std::int64_t* sizes = nullptr;
  const std::int64_t* strides = nullptr;
  Storage* buffer =
      nullptr;  // that it lies in, if its elements stay as they are for as long as that lives (runtime/packed_copies.h)
  std::int64_t element_count() const {
    std::int64_t n = 1;
    for (unsigned i = 0; i < rank; ++i) n *= sizes[i];
    return n;
  }
};

/// Where a plan reads a leaf: element 0 of its storage, or of a copy of that; and as in TensorView.
struct LeafBuffer {
  void* data;
  Storage* buffer = nullptr;
};

/// A finished part of a result, still in the cache of the thread that made it. Rows count over all axes but the last.
/// Column bounds are multiples of 64, or the end; tiles form a grid.
struct ResultTile {
  std::int64_t row_begin, row_end, column_begin, column_end;
};
/// Called once for each tile, on the thread that made it.
using TileConsumer = FunctionRef<void(const ResultTile&)>;

/// Arguments of a `call` kernel. Operands of pointwise ops are already broadcast to the output's shape (stride 0 along
/// stretched axes); an operand that was a host scalar is a 0-d view, broadcast like any other. Outputs are allocated,
/// dense and row-major.
struct CallArgs {
  Op op;
  std::span<const TensorView> inputs;
  std::span<const TensorView> outputs;
  std::span<const std::int64_t> attributes;  // the op's own, see ir/infer.h
  std::span<const std::uint64_t> scalars;    // 8-byte slots in the op's scalar dtypes
  std::source_location where{};              // the caller's line, for errors that depend on data
  const TileConsumer* tiles = nullptr;       // told of every tile by kernels that work in tiles; others ignore it
  std::uint32_t context = 0;     // boxed calls: as in ir/graph.h. Then `buffer` of an input is what owns it, and
  StoragePtr* result = nullptr;  // where not null, takes the buffer of the result, and the output has no data
};
using CallKernel = void (*)(const CallArgs&);

}  // namespace fermata
