// Kernels without reductions: a thread takes a pack of elements along the vector axis, so that what lies side by side
// is read and written 16 bytes at a time; or, where something is read across, tiles by way of shared memory.
#include <algorithm>

#include "codegen_cuda/emit/emission.h"
#include "codegen_cuda/emit/primitives.h"

namespace fermata::gpu {
namespace {

/// Long programs in packs need more registers than a thread should have, and more time to compile.
constexpr std::size_t kLongProgram = 400;

bool is_packed(const Emission& e, std::size_t access, unsigned pack) {
  return pack > 1 && e.kernel.accesses[access].unit_stride;
}

/// Loads of packs, before any value is computed.
void load_packs(Emission& e, const std::vector<ValueId>& ids, unsigned pack) {
  std::vector<bool> loaded(e.kernel.accesses.size(), false);  // a program may read one access twice
  for (const ValueId id : ids) {
    const Instr& instr = e.kernel.program[id];
    if (instr.prim != Prim::input || !is_packed(e, instr.index, pack) || loaded[instr.index]) continue;
    const auto a = instr.index;
    loaded[a] = true;
    const std::string_view type = memory_type(e.kernel.accesses[a].dtype);
    e.line("{} m{}[{}];", type, a, pack);
    e.line("if (whole) fm_load_pack<{0}, {1}>(p{2} + (r{2} + column), m{2});", type, pack, a);
    e.line(
        "else for (int j = 0; j < {1}; ++j) m{0}[j] = column + j < column_end ? fm_load(p{0} + (r{0} + column + j)) : ({2})0;",
        a, pack, type);
  }
}

void store_packs(Emission& e, const std::vector<std::uint16_t>& stores, unsigned pack) {
  for (const std::uint16_t s : stores) {
    const std::size_t a = e.kernel.stores[s].access;
    if (!is_packed(e, a, pack)) continue;
    const std::string_view type = memory_type(e.kernel.accesses[a].dtype);
    e.line("if (whole) fm_store_pack<{0}, {1}>(p{2} + (r{2} + column), w{2});", type, pack, a);
    e.line(
        "else for (int j = 0; j < {1}; ++j) if (column + j < column_end) fm_store(p{0} + (r{0} + column + j), w{0}[j]);",
        a, pack);
  }
}

std::string lane_offset(const Emission& e, std::size_t access) {
  const unsigned v = e.vector_axis();
  return e.varies(access, v) ? fmt::format("r{} + (column + j) * {}", access, e.stride(access, v))
                             : fmt::format("r{}", access);
}

/// One element of the pack.
void emit_lane(Emission& e, const KernelSchedule::Stage& stage, unsigned pack) {
  for (const ValueId id : stage.element_values) {
    const Instr& instr = e.kernel.program[id];
    const bool reads = instr.prim == Prim::input;
    if (!reads) {
      e.value(id, instr.prim == Prim::offset ? lane_offset(e, instr.index) : std::string());
      continue;
    }
    const std::string_view type = value_type(instr.type);
    const bool boolean = instr.type == DType::boolean;
    if (is_packed(e, instr.index, pack))
      e.line("const {} v{} = m{}[j]{};", type, id, instr.index, boolean ? " != 0" : "");
    else if (pack > 1 && e.varies(instr.index, e.vector_axis()))
      e.line("const {0} v{1} = column + j < column_end ? {2} : ({0})0;", type, id,
             e.loaded(instr.index, lane_offset(e, instr.index)));
    else
      e.value(id, lane_offset(e, instr.index));
  }
  for (const std::uint16_t s : stage.element_stores) {
    const Store& store = e.kernel.stores[s];
    if (is_packed(e, store.access, pack)) {
      e.line("w{}[j] = ({})v{};", store.access, memory_type(e.kernel.accesses[store.access].dtype), store.value);
      continue;
    }
    if (pack > 1) e.line("if (column + j < column_end)");
    e.store(s, lane_offset(e, store.access));
  }
}

/// Loads that are worth to be turned round: they vary along both axes, and lie next to each other along neither or
/// `axis`.
std::vector<std::uint16_t> across(const Emission& e, unsigned axis) {
  std::vector<std::uint16_t> found;
  for (const ValueId id : e.schedule.stages[0].element_values) {
    const Instr& instr = e.kernel.program[id];
    if (instr.prim == Prim::input && e.varies(instr.index, axis) && e.varies(instr.index, e.vector_axis()) &&
        !e.kernel.accesses[instr.index].unit_stride)
      found.push_back(instr.index);
  }
  return found;
}

}  // namespace

unsigned pack_elements(const Kernel& kernel) {
  std::size_t smallest = 16;
  for (const Access& access : kernel.accesses)
    if (access.unit_stride && !access.address_only) smallest = std::min(smallest, byte_size(access.dtype));
  if (smallest == 16) return 1;
  const auto pack = static_cast<unsigned>(std::min<std::size_t>(16 / smallest, 8));
  return kernel.program.size() > kLongProgram ? std::min(pack, 2u) : pack;
}

void emit_map(Emission& e) {
  const KernelSchedule::Stage& stage = e.schedule.stages[0];
  const unsigned pack = pack_elements(e.kernel);
  e.open(256);
  e.offsets('g', 0, {});
  e.values(e.schedule.row_prologue, [](std::size_t a) { return fmt::format("g{}", a); });
  if (pack > 1) e.line("const bool packs = a.v[{}] != 0;", e.arguments.option);
  e.line("const {} per_row = (column_end - column_begin + {}) / {};", e.index, pack - 1, pack);
  e.line("const {} count = (row_end - row_begin) * per_row;", e.index);
  e.block(
      [&] {
        const std::vector<unsigned> axes = e.parallel_axes(false);
        if (axes.empty()) {
          e.line("const {} column = column_begin + at * {};", e.index, pack);
        } else {
          e.line("const {} row = row_begin + at / per_row, column = column_begin + at % per_row * {};", e.index, pack);
          e.coordinates("row", axes);
        }
        e.offsets('r', 'g', axes);
        if (pack > 1) e.line("const bool whole = packs && column + {} <= column_end;", pack);
        load_packs(e, stage.element_values, pack);
        for (const std::uint16_t s : stage.element_stores)
          if (const std::size_t a = e.kernel.stores[s].access; is_packed(e, a, pack))
            e.line("{} w{}[{}];", memory_type(e.kernel.accesses[a].dtype), a, pack);
        e.line("#pragma unroll");
        e.block([&] { emit_lane(e, stage, pack); }, "for (int j = 0; j < {}; ++j)", pack);
        store_packs(e, stage.element_stores, pack);
      },
      "for ({0} at = ({0})blockIdx.x * 256 + threadIdx.x; at < count; at += ({0})gridDim.x * 256)", e.index);
  e.close();
}

void emit_tiles(Emission& e, unsigned axis) {
  const KernelSchedule::Stage& stage = e.schedule.stages[0];
  const std::vector<std::uint16_t> turned = across(e, axis);
  const unsigned v = e.vector_axis();
  std::vector<unsigned> others = e.parallel_axes(false);
  std::erase(others, axis);
  e.open(kTile * kTileThreads);
  e.line("FM_SHARED(shared);");
  std::size_t bytes = 0;
  for (const std::uint16_t a : turned) {
    const std::string_view type = memory_type(e.kernel.accesses[a].dtype);
    e.line("{0}* const t{1} = ({0}*)(shared + {2});", type, a, bytes);
    bytes += (byte_size(e.kernel.accesses[a].dtype) * kTile * (kTile + 1) + 15) / 16 * 16;
  }
  e.line("const int across = threadIdx.x % {0}, down = threadIdx.x / {0};", kTile);
  e.offsets('g', 0, {});
  e.values(e.schedule.row_prologue, [](std::size_t a) { return fmt::format("g{}", a); });
  e.line("const {0} wide = (n{1} + {2}) / {3}, high = (n{4} + {2}) / {3};", e.index, v, kTile - 1, kTile, axis);
  e.line("{} count = wide * high;", e.index);
  for (const unsigned other : others) e.line("count *= n{};", other);
  e.block(
      [&] {
        e.line("const {0} left = tile % wide * {1}, top = tile / wide % high * {1};", e.index, kTile);
        e.coordinates("tile / wide / high", others);
        e.offsets('r', 'g', others);
        const auto at = [&](std::size_t a) {
          std::string offset = fmt::format("r{}", a);
          for (const unsigned each : {axis, v})
            if (e.varies(a, each)) offset += fmt::format(" + x{} * {}", each, e.stride(a, each));
          return offset;
        };
        e.block(
            [&] {
              e.line("const {} x{} = top + across, x{} = left + i;", e.index, axis, v);
              for (const std::uint16_t a : turned)
                e.line(
                    "if (x{0} < n{0} && x{1} < n{1}) fm_shared_store(t{2} + i * {3} + across, fm_load(p{2} + ({4})));",
                    axis, v, a, kTile + 1, at(a));
            },
            "for (int i = down; i < {}; i += {})", kTile, kTileThreads);
        e.line("fm_barrier();");
        e.block(
            [&] {
              e.line("const {} x{} = top + i, x{} = left + across;", e.index, axis, v);
              e.line("if (x{0} >= n{0} || x{1} >= n{1}) continue;", axis, v);
              for (const ValueId id : stage.element_values) {
                const Instr& instr = e.kernel.program[id];
                if (instr.prim == Prim::input && std::ranges::find(turned, instr.index) != turned.end())
                  e.line("const {} v{} = fm_shared_load(t{} + across * {} + i){};", value_type(instr.type), id,
                         instr.index, kTile + 1, instr.type == DType::boolean ? " != 0" : "");
                else
                  e.value(id,
                          instr.prim == Prim::input || instr.prim == Prim::offset ? at(instr.index) : std::string());
              }
              for (const std::uint16_t s : stage.element_stores) e.store(s, at(e.kernel.stores[s].access));
            },
            "for (int i = down; i < {}; i += {})", kTile, kTileThreads);
        e.line("fm_barrier();");
      },
      "for ({0} tile = blockIdx.x; tile < count; tile += gridDim.x)", e.index);
  e.close();
}

}  // namespace fermata::gpu
