// Ops without tensor operands: full, iota and random numbers.
#include <algorithm>
#include <array>
#include <cstring>

#include "codegen_cpu/eager/drivers.h"
#include "ir/ops/leaves.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata::eager {
namespace {

template <class T> void fill_elements(const TensorView& out, const void* value) {
  T element;
  std::memcpy(&element, value, sizeof element);
  auto* to = static_cast<T*>(out.data);
  parallel_for(
      0, out.element_count(), 0.05 * sizeof(T),
      [&](std::int64_t b, std::int64_t e) { std::fill(to + b, to + e, element); }, 64);
}

constexpr std::int64_t kPiece = 1024;

}  // namespace

void run_full(const CallArgs& args) {
  const TensorView& out = args.outputs[0];
  // The scalar is in the compute dtype: f32 for the halves.
  const void* value = args.scalars.data();
  std::uint64_t narrowed = 0;
  if (const DType compute = compute_dtype(out.dtype); compute != out.dtype) {
    loop_tables().cast[static_cast<std::size_t>(compute)][static_cast<std::size_t>(out.dtype)](&narrowed, value, 1);
    value = &narrowed;
  }
  switch (byte_size(out.dtype)) {
    case 1: return fill_elements<std::uint8_t>(out, value);
    case 2: return fill_elements<std::uint16_t>(out, value);
    case 4: return fill_elements<std::uint32_t>(out, value);
    default: return fill_elements<std::uint64_t>(out, value);
  }
}

void run_iota(const CallArgs& args) {
  const TensorView& out = args.outputs[0];
  const auto axis = static_cast<unsigned>(attributes_of<ops::Iota>(args).axis.value);
  std::int64_t inner = 1;
  for (unsigned i = axis + 1; i < out.rank; ++i) inner *= out.sizes[i];
  const std::int64_t size = out.sizes[axis];
  if (out.element_count() == 0) return;
  auto* to = static_cast<std::int64_t*>(out.data);
  // One run per position: `inner` equal elements.
  const auto run = [&](std::int64_t b, std::int64_t e) {
    std::int64_t position = b % size;
    for (std::int64_t r = b; r < e; ++r, position = position + 1 == size ? 0 : position + 1)
      std::fill_n(to + r * inner, inner, position);
  };
  parallel_for(0, out.element_count() / inner, 0.5 * static_cast<double>(inner), run);
}

void run_random(const CallArgs& args) {
  const TensorView& out = args.outputs[0];
  const DType compute = compute_dtype(out.dtype);
  const RandomLoop loop = loop_tables().random[static_cast<std::size_t>(args.op)][static_cast<std::size_t>(compute)];
  const CastLoop narrow = loop_tables().cast[static_cast<std::size_t>(compute)][static_cast<std::size_t>(out.dtype)];
  const std::uint64_t key = args.scalars[0], offset = args.scalars[1];
  const auto bytes = static_cast<std::int64_t>(byte_size(out.dtype));
  const auto run = [&](std::int64_t begin, std::int64_t end) {
    char* to = static_cast<char*>(out.data);
    if (compute == out.dtype) return loop(to + begin * bytes, begin, key, offset, end - begin);
    std::array<float, kPiece> wide;
    for (; begin < end; begin += kPiece) {
      const std::int64_t count = std::min(kPiece, end - begin);
      loop(wide.data(), begin, key, offset, count);
      narrow(to + begin * bytes, wide.data(), count);
    }
  };
  parallel_for(0, out.element_count(), 1.5, run, 64);
}

FERMATA_KERNELS(cpu) {
  add_eager_kernel(Op::full, &run_full);
  add_eager_kernel(Op::iota, &run_iota);
  add_eager_kernels(Family::random, &run_random);
}

}  // namespace fermata::eager
