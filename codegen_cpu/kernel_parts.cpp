// See kernel_parts.h.
#include "codegen_cpu/kernel_parts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "codegen_cpu/irregular/positions.h"
#include "codegen_cpu/staged_columns.h"
#include "ir/instr_operands.h"
#include "runtime/steps/joined_rows.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Longer programs take long to compile.
constexpr std::size_t kLongestProgram = 256;
/// What is computed again at each point in less time than a load takes.
constexpr std::size_t kCheapProgram = 32;

std::uint16_t components_before(const Kernel& kernel, std::size_t reduction) {
  std::size_t count = 0;
  for (std::size_t r = 0; r < reduction; ++r) count += kernel.reductions[r].types.size();
  return static_cast<std::uint16_t>(count);
}

/// The reductions of one stage as a kernel, to which values of the whole one are moved with what they need.
class PartBuilder {
 public:
  /// `accesses`: those of the whole kernel, and what is handed on to its map.
  PartBuilder(const Kernel& whole, const std::vector<Access>& accesses)
      : whole_(whole),
        first_state_(accesses.size()),
        moved_(whole.program.size(), kNoValue),
        number_(whole.reductions.size(), kOfOthers) {
    part_.rank = whole.rank, part_.reduced = whole.reduced, part_.accesses = accesses, part_.scalars = whole.scalars;
    const bool has_columns = !whole.is_row_kernel();
    const auto columns = static_cast<std::uint16_t>(has_columns ? 1u << (whole.rank - 1u) : 0u);
    for (const Reduction& reduction : whole.reductions)
      for (const DType type : reduction.types)
        part_.accesses.push_back({.dtype = type, .axes = columns, .unit_stride = has_columns});
  }

  /// The reductions of a stage, whose states are stored.
  void reduce(const std::vector<std::uint16_t>& reductions) {
    for (const std::uint16_t r : reductions) {
      Reduction reduction = whole_.reductions[r];
      for (ValueId& v : reduction.lifted) v = move(v);
      part_.reductions.push_back(std::move(reduction));
    }
    for (std::size_t i = 0; i < reductions.size(); ++i) {
      const std::uint16_t r = reductions[i];
      number_[r] = static_cast<std::uint16_t>(i);
      for (std::size_t c = 0; c < whole_.reductions[r].types.size(); ++c)
        part_.stores.push_back({access_of(r, c), part_.program.add(state(number_[r], r, c))});
    }
  }
  void store(const Store& store) { part_.stores.push_back({store.access, move(store.value)}); }
  Kernel take() { return std::move(part_); }

 private:
  static constexpr std::uint16_t kOfOthers = 0xffff;
  std::uint16_t access_of(std::size_t reduction, std::size_t component) const {
    return static_cast<std::uint16_t>(first_state_ + components_before(whole_, reduction) + component);
  }
  Instr state(std::uint16_t number, std::size_t reduction, std::size_t component) const {
    return {.prim = Prim::reduced,
            .type = whole_.reductions[reduction].types[component],
            .index = number,
            .bits = component};
  }
  /// Values come after their operands, so nothing recurs over a program.
  ValueId move(ValueId wanted) {
    std::vector<bool> needed(wanted + std::size_t{1}, false);
    needed[wanted] = true;
    for (ValueId v = wanted + 1u; v-- > 0;)
      if (needed[v] && moved_[v] == kNoValue) for_operands(whole_.program[v], [&](ValueId id) { needed[id] = true; });
    for (ValueId v = 0; v <= wanted; ++v)
      if (needed[v] && moved_[v] == kNoValue) moved_[v] = part_.program.add(instr_of(v));
    return moved_[wanted];
  }
  Instr instr_of(ValueId v) const {
    Instr instr = whole_.program[v];
    if (instr.prim == Prim::reduced) {
      if (number_[instr.index] != kOfOthers) return state(number_[instr.index], instr.index, instr.bits);
      return {.prim = Prim::input, .type = instr.type, .index = access_of(instr.index, instr.bits)};
    }
    for (ValueId* const id : {&instr.a, &instr.b, &instr.c})
      if (*id != kNoValue) *id = moved_[*id];
    return instr;
  }

