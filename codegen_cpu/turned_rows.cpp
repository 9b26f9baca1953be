// See turned_rows.h.
#include "codegen_cpu/turned_rows.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <utility>
#include <vector>

#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/repeat.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "codegen_cpu/irregular/transpose.h"

namespace fermata {
namespace {

/// Of the states of one stage, which wait on the stack for one tree or two (codegen_cpu/jit/column_kernel.cpp).
constexpr std::size_t kMostComponents = 16;
/// Axes along a row.
constexpr unsigned kMostAlong = 4;
/// Buffers of a tile stay in the first-level cache.
constexpr std::int64_t kTileBytes = 24 << 10, kLeastTile = 32, kLargestTile = 512;
/// What is the same for all positions outside of the innermost axis of rows is turned once if it stays in the
/// second-level cache.
constexpr std::int64_t kWholeBytes = 128 << 10;

/// The axes along a row: those that are reduced; of a map kernel the vector axis.
unsigned axes_along(const Kernel& kernel) { return kernel.reduced != 0 ? kernel.reduced : 1u << (kernel.rank - 1u); }
bool is_along(const Kernel& kernel, const Access& access) { return (access.axes & axes_along(kernel)) != 0; }
bool is_across(const Kernel& kernel, const Access& access) {
  return (access.axes & ((1u << kernel.rank) - 1u) & ~axes_along(kernel)) != 0;
}

struct RowAxis {
  std::int64_t size = 1;
  std::vector<std::int64_t> strides;  // per access, in elements
};

/// The axes that count rows, outer to inner, those that all accesses step through evenly as one.
std::vector<RowAxis> row_axes(const Kernel& kernel, const KernelLaunch& launch) {
  std::vector<RowAxis> axes;
  const std::size_t accesses = kernel.accesses.size();
  for (unsigned axis = 0; axis < kernel.rank; ++axis) {
    if (launch.sizes[axis] == 1 || (axes_along(kernel) >> axis & 1u) != 0) continue;
    RowAxis next{launch.sizes[axis], std::vector<std::int64_t>(accesses, 0)};
    for (std::size_t a = 0; a < accesses; ++a)
      if ((kernel.accesses[a].axes >> axis & 1u) != 0) next.strides[a] = launch.strides[a * kernel.rank + axis];
    bool joins = !axes.empty();
    for (std::size_t a = 0; joins && a < accesses; ++a) joins = axes.back().strides[a] == next.strides[a] * next.size;
    if (joins)
      axes.back() = {axes.back().size * next.size, std::move(next.strides)};
    else
      axes.push_back(std::move(next));
  }
  if (axes.empty()) axes.push_back({1, std::vector<std::int64_t>(accesses, 0)});
  return axes;
}

/// One launch, tile by tile.
class TurnedLaunch {
 public:
  TurnedLaunch(const Kernel& kernel, const Executable& turned, const KernelLaunch& launch)
      : kernel_(kernel),
        turned_(turned),
        launch_(launch),
        first_(kernel.reduced != 0 ? 0 : launch.column_begin),
        axes_(row_axes(kernel, launch)),
        operands_(kernel.accesses.size()) {
    for (unsigned axis = 0; axis < kernel.rank; ++axis)
      if ((axes_along(kernel) >> axis & 1u) != 0) along_[ranks_along_++] = axis;
    for (unsigned i = 0; i < ranks_along_; ++i) sizes_[i] = launch.sizes[along_[i]];
    if (kernel.reduced == 0) sizes_[0] = launch.column_end - launch.column_begin;
    std::int64_t row_bytes = 1;
    for (std::size_t a = 0; a < operands_.size(); ++a) {
      Operand& o = operands_[a];
      const Access& access = kernel.accesses[a];
      o.bytes = static_cast<std::int64_t>(byte_size(access.dtype));
      o.along = is_along(kernel, access), o.across = is_across(kernel, access);
      o.length = 1;
      for (unsigned i = ranks_along_; i-- > 0;) {
        const bool steps = (access.axes >> along_[i] & 1u) != 0;
        o.sizes[i] = steps ? sizes_[i] : 1;
        o.steps[i] = steps ? launch.strides[a * kernel.rank + along_[i]] : 0;
        o.buffer_steps[i] = steps ? o.length : 0;
        o.length *= o.sizes[i];
      }
      if (access.address_only) stays_in_run_ = stays_in_run_ || o.across;
      o.buffered = o.across && !access.address_only;
      if (o.buffered) row_bytes += o.bytes * o.length;
    }
    for (const Instr& instr : kernel.program.instrs())
      if (instr.prim == Prim::input) operands_[instr.index].is_read = true;
    for (const Store& store : kernel.stores) operands_[store.access].is_stored = true;
    tile_ = std::clamp(kTileBytes / row_bytes / kLeastTile * kLeastTile, kLeastTile, kLargestTile);
    stays_in_run_ = stays_in_run_ || axes_.back().size >= tile_;
    for (std::size_t a = 0; a < operands_.size(); ++a) {
      Operand& o = operands_[a];
      o.repeats = o.buffered && !o.is_stored && axes_.back().size <= tile_;
      o.is_dense = o.buffered && !o.along;
      std::int64_t rows = 1;
      for (std::size_t axis = axes_.size(); axis-- > 0; rows *= axes_[axis].size)
        o.is_dense = o.is_dense && axes_[axis].strides[a] == rows;
      const bool is_of_run =
          std::all_of(axes_.begin(), axes_.end() - 1, [&](const RowAxis& axis) { return axis.strides[a] == 0; });
      o.repeats = o.repeats && is_of_run;
      o.is_whole = is_of_run && o.buffered && !o.is_stored && !o.repeats && axes_.size() > 1 &&
                   axes_.back().strides[a] != 0 && axes_.back().size * o.length * o.bytes <= kWholeBytes;
    }
  }

