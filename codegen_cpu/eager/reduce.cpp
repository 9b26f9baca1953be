// Drives reductions over any axes of an operand of any layout and real dtype, on several threads.
//
// Axes are ordered and merged as the compiled path does it: reduced ones by how far elements lie apart, then neighbors
// that are both reduced or both kept and that the strides allow. The last axis then decides: reduced, a row kernel;
// kept, a column kernel. Blocks and their order are those of ir/kernel.h: results do not depend on threads or on the
// mode.
#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "codegen_cpu/eager/drivers.h"
#include "codegen_cpu/eager/loop_nest.h"
#include "codegen_cpu/irregular/operand_in_order.h"
#include "codegen_cpu/irregular/strided_copy.h"
#include "ir/kernel.h"
#include "ir/ops/reduce.h"
#include "runtime/call_attributes.h"
#include "runtime/reduced_axes.h"
#include "runtime/thread_pool.h"

namespace fermata::eager {
namespace {

struct MergedAxis {
  std::int64_t size, stride;  // bytes
  bool reduced;
};
struct MergedAxes {
  std::array<MergedAxis, kMaxRank + 1> axis;
  unsigned rank = 0;
  void push(MergedAxis a) { axis[rank++] = a; }
  std::int64_t count() const {
    std::int64_t n = 1;
    for (unsigned i = 0; i < rank; ++i) n *= axis[i].size;
    return n;
  }
  /// Byte offset of the row-major position `at`.
  std::int64_t offset(std::int64_t at) const {
    std::int64_t offset = 0;
    for (unsigned i = rank; i-- > 0;) {
      offset += at % axis[i].size * axis[i].stride;
      at /= axis[i].size;
    }
    return offset;
  }
};

/// With `in_order`, reduced axes stay in the order in which positions are counted.
MergedAxes merged_axes(const TensorView& x, std::uint64_t reduced_mask, bool in_order) {
  MergedAxes axes;
  const auto bytes = static_cast<std::int64_t>(byte_size(x.dtype));
  Shape sizes({x.sizes, x.rank}), strides({x.strides, x.rank});
  if (!in_order) order_reduced_axes({sizes.begin(), sizes.size()}, reduced_mask, {strides.begin(), strides.size()});
  for (unsigned i = 0; i < x.rank; ++i) {
    const MergedAxis next{sizes[i], strides[i] * bytes, (reduced_mask >> i & 1) != 0};
    if (axes.rank > 0 && axes.axis[axes.rank - 1].reduced == next.reduced) {
      MergedAxis& last = axes.axis[axes.rank - 1];
      if (last.size == 1 || next.size == 1 || last.stride == next.stride * next.size) {
        last = {last.size * next.size, next.size == 1 ? last.stride : next.stride, last.reduced};
        continue;
      }
    }
    axes.push(next);
  }
  if (reduced_mask == 0) axes.push({1, 0, true});  // each element is a reduction of its own
  return axes;
}

/// States of a reduction, component by component.
class States {
 public:
  States(const ReduceLoops& loops, std::int64_t count) : loops_(loops) {
    for (unsigned c = 0; c < loops.components; ++c)
      data_[c] = std::make_unique_for_overwrite<char[]>(static_cast<std::size_t>(count) * loops.component_bytes[c]);
  }
  struct Pointers {
    void* at[kMaxStateComponents];
  };
  Pointers at(std::int64_t i) const {
    Pointers p{};
    for (unsigned c = 0; c < loops_.components; ++c) p.at[c] = data_[c].get() + i * loops_.component_bytes[c];
    return p;
  }

