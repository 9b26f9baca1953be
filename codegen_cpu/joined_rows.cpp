// See joined_rows.h.
#include "codegen_cpu/joined_rows.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "codegen_cpu/irregular/near_rows.h"
#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/irregular/repeat.h"
#include "codegen_cpu/turned_rows.h"
#include "ir/shape.h"
#include "runtime/function_ref.h"

namespace fermata {
namespace {

/// Buffers of a tile stay in the first-level cache.
constexpr std::int64_t kTileBytes = 24 << 10, kMostElements = 32768;
/// Elements of a run that is worth a launch of its own.
constexpr std::int64_t kLongRun = 256;
/// Rows along the innermost axis: fewer are not worth the calls for each.
constexpr std::int64_t kFewestRows = 16;

bool steps_along(const Kernel& kernel, const Access& access) { return (access.axes >> (kernel.rank - 1u) & 1u) != 0; }

std::int64_t stride_of(const Kernel& kernel, const KernelLaunch& launch, std::size_t access, unsigned axis) {
  return (kernel.accesses[access].axes >> axis & 1u) != 0 ? launch.strides[access * kernel.rank + axis] : 0;
}

/// How the elements of an operand follow those of the joined row.
enum class Order : std::uint8_t {
  one,          // a single element
  in_order,     // each its own
  each_row,     // the same row each time
  one_per_row,  // one for each row
  rows,         // rows that lie elsewhere: of a part, or exchanged; elements may be, too, in a few bytes
  other
};

Order order_of(const Kernel& kernel, const KernelLaunch& launch, std::size_t access) {
  const unsigned last = kernel.rank - 1u;
  if (kernel.accesses[access].axes == 0) return Order::one;
  if (!steps_along(kernel, kernel.accesses[access])) return Order::one_per_row;
  const std::int64_t inner_step = stride_of(kernel, launch, access, last);
  if (inner_step != 1) {
    constexpr std::int64_t kNear = 16;  // bytes, which any vector holds
    const std::int64_t reach = 1 + (launch.sizes[last] - 1) * std::abs(inner_step);
    const bool is_near =
        inner_step != 0 && reach * static_cast<std::int64_t>(byte_size(kernel.accesses[access].dtype)) <= kNear;
    return is_near ? Order::rows : Order::other;
  }
  bool is_in_order = true, is_each_row = true;
  std::int64_t before = launch.sizes[last];
  for (unsigned axis = last; axis-- > 0;) {
    if (launch.sizes[axis] == 1) continue;
    const std::int64_t stride = stride_of(kernel, launch, access, axis);
    is_in_order = is_in_order && stride == before, is_each_row = is_each_row && stride == 0;
    before *= launch.sizes[axis];
  }
  return is_in_order ? Order::in_order : is_each_row ? Order::each_row : Order::rows;
}

/// Rows of up to kWide bytes, `step` bytes apart, one behind the other. So many are copied together where they belong
/// to rows that follow: not of those that are last in memory.
template <std::int64_t kWide>
void copy_short_rows(char* to, const char* from, std::int64_t step, std::int64_t row_bytes, std::int64_t count) {
  const std::int64_t apart = std::abs(step), near = apart == 0 ? count : kWide / apart + 1;
  const std::int64_t first = step <= 0 ? std::min(near, count) : 0,
                     end = std::max(first, count - std::max(near, kWide / row_bytes + 1));
  const auto copy_exactly = [&](std::int64_t row) {
    std::memcpy(to + row * row_bytes, from + row * step, static_cast<std::size_t>(row_bytes));
  };
  for (std::int64_t row = 0; row < first; ++row) copy_exactly(row);
  for (std::int64_t row = first; row < end; ++row) std::memcpy(to + row * row_bytes, from + row * step, kWide);
  for (std::int64_t row = end; row < count; ++row) copy_exactly(row);
}
void copy_rows(char* to, const char* from, std::int64_t step, std::int64_t row_bytes, std::int64_t count) {
  if (step == row_bytes) {
    std::memcpy(to, from, static_cast<std::size_t>(count * row_bytes));
  } else if (row_bytes <= 8) {
    copy_short_rows<8>(to, from, step, row_bytes, count);
  } else if (row_bytes <= 16) {
    copy_short_rows<16>(to, from, step, row_bytes, count);
  } else if (row_bytes <= 32) {
    copy_short_rows<32>(to, from, step, row_bytes, count);
  } else {
    for (std::int64_t row = 0; row < count; ++row, to += row_bytes, from += step)
      std::memcpy(to, from, static_cast<std::size_t>(row_bytes));
  }
}

/// The innermost axis that counts several rows.
unsigned innermost_rows(const Kernel& kernel, const KernelLaunch& launch) {
  unsigned axis = kernel.rank - 2u;
  while (axis > 0 && launch.sizes[axis] == 1) --axis;
  return axis;
}

/// One launch, tile by tile.
class JoinedLaunch {
 public:
  JoinedLaunch(const Kernel& kernel, const Executable& joined, const KernelLaunch& launch)
      : kernel_(kernel),
        joined_(joined),
        launch_(launch),
        columns_(launch.sizes[kernel.rank - 1u]),
        rows_axis_(innermost_rows(kernel, launch)) {
    std::int64_t row_bytes = 1;
    for (std::size_t a = 0; a < kernel.accesses.size(); ++a) {
      const Order order = order_of(kernel, launch, a);
      orders_.push_back(order);
      if (is_buffered(a)) row_bytes += columns_ * bytes_of(a);
    }
    tile_ = std::max<std::int64_t>(1, std::min(kTileBytes / row_bytes, kMostElements / columns_));
    const std::int64_t run = launch.sizes[rows_axis_];
    runs_in_place_ = run * columns_ >= kLongRun;
    for (std::size_t a = 0; a < orders_.size(); ++a)
      if (orders_[a] == Order::rows && (stride_of(kernel, launch, a, rows_axis_) != columns_ || inner_step(a) != 1))
        runs_in_place_ = false;
    pointers_.assign(launch.pointers, launch.pointers + kernel.accesses.size());
  }

