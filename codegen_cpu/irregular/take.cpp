// take: rows of x at given positions. One row of output per (outer, position); a row is the axes after the indexed one.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>

#include "codegen_cpu/eager/eager.h"
#include "codegen_cpu/irregular/byte_table.h"
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
  std::int64_t stride;        // of x along the indexed axis
  const Offsets& outer;       // in x
  const std::int64_t* inner;  // offsets in x, or null where a row is contiguous
};

/// Rows that are shorter than this are copied by element: a call for each would take longer.
constexpr std::int64_t kShortRow = 16;
constexpr std::int64_t kPart = PositionReader::kPart;

/// The rows of one outer place at `count` positions.
template <class T> void take_rows(const Rows& r, const T* from, const std::int64_t* at, T* to, std::int64_t count) {
  const std::int64_t inner = r.shape.inner, stride = r.stride;
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

/// A row starts with a cache miss; then 10 GB/s where it is contiguous.
template <class T> double ns_per_row(const Rows& r) {
  const double per_element = r.inner != nullptr ? 0.8 : 0.1 * sizeof(T);
  return 2 + static_cast<double>(r.shape.inner) * per_element;
}

/// Of one outer place: positions are read once, a part at a time. False where one is out of range.
template <class T>
bool take_once(const Rows& r, const PositionReader& positions, const TensorView& x, const TensorView& out) {
  const T* const from = static_cast<const T*>(x.data) + r.outer[0];
  std::atomic<bool> all_inside{true};
  parallel_for(0, r.shape.positions, ns_per_row<T>(r), [&](std::int64_t b, std::int64_t e) {
    std::int64_t room[kPart];
    for (std::int64_t at = b; at < e; at += kPart) {
      const std::int64_t count = std::min(kPart, e - at);
      const std::int64_t* const part = positions.find(at, count, room);
      if (part == nullptr) return all_inside.store(false);
      take_rows(r, from, part, static_cast<T*>(out.data) + at * r.shape.inner, count);
    }
  });
  return all_inside.load();
}

/// Whether positions that are bytes are all inside of an axis.
bool are_inside(const std::uint8_t* bytes, std::int64_t count, bool are_signed, std::int64_t size) {
  std::uint8_t most = 0;
  if (!are_signed) {
    for (std::int64_t i = 0; i < count; ++i) most = std::max(most, bytes[i]);
    return most < size;
  }
  // -1 becomes 0, and so on.
  for (std::int64_t i = 0; i < count; ++i)
    most = std::max(most, static_cast<std::uint8_t>((bytes[i] & 0x80) != 0 ? ~bytes[i] : bytes[i]));
  return most < size;
}

/// Rows of kRow bytes at positions that are bytes, from a table with a row for each byte: none has to be widened, and
/// to be looked at only where some byte is out of range. False where one is.
template <std::int64_t kRow>
bool take_by_bytes(const Rows& r, const PositionReader& positions, const TensorView& x, const TensorView& out) {
  constexpr std::int64_t kBytes = 256;
  // Rows of more than eight bytes are stored as sixteen, of which the next one replaces the rest.
  constexpr bool kPasses = kRow > 8 && kRow < 16;
  constexpr std::int64_t kStored = kPasses ? 16 : kRow;
  alignas(64) char table[kBytes * kStored] = {};
  bool all_bytes = true;
  const auto element = static_cast<std::int64_t>(byte_size(x.dtype));
  const char* const from = static_cast<const char*>(x.data) + r.outer[0] * element;
  for (std::int64_t byte = 0; byte < kBytes; ++byte) {
    const std::int64_t at = positions.position_of(static_cast<std::uint8_t>(byte));
    all_bytes = all_bytes && at >= 0;
    if (at >= 0) std::memcpy(table + byte * kStored, from + at * r.stride * element, kRow);
  }
  std::atomic<bool> all_inside{true};
  parallel_for(0, r.shape.positions, 0.3 * static_cast<double>(r.shape.inner), [&](std::int64_t b, std::int64_t e) {
    const std::uint8_t* const bytes = positions.bytes();
    if (!all_bytes && !are_inside(bytes + b, e - b, positions.are_signed(), r.shape.size))
      return all_inside.store(false);
    char* to = static_cast<char*>(out.data) + b * kRow;
#ifndef FERMATA_INFERENCE_ONLY
    if constexpr (kRow == 1) {
      const auto& entries = *reinterpret_cast<const ByteTable*>(table);
      return byte_table_kernels().look_up(entries, bytes + b, reinterpret_cast<std::uint8_t*>(to), e - b);
    }
#endif
    if constexpr (kPasses)
      for (; b + 1 < e; ++b, to += kRow) std::memcpy(to, table + bytes[b] * kStored, kStored);
#pragma GCC unroll 8
    for (; b < e; ++b, to += kRow) std::memcpy(to, table + bytes[b] * kStored, kRow);
  });
  return all_inside.load();
}

/// False where it does not pay, too: for rows of more than a few elements, or few positions.
bool take_by_bytes(const Rows& r, const PositionReader& positions, const TensorView& x, const TensorView& out) {
  constexpr std::int64_t kFewPositions = 2048;  // take less than the table does
  constexpr std::int64_t kFewElements = 4;
  if (positions.bytes() == nullptr || r.inner != nullptr || r.shape.positions < kFewPositions) return false;
  if (r.shape.inner > kFewElements) return false;
  switch (r.shape.inner * static_cast<std::int64_t>(byte_size(x.dtype))) {
    case 1: return take_by_bytes<1>(r, positions, x, out);
    case 2: return take_by_bytes<2>(r, positions, x, out);
    case 3: return take_by_bytes<3>(r, positions, x, out);
    case 4: return take_by_bytes<4>(r, positions, x, out);
    case 6: return take_by_bytes<6>(r, positions, x, out);
    case 8: return take_by_bytes<8>(r, positions, x, out);
    case 12: return take_by_bytes<12>(r, positions, x, out);
    case 16: return take_by_bytes<16>(r, positions, x, out);
    case 24: return take_by_bytes<24>(r, positions, x, out);
    case 32: return take_by_bytes<32>(r, positions, x, out);
    case 48: return take_by_bytes<48>(r, positions, x, out);
    case 64: return take_by_bytes<64>(r, positions, x, out);
    default: return false;
  }
}

template <class T> void take_all(const CallArgs& args, const Rows& r, const TensorView& x, const TensorView& out) {
  if (r.shape.outer == 1) {
    const PositionReader positions(args);
    if (take_by_bytes(r, positions, x, out) || take_once<T>(r, positions, x, out)) return;
  }
  const Positions positions = positions_of(args);
  const std::int64_t count = r.shape.positions;
  parallel_for(0, r.shape.outer * count, ns_per_row<T>(r), [&](std::int64_t b, std::int64_t e) {
    while (b < e) {
      const std::int64_t first = b % count, rows = std::min(count - first, e - b);
      take_rows(r, static_cast<const T*>(x.data) + r.outer[b / count], positions.data() + first,
                static_cast<T*>(out.data) + b * r.shape.inner, rows);
      b += rows;
    }
  });
}

/// Attributes [axis]. Negative positions count from the end; IndexError FM1204 for the first one out of range.
void take_call(const CallArgs& args) {
  const TensorView &x = args.inputs[0], &out = args.outputs[0];
  const GatherShape shape = gather_shape(args);
  if (shape.outer * shape.positions * shape.inner == 0) {
    positions_of(args);  // for the error
    return;
  }
  const bool contiguous = is_contiguous(x, shape.axis + 1, x.rank);
  const Offsets outer(x, 0, shape.axis);
  const Scratch<std::int64_t> inner = offsets_of(x, contiguous ? x.rank : shape.axis + 1, x.rank);
  const Rows rows{shape, x.strides[shape.axis], outer, contiguous ? nullptr : inner.data()};
  switch (byte_size(x.dtype)) {
    case 1: return take_all<std::uint8_t>(args, rows, x, out);
    case 2: return take_all<std::uint16_t>(args, rows, x, out);
    case 4: return take_all<std::uint32_t>(args, rows, x, out);
    case 8: return take_all<std::uint64_t>(args, rows, x, out);
    default: return take_all<Element16>(args, rows, x, out);
  }
}

}  // namespace

#ifndef FERMATA_INFERENCE_ONLY
const ByteTableKernels& byte_table_kernels() {
  static const ByteTableKernels& best = FERMATA_TABLE(kByteTable);
  return best;
}
#endif

FERMATA_KERNELS(cpu) { add_native_kernel(Op::take, &take_call); }

}  // namespace fermata