 private:
  const ReduceLoops& loops_;
  std::array<std::unique_ptr<char[]>, kMaxStateComponents> data_;
};

class ReductionCall {
 public:
  explicit ReductionCall(const CallArgs& args)
      : x_(args.inputs[0]),
        out_(args.outputs[0]),
        lifted_(compute_dtype(apply_rule(info(args.op).rule, x_.dtype)->operand)),
        needs_order_(depends_on_order(args.op, lifted_)),
        sum_(args.op == Op::sum ? loop_tables().wide_sum[static_cast<std::size_t>(x_.dtype)] : WideSum{}),
        loops_(loop_tables().reduce[static_cast<std::size_t>(args.op)][static_cast<std::size_t>(lifted_)]) {
    const bool has_positions = loops_.components > 1;
    MergedAxes axes = merged_axes(x_, attributes_of<ops::Reduction>(args).axes.value, has_positions);
    divide(axes);
    if (!(is_row_ && goes_by_lanes()) && lie_across(axes)) {
      bring_into_order(axes);
      divide(axes);
    }
    cost_ = 0.05 + 0.04 * static_cast<double>(byte_size(x_.dtype));
  }

  void run() {
    if (is_row_)
      run_rows();
    else
      run_columns();
  }

 private:
  /// Into rows or columns, and what they are reduced along.
  void divide(const MergedAxes& axes) {
    rows_.rank = passes_.rank = 0;
    const MergedAxis& last = axes.axis[axes.rank - 1];
    unsigned inner = axes.rank;
    while (!axes.axis[--inner].reduced) {}
    reduced_ = axes.axis[inner];
    // Columns that lie in order one by one are rows, where any order will do.
    is_row_ = last.reduced ||
              (is_dense() && last.stride != stored_bytes() && reduced_.size >= kFewestInOrder && !needs_order_);
    if (!is_row_) column_ = last;
    for (unsigned i = 0; i < axes.rank; ++i) {
      if (i == inner || (!is_row_ && i == axes.rank - 1)) continue;
      (axes.axis[i].reduced ? passes_ : rows_).push(axes.axis[i]);
    }
    if (is_row_) choose_side();
    block_ = is_row_ ? kReductionBlock : kColumnBlock;
    per_pass_ = (reduced_.size + block_ - 1) / block_;
    blocks_ = per_pass_ * passes_.count();
  }

  static constexpr std::int64_t kFewestInOrder = 16;
  std::int64_t stored_bytes() const { return static_cast<std::int64_t>(byte_size(x_.dtype)); }
  const char* data() const { return in_order_.size() != 0 ? in_order_.data() : static_cast<const char*>(x_.data); }

  /// Whether elements would be read one by one along the last axis, and lie side by side along another one.
  bool lie_across(const MergedAxes& axes) const {
    const auto bytes = static_cast<std::int64_t>(byte_size(x_.dtype));
    const MergedAxis& last = axes.axis[axes.rank - 1];
    if (last.reduced && last.size <= static_cast<std::int64_t>(kReductionLanes) && goes_side_by_side()) return false;
    for (unsigned i = 0; i + 1 < axes.rank && !last.reduced; ++i)  // columns of their own are read in order
      if (axes.axis[i].reduced && std::abs(axes.axis[i].stride) == bytes) return false;
    std::array<std::int64_t, kMaxRank + 1> sizes, strides;
    for (unsigned i = 0; i < axes.rank; ++i) sizes[i] = axes.axis[i].size, strides[i] = axes.axis[i].stride / bytes;
    TensorView view = x_;
    view.rank = static_cast<std::uint8_t>(axes.rank), view.sizes = sizes.data(), view.strides = strides.data();
    return lies_across(view);
  }
  /// The axes stay as they are merged, and so do blocks. Without room for a copy, elements are read where they are.
  void bring_into_order(MergedAxes& axes) {
    const auto bytes = static_cast<std::int64_t>(byte_size(x_.dtype));
    try {
      in_order_ = Scratch<char>(axes.count() * bytes);
    } catch (const OutOfMemoryError&) { return; }
    std::array<std::int64_t, kMaxRank + 1> sizes, from, to;
    std::int64_t step = 1;
    for (unsigned i = axes.rank; i-- > 0; step *= sizes[i]) {
      sizes[i] = axes.axis[i].size, from[i] = axes.axis[i].stride / bytes, to[i] = step;
      axes.axis[i].stride = step * bytes;
    }
    const std::size_t rank = axes.rank;
    strided_copy({in_order_.data(), {to.data(), rank}}, {x_.data, {from.data(), rank}}, {sizes.data(), rank},
                 byte_size(x_.dtype));
  }