  void run() {
    for (unsigned i = 0; i < ranks_along_; ++i)
      if (sizes_[i] <= 0) return;
    std::int64_t bytes = 0;
    for (const Operand& o : operands_) bytes += buffer_bytes(o);
    const Scratch<char> buffers(bytes);
    char* at = buffers.data();
    for (Operand& o : operands_) o.buffer = at, at += buffer_bytes(o);
    if (axes_.back().size >= kFewestTurnedRows) return run_along(launch_.row_begin, launch_.row_end);
    // Lanes along the innermost axis that is long enough, for each position along those inside of it.
    std::size_t axis = axes_.size();
    std::int64_t inside = 1;
    while (axis > 0 && axes_[axis - 1].size < kFewestTurnedRows) inside *= axes_[--axis].size;
    const std::int64_t first = (launch_.row_begin + inside - 1) / inside, last = launch_.row_end / inside;
    if (axis == 0 || last - first < kFewestTurnedRows) return run_along(launch_.row_begin, launch_.row_end);
    run_along(launch_.row_begin, first * inside);
    run_across(axis - 1, inside, first, last);
    run_along(last * inside, launch_.row_end);
  }

 private:
  template <class T> using Along = std::array<T, kMostAlong + 1>;  // for each axis along a row, then across rows
  struct Operand {
    std::int64_t bytes = 0, length = 0;  // of an element; elements of a row
    Along<std::int64_t> sizes{}, steps{},
        buffer_steps{};  // along a row, in elements; in a buffer, in lines of the tile
    bool along = false, across = false, is_read = false, is_stored = false;
    bool buffered = false;  // unless a tile of it lies as the code wants it
    char* buffer = nullptr;
    bool is_dense = false;                     // one element of each row, which follow each other
    bool repeats = false;                      // each run has the same elements
    bool is_whole = false;                     // and the buffer has all of a run
    std::int64_t brought = 0, brought_at = 0;  // rows that the buffer has, and the place of the first in its run
    std::int64_t brought_of = 0;               // the number of its run
  };

