// Kernels that reduce the vector axis. The 64 virtual lanes of a reduction tree (ir/kernel.h) are the 32 threads of a
// warp, two lanes each, so that every launch gives the bits that the description prescribes.
//
// A row of one block belongs to a warp, which needs no barrier and keeps what several stages read in shared memory. A
// longer row belongs to a thread block whose warps take blocks of it in turn; 64 of their states at a time become items
// of the second tree.
#include <algorithm>

#include "codegen_cuda/emit/emission.h"
#include "codegen_cuda/emit/primitives.h"

namespace fermata::gpu {
namespace {

using Stage = KernelSchedule::Stage;
constexpr std::int64_t kLanes = kReductionLanes;

std::string element_offset(const Emission& e, char base, std::size_t a) {
  const unsigned v = e.vector_axis();
  const std::string start = fmt::format("{}{}", base, a);
  return e.varies(a, v) ? fmt::format("{} + x{} * {}", start, v, e.stride(a, v)) : start;
}

/// What is kept of a row, and which stage reads it first.
struct Kept {
  std::vector<std::uint16_t> accesses;
  std::vector<bool> read;
};

void element(Emission& e, const Stage& stage, char base, Kept* kept) {
  for (const ValueId id : stage.element_values) {
    const Instr& instr = e.kernel.program[id];
    const bool addressed = instr.prim == Prim::input || instr.prim == Prim::offset;
    const std::string offset = addressed ? element_offset(e, base, instr.index) : std::string();
    const auto at =
        kept == nullptr || instr.prim != Prim::input
            ? std::size_t{0}
            : static_cast<std::size_t>(std::ranges::find(kept->accesses, instr.index) - kept->accesses.begin());
    if (kept == nullptr || instr.prim != Prim::input || at == kept->accesses.size()) {
      e.value(id, offset);
      continue;
    }
    const std::uint16_t a = instr.index;
    const unsigned v = e.vector_axis();
    const std::string_view type = memory_type(e.kernel.accesses[a].dtype);
    if (kept->read[at]) {
      e.line("const {} m{} = keeps ? fm_shared_load(h{} + x{}) : fm_load(p{} + ({}));", type, a, a, v, a, offset);
    } else {
      e.line("const {} m{} = fm_load(p{} + ({}));", type, a, a, offset);
      e.line("if (keeps) fm_shared_store(h{} + x{}, m{});", a, v, a);
    }
    e.line("const {} v{} = m{}{};", value_type(instr.type), id, a, instr.type == DType::boolean ? " != 0" : "");
  }
  for (const std::uint16_t s : stage.element_stores) e.store(s, element_offset(e, base, e.kernel.stores[s].access));
}

/// Whether a stage reads memory that no earlier one has kept.
bool reads_memory(const Emission& e, const Stage& stage, const Kept* kept) {
  if (kept == nullptr) return true;
  return std::ranges::any_of(stage.element_values, [&](ValueId id) {
    const Instr& instr = e.kernel.program[id];
    const auto at = std::ranges::find(kept->accesses, instr.index) - kept->accesses.begin();
    return instr.prim == Prim::input &&
           (static_cast<std::size_t>(at) == kept->accesses.size() || !kept->read[static_cast<std::size_t>(at)]);
  });
}

/// Elements [begin, end) of the vector axis by the lanes of a warp: two states per reduction. Loops say how far they
/// are to be unrolled, as the compiler spends most of its time on what it unrolls by itself. What comes from memory is
/// read four elements at a time, so that their loads are under way together.
void lanes(Emission& e, const Stage& stage, const std::string& begin, const std::string& end, char base, Kept* kept) {
  const unsigned v = e.vector_axis();
  if (stage.reductions.empty()) {
    e.line("#pragma unroll 2");
    e.block([&] { element(e, stage, base, kept); }, "for ({0} x{1} = {2} + lane; x{1} < {3}; x{1} += 32)", e.index, v,
            begin, end);
    return;
  }
  e.declare_states(stage.reductions, "", "2");
  e.line("{} first = {} + lane;", e.index, begin);
  if (reads_memory(e, stage, kept)) {
    e.line("#pragma unroll 1");
    e.block(
        [&] {
          e.line("#pragma unroll");
          e.block(
              [&] {
                e.line("const {} x{} = first + 32 * part;", e.index, v);
                element(e, stage, base, kept);
                for (const std::uint16_t r : stage.reductions)
                  e.combine(r, e.state_names(r, "[part % 2]"), e.lifted_names(r));
              },
              "for (int part = 0; part < 4; ++part)");
        },
        "for (; first + 96 < {}; first += {})", end, 2 * kLanes);
  }
  e.line("#pragma unroll 1");
  e.block(
      [&] {
        e.line("#pragma unroll");
        e.block(
            [&] {
              e.line("const {} x{} = first + 32 * half;", e.index, v);
              e.line("if (x{} >= {}) continue;", v, end);
              element(e, stage, base, kept);
              for (const std::uint16_t r : stage.reductions)
                e.combine(r, e.state_names(r, "[half]"), e.lifted_names(r));
            },
            "for (int half = 0; half < 2; ++half)");
      },
      "for (; first < {}; first += {})", end, kLanes);
}

/// Merges the 64 lanes by halves: the result is in the first state of lane 0.
void merge_lanes(Emission& e, const Stage& stage) {
  for (const std::uint16_t r : stage.reductions) {
    e.combine(r, e.state_names(r, "[0]"), e.state_names(r, "[1]"));
    e.line("#pragma unroll");
    e.block(
        [&] {
          std::vector<std::string> others;
          for (std::size_t c = 0; c < e.kernel.reductions[r].types.size(); ++c) {
            others.push_back(e.state(r, c, "other"));
            e.line("const {} {} = fm_shuffle_down({}, apart);", value_type(e.kernel.reductions[r].types[c]),
                   others.back(), e.state(r, c, "[0]"));
          }
          e.combine(r, e.state_names(r, "[0]"), others);
        },
        "for (int apart = 16; apart > 0; apart /= 2)");
  }
}

void declare_totals(Emission& e, const Stage& stage) { e.declare_states(stage.reductions, "total", ""); }

void prologue(Emission& e, const std::string& row) {
  const std::vector<unsigned> axes = e.parallel_axes(true);
  e.coordinates(row, axes);
  e.offsets('r', 0, axes);
  e.values(e.schedule.row_prologue, [](std::size_t a) { return fmt::format("r{}", a); });
}

/// Opens what belongs to block `number` of a row: begin, end, and offsets with the outer reduced axes.
void enter_block(Emission& e, const std::string& number) {
  const unsigned v = e.vector_axis();
  const std::vector<unsigned> outer = e.outer_reduced_axes();
  e.line("const {} begin = {} % blocks_per_pass * {};", e.index, number, kReductionBlock);
  e.line("const {0} end = begin + {1} < n{2} ? begin + {1} : n{2};", e.index, kReductionBlock, v);
  e.coordinates(fmt::format("{} / blocks_per_pass", number), outer);
  e.offsets('q', 'r', outer);
}

void warp_stage(Emission& e, const Stage& stage, Kept& kept) {
  declare_totals(e, stage);
  e.block(
      [&] {
        lanes(e, stage, "0", "length", 'r', &kept);
        merge_lanes(e, stage);
        e.for_components(stage, [&](std::uint16_t r, std::size_t c, std::size_t) {
          e.line("{} = fm_shuffle({}, 0);", e.state(r, c, "total"), e.state(r, c, "[0]"));
        });
      },
      "");
  e.row_values(stage, "lane == 0");
  for (const ValueId id : stage.element_values)
    if (e.kernel.program[id].prim == Prim::input)
      for (std::size_t k = 0; k < kept.accesses.size(); ++k)
        if (kept.accesses[k] == e.kernel.program[id].index) kept.read[k] = true;
}

/// The stage over all blocks of the row, by the warps of the thread block.
void block_stage(Emission& e, const Stage& stage) {
  if (stage.reductions.empty()) {
    e.block(
        [&] {
          enter_block(e, "number");
          lanes(e, stage, "begin", "end", 'q', nullptr);
        },
        "for ({} number = warp; number < blocks; number += warps)", e.index);
    return e.row_values(stage, "threadIdx.x == 0");
  }
  const std::size_t components = e.components(stage.reductions);
  declare_totals(e, stage);
  e.block(
      [&] {
        // The lanes of the second tree, which live in warp 0.
        e.for_components(stage, [&](std::uint16_t r, std::size_t c, std::size_t) {
          const DType type = e.kernel.reductions[r].types[c];
          const std::string identity = constant(type, e.kernel.reductions[r].identity[c]);
          e.line("{} {}[2] = {{{}, {}}};", value_type(type), e.state(r, c, "tree"), identity, identity);
        });
        e.block(
            [&] {
              e.block(
                  [&] {
                    enter_block(e, "number");
                    lanes(e, stage, "begin", "end", 'q', nullptr);
                    merge_lanes(e, stage);
                    e.for_components(stage, [&](std::uint16_t r, std::size_t c, std::size_t at) {
                      e.line("if (lane == 0) fm_shared_store(states + (number - start) * {} + {}, fm_put({}));",
                             components, at, e.state(r, c, "[0]"));
                    });
                  },
                  "for ({0} number = start + warp; number < start + {1} && number < blocks; number += warps)", e.index,
                  kLanes);
              e.line("fm_barrier();");
              e.block(
                  [&] {
                    e.line("const {} item = lane + 32 * half;", e.index);
                    e.line("if (warp != 0 || start + item >= blocks) continue;");
                    for (const std::uint16_t r : stage.reductions) {
                      std::vector<std::string> items;
                      e.for_components(stage, [&](std::uint16_t of, std::size_t c, std::size_t at) {
                        if (of == r)
                          items.push_back(fmt::format("fm_get<{}>(fm_shared_load(states + item * {} + {}))",
                                                      value_type(e.kernel.reductions[r].types[c]), components, at));
                      });
                      e.combine(r, e.state_names(r, "tree[half]"), items);
                    }
                  },
                  "for (int half = 0; half < 2; ++half)");
              e.line("fm_barrier();");
            },
            "for ({} start = 0; start < blocks; start += {})", e.index, kLanes);
        e.block(
            [&] {
              e.for_components(stage, [&](std::uint16_t r, std::size_t c, std::size_t) {
                const std::string_view type = value_type(e.kernel.reductions[r].types[c]);
                e.line("{0} {1}[2] = {{{2}[0], {2}[1]}};", type, e.state(r, c, ""), e.state(r, c, "tree"));
              });
              merge_lanes(e, stage);
              e.for_components(stage, [&](std::uint16_t r, std::size_t c, std::size_t at) {
                e.line("if (lane == 0) fm_shared_store(states + {}, fm_put({}));", at, e.state(r, c, "[0]"));
              });
            },
            "if (warp == 0)");
        e.line("fm_barrier();");
        e.for_components(stage, [&](std::uint16_t r, std::size_t c, std::size_t at) {
          e.line("{} = fm_get<{}>(fm_shared_load(states + {}));", e.state(r, c, "total"),
                 value_type(e.kernel.reductions[r].types[c]), at);
        });
        e.line("fm_barrier();");
      },
      "");
  e.row_values(stage, "threadIdx.x == 0");
}

void warp_numbers(Emission& e) {
  e.line("const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;");
}

}  // namespace

std::vector<std::uint16_t> kept_accesses(const Kernel& kernel, const KernelSchedule& schedule) {
  std::vector<unsigned> readers(kernel.accesses.size());
  for (const Stage& stage : schedule.stages)
    for (const ValueId id : stage.element_values)
      if (kernel.program[id].prim == Prim::input) ++readers[kernel.program[id].index];
  std::vector<std::uint16_t> kept;
  for (std::uint16_t a = 0; a < readers.size(); ++a)
    if (readers[a] > 1 && (kernel.accesses[a].axes >> (kernel.rank - 1u) & 1u) != 0) kept.push_back(a);
  // Largest elements first, so that each starts where its own alignment allows.
  std::ranges::stable_sort(kept, std::greater<>(),
                           [&](std::uint16_t a) { return byte_size(kernel.accesses[a].dtype); });
  return kept;
}

void emit_warp_rows(Emission& e) {
  Kept kept{kept_accesses(e.kernel, e.schedule), {}};
  kept.read.resize(kept.accesses.size());
  e.open(256);
  warp_numbers(e);
  if (!kept.accesses.empty()) {
    std::size_t row_bytes = 0, before = 0;
    for (const std::uint16_t a : kept.accesses) row_bytes += byte_size(e.kernel.accesses[a].dtype);
    e.line("FM_SHARED(shared);");
    e.line("const int kept = (int)a.v[{}];", e.arguments.option);
    e.line("const bool keeps = kept != 0;");
    for (const std::uint16_t a : kept.accesses) {
      e.line("{0}* const h{1} = ({0}*)(shared + (warp * {2} + {3}) * kept);", memory_type(e.kernel.accesses[a].dtype),
             a, row_bytes, before);
      before += byte_size(e.kernel.accesses[a].dtype);
    }
  }
  e.line("const {} length = blocks == 0 ? 0 : n{};", e.index, e.vector_axis());
  e.block(
      [&] {
        prologue(e, "row");
        for (const Stage& stage : e.schedule.stages) warp_stage(e, stage, kept);
      },
      "for ({0} row = row_begin + ({0})blockIdx.x * warps + warp; row < row_end; row += ({0})gridDim.x * warps)",
      e.index);
  e.close();
}

void emit_block_rows(Emission& e) {
  e.open(256);
  warp_numbers(e);
  e.line("FM_SHARED(shared);");
  e.line("u64* const states = (u64*)shared;");
  e.block(
      [&] {
        prologue(e, "row");
        for (const Stage& stage : e.schedule.stages) block_stage(e, stage);
      },
      "for ({0} row = row_begin + ({0})blockIdx.x; row < row_end; row += ({0})gridDim.x)", e.index);
  e.close();
}

void emit_row_partial(Emission& e) {
  const Stage& stage = e.schedule.stages[0];
  e.open(256);
  warp_numbers(e);
  e.line("u64* const states = (u64*)a.v[{}];", e.arguments.partials);
  e.block(
      [&] {
        prologue(e, "task / blocks");
        enter_block(e, "(task % blocks)");
        lanes(e, stage, "begin", "end", 'q', nullptr);
        merge_lanes(e, stage);
        e.for_components(stage, [&](std::uint16_t r, std::size_t c, std::size_t at) {
          e.line("if (lane == 0) fm_store(states + ((i64)task * {} + {}), fm_put({}));", e.components(stage.reductions),
                 at, e.state(r, c, "[0]"));
        });
      },
      "for ({0} task = row_begin * blocks + ({0})blockIdx.x * warps + warp; task < row_end * blocks; task += ({0})gridDim.x * warps)",
      e.index);
  e.close();
}

void emit_row_finish(Emission& e) {
  const Stage& stage = e.schedule.stages[0];
  e.open(256);
  warp_numbers(e);
  e.line("const u64* const states = (const u64*)a.v[{}];", e.arguments.partials);
  e.block(
      [&] {
        prologue(e, "row");
        declare_totals(e, stage);
        e.block(
            [&] {
              e.declare_states(stage.reductions, "", "2");
              e.block(
                  [&] {
                    e.block(
                        [&] {
                          e.line("const {} item = first + 32 * half;", e.index);
                          e.line("if (item >= blocks) continue;");
                          std::size_t at = 0;
                          for (const std::uint16_t r : stage.reductions) {
                            std::vector<std::string> items;
                            for (const DType type : e.kernel.reductions[r].types)
                              items.push_back(
                                  fmt::format("fm_get<{}>(fm_load(states + ((i64)(row * blocks + item) * {} + {})))",
                                              value_type(type), e.components(stage.reductions), at++));
                            e.combine(r, e.state_names(r, "[half]"), items);
                          }
                        },
                        "for (int half = 0; half < 2; ++half)");
                  },
                  "for ({} first = lane; first < blocks; first += {})", e.index, kLanes);
              merge_lanes(e, stage);
              e.for_components(stage, [&](std::uint16_t r, std::size_t c, std::size_t) {
                e.line("{} = fm_shuffle({}, 0);", e.state(r, c, "total"), e.state(r, c, "[0]"));
              });
            },
            "");
        e.row_values(stage, "lane == 0");
      },
      "for ({0} row = row_begin + ({0})blockIdx.x * warps + warp; row < row_end; row += ({0})gridDim.x * warps)",
      e.index);
  e.close();
}

}  // namespace fermata::gpu