  struct Block {
    std::int64_t offset, size, first;  // bytes from the row's origin, elements, position along the reduced axes
  };
  Block block(std::int64_t number) const {
    const std::int64_t pass = number / per_pass_, begin = number % per_pass_ * block_;
    return {passes_.offset(pass) + begin * reduced_.stride, std::min(block_, reduced_.size - begin),
            pass * reduced_.size + begin};
  }
  bool converts() const { return x_.dtype != lifted_; }
  bool sums_narrow() const { return sum_.row != nullptr; }
  static std::uint64_t* sums(const States::Pointers& states) { return static_cast<std::uint64_t*>(states.at[0]); }
  void convert(void* to, const void* from, std::int64_t n) const {
    loop_tables().cast[static_cast<std::size_t>(x_.dtype)][static_cast<std::size_t>(lifted_)](to, from, n);
  }

  char* result(std::int64_t number) const {
    return static_cast<char*>(out_.data) + number * static_cast<std::int64_t>(byte_size(out_.dtype));
  }
  /// `n` finished states to elements [begin, begin + n) of the output.
  void finish(const States::Pointers& states, std::int64_t begin, std::int64_t n) const {
    finish_at(result(begin), states, n);
  }
  void finish_at(char* to, const States::Pointers& states, std::int64_t n) const {
    if (loops_.result == out_.dtype) return loops_.finish(states.at, to, n);
    std::array<std::uint64_t, kPiece> wide;
    const CastLoop narrow =
        loop_tables().cast[static_cast<std::size_t>(loops_.result)][static_cast<std::size_t>(out_.dtype)];
    for (std::int64_t i = 0; i < n; i += kPiece) {
      const std::int64_t count = std::min(kPiece, n - i);
      loops_.finish(after(states, i).at, wide.data(), count);
      narrow(to + i * static_cast<std::int64_t>(byte_size(out_.dtype)), wide.data(), count);
    }
  }

  // ---- Rows: lanes run along the reduction

  bool is_dense() const {
    return reduced_.stride == static_cast<std::int64_t>(byte_size(x_.dtype)) || reduced_.size <= 1;
  }

  struct RowBuffers {
    std::unique_ptr<char[]> gathered, converted;
    static char* of(std::unique_ptr<char[]>& buffer) {
      if (buffer == nullptr) buffer = std::make_unique_for_overwrite<char[]>(kReductionBlock * 8);
      return buffer.get();
    }
  };
  void reduce_row_block(std::int64_t row_offset, const Block& b, const States::Pointers& to,
                        RowBuffers& buffers) const {
    const void* x = data() + row_offset + b.offset;
    if (!is_dense()) {
      char* gathered = RowBuffers::of(buffers.gathered);
      gather(gathered, static_cast<const char*>(x), reduced_.stride, b.size, byte_size(x_.dtype));
      x = gathered;
    }
    if (sums_narrow()) return sum_.row(x, b.size, sums(to));
    if (converts()) {
      char* converted = RowBuffers::of(buffers.converted);
      convert(converted, x, b.size);
      x = converted;
    }
    loops_.row_block(x, b.size, b.first, to.at);
  }

