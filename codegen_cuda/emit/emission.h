// State shared by the generators of the kernel shapes: the source text, and the names of arguments, values and
// addresses.
//
// Names: p3 the pointer of access 3, s3_1 its stride along axis 1, n1 the size of axis 1, k2 a scalar argument, v17 a
// value of the program, r3 the offset of access 3 at a row, q3 at an iteration of the outer reduced axes.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>
#include <vector>

#include "codegen_cuda/emit/argument_layout.h"
#include "ir/kernel.h"

namespace fermata::gpu {

/// How the points of a kernel are mapped to threads.
enum class Schedule : std::uint8_t {
  map,      // no reduction: packs of elements
  tiles,    // no reduction, with a transposed operand: 32 x 32 elements through shared memory
  warp,     // a reduced vector axis of one block: one warp per row
  block,    // a reduced vector axis of several blocks: one thread block per row
  column,   // a parallel vector axis: one thread per column and block
  slices,   // the same for few columns of many blocks: thread blocks are larger
  partial,  // the states of blocks, each by its own warp or thread
  finish,   // merges the states of partial
};

struct Emission {
  Emission(const Kernel& kernel, const KernelSchedule& schedule, std::string name, bool wide);

  const Kernel& kernel;
  const KernelSchedule& schedule;
  const ArgumentLayout arguments;
  const std::string name;   // of the function
  const std::string index;  // "i32" or "i64"
  std::string text;

  template <class... Args> void line(fmt::format_string<Args...> format, Args&&... args) {
    text.append(2 * depth, ' ');
    fmt::format_to(std::back_inserter(text), format, std::forward<Args>(args)...);
    text += '\n';
  }
  /// A block in braces around the output of `body`.
  template <class F, class... Args> void block(F&& body, fmt::format_string<Args...> head, Args&&... args) {
    line("{}", fmt::format(head, std::forward<Args>(args)...) + " {");
    ++depth, body(), --depth;
    line("}}");
  }

  unsigned vector_axis() const { return kernel.rank - 1u; }
  bool varies(std::size_t access, unsigned axis) const { return (kernel.accesses[access].axes >> axis & 1u) != 0; }
  /// The stride of an access along an axis: a name, or "1".
  std::string stride(std::size_t access, unsigned axis) const;

  /// Opens the function: defines the combine functions of reductions before it and unpacks arguments. `more`:
  /// additional arguments after those of the layout.
  void open(unsigned threads, int more = 0);
  void close();
  /// Defines a function of f32 before the kernel.
  void define_function(const std::string& function, const Formula& formula);
  /// x<axis> for each axis of `axes`, taken from the row-major number `from`.
  void coordinates(const std::string& from, const std::vector<unsigned>& axes);
  /// <prefix><access> for each access: `base` (a prefix, or empty for the origin) plus x<axis> * stride for these axes.
  void offsets(char prefix, char base, const std::vector<unsigned>& axes);
  /// Emits values in order. `offset` returns the offset of an access at this point.
  template <class Offset> void values(const std::vector<ValueId>& ids, Offset&& offset) {
    for (const ValueId id : ids)
      value(id, kernel.program[id].prim == Prim::input || kernel.program[id].prim == Prim::offset
                    ? offset(kernel.program[id].index)
                    : std::string());
  }
  void value(ValueId id, const std::string& offset);
  std::string loaded(std::size_t access, const std::string& offset) const;
  void store(std::uint16_t store, const std::string& offset);

  // States of reductions: names like a2_1, component 1 of reduction 2, with `suffix` after them.
  std::string state(std::uint16_t reduction, std::size_t component, const std::string& suffix) const;
  void declare_states(const std::vector<std::uint16_t>& reductions, const std::string& suffix,
                      const std::string& count);
  /// into = combine(left, right) for every component.
  void combine(std::uint16_t reduction, const std::vector<std::string>& into, const std::vector<std::string>& right);
  std::vector<std::string> state_names(std::uint16_t reduction, const std::string& suffix) const;
  std::vector<std::string> lifted_names(std::uint16_t reduction) const;
  std::size_t components(const std::vector<std::uint16_t>& reductions) const;

  /// Calls f(reduction, component, index) for every component of a stage's states.
  template <class F> void for_components(const KernelSchedule::Stage& stage, F&& f) const {
    std::size_t at = 0;
    for (const std::uint16_t r : stage.reductions)
      for (std::size_t c = 0; c < kernel.reductions[r].types.size(); ++c) f(r, c, at++);
  }
  /// Emits the per-row values of a stage, and their stores by the thread for which `who` is true.
  void row_values(const KernelSchedule::Stage& stage, const char* who);

  std::vector<unsigned> parallel_axes(bool with_vector_axis) const;
  std::vector<unsigned> outer_reduced_axes() const;
  unsigned inner_reduced_axis() const;

 private:
  void define_combine(std::size_t reduction);
  /// t<id> for each value of a formula's program.
  void formula_values(const Formula& formula, const std::function<std::string(std::size_t)>& parameter);
  unsigned depth = 0;
};

void emit_map(Emission& e);
void emit_tiles(Emission& e, unsigned axis);
void emit_warp_rows(Emission& e);
void emit_block_rows(Emission& e);
void emit_columns(Emission& e, unsigned slices);
void emit_partial(Emission& e);
void emit_finish(Emission& e);

/// The number of elements that a thread of a map kernel processes at once.
unsigned pack_elements(const Kernel& kernel);
/// The accesses that a warp kernel keeps in shared memory because several stages read them.
std::vector<std::uint16_t> kept_accesses(const Kernel& kernel, const KernelSchedule& schedule);
/// The number of blocks of a column that run in parallel in a thread block: usually, and where there are few columns.
inline constexpr unsigned kColumnSlices = 8, kMostColumnSlices = 32;
/// Rows and columns of a tile, and rows of threads.
inline constexpr unsigned kTile = 32, kTileThreads = 8;

}  // namespace fermata::gpu
