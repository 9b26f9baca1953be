// See jit_compiler.h.
#include "codegen_cpu/jit_compiler.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <mutex>
#include <optional>
#include <system_error>
#include <utility>
#include <vector>

#include "codegen_cpu/code_target.h"
#include "codegen_cpu/gather_speed.h"
#include "codegen_cpu/jit/plugin.h"
#include "codegen_cpu/loader.h"
#include "ir/error.h"
#include "ir/fault_points.h"
#include "runtime/background.h"
#include "runtime/bounds_check.h"
#include "runtime/disk_cache.h"
#include "runtime/environment.h"
#include "runtime/events.h"

namespace fermata {
namespace {

constexpr const char* kPluginFile = "libfermata_llvm.so";
constexpr const char* kPluginVariable = "FERMATA_LLVM_PLUGIN";

/// LLVM ends the process where it gets no memory, so there must be some before it starts.
constexpr std::size_t kRoomToLoad = std::size_t{256} << 20, kRoomToCompile = std::size_t{64} << 20;

bool has_room(std::size_t bytes) {
  void* const room = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return false;
  munmap(room, bytes);
  return true;
}

/// Where the plugin may be, best first.
std::vector<std::filesystem::path> plugin_candidates() {
  if (const char* const given = environment_variable(kPluginVariable); given != nullptr && *given != '\0')
    return {given};
  std::vector<std::filesystem::path> candidates;
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&plugin_candidates), &here) != 0 && here.dli_fname != nullptr) {
    const auto folder = std::filesystem::path(here.dli_fname).parent_path();
    candidates.push_back(folder / kPluginFile);
    candidates.push_back(folder / ".." / "lib" / kPluginFile);
  }
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (!ignored) candidates.push_back(program.parent_path() / ".." / "lib" / kPluginFile);
  candidates.emplace_back(kPluginFile);  // where the system looks
  return candidates;
}

/// Changes whenever the plugin does; empty where no file of it was found.
const std::string& plugin_identity() {
  static const auto& identity = *new std::string([] {
    struct stat status;
    for (const auto& path : plugin_candidates())
      if (path.has_parent_path() && stat(path.c_str(), &status) == 0)
        return std::to_string(status.st_size) + " " + std::to_string(status.st_mtim.tv_sec) + " " +
               std::to_string(status.st_mtim.tv_nsec);
    return std::string();
  }());
  return identity;
}

/// Whether this processor has instructions that round to bf16, beside those of its target.
bool rounds_to_bf16() {
#if defined(__x86_64__)
  static const bool has_them = __builtin_cpu_supports("avx512bf16") != 0;
  return has_them && JitCompiler::target() == "avx512";
#else
  return false;
#endif
}

/// All that machine code depends on.
std::string key_of(const Kernel& kernel, const JitVariant& variant) {
  std::string key = "fermata " FERMATA_VERSION " object " + std::to_string(jit::kObjectVersion) + " plugin " +
                    plugin_identity() + " target " + std::string(JitCompiler::target()) + " streamed " +
                    std::to_string(variant.streamed) + (variant.wide ? " wide" : "") +
                    (variant.turned ? " turned" : "") + (gathers_are_fast() ? " gathers" : "") +
                    (rounds_to_bf16() ? " bf16" : "") + (checks_bounds() ? " checked\n" : "\n");
  return key + serialize(kernel);
}

std::string label_of(const Kernel& kernel, const JitVariant& variant) {
  const char* const shape = kernel.reduced == 0 ? "map" : kernel.is_row_kernel() ? "row" : "column";
  return std::string(JitCompiler::target()) + " " + shape + " kernel, " + std::to_string(kernel.accesses.size()) +
         " loads and stores, " + std::to_string(kernel.program.size()) + " primitives" +
         (variant.wide ? ", wide" : "") + (variant.turned ? ", of turned rows" : "") +
         (variant.streamed != 0 ? ", past the caches" : "");
}

[[noreturn]] void throw_unsupported(const std::string& why) {
  throw UnsupportedError(2101, format_error(2101, "UnsupportedError", "cannot compile a kernel: " + why, {}, {}));
}

}  // namespace

struct JitCompiler::Plugin {
  FermataLlvmCompile compile = nullptr;
  FermataLlvmFree free = nullptr;
  std::string failure_reason;

  explicit Plugin(std::string reason) : failure_reason(std::move(reason)) {}
  Plugin() {
    for (const auto& path : plugin_candidates()) {
      const WithoutFaults has_its_memory;
      void* const library = dlopen(path.c_str(), RTLD_LAZY | RTLD_LOCAL);
      if (library == nullptr) {
        const char* const reason = dlerror();
        // The last candidate's reason says least; one that exists but cannot be loaded says most.
        std::error_code ignored;
        if (failure_reason.empty() || std::filesystem::exists(path, ignored)) failure_reason = reason;
        continue;
      }
      compile = reinterpret_cast<FermataLlvmCompile>(dlsym(library, jit::kCompileSymbol));
      free = reinterpret_cast<FermataLlvmFree>(dlsym(library, jit::kFreeSymbol));
      if (compile != nullptr && free != nullptr) {
        failure_reason.clear();
        join_background_at_exit();
        return;
      }
      failure_reason = path.string() + " is not a plugin for this version of the library";
    }
    failure_reason = "the LLVM plugin cannot be loaded: " + failure_reason;
  }
};