  void run_rows() const {
    if (goes_side_by_side() && !(sums_narrow() && is_dense())) return run_side_by_side();
    constexpr std::int64_t kStates = 65536;  // kept at a time
    const std::int64_t rows = rows_.count();
    const std::int64_t batch = std::clamp<std::int64_t>(kStates / std::max<std::int64_t>(blocks_, 1), 1, kStates);
    const double block_cost = 20 + cost_ * static_cast<double>(std::min(block_, reduced_.size));
    if (blocks_ == 1)
      return parallel_for(0, rows, block_cost, [&](std::int64_t b, std::int64_t e) { reduce_short_rows(b, e); });
    for (std::int64_t begin = 0; begin < rows; begin += batch) {
      const std::int64_t count = std::min(batch, rows - begin);
      const States states(loops_, count * std::max<std::int64_t>(blocks_, 1));
      parallel_for(0, count * blocks_, block_cost, [&](std::int64_t b, std::int64_t e) {
        RowBuffers buffers;
        for (std::int64_t i = b; i < e; ++i)
          reduce_row_block(rows_.offset(begin + i / blocks_), block(i % blocks_), states.at(i), buffers);
      });
      if (blocks_ == 0) loops_.fill_identity(states.at(0).at, count);
      if (blocks_ > 1)  // row r's result may take the place of state r, which no later row reads
        for (std::int64_t r = 0; r < count; ++r) merge_row(states.at(r * blocks_), states.at(r));
      finish(states.at(0), begin, count);
    }
  }
  /// Rows of one block each: nothing is divided per row, and states stay in the first-level cache.
  void reduce_short_rows(std::int64_t begin, std::int64_t end) const {
    constexpr std::int64_t kMostRows = 512;
    const MergedAxis inner = rows_.rank == 0 ? MergedAxis{1, 0, false} : rows_.axis[rows_.rank - 1];
    const States states(loops_, kMostRows + kMostLanes);
    RowBuffers buffers;
    for (std::int64_t row = begin; row < end;) {
      const std::int64_t count = std::min({kMostRows, end - row, inner.size - row % inner.size}),
                         at = rows_.offset(row);
      if (is_dense() && sums_narrow())
        sum_.rows(data() + at, inner.stride, reduced_.size, count, sums(states.at(0)));
      else if (is_dense() && !converts())
        loops_.rows_of_one_block(data() + at, inner.stride, reduced_.size, count, states.at(0).at);
      else
        for (std::int64_t i = 0; i < count; ++i)
          reduce_row_block(at + i * inner.stride, block(0), states.at(i), buffers);
      finish(states.at(0), row, count);
      row += count;
    }
  }
  void merge_row(const States::Pointers& states, const States::Pointers& to) const {
    const void* from[kMaxStateComponents];
    std::copy_n(states.at, kMaxStateComponents, from);
    loops_.row_merge(from, blocks_, to.at);
  }

  // ---- Short rows side by side: vectors hold one element each of many rows, so that all their lanes count. The tree
  // is that of rows: a lane is merged with the one half as far on; lanes without an element would change nothing.
  /// Fewer rows along one axis are reduced one by one, unless they fill a vector.
  static constexpr std::int64_t kFewestSideBySide = 32;
  bool has_enough_rows(const MergedAxis& axis) const {
    return axis.size >=
           (lies_in_vectors(axis) ? std::clamp<std::int64_t>(loops_.lanes, 8, kFewestSideBySide) : kFewestSideBySide);
  }
  MergedAxis side() const { return side_ < rows_.rank ? rows_.axis[side_] : MergedAxis{1, 0, false}; }
  /// Rows along this axis are taken together: one whose elements are vectors in memory; else the innermost, whose
  /// results are, if it is long enough.
  void choose_side() {
    side_ = rows_.rank == 0 ? 0 : rows_.rank - 1;
    for (unsigned i = 0; i < rows_.rank; ++i)
      if (rows_.axis[i].stride == stored_bytes() && has_enough_rows(rows_.axis[i])) side_ = i;
    if (lies_in_vectors(side())) return;
    for (unsigned i = 0; i < rows_.rank; ++i)
      if (side().size < kFewestSideBySide && rows_.axis[i].size > side().size) side_ = i;
  }
  bool lies_in_vectors(const MergedAxis& axis) const { return !converts() && axis.stride == stored_bytes(); }
  /// Whether rows are loaded as they are: half a vector of AVX-512 and more.
  bool has_vectors_along() const {
    constexpr std::int64_t kHalfVector = 32, kFewestFound = 6;  // of positions: fewer elements are better turned
    if (loops_.positions_in_vectors) return !converts() && is_dense() && blocks_ == 1 && reduced_.size >= kFewestFound;
    const auto wide = static_cast<std::int64_t>(byte_size(lifted_));
    return !converts() && is_dense() && loops_.components == 1 && wide >= 4 && reduced_.size * wide > kHalfVector;
  }
  /// Long rows whose neighbors lie beside each other: each lane of the tree, which has every 64th element of a row, is
  /// a line of columns.
  bool goes_by_lanes() const {
    constexpr std::int64_t kFewestTasks = 4;  // one for so many threads
    return reduced_.size > static_cast<std::int64_t>(kReductionLanes) && !is_dense() && blocks_ > 0 &&
           side().size >= kFewestSideBySide && side().stride == stored_bytes() &&
           !(converts() && loops_.components > 1) && side_tasks() * kFewestTasks >= thread_count();
  }
  bool goes_side_by_side() const {
    if (goes_by_lanes()) return true;
    constexpr std::int64_t kLongest = 24;  // of rows that have to be turned: longer ones fill lanes well enough
    if (blocks_ == 0 || per_pass_ > 1 || !has_enough_rows(side())) return false;
    if (blocks_ > static_cast<std::int64_t>(kReductionLanes) && side_tasks() < 2 * thread_count()) return false;
    if (!lies_in_vectors(side()) && has_vectors_along() && blocks_ == 1) return false;
    return reduced_.size <= (lies_in_vectors(side()) || has_vectors_along() ? kReductionLanes : kLongest);
  }