  std::int64_t buffer_bytes(const Operand& o) const {
    const std::int64_t bytes = o.buffered ? o.bytes * o.length * line_of(o) : 0;
    return (bytes + 63) / 64 * 64;
  }
  /// From one element of a row to the next in its buffer, in elements.
  std::int64_t line_of(const Operand& o) const { return o.is_whole ? std::max(tile_, axes_.back().size) : tile_; }
  /// Of row number `row`, in elements.
  std::int64_t offset(std::size_t access, std::int64_t row) const {
    std::int64_t offset = first_ * operands_[access].steps[ranks_along_ - 1];
    for (std::size_t axis = axes_.size(); axis-- > 0;) {
      offset += row % axes_[axis].size * axes_[axis].strides[access];
      row /= axes_[axis].size;
    }
    return offset;
  }
  char* address(std::size_t access, std::int64_t row) const {
    return static_cast<char*>(launch_.pointers[access]) + offset(access, row) * operands_[access].bytes;
  }

  /// Rows in their order.
  void run_along(std::int64_t begin, std::int64_t end) {
    const std::int64_t run = axes_.back().size;
    for (std::int64_t row = begin; row < end;) {
      const std::int64_t most = stays_in_run_ || run > tile_ ? std::min(tile_, run - row % run)
                                                             : tile_ / run * run - row % run;  // whole runs
      const std::int64_t rows = std::min(most, end - row);
      lanes_ = axes_.size() - 1, step_ = 1;
      run_tile(row, rows);
      row += rows;
    }
  }
  /// Positions [begin, end) along an axis and those outside of it, each with `inside` rows.
  void run_across(std::size_t axis, std::int64_t inside, std::int64_t begin, std::int64_t end) {
    lanes_ = axis, step_ = inside;
    for (std::int64_t place = begin; place < end;) {
      const std::int64_t left = axes_[axis].size - place % axes_[axis].size;
      const std::int64_t rows = std::min({tile_, left, end - place});
      for (std::int64_t row = 0; row < inside; ++row) {
        is_brought_ = row > 0;
        run_tile(place * inside + row, rows);
      }
      is_brought_ = false;
      place += rows;
    }
    for (Operand& o : operands_) o.brought = 0;
  }

  /// `rows` rows from number `row` on, one in `step_`.
  void run_tile(std::int64_t row, std::int64_t rows) {
    constexpr std::size_t kMostAccesses = 32;
    const std::size_t count = operands_.size(), rank = ranks_along_ + 1;
    std::array<void*, kMostAccesses> few_pointers;
    std::array<std::int64_t, (kMostAlong + 1) * kMostAccesses> few_strides;
    std::array<std::int64_t, kMostAccesses> few_offsets;
    const bool has_many = count > kMostAccesses;
    std::vector<void*> many_pointers(has_many ? count : 0);
    std::vector<std::int64_t> many_numbers(has_many ? (rank + 1) * count : 0);
    void** const pointers = has_many ? many_pointers.data() : few_pointers.data();
    std::int64_t* const strides = has_many ? many_numbers.data() : few_strides.data();
    std::int64_t* const offsets = has_many ? many_numbers.data() + rank * count : few_offsets.data();
    const bool one_run = step_ > 1 || row / axes_.back().size == (row + rows - 1) / axes_.back().size;
    for (std::size_t a = 0; a < count; ++a) {
      const Operand& o = operands_[a];
      const std::int64_t across = axes_[lanes_].strides[a];
      std::copy_n(o.steps.begin(), ranks_along_, strides + rank * a);
      strides[rank * a + ranks_along_] = across;
      offsets[a] = 0;
      if (kernel_.accesses[a].address_only) {
        pointers[a] = nullptr;
        offsets[a] = launch_.offsets[a] + offset(a, row);
      } else if (!o.buffered || (o.is_dense && step_ == 1) || (one_run && across == 1)) {
        pointers[a] = address(a, row);
      } else {
        const bool is_in_whole = o.is_whole && step_ == 1 && one_run;
        pointers[a] = is_in_whole ? o.buffer + row % axes_.back().size * o.bytes : o.buffer;
        for (unsigned i = 0; i < ranks_along_; ++i) strides[rank * a + i] = o.buffer_steps[i] * line_of(o);
        strides[rank * a + ranks_along_] = 1;
        if (is_in_whole)
          bring_in_whole(a);
        else if (o.is_read)
          bring_in(a, row, rows);
      }
    }
    Along<std::int64_t> sizes = sizes_;
    sizes[ranks_along_] = rows;
    turned_.launch({.pointers = pointers,
                    .sizes = sizes.data(),
                    .strides = strides,
                    .offsets = offsets,
                    .scalars = launch_.scalars,
                    .row_begin = 0,
                    .row_end = kernel_.reduced != 0 ? 1 : sizes_[0],
                    .column_begin = 0,
                    .column_end = rows});
    for (std::size_t a = 0; a < count; ++a)
      if (const Operand& o = operands_[a]; o.is_stored && pointers[a] == o.buffer)
        for_runs(a, row, rows, [&](auto... at) { bring_out(o, at...); });
  }

