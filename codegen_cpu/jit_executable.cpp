// See jit_executable.h.
#include "codegen_cpu/jit_executable.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "codegen_cpu/jit/plugin.h"
#include "codegen_cpu/jit_compiler.h"
#include "codegen_cpu/launch_checker.h"
#include "codegen_cpu/loader.h"
#include "runtime/allocator.h"
#include "runtime/background.h"
#include "runtime/streaming.h"
#include "runtime/thread_pool.h"

namespace fermata {
namespace {

/// Memory for the kept values of a launch. What a thread gave back last it gets again, still in its caches.
class Room {
 public:
  explicit Room(std::size_t bytes) : allocation_(allocate_bytes(bytes)) {}
  ~Room() { release_bytes(allocation_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  void* data() const { return allocation_.data; }

 private:
  const Allocation allocation_;
};

class JitExecutable : public Executable {
 public:
  explicit JitExecutable(std::string_view bytes) : object_(LoadedObject::load(bytes)) {
    std::memcpy(&info_, object_->data(jit::kInfoSymbol, sizeof(info_)), sizeof(info_));
    if (info_.version != jit::kObjectVersion)
      throw ObjectError("object: made by another version (" + std::to_string(info_.version) + ")");
    if (info_.checked_kernel_bytes != 0) {
      const void* const kernel = object_->data(jit::kCheckedKernelSymbol, info_.checked_kernel_bytes);
      checked_ = deserialize_kernel({static_cast<const char*>(kernel), info_.checked_kernel_bytes});
    }
    entry_ = reinterpret_cast<jit::EntryPoint>(reinterpret_cast<std::uintptr_t>(object_->code(jit::kEntrySymbol)));
  }
  void launch(const KernelLaunch& launch) const override {
    if (info_.room_slots == 0) return enter(launch, jit::Part::whole, nullptr);
    const Room room(jit::room_bytes(info_, launch));
    enter(launch, jit::Part::whole, room.data());
  }
  bool can_split() const override { return info_.state_bytes != 0; }
  std::size_t state_bytes() const override { return info_.state_bytes; }
  void partial(const KernelLaunch& launch) const override { enter(launch, jit::Part::partial, nullptr); }
  void finish(const KernelLaunch& launch) const override { enter(launch, jit::Part::finish, nullptr); }
  std::size_t code_bytes() const override { return object_->mapped_bytes(); }
  StreamedStores streamable() const { return info_.streamable; }

 private:
  void enter(const KernelLaunch& launch, jit::Part part, void* room) const {
    if (!checked_) return entry_(&launch, part, room, nullptr);
    const LaunchChecker checker(*checked_, info_, launch, room);
    entry_(&launch, part, room, &checker);
  }

  std::shared_ptr<const LoadedObject> object_;
  jit::ObjectInfo info_;
  std::optional<Kernel> checked_;  // the kernel of checked code
  jit::EntryPoint entry_;
};

class VariableExecutable final : public JitExecutable {
 public:
  VariableExecutable(std::string_view bytes, const Kernel& kernel, std::string_view target)
      : JitExecutable(bytes), kernel_(kernel), target_(target) {}

  const Executable& variant_for(const KernelLaunch& launch, bool may_stream) const override {
    std::int64_t points = 1;
    for (unsigned axis = 0; axis < kernel_.rank; ++axis) points *= launch.sizes[axis];
    constexpr std::int64_t kLargestElement = 8;
    const bool is_large = may_stream && points * kLargestElement >= stream_threshold();
    const StreamedStores streamed = is_large ? stores_to_stream(kernel_, launch) & streamable() : 0;
    if (streamed == 0) {
      if (const Executable* const wide = variants_->wide.load(std::memory_order_acquire)) return *wide;
      if (!is_worth_widening(points)) return *this;
    }
    const JitVariant wanted{streamed, true};
    const std::lock_guard lock(variants_->mutex);
    const auto [at, is_new] = variants_->ready.try_emplace(wanted);
    if (is_new) variants_->keep(wanted, found_or_started(wanted));
    return at->second != nullptr ? *at->second : *this;
  }

 private:
  /// Counts the work of a launch: wide code takes some milliseconds to compile and saves a fifth. Launches on several
  /// threads at once may be counted as one.
  bool is_worth_widening(std::int64_t points) const {
    const auto size = static_cast<std::int64_t>(kernel_.program.size());
    const std::int64_t work = work_.load(std::memory_order_relaxed) + points * size;
    work_.store(work, std::memory_order_relaxed);
    // About 25 ms in the background. One thread waits for the compiler, 0.2 ms for each primitive of a kernel with
    // several stages (AVX2), and has to save that; long programs without stages save more of it.
    constexpr std::int64_t kEnough = std::int64_t{1} << 31, kEnoughPoints = std::int64_t{1} << 26;
    const bool waits = thread_count() == 1 && kernel_.reduced != 0;
    return work >= (waits ? std::max(kEnough, kEnoughPoints * size) : kEnough);
  }

  /// Code that is on the disk; else null, and compiling begins in the background: the bits are the same meanwhile.
  std::shared_ptr<const Executable> found_or_started(const JitVariant& wanted) const {
    JitCompiler& compiler = JitCompiler::instance();
    if (!target_.empty() || thread_count() == 1) return compiled(kernel_, target_, wanted);
    try {
      if (const auto object = compiler.found_object(kernel_, wanted)) return executable_from_object(*object);
    } catch (const ObjectError&) {}  // damaged: compiling finds that out again, and reports it
    if (!compiler.load()) return nullptr;
    run_in_background([variants = variants_, kernel = kernel_, wanted] {
      auto made = compiled(kernel, {}, wanted);
      const std::lock_guard lock(variants->mutex);
      variants->keep(wanted, std::move(made));
    });
    return nullptr;
  }

  /// Null where there is none: it would only have been faster.
  static std::shared_ptr<const Executable> compiled(const Kernel& kernel, const std::string& target,
                                                    const JitVariant& wanted) {
    try {
      JitCompiler& compiler = JitCompiler::instance();
      return executable_from_object(target.empty() ? compiler.kept_object(kernel, wanted)
                                                   : compiler.object_for(kernel, nullptr, target, wanted));
    } catch (const std::exception&) { return nullptr; }
  }

  struct Variants {
    std::mutex mutex;
    std::map<JitVariant, std::shared_ptr<const Executable>> ready;  // null: being compiled, or not to be had
    std::atomic<const Executable*> wide{nullptr};                   // the one that does not stream, once it is there
    void keep(const JitVariant& variant, std::shared_ptr<const Executable> made) {
      if (variant.streamed == 0) wide.store(made.get(), std::memory_order_release);
      ready[variant] = std::move(made);
    }
  };
  const Kernel kernel_;
  const std::string target_;
  const std::shared_ptr<Variants> variants_ = std::make_shared<Variants>();
  mutable std::atomic<std::int64_t> work_{0};  // operations so far
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

/// Whether something of size is read, and all that is read along the vector axis is read in order: transposed reads go
/// by tiles, whose short rows are no streams.
bool reads_in_order(const Kernel& kernel) {
  bool reads = false;
  for (std::size_t a = 0; a < kernel.accesses.size(); ++a) {
    const Access& access = kernel.accesses[a];
    const bool along = (access.axes >> (kernel.rank - 1u) & 1u) != 0;
    const bool stored = std::ranges::any_of(kernel.stores, [&](const Store& s) { return s.access == a; });
    if (access.address_only || stored) continue;
    if (along && !access.unit_stride) return false;
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
    if (leader == nullptr && !reads_in_order(kernel)) return 0;
    if (leader == nullptr) leader = &store;
    if (in_step(kernel, launch, leader->access, store.access)) streamed |= StreamedStores{1} << s;
  }
  return streamed;
}

std::shared_ptr<const Executable> executable_from_object(std::string_view object) {
  return std::make_shared<JitExecutable>(object);
}

std::shared_ptr<const Executable> variable_executable(std::string_view object, const Kernel& kernel,
                                                      std::string_view target) {
  return std::make_shared<VariableExecutable>(object, kernel, target);
}

}  // namespace fermata
