// See positions.h.
#include "codegen_cpu/irregular/positions.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>

#include "codegen_cpu/irregular/strided_copy.h"
#include "ir/op_traits.h"
#include "ir/position_error.h"
#include "ir/shape.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

[[noreturn]] void throw_out_of_range(const CallArgs& args, std::int64_t at, const std::string& value) {
  std::vector<TensorType> operands;
  for (const TensorView& v : args.inputs) operands.push_back({v.dtype, Shape({v.sizes, v.rank})});
  throw_position_error(args.op, axis_of(args.op, args.attributes), operands, value, at, args.where);
}

/// Widens and wraps; gives the first element out of range, or the count.
template <class T> std::int64_t wrap_positions(const T* from, std::int64_t count, std::int64_t size, std::int64_t* to) {
  std::atomic<std::int64_t> first{count};
  parallel_for(0, count, 0.5, [&](std::int64_t b, std::int64_t e) {
    for (std::int64_t i = b; i < e; ++i) {
      // Unsigned positions above the range of int64 become negative ones that are out of range too, but u64 needs care.
      const auto given = static_cast<std::int64_t>(from[i]);
      const bool wraps = std::is_signed_v<T> && given < 0;
      const std::int64_t at = wraps ? given + size : given;
      if (at < 0 || at >= size) {
        std::int64_t lowest = first.load(std::memory_order_relaxed);
        while (i < lowest && !first.compare_exchange_weak(lowest, i, std::memory_order_relaxed)) {}
        return;
      }
      to[i] = at;
    }
  });
  return first.load(std::memory_order_relaxed);
}

template <class T> void read_positions(const CallArgs& args, const void* dense, const Scratch<std::int64_t>& to) {
  const auto* const from = static_cast<const T*>(dense);
  const std::int64_t bad =
      wrap_positions(from, to.size(), args.inputs[0].sizes[axis_of(args.op, args.attributes)], to.data());
  if (bad != to.size()) throw_out_of_range(args, bad, fmt::format("{}", from[bad]));
}

/// Positions are read in order, faster than the processor looks ahead by itself. `use(begin, end)` takes them by cache
/// lines.
template <class T, class Use> void read_ahead(const T* from, std::int64_t count, Use use) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(T)), kAheadBytes = 2048;
  for (std::int64_t begin = 0; begin < count; begin += kLine) {
    __builtin_prefetch(reinterpret_cast<const char*>(from + begin) + kAheadBytes);
    use(begin, std::min(begin + kLine, count));
  }
}

/// Whether all are inside the axis as they are, none counted from its end.
bool are_inside_here(const std::int64_t* positions, std::int64_t count, std::int64_t size) {
  std::int64_t negative_if_outside = 0;
  read_ahead(positions, count, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) negative_if_outside |= positions[i] | (size - 1 - positions[i]);
  });
  return negative_if_outside >= 0;
}
bool are_inside(const std::int64_t* positions, std::int64_t count, std::int64_t size) {
  std::atomic<bool> all_inside{true};
  parallel_for(0, count, 0.3, [&](std::int64_t b, std::int64_t e) {
    if (!are_inside_here(positions + b, e - b, size)) all_inside.store(false, std::memory_order_relaxed);
  });
  return all_inside.load(std::memory_order_relaxed);
}

/// The elements of a view in row-major order, unless they lie so already.
Scratch<std::byte> packed_elements(const TensorView& view) {
  const std::span<const std::int64_t> sizes{view.sizes, view.rank};
  const std::size_t bytes = byte_size(view.dtype);
  const bool dense = is_contiguous(view, 0, view.rank);
  Scratch<std::byte> packed(dense ? 0 : view.element_count() * static_cast<std::int64_t>(bytes));
  if (!dense) strided_copy({packed.data(), dense_strides(sizes)}, {view.data, {view.strides, view.rank}}, sizes, bytes);
  return packed;
}

std::int64_t elements_of(const TensorView& view, unsigned begin, unsigned end) {
  std::int64_t count = 1;
  for (unsigned i = begin; i < end; ++i) count *= view.sizes[i];
  return count;
}
/// From one combination of axes to the next; -1 where that differs.
std::int64_t step_of(const TensorView& view, unsigned begin, unsigned end) {
  std::int64_t step = 0, next = 0;
  for (unsigned i = end; i-- > begin;) {
    if (view.sizes[i] == 1) continue;
    if (next == 0) step = next = view.strides[i];
    if (next <= 0 || view.strides[i] != next) return -1;
    next *= view.sizes[i];
  }
  return step;
}

}  // namespace