  /// Calls body(memory, stride, place in the buffer, rows) for the rows of a tile that lie evenly.
  template <class Body> void for_runs(std::size_t access, std::int64_t row, std::int64_t rows, Body body) const {
    const std::int64_t run = axes_.back().size;
    const Operand& o = operands_[access];
    if (step_ > 1) return body(address(access, row), axes_[lanes_].strides[access], o.buffer, rows);
    for (std::int64_t done = 0; done < rows;) {
      const std::int64_t count = std::min(rows - done, run - (row + done) % run);
      body(address(access, row + done), axes_.back().strides[access], o.buffer + done * o.bytes, count);
      done += count;
    }
  }

  /// Whether all rows inside of the axis of the lanes have the same elements.
  bool is_the_same_inside(std::size_t access) const {
    return std::all_of(axes_.begin() + static_cast<std::ptrdiff_t>(lanes_) + 1, axes_.end(),
                       [&](const RowAxis& axis) { return axis.strides[access] == 0; });
  }
  void bring_in(std::size_t access, std::int64_t row, std::int64_t rows) {
    Operand& o = operands_[access];
    const std::int64_t at = row % axes_.back().size;
    if (is_brought_ && is_the_same_inside(access)) return;
    const std::int64_t run = row / axes_.back().size;
    const bool is_of_one = axes_.back().strides[access] == 0 && o.brought_of == run && at + rows <= axes_.back().size;
    if (step_ == 1 && o.brought >= rows && (is_of_one || (o.repeats && o.brought_at == at))) return;
    const bool is_one_run = at + rows <= axes_.back().size;
    o.brought = rows, o.brought_at = at, o.brought_of = is_one_run ? run : -1;
    if (step_ == 1 && is_one_run && ranks_along_ == 1 && o.along && axes_.back().strides[access] == 0) {
      o.brought = tile_;  // one row, the same in all lanes, and more of them than the tile has
      return repeat_kernels().repeat(
          nullptr, o.bytes,
          {.to = o.buffer, .from = address(access, row), .step = o.steps[0], .count = o.length, .times = line_of(o)});
    }
    for_runs(access, row, rows, [&](auto... run) { bring_in(o, run...); });
  }
  void bring_in_whole(std::size_t access) {
    Operand& o = operands_[access];
    const std::int64_t run = axes_.back().size;
    if (o.brought == run) return;
    o.brought = run;
    bring_in(o, address(access, 0), axes_.back().strides[access], o.buffer, run);
  }
  void bring_in(const Operand& o, char* memory, std::int64_t stride, char* to, std::int64_t rows) const {
    if (ranks_along_ == 1 && o.along && o.steps[0] == 1 && stride >= 0)
      return transpose_kernels().of_bytes[o.bytes]({.to = to,
                                                    .from = memory,
                                                    .to_line = line_of(o),
                                                    .from_line = stride,
                                                    .lines = o.length,
                                                    .columns = rows,
                                                    .streams = false});
    const Along<std::int64_t> outside = memory_strides(o, stride), inside = buffer_strides(o);
    copy(o, {to, inside}, {memory, outside}, rows);
  }
  void bring_out(const Operand& o, char* memory, std::int64_t stride, char* from, std::int64_t rows) const {
    if (ranks_along_ == 1 && o.along && o.steps[0] == 1 && stride > 0)
      return transpose_kernels().of_bytes[o.bytes]({.to = memory,
                                                    .from = from,
                                                    .to_line = stride,
                                                    .from_line = tile_,
                                                    .lines = rows,
                                                    .columns = o.length,
                                                    .streams = false});
    const Along<std::int64_t> outside = memory_strides(o, stride), inside = buffer_strides(o);
    copy(o, {memory, outside}, {from, inside}, rows);
  }
  /// Of the axes along a row, then across rows.
  Along<std::int64_t> memory_strides(const Operand& o, std::int64_t across) const {
    Along<std::int64_t> strides = o.steps;
    strides[ranks_along_] = across;
    return strides;
  }
  Along<std::int64_t> buffer_strides(const Operand& o) const {
    Along<std::int64_t> strides{};
    for (unsigned i = 0; i < ranks_along_; ++i) strides[i] = o.buffer_steps[i] * line_of(o);
    strides[ranks_along_] = 1;
    return strides;
  }
  void copy(const Operand& o, StridedSide to, StridedSide from, std::int64_t rows) const {
    Along<std::int64_t> sizes = o.sizes;
    sizes[ranks_along_] = rows;
    strided_copy({to.data, to.strides.first(ranks_along_ + 1)}, {from.data, from.strides.first(ranks_along_ + 1)},
                 {sizes.data(), ranks_along_ + 1}, static_cast<std::size_t>(o.bytes));
  }