  std::int64_t lanes_of_blocks() const { return std::min<std::int64_t>(blocks_, kReductionLanes); }
  /// Rows at a time: their elements and states stay in the first-level cache.
  std::int64_t most_side_by_side() const {
    constexpr std::int64_t kElements = 4096, kMostRows = 512, kMostConverted = 64;
    if (reduced_.size > static_cast<std::int64_t>(kReductionLanes)) {  // by lanes
      if (converts() && !sums_narrow()) return kMostConverted;
      const std::int64_t of_thread = (side().size + thread_count() - 1) / thread_count();
      return std::clamp((of_thread + kMostLanes - 1) / kMostLanes * kMostLanes, kMostLanes, kMostRows);
    }
    return std::clamp(kElements / std::max(reduced_.size, lanes_of_blocks()), kMostLanes, kMostRows);
  }
  std::int64_t side_tasks() const {
    const std::int64_t most = most_side_by_side();
    std::int64_t tasks = (side().size + most - 1) / most;
    for (unsigned i = 0; i < side_; ++i) tasks *= rows_.axis[i].size;
    return tasks;
  }

  /// While the elements of a block are merged.
  std::int64_t lines_of_states() const {
    const auto lanes = static_cast<std::int64_t>(kReductionLanes);
    return reduced_.size > lanes ? lanes : std::max<std::int64_t>(reduced_.size / 2, 1);
  }
  struct SideBuffers {
    States states, parts;  // of each lane of the tree of blocks, with `pitch` rows between them; of a block
    std::int64_t pitch;
    RowBuffers rows;
    std::unique_ptr<char[]> results;
  };
  void run_side_by_side() const {
    const std::int64_t most = most_side_by_side(), size = side().size, chunks = (size + most - 1) / most;
    std::int64_t inner = 1;
    for (unsigned i = side_ + 1; i < rows_.rank; ++i) inner *= rows_.axis[i].size;
    const double task_cost = 20 * static_cast<double>(blocks_ * inner) +
                             cost_ * static_cast<double>(std::min(most, size) * inner * blocks_ * reduced_.size);
    const auto bytes = static_cast<std::int64_t>(byte_size(out_.dtype));
    parallel_for(0, side_tasks(), task_cost, [&](std::int64_t first, std::int64_t last) {
      const std::int64_t pitch = most + kMostLanes;
      const std::int64_t lines = lines_of_states();
      SideBuffers buffers{.states = {loops_, pitch * (lanes_of_blocks() + lines)},
                          .parts = {loops_, blocks_ > lanes_of_blocks() ? pitch * lines : 0},
                          .pitch = pitch,
                          .rows = {},
                          .results = {}};
      if (inner > 1) buffers.results = std::make_unique_for_overwrite<char[]>(static_cast<std::size_t>(most * bytes));
      for (std::int64_t task = first; task < last; ++task) {
        const std::int64_t begin = task % chunks * most, rows = std::min(most, size - begin);
        const std::int64_t row = (task / chunks * size + begin) * inner;
        for (std::int64_t i = row; i < row + inner; ++i) {
          reduce_side_by_side(rows_.offset(i), rows, buffers);
          if (inner == 1)
            finish(buffers.states.at(0), i, rows);
          else
            finish_apart(i, inner, rows, buffers);
        }
      }
    });
  }
  /// To results that lie `inner` apart.
  void finish_apart(std::int64_t first, std::int64_t inner, std::int64_t rows, SideBuffers& buffers) const {
    finish_at(buffers.results.get(), buffers.states.at(0), rows);
    const std::int64_t sizes[] = {rows}, to_strides[] = {inner}, from_strides[] = {1};
    strided_copy({result(first), to_strides}, {buffers.results.get(), from_strides}, sizes, byte_size(out_.dtype));
  }
  void reduce_side_by_side(std::int64_t offset, std::int64_t rows, SideBuffers& buffers) const {
    const auto lane = [&](std::int64_t number) { return buffers.states.at(number * buffers.pitch); };
    for (std::int64_t b = 0; b < blocks_; ++b) {
      const Block of_rows = block(b);
      const std::int64_t number = b % static_cast<std::int64_t>(kReductionLanes);
      const bool is_first = b == number;  // of its lane: it has been combined with the identity
      const States::Pointers to = is_first ? lane(number) : buffers.parts.at(0);
      if (reduced_.size > static_cast<std::int64_t>(kReductionLanes))
        reduce_lanes(offset, of_rows, rows, to, buffers);
      else
        reduce_block_side_by_side(offset + of_rows.offset, of_rows.first, rows, to, buffers);
      if (!is_first) merge_columns(lane(number), to, rows);
    }
    merge_lanes(buffers.states.at(0), lanes_of_blocks(), rows, buffers.pitch);
  }
  /// By the tree of ir/kernel.h; lanes are lines of states.
  void merge_lanes(const States::Pointers& states, std::int64_t lanes, std::int64_t rows, std::int64_t pitch) const {
    for (auto half = static_cast<std::int64_t>(kReductionLanes) / 2; half > 0; half /= 2)
      for (std::int64_t i = 0; i < half && i + half < lanes; ++i)
        merge_columns(after(states, i * pitch), after(states, (i + half) * pitch), rows);
  }
  void reduce_lanes(std::int64_t offset, const Block& b, std::int64_t rows, const States::Pointers& to,
                    SideBuffers& buffers) const {
    // Positions are counted along a line, and what needs no order needs no lanes.
    const bool is_one = (!converts() || sums_narrow()) && !needs_order_;
    const std::int64_t lanes = is_one ? 1 : std::min(b.size, static_cast<std::int64_t>(kReductionLanes));
    for (std::int64_t lane = 0; lane < lanes; ++lane) {
      const char* const x = data() + offset + b.offset + lane * reduced_.stride;
      const std::int64_t count = (b.size - lane + lanes - 1) / lanes, step = lanes * reduced_.stride;
      const States::Pointers state = after(to, lane * buffers.pitch);
      if (sums_narrow()) return sum_.columns(x, step, count, rows, sums(state));
      if (!converts()) {
        loops_.column_block(x, step, count, rows, b.first, state.at);
        continue;
      }
      const std::int64_t line = rows * static_cast<std::int64_t>(byte_size(lifted_));
      char* const converted = RowBuffers::of(buffers.rows.converted);
      for (std::int64_t i = 0; i < count; ++i) convert(converted + i * line, x + i * step, rows);
      loops_.column_block(converted, line, count, rows, b.first, state.at);
    }
    merge_lanes(to, lanes, rows, buffers.pitch);
  }
  void reduce_block_side_by_side(std::int64_t offset, std::int64_t position, std::int64_t rows,
                                 const States::Pointers& to, SideBuffers& buffers) const {
    const std::int64_t stride = side().stride;
    std::int64_t done = 0;
    if (lies_in_vectors(side())) {
      const auto some = [&](std::int64_t at, std::int64_t count) {
        const char* const x = data() + offset + at * stride;
        loops_.rows_side_by_side(x, reduced_.stride, reduced_.size, position, count, after(to, at).at, buffers.pitch);
      };
      done = rows / loops_.lanes * loops_.lanes;
      if (done != 0) some(0, done);
      if (done != 0 && done != rows) some(rows - loops_.lanes, loops_.lanes);  // some rows once more
      if (done != 0) return;
    } else if (has_vectors_along()) {
      return loops_.rows_of_one_block(data() + offset, stride, reduced_.size, rows, to.at);
    }
    turn_side_by_side(offset + done * stride, position, rows - done, after(to, done), buffers);
  }
  States::Pointers after(States::Pointers states, std::int64_t n) const {
    for (unsigned c = 0; c < loops_.components; ++c)
      states.at[c] = static_cast<char*>(states.at[c]) + n * loops_.component_bytes[c];
    return states;
  }
  void turn_side_by_side(std::int64_t offset, std::int64_t position, std::int64_t rows, const States::Pointers& to,
                         SideBuffers& of_rows) const {
    RowBuffers& buffers = of_rows.rows;
    const auto stored = static_cast<std::int64_t>(byte_size(x_.dtype)),
               wide = static_cast<std::int64_t>(byte_size(lifted_));
    char* const turned = RowBuffers::of(buffers.gathered);
    const std::int64_t sizes[] = {reduced_.size, rows}, to_strides[] = {rows, 1},
                       from_strides[] = {reduced_.stride / stored, side().stride / stored};
    strided_copy({turned, to_strides}, {const_cast<char*>(data() + offset), from_strides}, sizes,
                 static_cast<std::size_t>(stored));
    if (converts()) convert(RowBuffers::of(buffers.converted), turned, reduced_.size * rows);
    loops_.rows_side_by_side(converts() ? buffers.converted.get() : turned, rows * wide, reduced_.size, position, rows,
                             to.at, of_rows.pitch);
  }

