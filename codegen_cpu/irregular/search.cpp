// searchsorted by bisection, and flatnonzero in two passes: count in chunks, then fill.
#include <algorithm>
#include <vector>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/sort_keys.h"
#include "ir/ops/ordering.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

template <class Key> void search(const CallArgs& args) {
  using K = typename Key::Bits;
  const TensorView &vector = args.inputs[0], &values = args.inputs[1];
  const bool right = attributes_of<ops::Searchsorted>(args).right.value;
  const std::int64_t size = vector.sizes[0], stride = vector.strides[0];
  const DenseElements dense(values);
  const K *const sorted = static_cast<const K*>(vector.data), *const wanted = static_cast<const K*>(dense.data());
  auto* const out = static_cast<std::int64_t*>(args.outputs[0].data);
  const auto key = [](K bits) { return Key::key(Key::equal_zeros(bits)); };
  parallel_for(0, values.element_count(), 40, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      const K value = key(wanted[i]);
      std::int64_t low = 0, count = size;
      while (count > 0) {
        const std::int64_t half = count / 2;
        const K here = key(sorted[(low + half) * stride]);
        const bool after = right ? here <= value : here < value;
        low = after ? low + half + 1 : low;
        count = after ? count - half - 1 : half;
      }
      out[i] = low;
    }
  });
}

template <class Key> void find_nonzero(const CallArgs& args) {
  using K = typename Key::Bits;
  constexpr std::int64_t kChunk = 16384;
  const TensorView& x = args.inputs[0];
  const std::int64_t count = x.element_count(), wanted = args.outputs[0].sizes[0];
  const DenseElements dense(x);
  const K* const from = static_cast<const K*>(dense.data());
  auto* const out = static_cast<std::int64_t*>(args.outputs[0].data);
  const auto nonzero = [](K bits) { return Key::equal_zeros(bits) != K{0}; };
  const std::int64_t chunks = (count + kChunk - 1) / kChunk;
  std::vector<std::int64_t> starts(static_cast<std::size_t>(chunks) + 1, 0);
  parallel_for(0, chunks, kChunk * 0.5, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t c = b; c < e; ++c) {
      std::int64_t found = 0;
      for (std::int64_t i = c * kChunk; i < std::min(count, (c + 1) * kChunk); ++i) found += nonzero(from[i]) ? 1 : 0;
      starts[static_cast<std::size_t>(c) + 1] = found;
    }
  });
  for (std::size_t c = 1; c < starts.size(); ++c) starts[c] += starts[c - 1];
  parallel_for(0, chunks, kChunk * 1.5, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t c = b; c < e; ++c) {
      std::int64_t at = starts[static_cast<std::size_t>(c)];
      for (std::int64_t i = c * kChunk; i < std::min(count, (c + 1) * kChunk) && at < wanted; ++i)
        if (nonzero(from[i])) out[at++] = i;
    }
  });
  if (starts.back() < wanted) std::fill(out + starts.back(), out + wanted, count);
}

/// Attributes [right].
void searchsorted_call(const CallArgs& args) {
  visit_sort_key(args.inputs[0].dtype, [&]<class Key>() { search<Key>(args); });
}

void flatnonzero_call(const CallArgs& args) {
  visit_sort_key(args.inputs[0].dtype, [&]<class Key>() { find_nonzero<Key>(args); });
}

}  // namespace

FERMATA_KERNELS(cpu) {
  add_native_kernel(Op::searchsorted, &searchsorted_call);
  add_native_kernel(Op::flatnonzero, &flatnonzero_call);
}

}  // namespace fermata