  void run() {
    const std::int64_t tile = std::min(tile_, launch_.row_end - launch_.row_begin);
    std::vector<std::int64_t> places;
    std::int64_t bytes = 0;
    for (std::size_t a = 0; a < orders_.size(); ++a) {
      places.push_back(bytes);
      if (is_buffered(a)) bytes += (tile * columns_ * bytes_of(a) + 2 * kRoom - 1) / kRoom * kRoom;
    }
    const Scratch<char> buffers(bytes);
    for (std::size_t a = 0; a < orders_.size(); ++a)
      if (is_buffered(a)) pointers_[a] = buffers.data() + places[a];
    for (std::size_t a = 0; a < orders_.size(); ++a) {
      if (orders_[a] == Order::each_row) fill_row(a, tile);
      if (orders_[a] == Order::one_per_row) find_order(a, tile);
      if (orders_[a] == Order::one_per_row || (orders_[a] == Order::rows && !runs_in_place_)) find_near_order(a);
    }
    const std::vector<std::int64_t> strides(orders_.size(), 1), offsets(orders_.size(), 0);
    for (std::int64_t row = launch_.row_begin, rows = 0; row < launch_.row_end; row += rows) {
      rows = std::min(tile, launch_.row_end - row);
      if (runs_in_place_) rows = std::min(rows, launch_.sizes[rows_axis_] - row % launch_.sizes[rows_axis_]);
      const std::int64_t elements = rows * columns_;
      for (std::size_t a = 0; a < orders_.size(); ++a) {
        if (orders_[a] == Order::in_order) pointers_[a] = memory(a) + row * columns_ * bytes_of(a);
        if (orders_[a] == Order::one_per_row) fill_elements(a, row, rows);
        if (orders_[a] != Order::rows) continue;
        if (runs_in_place_)
          pointers_[a] = memory(a) + offset(a, row) * bytes_of(a);
        else
          fill_rows(a, row, rows);
      }
      joined_.launch({.pointers = pointers_.data(),
                      .sizes = &elements,
                      .strides = strides.data(),
                      .offsets = offsets.data(),
                      .scalars = launch_.scalars,
                      .row_begin = 0,
                      .row_end = 1,
                      .column_begin = 0,
                      .column_end = elements});
    }
  }

 private:
  static constexpr std::int64_t kRoom = 64;
  std::int64_t bytes_of(std::size_t access) const {
    return static_cast<std::int64_t>(byte_size(kernel_.accesses[access].dtype));
  }
  bool is_buffered(std::size_t access) const {
    const Order order = orders_[access];
    return order == Order::each_row || order == Order::one_per_row || (order == Order::rows && !runs_in_place_);
  }
  std::int64_t inner_step(std::size_t access) const { return stride_of(kernel_, launch_, access, kernel_.rank - 1u); }
  char* memory(std::size_t access) const { return static_cast<char*>(launch_.pointers[access]); }
  char* buffer(std::size_t access) const { return static_cast<char*>(pointers_[access]); }