  const Kernel& whole_;
  const std::size_t first_state_;  // among the accesses
  Kernel part_;
  std::vector<ValueId> moved_;
  std::vector<std::uint16_t> number_;  // of the reductions of this part
};

/// The bytes of an access that does not vary along reduced axes, in a launch of one row.
struct RowBytes {
  const char *begin, *end;
  RowBytes(const Kernel& kernel, const KernelLaunch& launch, std::size_t access) {
    const std::int64_t stride = launch.strides[(access + 1) * kernel.rank - 1],
                       bytes = static_cast<std::int64_t>(byte_size(kernel.accesses[access].dtype)),
                       span = (launch.sizes[kernel.rank - 1u] - 1) * stride * bytes;
    const auto* const first = static_cast<const char*>(launch.pointers[access]);
    begin = first + std::min<std::int64_t>(span, 0), end = first + std::max<std::int64_t>(span, 0) + bytes;
  }
};

/// Whether a value for each column is stored where another access reads: it may be an input that was given away.
bool overwrites_operands(const Kernel& kernel, const KernelLaunch& launch) {
  for (const Store& store : kernel.stores) {
    if (is_at_each_point(kernel, store)) continue;
    const RowBytes written(kernel, launch, store.access);
    for (const Instr& instr : kernel.program.instrs()) {
      if (!has_access(instr.prim) || kernel.accesses[instr.index].address_only) continue;
      if (instr.index == store.access || (kernel.accesses[instr.index].axes & kernel.reduced) != 0) {
        if (instr.index == store.access) return true;
        continue;
      }
      const RowBytes read(kernel, launch, instr.index);
      if (read.begin < written.end && written.begin < read.end) return true;
    }
  }
  return false;
}

class PartedExecutable final : public Executable {
 public:
  PartedExecutable(Kernel kernel, std::vector<Kernel> parts, std::vector<std::shared_ptr<const Executable>> code)
      : kernel_(std::move(kernel)), parts_(std::move(parts)), code_(std::move(code)) {}
  void launch(const KernelLaunch& launch) const override {
    in_parts(launch, [](const Executable& part, const KernelLaunch& of_part) { part.launch(of_part); });
  }
  bool in_parts(const KernelLaunch& launch,
                FunctionRef<void(const Executable&, const KernelLaunch&)> run) const override {
    if (overwrites_operands(kernel_, launch)) return false;
    constexpr std::int64_t kSlot = 8, kLine = 64;
    const std::size_t rank = kernel_.rank, own = kernel_.accesses.size(), all = parts_.front().accesses.size();
    const bool has_columns = !kernel_.is_row_kernel();
    const std::int64_t columns = has_columns ? launch.sizes[rank - 1] : 1;
    const std::int64_t line = (columns * kSlot + kLine - 1) / kLine * kLine;
    const Scratch<char> states(line * static_cast<std::int64_t>(all - own));
    std::vector<void*> pointers(launch.pointers, launch.pointers + own);
    std::vector<std::int64_t> strides(launch.strides, launch.strides + own * rank), offsets(all, 0);
    for (std::size_t a = 0; a < own; ++a)
      if (kernel_.accesses[a].address_only) offsets[a] = launch.offsets[a];
    strides.resize(all * rank, 0);
    for (std::size_t a = own; a < all; ++a) {
      pointers.push_back(states.data() + static_cast<std::int64_t>(a - own) * line);
      strides[(a + 1) * rank - 1] = has_columns ? 1 : 0;
    }
    KernelLaunch part = launch;
    part.pointers = pointers.data(), part.strides = strides.data(), part.offsets = offsets.data();
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      part.row_end = 1;
      if (parts_[i].reduced != 0) {
        run(*code_[i], part);
        continue;
      }
      for (std::size_t axis = 0; axis + 1 < rank; ++axis) part.row_end *= launch.sizes[axis];
      part.column_begin = 0, part.column_end = launch.sizes[rank - 1];
      run_map(parts_[i], *code_[i], part, run);
    }
    return true;
  }
  std::size_t code_bytes() const override {
    std::size_t bytes = 0;
    for (const auto& code : code_) bytes += code->code_bytes();
    return bytes;
  }

 private:
  static void run_map(const Kernel& map, const Executable& code, const KernelLaunch& launch,
                      FunctionRef<void(const Executable&, const KernelLaunch&)> run) {
    std::vector<std::size_t> element_bytes;
    for (const Access& access : map.accesses)
      element_bytes.push_back(access.address_only ? 0 : byte_size(access.dtype));
    if (!JoinedRows::are_short(element_bytes, {launch.sizes, map.rank})) return run(code, launch);
    std::vector<std::uint16_t> stores;
    for (const Store& store : map.stores) stores.push_back(store.access);
    JoinedRows rows(element_bytes, stores, launch);
    if (!rows.can_join()) return run(code, launch);
    rows.run([&](const KernelLaunch& joined) { run(code, joined); });
  }

  const Kernel kernel_;
  const std::vector<Kernel> parts_;
  const std::vector<std::shared_ptr<const Executable>> code_;
};

}  // namespace

