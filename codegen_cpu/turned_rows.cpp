// See turned_rows.h.
#include "codegen_cpu/turned_rows.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <utility>
#include <vector>

#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "codegen_cpu/irregular/transpose.h"

namespace fermata {
namespace {

/// States that wait on the stack (codegen_cpu/jit/column_kernel.cpp).
constexpr std::size_t kMostComponents = 4;
/// Buffers of a tile stay in the first-level cache.
constexpr std::int64_t kTileBytes = 24 << 10, kLeastTile = 32, kLargestTile = 512;

bool is_along(const Kernel& kernel, const Access& access) { return (access.axes >> (kernel.rank - 1u) & 1u) != 0; }
bool is_across(const Kernel& kernel, const Access& access) {
  return (access.axes & ((1u << (kernel.rank - 1u)) - 1u)) != 0;
}

struct RowAxis {
  std::int64_t size = 1;
  std::vector<std::int64_t> strides;  // per access, in elements
};

/// The axes that count rows, outer to inner, those that all accesses step through evenly as one.
std::vector<RowAxis> row_axes(const Kernel& kernel, const KernelLaunch& launch) {
  std::vector<RowAxis> axes;
  const std::size_t accesses = kernel.accesses.size();
  for (unsigned axis = 0; axis + 1 < kernel.rank; ++axis) {
    if (launch.sizes[axis] == 1) continue;
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
        length_(kernel.reduced != 0 ? launch.sizes[kernel.rank - 1u] : launch.column_end - launch.column_begin),
        axes_(row_axes(kernel, launch)),
        operands_(kernel.accesses.size()) {
    std::int64_t row_bytes = 1;
    for (std::size_t a = 0; a < operands_.size(); ++a) {
      Operand& o = operands_[a];
      const Access& access = kernel.accesses[a];
      o.bytes = static_cast<std::int64_t>(byte_size(access.dtype));
      o.along = is_along(kernel, access), o.across = is_across(kernel, access);
      o.step = o.along ? launch.strides[a * kernel.rank + kernel.rank - 1u] : 0;
      if (access.address_only) stays_in_run_ = stays_in_run_ || o.across;
      o.buffered = o.across && !access.address_only;
      if (o.buffered) row_bytes += o.bytes * (o.along ? length_ : 1);
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
      for (std::size_t axis = 0; axis + 1 < axes_.size(); ++axis) o.repeats = o.repeats && axes_[axis].strides[a] == 0;
    }
  }

  void run() {
    if (length_ <= 0) return;
    std::int64_t bytes = 0;
    for (const Operand& o : operands_) bytes += buffer_bytes(o);
    const Scratch<char> buffers(bytes);
    char* at = buffers.data();
    for (Operand& o : operands_) o.buffer = at, at += buffer_bytes(o);
    const std::int64_t run = axes_.back().size;
    for (std::int64_t row = launch_.row_begin; row < launch_.row_end;) {
      const std::int64_t most = stays_in_run_ || run > tile_ ? std::min(tile_, run - row % run)
                                                             : tile_ / run * run - row % run;  // whole runs
      const std::int64_t rows = std::min(most, launch_.row_end - row);
      run_tile(row, rows);
      row += rows;
    }
  }

 private:
  struct Operand {
    std::int64_t bytes = 0, step = 0;  // of an element; along a row, in elements
    bool along = false, across = false, is_read = false, is_stored = false;
    bool buffered = false;  // unless a tile of it lies as the code wants it
    char* buffer = nullptr;
    bool is_dense = false;                     // one element of each row, which follow each other
    bool repeats = false;                      // each run has the same elements
    std::int64_t brought = 0, brought_at = 0;  // rows that the buffer has, and the place of the first in its run
  };

  std::int64_t buffer_bytes(const Operand& o) const {
    const std::int64_t bytes = o.buffered ? o.bytes * (o.along ? length_ : 1) * tile_ : 0;
    return (bytes + 63) / 64 * 64;
  }
  /// Of row number `row`, in elements.
  std::int64_t offset(std::size_t access, std::int64_t row) const {
    std::int64_t offset = first_ * operands_[access].step;
    for (std::size_t axis = axes_.size(); axis-- > 0;) {
      offset += row % axes_[axis].size * axes_[axis].strides[access];
      row /= axes_[axis].size;
    }
    return offset;
  }
  char* address(std::size_t access, std::int64_t row) const {
    return static_cast<char*>(launch_.pointers[access]) + offset(access, row) * operands_[access].bytes;
  }

  void run_tile(std::int64_t row, std::int64_t rows) {
    constexpr std::size_t kMostAccesses = 32;
    const std::size_t count = operands_.size();
    std::array<void*, kMostAccesses> few_pointers;
    std::array<std::int64_t, 2 * kMostAccesses> few_strides;
    std::array<std::int64_t, kMostAccesses> few_offsets;
    std::vector<void*> many_pointers(count > kMostAccesses ? count : 0);
    std::vector<std::int64_t> many_numbers(count > kMostAccesses ? 3 * count : 0);
    void** const pointers = count > kMostAccesses ? many_pointers.data() : few_pointers.data();
    std::int64_t* const strides = count > kMostAccesses ? many_numbers.data() : few_strides.data();
    std::int64_t* const offsets = count > kMostAccesses ? many_numbers.data() + 2 * count : few_offsets.data();
    const bool one_run = row / axes_.back().size == (row + rows - 1) / axes_.back().size;
    for (std::size_t a = 0; a < count; ++a) {
      const Operand& o = operands_[a];
      const std::int64_t across = axes_.back().strides[a];
      strides[2 * a] = o.step, strides[2 * a + 1] = across;
      offsets[a] = 0;
      if (kernel_.accesses[a].address_only) {
        pointers[a] = nullptr;
        offsets[a] = launch_.offsets[a] + offset(a, row);
      } else if (!o.buffered || o.is_dense || (one_run && across == 1)) {
        pointers[a] = address(a, row);
      } else {
        pointers[a] = o.buffer;
        strides[2 * a] = o.along ? tile_ : 0, strides[2 * a + 1] = 1;
        if (o.is_read) bring_in(a, row, rows);
      }
    }
    const std::int64_t sizes[] = {length_, rows};
    turned_.launch({.pointers = pointers,
                    .sizes = sizes,
                    .strides = strides,
                    .offsets = offsets,
                    .scalars = launch_.scalars,
                    .row_begin = 0,
                    .row_end = kernel_.reduced != 0 ? 1 : length_,
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
    for (std::int64_t done = 0; done < rows;) {
      const std::int64_t count = std::min(rows - done, run - (row + done) % run);
      body(address(access, row + done), axes_.back().strides[access], o.buffer + done * o.bytes, count);
      done += count;
    }
  }

  void bring_in(std::size_t access, std::int64_t row, std::int64_t rows) {
    Operand& o = operands_[access];
    const std::int64_t at = row % axes_.back().size;
    if (o.repeats && o.brought_at == at && o.brought >= rows) return;
    o.brought = rows, o.brought_at = at;
    for_runs(access, row, rows, [&](auto... run) { bring_in(o, run...); });
  }
  void bring_in(const Operand& o, char* memory, std::int64_t stride, char* to, std::int64_t rows) const {
    if (o.along && o.step == 1 && stride >= 0)
      return transpose_kernels().of_bytes[o.bytes]({.to = to,
                                                    .from = memory,
                                                    .to_line = tile_,
                                                    .from_line = stride,
                                                    .lines = length_,
                                                    .columns = rows,
                                                    .streams = false});
    const std::int64_t sizes[] = {o.along ? length_ : 1, rows}, to_strides[] = {tile_, 1},
                       from_strides[] = {o.step, stride};
    strided_copy({to, to_strides}, {memory, from_strides}, sizes, static_cast<std::size_t>(o.bytes));
  }
  void bring_out(const Operand& o, char* memory, std::int64_t stride, char* from, std::int64_t rows) const {
    if (o.along && o.step == 1 && stride > 0)
      return transpose_kernels().of_bytes[o.bytes]({.to = memory,
                                                    .from = from,
                                                    .to_line = stride,
                                                    .from_line = tile_,
                                                    .lines = rows,
                                                    .columns = length_,
                                                    .streams = false});
    const std::int64_t sizes[] = {o.along ? length_ : 1, rows}, to_strides[] = {o.step, stride},
                       from_strides[] = {tile_, 1};
    strided_copy({memory, to_strides}, {from, from_strides}, sizes, static_cast<std::size_t>(o.bytes));
  }

  const Kernel& kernel_;
  const Executable& turned_;
  const KernelLaunch& launch_;
  const std::int64_t first_, length_;  // the elements of a row that are computed
  const std::vector<RowAxis> axes_;
  std::vector<Operand> operands_;
  bool stays_in_run_ = false;  // tiles must not go on in the next row of the axes outside of the innermost
  std::int64_t tile_ = 0;
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

/// Rows of more bytes than this in the narrowest dtype fill at least one vector of it.
constexpr std::int64_t kFilledBytes = 32;

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
  if (kernel.rank < 2 || (kernel.reduced & ~(1u << (kernel.rank - 1u))) != 0) return std::nullopt;
  std::size_t components = 0;
  for (const Reduction& reduction : kernel.reductions) components += reduction.types.size();
  if (components > kMostComponents) return std::nullopt;
  if (kernel.reduced == 0 && !has_one_for_each_row(kernel)) return std::nullopt;
  for (const Store& store : kernel.stores)
    if (!is_across(kernel, kernel.accesses[store.access])) return std::nullopt;
  // The place of an element in a buffer is not its place in memory.
  for (const Instr& instr : kernel.program.instrs())
    if (instr.prim == Prim::offset && !kernel.accesses[instr.index].address_only) return std::nullopt;
  Kernel turned = kernel;
  turned.rank = 2, turned.reduced = kernel.reduced != 0 ? 1 : 0;
  for (Access& access : turned.accesses) {
    const bool along = is_along(kernel, access), across = is_across(kernel, access);
    access.axes = static_cast<std::uint16_t>((along ? 1u : 0u) | (across ? 2u : 0u));
    access.unit_stride = across && !access.address_only;
  }
  return turned;
}

bool has_short_rows(const Kernel& kernel, const KernelLaunch& launch) {
  const std::int64_t length = launch.sizes[kernel.rank - 1u];
  if (length < 1 || length > kLongestTurnedRow || launch.sizes[kernel.rank - 2u] < kFewestTurnedRows) return false;
  return kernel.reduced != 0 || (length > 1 && length * smallest_element(kernel) < kFilledBytes);
}

std::shared_ptr<const Executable> turned_executable(const Kernel& kernel, std::shared_ptr<const Executable> turned) {
  return std::make_shared<TurnedExecutable>(kernel, std::move(turned));
}

}  // namespace fermata