  void fill_row(std::size_t access, std::int64_t rows) {
    const auto bytes = static_cast<std::size_t>(columns_ * bytes_of(access));
    char* to = buffer(access);
    for (std::int64_t row = 0; row < rows; ++row, to += bytes) std::memcpy(to, memory(access), bytes);
  }
  void find_order(std::size_t access, std::int64_t tile) {
    constexpr std::int64_t kFew = 256;  // without an order they take less than its memory does
    const std::int64_t count = std::min(tile, launch_.sizes[rows_axis_]);
    if (repeats_.empty()) repeats_.resize(orders_.size());
    if (count < kFew) return;
    repeats_[access] = std::make_unique_for_overwrite<RepeatOrder>();
    repeat_kernels().find_order(*repeats_[access], bytes_of(access), stride_of(kernel_, launch_, access, rows_axis_),
                                columns_, count);
  }
  bool has_repeat_order(std::size_t access) const {
    return repeats_[access] != nullptr && repeats_[access]->vector_bytes != 0;
  }
  void find_near_order(std::size_t access) {
    if (near_.empty()) near_.resize(orders_.size());
    near_rows_kernels().find_order(near_[access], {.element_bytes = bytes_of(access),
                                                   .length = columns_,
                                                   .step = stride_of(kernel_, launch_, access, rows_axis_),
                                                   .inner_step = inner_step(access)});
  }
  /// Calls f(where the first of them is, how many) for `rows` rows from `row` on, in runs along the innermost axis of
  /// rows; where that repeats the same, along those before it that do so, too.
  void for_runs(std::size_t access, std::int64_t row, std::int64_t rows,
                FunctionRef<void(const char* from, std::int64_t count)> f) const {
    std::array<std::int64_t, kMaxRank> at;
    std::int64_t offset = 0;
    for (unsigned axis = kernel_.rank - 1u; axis-- > 0; row /= launch_.sizes[axis]) {
      at[axis] = row % launch_.sizes[axis];
      offset += at[axis] * stride_of(kernel_, launch_, access, axis);
    }
    unsigned outermost = rows_axis_;  // of a run
    std::int64_t run = launch_.sizes[rows_axis_];
    const std::int64_t step = stride_of(kernel_, launch_, access, rows_axis_);
    while (step == 0 && outermost > 0 && stride_of(kernel_, launch_, access, outermost - 1) == 0)
      run *= launch_.sizes[--outermost];
    std::int64_t within = 0;
    for (unsigned axis = outermost; axis <= rows_axis_; ++axis) within = within * launch_.sizes[axis] + at[axis];
    while (rows > 0) {
      const std::int64_t count = std::min(rows, run - within);
      f(memory(access) + offset * bytes_of(access), count);
      rows -= count;
      offset -= within * step, within = 0;
      for (unsigned axis = outermost; axis-- > 0;) {
        const std::int64_t stride = stride_of(kernel_, launch_, access, axis);
        offset += stride;
        if (++at[axis] < launch_.sizes[axis]) break;
        offset -= at[axis] * stride, at[axis] = 0;
      }
    }
  }
  void fill_elements(std::size_t access, std::int64_t row, std::int64_t rows) {
    const std::int64_t bytes = bytes_of(access), step = stride_of(kernel_, launch_, access, rows_axis_);
    char* to = buffer(access);
    for_runs(access, row, rows, [&](const char* from, std::int64_t count) {
      if (step == 0)  // all the same element
        repeat_kernels().repeat(nullptr, bytes,
                                {.to = to, .from = from, .step = 0, .count = 1, .times = count * columns_});
      else if (near_[access].vector_bytes != 0 && !has_repeat_order(access))
        near_rows_kernels().copy(near_[access], to, from, count);
      else
        repeat_kernels().repeat(repeats_[access].get(), bytes,
                                {.to = to, .from = from, .step = step, .count = count, .times = columns_});
      to += count * columns_ * bytes;
    });
  }
  void fill_rows(std::size_t access, std::int64_t row, std::int64_t rows) {
    const std::int64_t bytes = bytes_of(access), step = stride_of(kernel_, launch_, access, rows_axis_) * bytes;
    char* to = buffer(access);
    for_runs(access, row, rows, [&](const char* from, std::int64_t count) {
      if (near_[access].vector_bytes != 0 || inner_step(access) != 1)
        near_rows_kernels().copy(near_[access], to, from, count);
      else
        copy_rows(to, from, step, columns_ * bytes, count);
      to += count * columns_ * bytes;
    });
  }
  /// Of the first element of a row.
  std::int64_t offset(std::size_t access, std::int64_t row) const {
    std::int64_t offset = 0;
    for (unsigned axis = kernel_.rank - 1u; axis-- > 0; row /= launch_.sizes[axis])
      offset += row % launch_.sizes[axis] * stride_of(kernel_, launch_, access, axis);
    return offset;
  }

