// See loaded_executable.h.
#include "codegen_cpu/loaded_executable.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "codegen_cpu/launch_checker.h"
#include "ir/error.h"
#include "runtime/allocator.h"
#include "runtime/streaming.h"

namespace fermata {
namespace {

/// Memory for the kept values of a launch. What a thread gave back last it gets again, still in its caches.
class ScratchMemory {
 public:
  explicit ScratchMemory(std::size_t bytes) : allocation_(allocate_bytes(bytes)) {}
  ~ScratchMemory() { release_bytes(allocation_); }
  ScratchMemory(const ScratchMemory&) = delete;
  ScratchMemory& operator=(const ScratchMemory&) = delete;
  void* data() const { return allocation_.data; }

 private:
  const Allocation allocation_;
};

/// Bytes between neighbors along an axis.
std::int64_t byte_stride(const Kernel& kernel, const KernelLaunch& launch, std::uint16_t access, unsigned axis) {
  if ((kernel.accesses[access].axes >> axis & 1u) == 0) return 0;
  return launch.strides[access * kernel.rank + axis] *
         static_cast<std::int64_t>(byte_size(kernel.accesses[access].dtype));
}

std::int64_t bytes_of(const Kernel& kernel, const KernelLaunch& launch, std::uint16_t access) {
  auto bytes = static_cast<std::int64_t>(byte_size(kernel.accesses[access].dtype));
  for (unsigned axis = 0; axis < kernel.rank; ++axis)
    if ((kernel.accesses[access].axes >> axis & 1u) != 0) bytes *= launch.sizes[axis];
  return bytes;
}

/// Whether two accesses are at the same place in a cache line at every point.
bool in_step(const Kernel& kernel, const KernelLaunch& launch, std::uint16_t a, std::uint16_t b) {
  constexpr std::int64_t kLine = 64;
  if (byte_size(kernel.accesses[a].dtype) != byte_size(kernel.accesses[b].dtype)) return false;
  const auto address = [&](std::uint16_t access) { return reinterpret_cast<std::intptr_t>(launch.pointers[access]); };
  if ((address(a) - address(b)) % kLine != 0) return false;
  for (unsigned axis = 0; axis < kernel.rank; ++axis)
    if ((byte_stride(kernel, launch, a, axis) - byte_stride(kernel, launch, b, axis)) % kLine != 0) return false;
  return true;
}

/// Of a transposed operand tiles are turned (codegen_cpu/jit/map_kernel.cpp), whose rows are whole cache lines.
bool is_turned(const Kernel& kernel, const KernelLaunch& launch, std::uint16_t access) {
  constexpr std::int64_t kBytes = 4, kFewestRows = 64;
  if (kernel.rank < 2 || kernel.reduced != 0 || byte_size(kernel.accesses[access].dtype) != kBytes) return false;
  const unsigned axis = kernel.rank - 2u;
  return byte_stride(kernel, launch, access, axis) == kBytes && launch.sizes[axis] >= kFewestRows;
}

/// Whether each row begins with a cache line: where tiles divide lines, parts of them go past the caches.
bool begins_rows_with_lines(const Kernel& kernel, const KernelLaunch& launch, std::uint16_t access) {
  constexpr std::int64_t kLine = 64;
  for (unsigned axis = 0; axis + 1u < kernel.rank; ++axis)
    if (byte_stride(kernel, launch, access, axis) % kLine != 0) return false;
  return true;
}

/// Whether something of size is read, and all that is read along the vector axis is read in order or turned: other
/// tiles have short rows, which are no streams.
bool reads_in_order(const Kernel& kernel, const KernelLaunch& launch, std::uint16_t leader) {
  bool reads = false;
  for (std::size_t a = 0; a < kernel.accesses.size(); ++a) {
    const Access& access = kernel.accesses[a];
    const bool along = (access.axes >> (kernel.rank - 1u) & 1u) != 0;
    const bool stored = std::ranges::any_of(kernel.stores, [&](const Store& s) { return s.access == a; });
    if (access.address_only || stored) continue;
    if (along && !access.unit_stride &&
        !(is_turned(kernel, launch, static_cast<std::uint16_t>(a)) && begins_rows_with_lines(kernel, launch, leader)))
      return false;
    reads = reads || along;
  }
  return reads;
}

bool is_read(const Kernel& kernel, const KernelLaunch& launch, const void* pointer) {
  for (const Instr& instr : kernel.program.instrs())
    if (instr.prim == Prim::input && launch.pointers[instr.index] == pointer) return true;
  return false;
}

}  // namespace

LoadedExecutable::LoadedExecutable(std::string_view bytes, std::string_view name)
    : object_(LoadedObject::load(bytes)),
      symbol_("fermata_" + std::string(name.empty() ? "kernel" : name), object_->code_from(jit::kEntrySymbol)) {
  std::memcpy(&info_, object_->data(jit::kInfoSymbol, sizeof(info_)), sizeof(info_));
  if (info_.version != jit::kObjectVersion)
    throw ObjectError("object: made by another version (" + std::to_string(info_.version) + ")");
  if (info_.checked_kernel_bytes != 0) {
    const void* const kernel = object_->data(jit::kCheckedKernelSymbol, info_.checked_kernel_bytes);
    try {
      checked_ = deserialize_kernel({static_cast<const char*>(kernel), info_.checked_kernel_bytes});
    } catch (const InternalError&) { throw ObjectError("object: the kernel description to check against is damaged"); }
  }
  entry_ = reinterpret_cast<jit::EntryPoint>(reinterpret_cast<std::uintptr_t>(object_->code(jit::kEntrySymbol)));
}

void LoadedExecutable::launch(const KernelLaunch& launch) const {
  if (info_.scratch_slots == 0 && !checked_) [[likely]]
    return entry_(&launch, jit::Part::whole, nullptr, nullptr);
  if (info_.scratch_slots == 0) return enter(launch, jit::Part::whole, nullptr);
  const ScratchMemory scratch(jit::scratch_bytes(info_, launch));
  enter(launch, jit::Part::whole, scratch.data());
}

void LoadedExecutable::enter(const KernelLaunch& launch, jit::Part part, void* scratch) const {
  if (!checked_) return entry_(&launch, part, scratch, nullptr);
  KernelLaunch reached = launch;
  if (part == jit::Part::partial && !checked_->is_row_kernel())  // its blocks are those of all columns
    reached.column_begin = 0, reached.column_end = launch.sizes[checked_->rank - 1u];
  const LaunchChecker checker(*checked_, info_, reached, scratch);
  entry_(&launch, part, scratch, &checker);
}

StreamedStores stores_to_stream(const Kernel& kernel, const KernelLaunch& launch) {
  const bool has_column_rows = kernel.reduced != 0 && !kernel.is_row_kernel();  // written once per row, not in order
  if (has_column_rows || kernel.stores.size() > 64) return 0;
  StreamedStores streamed = 0;
  const Store* leader = nullptr;
  for (std::size_t s = 0; s < kernel.stores.size(); ++s) {
    const Store& store = kernel.stores[s];
    const Access& access = kernel.accesses[store.access];
    if (!access.unit_stride || bytes_of(kernel, launch, store.access) < stream_threshold()) continue;
    if (is_read(kernel, launch, launch.pointers[store.access])) continue;
    if (leader == nullptr && !reads_in_order(kernel, launch, store.access)) return 0;
    if (leader == nullptr) leader = &store;
    if (in_step(kernel, launch, leader->access, store.access)) streamed |= StreamedStores{1} << s;
  }
  return streamed;
}

}  // namespace fermata
