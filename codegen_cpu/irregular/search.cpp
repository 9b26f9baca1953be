// searchsorted by bisection, several values at a time, and flatnonzero in two passes: count in chunks, then fill.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <vector>

#include "codegen_cpu/irregular/dense_elements.h"
#include "codegen_cpu/irregular/irregular.h"
#include "codegen_cpu/irregular/sort_keys.h"
#include "ir/ops/ordering.h"
#include "runtime/call_attributes.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// The positions of a few values in a sorted table of `size` > 0 keys, side by side: one search waits for memory at
/// each step, which are as many for all of them. No step is a branch, since none could be predicted.
template <bool Right, int N, class K, class At>
void search_together(const At& at, std::int64_t size, const K* values, std::int64_t* out) {
  std::int64_t low[N] = {};
  const auto moved = [&](int i, std::int64_t last, std::int64_t by) __attribute__((always_inline)) {
    const K here = at(low[i] + last);
    const bool after = Right ? here <= values[i] : here < values[i];
    low[i] += by & -static_cast<std::int64_t>(after);
  };
  for (std::int64_t left = size; left > 1;) {
    const std::int64_t half = left / 2;
#pragma GCC unroll 8
    for (int i = 0; i < N; ++i) moved(i, half - 1, half);
    left -= half;
  }
  for (int i = 0; i < N; ++i) moved(i, 0, 1), out[i] = low[i];
}

template <bool Right, class K, class Value, class At>
void search_all(const At& at, std::int64_t size, const Value& value, std::int64_t count, std::int64_t* out) {
  constexpr int kTogether = 8;
  parallel_for(0, count, 10, [&](std::int64_t begin, std::int64_t end) {
    std::int64_t i = begin;
    K values[kTogether];
    for (; i + kTogether <= end; i += kTogether) {
      for (int k = 0; k < kTogether; ++k) values[k] = value(i + k);
      search_together<Right, kTogether>(at, size, values, out + i);
    }
    for (; i < end; ++i) {
      values[0] = value(i);
      search_together<Right, 1>(at, size, values, out + i);
    }
  });
}

template <class Key> void search(const CallArgs& args, Key of) {
  using K = typename Key::Bits;
  const TensorView &vector = args.inputs[0], &values = args.inputs[1];
  const bool right = attributes_of<ops::Searchsorted>(args).right.value;
  const std::int64_t size = vector.sizes[0], stride = vector.strides[0], count = values.element_count();
  const DenseElements dense(values);
  const K *const sorted = static_cast<const K*>(vector.data), *const wanted = static_cast<const K*>(dense.data());
  auto* const out = static_cast<std::int64_t*>(args.outputs[0].data);
  if (size == 0) return static_cast<void>(std::fill_n(out, count, std::int64_t{0}));
  const auto key = [&](K bits) { return of.key(Key::equal_zeros(bits)); };
  const auto value = [&](std::int64_t i) { return key(wanted[i]); };
  const auto run = [&](const auto& at) {
    right ? search_all<true, K>(at, size, value, count, out) : search_all<false, K>(at, size, value, count, out);
  };
  if (count < size) return run([&](std::int64_t i) { return key(sorted[i * stride]); });
  std::vector<K> table(static_cast<std::size_t>(size));
  for (std::int64_t i = 0; i < size; ++i) table[static_cast<std::size_t>(i)] = key(sorted[i * stride]);
  run([&](std::int64_t i) { return table[static_cast<std::size_t>(i)]; });
}

/// Of up to eight flags, those that are set: how many, and their places in order. As wide as positions, since the first
/// vector instructions widen no bytes; made when it is needed, since libraries are to be small.
struct PlacesOfFlags {
  PlacesOfFlags() {
    for (std::size_t flags = 0; flags < 256; ++flags)
      for (std::int64_t place = 0; place < 8; ++place)
        if ((flags >> place & 1u) != 0) places[flags][count[flags]++] = place;
  }
  static const PlacesOfFlags& instance() {
    static const auto& made = *new PlacesOfFlags;
    return made;
  }
  std::uint8_t count[256]{};
  alignas(64) std::int64_t places[256][8]{};
};

/// The positions from `i` on of elements that are not zero, from out[at] on; of whole blocks without a branch as long
/// as they fit below `last`, with what they write beyond the ones that are set.
template <class K, class F> void write_positions(const K* from, F nonzero, std::int64_t i, std::int64_t end,
                                                 std::int64_t at, std::int64_t last, std::int64_t* out) {
  constexpr std::int64_t kGroup = 8, kBlock = 64;
  typedef std::int64_t Positions __attribute__((vector_size(16)));
  constexpr std::int64_t kPositions = sizeof(Positions) / sizeof(std::int64_t);
  const PlacesOfFlags& table = PlacesOfFlags::instance();
  std::uint8_t flags[kBlock];
  for (; i + kBlock <= end && at + kBlock <= last; i += kBlock) {
    for (std::int64_t j = 0; j < kBlock; ++j) flags[j] = nonzero(from[i + j]) ? 1 : 0;
    for (std::int64_t j = 0; j < kBlock; j += kGroup) {
      std::uint64_t word;
      std::memcpy(&word, flags + j, sizeof word);
      const auto set = static_cast<std::size_t>(word * 0x0102040810204080u >> 56);  // the first flag as the lowest bit
      for (std::int64_t k = 0; k < kGroup; k += kPositions) {
        Positions positions;
        std::memcpy(&positions, table.places[set] + k, sizeof positions);
        positions += i + j;
        std::memcpy(out + at + k, &positions, sizeof positions);
      }
      at += table.count[set];
    }
  }
  // Each position is written, and overwritten by the next unless it is kept: a branch would be guessed.
  for (; at < last; ++i) out[at] = i, at += nonzero(from[i]) ? 1 : 0;
}

template <class Key> void find_nonzero(const CallArgs& args, Key) {
  using K = typename Key::Bits;
  constexpr std::int64_t kChunk = 16384, kCounted = 128;  // in as many bits as an element has
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
      std::int64_t found = 0, i = c * kChunk;
      for (const std::int64_t end = std::min(count, i + kChunk); i < end;) {
        K few{0};
        for (const std::int64_t part = std::min(end, i + kCounted); i < part; ++i)
          few = static_cast<K>(few + (nonzero(from[i]) ? K{1} : K{0}));
        found += static_cast<std::int64_t>(few);
      }
      starts[static_cast<std::size_t>(c) + 1] = found;
    }
  });
  for (std::size_t c = 1; c < starts.size(); ++c) starts[c] += starts[c - 1];
  parallel_for(0, chunks, kChunk * 1.5, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t c = b; c < e; ++c) {
      const std::int64_t begin = c * kChunk, last = std::min(wanted, starts[static_cast<std::size_t>(c) + 1]);
      write_positions(from, nonzero, begin, std::min(count, begin + kChunk), starts[static_cast<std::size_t>(c)], last,
                      out);
    }
  });
  if (starts.back() < wanted) std::fill(out + starts.back(), out + wanted, count);
}

/// Attributes [right].
void searchsorted_call(const CallArgs& args) {
  visit_sort_key(args.inputs[0].dtype, [&](auto key) { search(args, key); });
}

void flatnonzero_call(const CallArgs& args) {
  visit_sort_key(args.inputs[0].dtype, [&](auto key) { find_nonzero(args, key); });
}

}  // namespace

FERMATA_KERNELS(cpu) {
  add_native_kernel(Op::searchsorted, &searchsorted_call);
  add_native_kernel(Op::flatnonzero, &flatnonzero_call);
}

}  // namespace fermata