  const Kernel& kernel_;
  const Executable& joined_;
  const KernelLaunch& launch_;
  const std::int64_t columns_;
  const unsigned rows_axis_;
  std::int64_t tile_ = 1;       // rows
  bool runs_in_place_ = false;  // rows that lie elsewhere are long runs there, which are not copied
  std::vector<Order> orders_;
  std::vector<std::unique_ptr<RepeatOrder>> repeats_;  // of operands with one element for each row
  std::vector<NearRowsOrder> near_;                    // of rows that lie elsewhere
  std::vector<void*> pointers_;
};

class JoinedExecutable final : public Executable {
 public:
  JoinedExecutable(const Kernel& kernel, std::shared_ptr<const Executable> joined)
      : kernel_(kernel), joined_(std::move(joined)) {}
  void launch(const KernelLaunch& launch) const override { JoinedLaunch(kernel_, *joined_, launch).run(); }
  std::size_t code_bytes() const override { return joined_->code_bytes(); }

 private:
  const Kernel kernel_;
  const std::shared_ptr<const Executable> joined_;
};

}  // namespace

std::optional<Kernel> joined_kernel(const Kernel& kernel) {
  if (kernel.reduced != 0 || kernel.rank < 2) return std::nullopt;
  for (const Access& access : kernel.accesses)
    if (access.address_only || access.half != Half::none || access.gathered || access.guarded) return std::nullopt;
  for (const Store& store : kernel.stores)
    if (!steps_along(kernel, kernel.accesses[store.access])) return std::nullopt;
  // The place of an element in a buffer is not its place in memory.
  for (const Instr& instr : kernel.program.instrs())
    if (instr.prim == Prim::offset) return std::nullopt;
  Kernel joined = kernel;
  joined.rank = 1;
  for (Access& access : joined.accesses) {
    access.unit_stride = access.axes != 0;
    access.axes = access.axes != 0 ? 1 : 0;
  }
  return joined;
}

bool can_join_rows(const Kernel& kernel, const KernelLaunch& launch) {
  const std::int64_t columns = launch.sizes[kernel.rank - 1u];
  if (columns < 1 || launch.column_begin != 0 || launch.column_end != columns) return false;
  for (std::size_t a = 0; a < kernel.accesses.size(); ++a)
    if (order_of(kernel, launch, a) == Order::other) return false;
  return std::ranges::all_of(kernel.stores,
                             [&](const Store& s) { return order_of(kernel, launch, s.access) == Order::in_order; });
}

bool has_rows_to_join(const Kernel& kernel, const KernelLaunch& launch) {
  constexpr std::size_t kFewPrimitives = 12;
  constexpr std::int64_t kLeastRowBytes = 16, kFewestElements = 3;
  const std::int64_t columns = launch.sizes[kernel.rank - 1u];
  const bool is_long = kernel.program.size() > kFewPrimitives;
  if (launch.sizes[innermost_rows(kernel, launch)] < kFewestRows) return false;
  std::int64_t least = kLongestJoinedRow * 8, most = 0;  // bytes of a row
  for (const Access& access : kernel.accesses) {
    const std::int64_t bytes = columns * static_cast<std::int64_t>(byte_size(access.dtype));
    least = std::min(least, bytes), most = std::max(most, bytes);
  }
  // Bytes fill the least of a vector, and take longest to be turned.
  if (most == columns)
    return columns >= kFewestElements && columns < kLongestJoinedRow && can_join_rows(kernel, launch);
  if (columns > (is_long ? kLongestJoinedRow : kLongestJoinedRowOfFew)) return false;
  const bool is_narrow = least < kLeastRowBytes;
  if (is_narrow && columns < kFewestElements) return false;
  // What is computed only from single elements and one row is better turned (turned_rows.h), or left as it is, unless
  // rows are too long for that, and much is computed in vectors that they do not fill.
  const bool reads_rows = std::ranges::any_of(kernel.program.instrs(), [&](const Instr& i) {
    if (i.prim != Prim::input) return false;
    const Order order = order_of(kernel, launch, i.index);
    return order == Order::in_order || order == Order::rows;
  });
  const bool fills_vectors = is_long && least >= kFilledBytes && columns < kLongestJoinedRow;
  return (reads_rows || fills_vectors) && can_join_rows(kernel, launch);
}

std::shared_ptr<const Executable> joined_executable(const Kernel& kernel, std::shared_ptr<const Executable> joined) {
  return std::make_shared<JoinedExecutable>(kernel, std::move(joined));
}

}  // namespace fermata