std::vector<Kernel> kernel_parts(const Kernel& kernel) {
  if (kernel.reduced == 0 || kernel.program.size() > kLongestProgram) return {};
  if (has_positions(kernel)) return {};  // they are checked once, and are what they are computed from
  const KernelSchedule stages = schedule(kernel);
  std::vector<std::vector<std::uint16_t>> reducing;
  for (const KernelSchedule::Stage& stage : stages.stages)
    if (!stage.reductions.empty()) reducing.push_back(stage.reductions);
  const auto at_points = [&](const Store& s) { return is_at_each_point(kernel, s); };
  const bool writes_points = std::ranges::any_of(kernel.stores, at_points);
  if (reducing.empty() || can_split(kernel, stages) || (reducing.size() == 1 && !writes_points)) return {};
  const PointResults points = point_results(kernel);
  std::vector<Kernel> parts;
  for (const std::vector<std::uint16_t>& reductions : reducing) {
    PartBuilder builder(kernel, points.map.accesses);
    builder.reduce(reductions);
    if (&reductions == &reducing.back()) {
      for (const Store& store : kernel.stores)
        if (!at_points(store)) builder.store(store);
      for (std::size_t i = 0; i < points.handed_on.size(); ++i)
        builder.store({static_cast<std::uint16_t>(kernel.accesses.size() + i), points.handed_on[i]});
    }
    parts.push_back(builder.take());
  }
  if (writes_points) parts.push_back(points.map);
  return parts;
}

bool is_shared_by_few(const Kernel& kernel, const KernelLaunch& launch) {
  constexpr std::int64_t kFewColumns = 512, kFewestBlocks = 8, kFewestOfRow = 4;  // for each thread
  // Where two threads compute again what one keeps: columns, and blocks of a row that no cache keeps.
  constexpr std::int64_t kFewestAgain = 32, kFewestBlocksAgain = 64;
  if (thread_count() == 1 || launch.row_begin != 0 || launch.row_end != 1) return false;
  const std::int64_t blocks = reduction_blocks(kernel, launch.sizes), columns = launch.sizes[kernel.rank - 1u];
  const bool keeps = kernel.program.size() > kCheapProgram &&
                     std::ranges::any_of(kernel.stores, [&](const Store& s) { return is_at_each_point(kernel, s); });
  if (keeps && thread_count() == 2)
    if (kernel.is_row_kernel() ? blocks < kFewestBlocksAgain : columns < kFewestAgain) return false;
  if (kernel.is_row_kernel()) return blocks >= kFewestOfRow * thread_count();
  return launch.column_begin == 0 && launch.column_end == columns && columns < kFewColumns * thread_count() &&
         blocks >= kFewestBlocks * thread_count();
}

std::shared_ptr<const Executable> parted_executable(const Kernel& kernel, std::vector<Kernel> parts,
                                                    std::vector<std::shared_ptr<const Executable>> code) {
  return std::make_shared<PartedExecutable>(kernel, std::move(parts), std::move(code));
}

}  // namespace fermata
