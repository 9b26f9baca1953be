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

class Executable;
class StartedCall;
class Subgraphs;
struct KernelLaunch;
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
  Storage* buffer = nullptr;  // if its elements never change (runtime/prepacked_weights.h)
  std::int64_t element_count() const {
    std::int64_t n = 1;
    for (unsigned i = 0; i < rank; ++i) n *= sizes[i];
    return n;
  }
};

/// The data of a leaf for a plan: element 0 of its storage or of a copy; `buffer` as in TensorView.
struct LeafBuffer {
  void* data;
  Storage* buffer = nullptr;
};

/// A finished part of a result, still in the cache of the thread that computed it. Rows count over all axes but the
/// last. Column bounds are multiples of 64, or the end; tiles form a grid.
struct ResultTile {
  std::int64_t row_begin, row_end, column_begin, column_end;
  const std::byte* rows = nullptr;  // where its rows lie, all columns of each, if not in the result
};
/// Runs an epilogue on one tile, on the thread that computed the tile.
using TileEpilogue = FunctionRef<void(const ResultTile&)>;

/// How a call kernel runs an epilogue: not at all; on every tile of a grid, or of whole planes of a result [N, C, ..];
/// or all of it, instead of the kernel.
enum class EpilogueForm : std::uint8_t { none, tiles, planes, whole };

/// A kernel step that reads the result of a call element by element, and that the call may run: once on every tile as
/// soon as it is computed, or as a part of the call.
struct Epilogue {
  TileEpilogue on_tile;
  // Whether tiles may lie elsewhere, where they stay in a cache: nothing else reads the result, of which nothing has to
  // be written then.
  bool takes_tiles_elsewhere = false;
  // Elements that it reads beside those of the result, as many and in the same order: a kernel may fetch those of a
  // tile while it computes it.
  const std::byte* reads = nullptr;
  std::int64_t read_bytes = 0;  // of an element
  // The kernel, if nothing else reads the result: a call that also does the kernel's work does not write its own
  // result.
  const Executable* kernel = nullptr;
  const KernelLaunch* launch = nullptr;
  bool is_done = false;  // set by such a call
};

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
  Epilogue* epilogue = nullptr;              // may run on the result; ignored by kernels without support
  std::uint32_t context = 0;                 // boxed calls: as in ir/graph.h; `buffer` of an input is then its owner
  StoragePtr* result = nullptr;              // if not null, receives the buffer of the result; the output has no data
  const Subgraphs* subgraphs = nullptr;      // the functions owned by the node
  /// If not null, a collective may only start its transfer and store here the object that ends it
  /// (runtime/collectives.h). Until then the operands and the result stay in place.
  std::unique_ptr<StartedCall>* started = nullptr;
};
using CallKernel = void (*)(const CallArgs&);

}  // namespace fermata