  // ---- Columns: lanes run along the last axis, which is kept

  static constexpr std::int64_t kTile = 512;  // columns taken together

  struct ColumnBuffers {
    std::unique_ptr<char[]> gathered, converted;
    static constexpr std::size_t kBytes = static_cast<std::size_t>(kColumnBlock) * 64 * 8;
    ColumnBuffers() = default;
    char* get(std::unique_ptr<char[]>& buffer) {
      if (buffer == nullptr) buffer = std::make_unique_for_overwrite<char[]>(kBytes);
      return buffer.get();
    }
  };
  bool columns_in_place() const {
    return (!converts() || sums_narrow()) && (column_.stride == stored_bytes() || column_.size == 1);
  }
  std::int64_t tile() const { return columns_in_place() ? kTile : 64; }

  void reduce_column_block(std::int64_t row, std::int64_t number, std::int64_t begin, std::int64_t count,
                           const States::Pointers& to, ColumnBuffers& buffers) const {
    const Block b = block(number);
    const char* x = data() + rows_.offset(row) + b.offset + begin * column_.stride;
    if (columns_in_place())
      return sums_narrow() ? sum_.columns(x, reduced_.stride, b.size, count, sums(to))
                           : loops_.column_block(x, reduced_.stride, b.size, count, b.first, to.at);
    const auto stored = static_cast<std::int64_t>(byte_size(x_.dtype)),
               wide = static_cast<std::int64_t>(byte_size(lifted_));
    char* gathered = buffers.get(buffers.gathered);
    if (reduced_.stride == stored) {  // turned by squares, which read whole cache lines
      const std::int64_t sizes[] = {b.size, count}, to_strides[] = {count, 1},
                         from_strides[] = {1, column_.stride / stored};
      strided_copy({gathered, to_strides}, {const_cast<char*>(x), from_strides}, sizes,
                   static_cast<std::size_t>(stored));
    } else {
      for (std::int64_t r = 0; r < b.size; ++r)
        gather(gathered + r * count * stored, x + r * reduced_.stride, column_.stride, count, byte_size(x_.dtype));
    }
    if (sums_narrow()) return sum_.columns(gathered, count * stored, b.size, count, sums(to));
    if (converts()) convert(buffers.get(buffers.converted), gathered, b.size * count);
    loops_.column_block(converts() ? buffers.converted.get() : gathered, count * wide, b.size, count, b.first, to.at);
  }

