// searchsorted by bisection, and flatnonzero in two passes: count in chunks, then fill.
#include <algorithm>
#include <bit>
#include <memory>
#include <vector>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/sort_keys.h"
#include "ir/ops/ordering.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// So many values are searched for at once: a step of one waits for memory or for its comparison, those of others run
/// meanwhile.
constexpr std::int64_t kTogether = 16;

/// Where kTogether values belong among `size` keys, without branches: all take the same steps.
template <bool kRight, class K>
void search_together(const K* keys, std::int64_t size, const K* values, std::int64_t* low) {
  std::fill_n(low, kTogether, 0);
  const auto step = [&](std::int64_t probe, std::int64_t length) {
    for (std::int64_t j = 0; j < kTogether; ++j) {
      const K here = keys[low[j] + probe];
      const bool is_before = kRight ? here <= values[j] : here < values[j];
      low[j] += length & -static_cast<std::int64_t>(is_before);
    }
  };
  while (size > 1) {
    const std::int64_t half = size / 2;
    step(half - 1, half);
    size -= half;
  }
  if (size == 1) step(0, 1);
}

template <class Key> void search(const CallArgs& args) {
  using K = typename Key::Bits;
  const TensorView &vector = args.inputs[0], &values = args.inputs[1];
  const bool right = attributes_of<ops::Searchsorted>(args).right.value;
  const std::int64_t size = vector.sizes[0], stride = vector.strides[0], count = values.element_count();
  const DenseElements dense(values);
  const K *const sorted = static_cast<const K*>(vector.data), *const wanted = static_cast<const K*>(dense.data());
  auto* const out = static_cast<std::int64_t*>(args.outputs[0].data);
  const auto key = [](K bits) { return Key::key(Key::equal_zeros(bits)); };
  if (count * static_cast<std::int64_t>(std::bit_width(static_cast<std::uint64_t>(size))) <
      size) {  // most keys are not looked at
    const auto found = [&](K value) {
      std::int64_t low = 0, left = size;
      while (left > 0) {
        const std::int64_t half = left / 2;
        const K here = key(sorted[(low + half) * stride]);
        const bool after = right ? here <= value : here < value;
        low = after ? low + half + 1 : low;
        left = after ? left - half - 1 : half;
      }
      return low;
    };
    return parallel_for(0, count, 40, [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) out[i] = found(key(wanted[i]));
    });
  }
  const auto keys = std::make_unique_for_overwrite<K[]>(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) keys[static_cast<std::size_t>(i)] = key(sorted[i * stride]);
  const auto together = right ? &search_together<true, K> : &search_together<false, K>;
  parallel_for(0, (count + kTogether - 1) / kTogether, 8 * kTogether, [&](std::int64_t begin, std::int64_t end) {
    K some[kTogether];
    std::int64_t low[kTogether];
    for (std::int64_t at = begin * kTogether; at < std::min(end * kTogether, count); at += kTogether) {
      const std::int64_t n = std::min(kTogether, count - at);
      for (std::int64_t j = 0; j < kTogether; ++j) some[j] = key(wanted[at + std::min(j, n - 1)]);
      together(keys.get(), size, some, low);
      std::copy_n(low, n, out + at);
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