Positions positions_of(const CallArgs& args, unsigned axes) {
  TensorView index = args.inputs[1];
  index.rank = static_cast<std::uint8_t>(std::min<unsigned>(index.rank, axes));
  if (index.dtype == DType::i64 && is_contiguous(index, 0, index.rank)) {
    const auto* const given = static_cast<const std::int64_t*>(index.data);
    const std::int64_t count = index.element_count();
    if (are_inside(given, count, args.inputs[0].sizes[axis_of(args.op, args.attributes)]))
      return Positions({given, static_cast<std::size_t>(count)});
  }
  const Scratch<std::byte> packed = packed_elements(index);
  Scratch<std::int64_t> positions(index.element_count());
  const void* const from = packed.size() == 0 ? index.data : packed.data();
  visit_compute(index.dtype, [&]<class T>() {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) read_positions<T>(args, from, positions);
  });
  return Positions(std::move(positions));
}

PositionReader::PositionReader(const CallArgs& args)
    : dtype_(args.inputs[1].dtype),
      size_(args.inputs[0].sizes[axis_of(args.op, args.attributes)]),
      packed_(packed_elements(args.inputs[1])),
      data_(packed_.size() == 0 ? args.inputs[1].data : packed_.data()) {}

bool PositionReader::read(std::int64_t begin, std::int64_t count, std::int64_t* to) const {
  bool all_inside = true;
  visit_compute(dtype_, [&]<class T>() {
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      const auto* const from = static_cast<const T*>(data_) + begin;
      std::int64_t negative_if_outside = 0;
      read_ahead(from, count, [&](std::int64_t first, std::int64_t last) {
        for (std::int64_t i = first; i < last; ++i) {
          const auto given = static_cast<std::int64_t>(from[i]);
          const std::int64_t at = std::is_signed_v<T> ? given + (size_ & (given >> 63)) : given;
          negative_if_outside |= at | (size_ - 1 - at);
          to[i] = at;
        }
      });
      all_inside = negative_if_outside >= 0;
    }
  });
  return all_inside;
}

const std::int64_t* PositionReader::find(std::int64_t begin, std::int64_t count, std::int64_t* room) const {
  const std::int64_t* const here = given();
  if (here != nullptr && are_inside_here(here + begin, count, size_)) return here + begin;
  return read(begin, count, room) ? room : nullptr;
}

Scratch<std::int64_t> offsets_of(const TensorView& view, unsigned begin, unsigned end) {
  const std::int64_t count = elements_of(view, begin, end);
  Scratch<std::int64_t> offsets(count);
  if (count == 0) return offsets;
  offsets[0] = 0;
  // Each axis repeats, at its strides, what the axes after it have laid down.
  std::int64_t filled = 1;
  for (unsigned axis = end; axis-- > begin;) {
    const std::int64_t size = view.sizes[axis];
    for (std::int64_t i = 1; i < size; ++i)
      for (std::int64_t j = 0; j < filled; ++j) offsets[i * filled + j] = offsets[j] + i * view.strides[axis];
    filled *= size;
  }
  return offsets;
}

Offsets::Offsets(const TensorView& view, unsigned begin, unsigned end)
    : count_(elements_of(view, begin, end)),
      step_(step_of(view, begin, end)),
      table_(offsets_of(view, step_ >= 0 ? end : begin, end)) {}

bool is_contiguous(const TensorView& view, unsigned begin, unsigned end) {
  return is_dense({view.sizes + begin, end - begin}, {view.strides + begin, end - begin});
}

GatherShape gather_shape(const CallArgs& args) {
  const TensorView& x = args.inputs[0];
  const auto axis = static_cast<unsigned>(axis_of(args.op, args.attributes));
  GatherShape g{axis, 1, x.sizes[axis], 1, args.inputs[1].element_count()};
  for (unsigned i = 0; i < g.axis; ++i) g.outer *= x.sizes[i];
  for (unsigned i = g.axis + 1; i < x.rank; ++i) g.inner *= x.sizes[i];
  return g;
}

}  // namespace fermata