  /// One tile of columns of one row, all its blocks in order.
  void reduce_tile(std::int64_t row, std::int64_t begin, std::int64_t count, const States& totals, const States& states,
                   ColumnBuffers& buffers) const {
    const States::Pointers total = totals.at(0), state = states.at(0);
    if (blocks_ == 1) {
      reduce_column_block(row, 0, begin, count, total, buffers);
    } else {
      loops_.fill_identity(total.at, count);
      for (std::int64_t b = 0; b < blocks_; ++b) {
        reduce_column_block(row, b, begin, count, state, buffers);
        merge_columns(total, state, count);
      }
    }
    finish(total, row * column_.size + begin, count);
  }
  void merge_columns(const States::Pointers& totals, const States::Pointers& states, std::int64_t n) const {
    const void* from[kMaxStateComponents];
    std::copy_n(states.at, kMaxStateComponents, from);
    loops_.column_merge(totals.at, from, n);
  }

  void run_columns() const {
    const std::int64_t rows = rows_.count(), tiles = (column_.size + tile() - 1) / tile();
    if (rows * tiles < thread_count() * 2 && blocks_ > 8) return run_columns_by_block(rows);
    const double tile_cost = 50 + cost_ * static_cast<double>(std::min(tile(), column_.size)) *
                                      static_cast<double>(reduced_.size * passes_.count());
    parallel_for(0, rows * tiles, tile_cost, [&](std::int64_t b, std::int64_t e) {
      const States totals(loops_, kTile), states(loops_, kTile);
      ColumnBuffers buffers;
      for (std::int64_t i = b; i < e; ++i) {
        const std::int64_t begin = i % tiles * tile();
        reduce_tile(i / tiles, begin, std::min(tile(), column_.size - begin), totals, states, buffers);
      }
    });
  }

