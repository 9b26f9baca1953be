// Kernels that reduce other axes than the vector axis: a thread for each column. The blocks of a column (ir/kernel.h)
// run side by side, as slices of a thread block or as threads of a launch of their own, and are merged in order.
#include "codegen_cuda/emit/emission.h"
#include "codegen_cuda/emit/primitives.h"

namespace fermata::gpu {

void emit_row_partial(Emission& e);
void emit_row_finish(Emission& e);

namespace {

using Stage = KernelSchedule::Stage;

/// Offsets of a column: all parallel axes.
void prologue(Emission& e) {
  const std::vector<unsigned> axes = e.parallel_axes(false);
  e.coordinates("row", axes);
  std::vector<unsigned> all = axes;
  all.push_back(e.vector_axis());
  e.offsets('r', 0, all);
  e.values(e.schedule.row_prologue, [](std::size_t a) { return fmt::format("r{}", a); });
}

/// The steps of block `number`, in order: `states` of its reductions, from the identity.
void steps(Emission& e, const Stage& stage, const std::string& number) {
  const unsigned inner = e.inner_reduced_axis();
  const std::vector<unsigned> outer = e.outer_reduced_axes();
  e.line("const {} begin = {} % blocks_per_pass * {};", e.index, number, kColumnBlock);
  e.line("const {0} end = begin + {1} < n{2} ? begin + {1} : n{2};", e.index, kColumnBlock, inner);
  e.coordinates(fmt::format("{} / blocks_per_pass", number), outer);
  e.offsets('q', 'r', outer);
  e.block(
      [&] {
        const auto offset = [&](std::size_t a) {
          return e.varies(a, inner) ? fmt::format("q{} + x{} * {}", a, inner, e.stride(a, inner))
                                    : fmt::format("q{}", a);
        };
        e.values(stage.element_values, offset);
        for (const std::uint16_t s : stage.element_stores) e.store(s, offset(e.kernel.stores[s].access));
        for (const std::uint16_t r : stage.reductions) e.combine(r, e.state_names(r, ""), e.lifted_names(r));
      },
      "for ({0} x{1} = begin; x{1} < end; ++x{1})", e.index, inner);
}

/// Merges the states of slices, in order, into the totals of slice 0.
void take_slices(Emission& e, const Stage& stage) {
  e.block(
      [&] {
        for (const std::uint16_t r : stage.reductions) {
          std::vector<std::string> items;
          e.for_components(stage, [&](std::uint16_t of, std::size_t c, std::size_t at) {
            if (of == r)
              items.push_back(fmt::format("fm_get<{}>(fm_shared_load(states + ({} * slices + from) * 32 + across))",
                                          value_type(e.kernel.reductions[r].types[c]), at));
          });
          std::string copies;
          for (std::size_t c = 0; c < items.size(); ++c)
            copies += fmt::format("{} = {}; ", e.state(r, c, "total"), items[c]);
          e.line("if (blocks == 1) {{ {}}}", copies);
          e.line("else");
          e.combine(r, e.state_names(r, "total"), items);
        }
      },
      "for (int from = 0; from < slices && start + from < blocks; ++from)");
}

void column_stage(Emission& e, const Stage& stage) {
  e.declare_states(stage.reductions, "total", "");
  e.block(
      [&] {
        e.line("const {} number = start + slice;", e.index);
        e.declare_states(stage.reductions, "", "");
        e.block([&] { steps(e, stage, "number"); }, "if (active && number < blocks)");
        if (stage.reductions.empty()) return;
        e.for_components(stage, [&](std::uint16_t r, std::size_t c, std::size_t at) {
          e.line("fm_shared_store(states + ({} * slices + slice) * 32 + across, fm_put({}));", at, e.state(r, c, ""));
        });
        e.line("fm_barrier();");
        e.block([&] { take_slices(e, stage); }, "if (slice == 0)");
        e.line("fm_barrier();");
      },
      "for ({0} start = 0; start < blocks; start += slices)", e.index);
  if (!stage.reductions.empty()) {  // what slice 0 has, all slices want
    e.for_components(stage, [&](std::uint16_t r, std::size_t c, std::size_t at) {
      e.line("if (slice == 0) fm_shared_store(states + {} * slices * 32 + across, fm_put({}));", at,
             e.state(r, c, "total"));
    });
    e.line("fm_barrier();");
    e.for_components(stage, [&](std::uint16_t r, std::size_t c, std::size_t at) {
      e.line("{} = fm_get<{}>(fm_shared_load(states + {} * slices * 32 + across));", e.state(r, c, "total"),
             value_type(e.kernel.reductions[r].types[c]), at);
    });
    e.line("fm_barrier();");
  }
  e.row_values(stage, "active && slice == 0");
}

void column_coordinate(Emission& e, const std::string& is) {
  e.line("const {} x{} = {};", e.index, e.vector_axis(), is);
}

void open_points(Emission& e) {
  e.line("const {0} columns = column_end - column_begin, points = (row_end - row_begin) * columns;", e.index);
}

}  // namespace

void emit_columns(Emission& e, unsigned slices) {
  e.open(32 * slices);
  e.line("FM_SHARED(shared);");
  e.line("u64* const states = (u64*)shared;");
  e.line("const int across = threadIdx.x % 32, slice = threadIdx.x / 32, slices = blockDim.x / 32;");
  e.line("const {} groups = (column_end - column_begin + 31) / 32;", e.index);
  e.block(
      [&] {
        e.line("const {} row = row_begin + at / groups;", e.index);
        e.line("const {} column = column_begin + at % groups * 32 + across;", e.index);
        e.line("const bool active = column < column_end;");
        // Threads past the end look at the last column and write nothing.
        column_coordinate(e, "active ? column : column_end - 1");
        prologue(e);
        for (const Stage& stage : e.schedule.stages) column_stage(e, stage);
      },
      "for ({0} at = blockIdx.x; at < (row_end - row_begin) * groups; at += gridDim.x)", e.index);
  e.close();
}

void emit_partial(Emission& e) {
  if (e.kernel.is_row_kernel()) return emit_row_partial(e);
  const Stage& stage = e.schedule.stages[0];
  e.open(256);
  e.line("u64* const states = (u64*)a.v[{}];", e.arguments.partials);
  open_points(e);
  e.block(
      [&] {
        e.line("const {0} number = task / points, row = row_begin + task % points / columns;", e.index);
        column_coordinate(e, "column_begin + task % columns");
        prologue(e);
        e.declare_states(stage.reductions, "", "");
        steps(e, stage, "number");
        e.for_components(stage, [&](std::uint16_t r, std::size_t c, std::size_t at) {
          e.line("fm_store(states + ((i64){} * blocks * points + task), fm_put({}));", at, e.state(r, c, ""));
        });
      },
      "for ({0} task = ({0})blockIdx.x * 256 + threadIdx.x; task < points * blocks; task += ({0})gridDim.x * 256)",
      e.index);
  e.close();
}

void emit_finish(Emission& e) {
  if (e.kernel.is_row_kernel()) return emit_row_finish(e);
  const Stage& stage = e.schedule.stages[0];
  e.open(256);
  e.line("const u64* const states = (const u64*)a.v[{}];", e.arguments.partials);
  open_points(e);
  e.block(
      [&] {
        e.line("const {} row = row_begin + point / columns;", e.index);
        column_coordinate(e, "column_begin + point % columns");
        prologue(e);
        e.declare_states(stage.reductions, "total", "");
        e.block(
            [&] {
              std::size_t at = 0;
              for (const std::uint16_t r : stage.reductions) {
                std::vector<std::string> items;
                for (const DType type : e.kernel.reductions[r].types)
                  items.push_back(
                      fmt::format("fm_get<{}>(fm_load(states + (((i64){} * blocks + number) * points + point)))",
                                  value_type(type), at++));
                e.combine(r, e.state_names(r, "total"), items);
              }
            },
            "for ({0} number = 0; number < blocks; ++number)", e.index);
        e.row_values(stage, "true");
      },
      "for ({0} point = ({0})blockIdx.x * 256 + threadIdx.x; point < points; point += ({0})gridDim.x * 256)", e.index);
  e.close();
}

}  // namespace fermata::gpu
