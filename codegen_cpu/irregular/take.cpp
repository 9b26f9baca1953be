// take: rows of x at given positions. One row of output per (outer, position); a row is the axes after the indexed one.
#include <algorithm>
#include <cstring>

#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/positions.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

struct Element16 {
  std::uint64_t words[2];
};

struct Rows {
  GatherShape shape;
  std::int64_t stride;  // of x along the indexed axis
  const std::int64_t* positions;
  const std::int64_t* outer;  // offsets in x
  const std::int64_t* inner;  // offsets in x, or null where a row is contiguous
};

/// Rows that are shorter than this are copied by element: a call for each would take longer.
constexpr std::int64_t kShortRow = 16;

template <class T> void take_rows(const Rows& r, const T* x, T* out, std::int64_t begin, std::int64_t end) {
  const std::int64_t inner = r.shape.inner, positions = r.shape.positions, stride = r.stride;
  while (begin < end) {
    const std::int64_t first = begin % positions, count = std::min(positions - first, end - begin);
    const T* const from = x + r.outer[begin / positions];
    const std::int64_t* const at = r.positions + first;
    T* to = out + begin * inner;
    begin += count;
    if (r.inner != nullptr) {
      for (std::int64_t i = 0; i < count; ++i, to += inner)
        for (std::int64_t j = 0; j < inner; ++j) to[j] = from[at[i] * stride + r.inner[j]];
    } else if (inner == 1) {
#pragma GCC unroll 4  // so that it does not matter where the code of so short a loop lies
      for (std::int64_t i = 0; i < count; ++i) to[i] = from[at[i] * stride];
    } else if (inner < kShortRow) {
      for (std::int64_t i = 0; i < count; ++i, to += inner)
        for (std::int64_t j = 0; j < inner; ++j) to[j] = from[at[i] * stride + j];
    } else {
      for (std::int64_t i = 0; i < count; ++i, to += inner)
        std::memcpy(to, from + at[i] * stride, static_cast<std::size_t>(inner) * sizeof(T));
    }
  }
}

template <class T> void take_all(const Rows& r, const TensorView& x, const TensorView& out) {
  // A row starts with a cache miss; then 10 GB/s where it is contiguous.
  const double per_element = r.inner != nullptr ? 0.8 : 0.1 * sizeof(T);
  parallel_for(0, r.shape.outer * r.shape.positions, 2 + static_cast<double>(r.shape.inner) * per_element,
               [&](std::int64_t b, std::int64_t e) {
                 take_rows(r, static_cast<const T*>(x.data), static_cast<T*>(out.data), b, e);
               });
}

/// Attributes [axis]. Negative positions count from the end; IndexError FM1204 before anything is written.
void take_call(const CallArgs& args) {
  const TensorView &x = args.inputs[0], &out = args.outputs[0];
  const Positions positions = positions_of(args);
  const GatherShape shape = gather_shape(args);
  if (shape.outer * shape.positions * shape.inner == 0) return;
  const bool contiguous = is_contiguous(x, shape.axis + 1, x.rank);
  const Scratch<std::int64_t> outer = offsets_of(x, 0, shape.axis);
  const Scratch<std::int64_t> inner = offsets_of(x, contiguous ? x.rank : shape.axis + 1, x.rank);
  const Rows rows{shape, x.strides[shape.axis], positions.data(), outer.data(), contiguous ? nullptr : inner.data()};
  switch (byte_size(x.dtype)) {
    case 1: return take_all<std::uint8_t>(rows, x, out);
    case 2: return take_all<std::uint16_t>(rows, x, out);
    case 4: return take_all<std::uint32_t>(rows, x, out);
    case 8: return take_all<std::uint64_t>(rows, x, out);
    default: return take_all<Element16>(rows, x, out);
  }
}

}  // namespace

FERMATA_KERNELS(cpu) { add_native_kernel(Op::take, &take_call); }

}  // namespace fermata