  const Kernel& kernel_;
  const Executable& turned_;
  const KernelLaunch& launch_;
  const std::int64_t first_;  // of a row, that is computed; of its last axis
  Along<unsigned> along_{};   // axes of the kernel
  Along<std::int64_t> sizes_{};
  unsigned ranks_along_ = 0;
  const std::vector<RowAxis> axes_;
  std::vector<Operand> operands_;
  bool stays_in_run_ = false;  // tiles must not go on in the next row of the axes outside of the innermost
  std::int64_t tile_ = 0;
  // Of the tile at hand.
  std::size_t lanes_ = 0;    // the axis along which its rows lie
  std::int64_t step_ = 1;    // from one to the next
  bool is_brought_ = false;  // the tile before had the same rows, but for those inside of that axis
};

class TurnedExecutable final : public Executable {
 public:
  TurnedExecutable(const Kernel& kernel, std::shared_ptr<const Executable> turned)
      : kernel_(kernel), turned_(std::move(turned)) {}
  void launch(const KernelLaunch& launch) const override { TurnedLaunch(kernel_, *turned_, launch).run(); }
  std::size_t code_bytes() const override { return turned_->code_bytes(); }

 private:
  const Kernel kernel_;
  const std::shared_ptr<const Executable> turned_;
};

/// A map kernel of short rows is turned for what has one element in each row: along a row all lanes have the same one,
/// and rows cannot become one long row (runtime/steps/kernel_step.cpp). Without that, bringing the operands into
/// buffers takes what is saved.
bool has_one_for_each_row(const Kernel& kernel) {
  return std::ranges::any_of(kernel.accesses, [&](const Access& access) {
    return !access.address_only && is_across(kernel, access) && !is_along(kernel, access);
  });
}

std::int64_t smallest_element(const Kernel& kernel) {
  std::size_t bytes = sizeof(std::int64_t);
  for (const Access& access : kernel.accesses)
    if (!access.address_only) bytes = std::min(bytes, byte_size(access.dtype));
  return static_cast<std::int64_t>(bytes);
}

}  // namespace

std::optional<Kernel> turned_kernel(const Kernel& kernel) {
  const unsigned along = axes_along(kernel), ranks_along = static_cast<unsigned>(std::popcount(along));
  if (ranks_along == kernel.rank || ranks_along > kMostAlong || (along >> (kernel.rank - 1u) & 1u) == 0)
    return std::nullopt;
  if (kernel.reduced == 0 && !has_one_for_each_row(kernel)) return std::nullopt;
  for (const Store& store : kernel.stores)
    if (!is_across(kernel, kernel.accesses[store.access])) return std::nullopt;
  if (std::ranges::any_of(kernel.accesses,
                          [](const Access& a) { return a.half != Half::none || a.gathered || a.guarded; }))
    return std::nullopt;
  // The place of an element in a buffer is not its place in memory.
  for (const Instr& instr : kernel.program.instrs())
    if (instr.prim == Prim::offset && !kernel.accesses[instr.index].address_only) return std::nullopt;
  for (const KernelSchedule::Stage& stage : schedule(kernel).stages) {
    std::size_t components = 0;
    for (const std::uint16_t r : stage.reductions) components += kernel.reductions[r].types.size();
    if (components * std::min(ranks_along, 2u) > kMostComponents) return std::nullopt;
  }
  Kernel turned = kernel;
  turned.rank = static_cast<std::uint8_t>(ranks_along + 1);
  turned.reduced = static_cast<std::uint16_t>(kernel.reduced != 0 ? (1u << ranks_along) - 1u : 0u);
  for (Access& access : turned.accesses) {
    const bool across = is_across(kernel, access);
    unsigned axes = across ? 1u << ranks_along : 0u;
    for (unsigned axis = 0, i = 0; axis < kernel.rank; ++axis)
      if ((along >> axis & 1u) != 0) axes |= (access.axes >> axis & 1u) << i++;
    access.axes = static_cast<std::uint16_t>(axes);
    access.unit_stride = across && !access.address_only;
  }
  return turned;
}

std::int64_t longest_turned_row(const Kernel& kernel) {
  constexpr std::ptrdiff_t kSeveral = 2;
  const KernelSchedule plan = schedule(kernel);
  const auto reduces = [](const KernelSchedule::Stage& stage) { return !stage.reductions.empty(); };
  return std::ranges::count_if(plan.stages, reduces) < kSeveral ? kLongestTurnedRow : kLongestTurnedRowOfStages;
}

bool has_short_rows(const Kernel& kernel, const KernelLaunch& launch, std::int64_t longest) {
  const std::int64_t length = launch.sizes[kernel.rank - 1u];
  std::int64_t blocks = 1, rows = 1;  // of a row; along the longest axis of rows
  for (unsigned axis = 0; axis + 1 < kernel.rank; ++axis)
    if ((axes_along(kernel) >> axis & 1u) != 0)
      blocks *= launch.sizes[axis];
    else
      rows = std::max(rows, launch.sizes[axis]);
  if (length < 1 || length > longest || rows < kFewestTurnedRows) return false;
  if (blocks < 1 || blocks > kMostTurnedBlocks) return false;
  return kernel.reduced != 0 || (length > 1 && length * smallest_element(kernel) < kFilledBytes);
}

std::shared_ptr<const Executable> turned_executable(const Kernel& kernel, std::shared_ptr<const Executable> turned) {
  return std::make_shared<TurnedExecutable>(kernel, std::move(turned));
}

}  // namespace fermata