JitCompiler& JitCompiler::instance() {
  static JitCompiler compiler;
  return compiler;
}

const JitCompiler::Plugin& JitCompiler::plugin() {
  static const auto& without_memory = *new Plugin("the LLVM plugin cannot be loaded: out of memory");
  static std::atomic<const Plugin*> loaded{nullptr};
  if (const Plugin* const known = loaded.load(std::memory_order_acquire)) return *known;
  if (!has_room(kRoomToLoad)) return without_memory;  // there may be some later
  static const auto& plugin = *new Plugin;
  loaded.store(&plugin, std::memory_order_release);
  return plugin;
}

std::string_view JitCompiler::target(std::string* failure_reason) { return code_target(failure_reason); }

bool JitCompiler::available(std::string* failure_reason) {
  if (target(failure_reason).empty()) return false;
  if (!plugin_identity().empty() && !DiskCache::instance().directory().empty()) return true;
  if (failure_reason != nullptr) *failure_reason = plugin().failure_reason;
  return plugin().failure_reason.empty();
}

std::string JitCompiler::object_for(const Kernel& kernel, JitDump* dump, std::string_view wanted,
                                    const JitVariant& variant) {
  std::string failure_reason;
  if (wanted.empty() && !available(&failure_reason)) throw_unsupported(failure_reason);
  if (!plugin().failure_reason.empty()) throw_unsupported(plugin().failure_reason);
  const std::string bytes = serialize(kernel), chosen(wanted.empty() ? target() : wanted);
  FermataLlvmRequest request{bytes.data(), bytes.size(), chosen.c_str(),
                             variant.wide ? std::uint32_t{kFermataLlvmWide} : 0u, variant.streamed};
  if (checks_bounds()) request.flags |= kFermataLlvmCheck;
  if (variant.turned) request.flags |= kFermataLlvmTurned;
  if (wanted.empty() && gathers_are_fast()) request.flags |= kFermataLlvmGathers;
  if (wanted.empty() && rounds_to_bf16()) request.flags |= kFermataLlvmBf16;
  if (dump != nullptr) request.flags |= kFermataLlvmWantIr | kFermataLlvmWantAssembly | kFermataLlvmVerify;
  FermataLlvmResult result;
  const EventScope event(
      [&] { return keep_event_info({.kind = EventKind::code, .name = "LLVM", .detail = label_of(kernel, variant)}); });
  if (!has_room(kRoomToCompile)) throw_unsupported("cannot allocate memory for compiled code");
  {
    const WithoutFaults has_its_memory;
    plugin().compile(&request, &result);
  }
  const std::unique_ptr<FermataLlvmResult, FermataLlvmFree> owner(&result, plugin().free);
  if (result.error != nullptr) throw_unsupported(result.error);
  if (dump != nullptr) *dump = {result.ir, result.assembly};
  return std::string(result.object, result.object_size);
}

StreamedStores JitCompiler::streamable(std::string_view object) {
  try {
    return LoadedExecutable(object).streamable();
  } catch (const ObjectError& error) { throw_unsupported(error.what()); }
}

std::string JitCompiler::kept_object(const Kernel& kernel, const JitVariant& variant) {
  DiskCache& disk = DiskCache::instance();
  if (disk.directory().empty()) return object_for(kernel, nullptr, {}, variant);
  const std::string key = key_of(kernel, variant);
  if (std::optional<std::string> object = disk.find(key)) return *std::move(object);
  std::string object = object_for(kernel, nullptr, {}, variant);
  disk.store(key, label_of(kernel, variant), object);
  return object;
}

std::optional<std::string> JitCompiler::found_object(const Kernel& kernel, const JitVariant& variant) {
  DiskCache& disk = DiskCache::instance();
  return disk.directory().empty() ? std::nullopt : disk.find(key_of(kernel, variant));
}

bool JitCompiler::load() { return plugin().failure_reason.empty(); }

std::shared_ptr<const Executable> JitCompiler::compile(const Kernel& kernel, JitDump* dump, std::string_view wanted) {
  const bool may_be_kept = dump == nullptr && wanted.empty();
  if (may_be_kept) {
    try {
      return variable_executable(kept_object(kernel, {}), kernel, wanted);
    } catch (const NoMemoryForObject& error) { throw_unsupported(error.what()); } catch (const ObjectError& error) {
      DiskCache::instance().discard(key_of(kernel, {}), error.what());
    }
  }
  try {
    return variable_executable(object_for(kernel, dump, wanted), kernel, wanted);
  } catch (const NoMemoryForObject& error) { throw_unsupported(error.what()); } catch (const ObjectError& error) {
    throw_unsupported(error.what());
  }
}

}  // namespace fermata