  /// Few columns and many rows: threads share the blocks, which are then merged in order.
  void run_columns_by_block(std::int64_t rows) const {
    const std::int64_t width = column_.size;
    const std::int64_t batch =
        std::clamp<std::int64_t>((std::int64_t{1} << 18) / std::max<std::int64_t>(width, 1), 1, blocks_);
    const States totals(loops_, width), states(loops_, width * batch);
    const double block_cost = 50 + cost_ * static_cast<double>(width * std::min(block_, reduced_.size));
    for (std::int64_t row = 0; row < rows; ++row) {
      loops_.fill_identity(totals.at(0).at, width);
      for (std::int64_t first = 0; first < blocks_; first += batch) {
        const std::int64_t count = std::min(batch, blocks_ - first);
        parallel_for(0, count, block_cost, [&](std::int64_t b, std::int64_t e) {
          ColumnBuffers buffers;
          for (std::int64_t i = b; i < e; ++i)
            for (std::int64_t at = 0; at < width; at += tile())
              reduce_column_block(row, first + i, at, std::min(tile(), width - at), states.at(i * width + at), buffers);
        });
        for (std::int64_t i = 0; i < count; ++i) merge_columns(totals.at(0), states.at(i * width), width);
      }
      finish(totals.at(0), row * width, width);
    }
  }

  const TensorView &x_, &out_;
  Scratch<char> in_order_{0};
  DType lifted_;
  const bool needs_order_;
  const WideSum sum_;
  const ReduceLoops& loops_;
  MergedAxis reduced_{}, column_{};
  MergedAxes rows_, passes_;
  unsigned side_ = 0;  // of rows_
  bool is_row_;
  std::int64_t block_, per_pass_, blocks_;
  double cost_;
};

}  // namespace

void run_reduction(const CallArgs& args) {
  if (args.outputs[0].element_count() == 0) return;
  ReductionCall(args).run();
}

FERMATA_KERNELS(cpu) { add_eager_kernels(Family::reduce, &run_reduction); }

}  // namespace fermata::eager
