// See host_compiler.h.
//
// One run of the compiler costs as much as dozens of kernels, so sources are gathered, and compiled in as many files as
// there are processors. Libraries are stored next to the kernel cache on disk under the hash of each source.
#include "codegen_cuda/host/host_compiler.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <system_error>
#include <thread>
#include <utility>

#include "codegen_cuda/emit/prelude.h"
#include "codegen_cuda/host/prelude.h"
#include "runtime/disk_cache.h"
#include "runtime/environment.h"
#include "runtime/private_folder.h"

extern char** environ;

namespace fermata::gpu {
namespace {

namespace fs = std::filesystem;
using Modules = std::vector<std::shared_ptr<HostModule>>;

Modules& waiting() {
  static auto* const modules = new Modules;
  return *modules;
}
CompileCounts counts;

std::string hash_of(std::string_view text) {
  static const std::uint64_t preludes = XXH3_64bits(host_prelude().data(), host_prelude().size()) ^
                                        XXH3_64bits(shared_prelude().data(), shared_prelude().size());
  return fmt::format("{:016x}", XXH3_64bits_withSeed(text.data(), text.size(), preludes));
}

fs::path new_folder() {
  std::string pattern = fs::temp_directory_path() / "fermata_host_kernels.XXXXXX";
  return mkdtemp(pattern.data()) == nullptr ? fs::path() : fs::path(pattern);
}

/// A folder for libraries: next to the kernel cache, if only this user may write to it, or one that goes with the
/// process.
const fs::path& folder() {
  static const auto& path = *new fs::path([] {
    const std::string cache = DiskCache::instance().directory();
    fs::path kept = cache.empty() ? fs::path() : fs::path(cache) / "host_kernels";
    std::string refused;
    if (!kept.empty() && PrivateFolder::open(kept, true, refused) == nullptr) kept.clear();
    const fs::path p = kept.empty() ? new_folder() : kept;
    if (kept.empty())
      std::atexit([] {
        std::error_code unimportant;
        fs::remove_all(folder(), unimportant);
      });
    return p;
  }());
  return path;
}

fs::path library_of(const HostModule& module) { return folder() / (hash_of(module.source) + ".so"); }

bool load(HostModule& module, const fs::path& file) {
  module.library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (module.library == nullptr) module.failure_reason = dlerror();
  return module.library != nullptr;
}

std::string compiler() {
  const char* const given = environment_variable("CXX");
  return given != nullptr && *given != '\0' ? given : "g++";
}

/// The compiler's process, or -1.
pid_t start(const fs::path& source, const fs::path& library, const fs::path& messages) {
  const std::string program = compiler(), in = source, out = library;
  const char* const arguments[] = {program.c_str(),
                                   "-x",
                                   "c++",
                                   "-std=c++17",
                                   "-O1",
                                   "-w",
                                   "-fPIC",
                                   "-shared",
                                   "-nostdlib",
                                   "-ffp-contract=off",
                                   "-fwrapv",
                                   "-fno-strict-aliasing",
                                   "-fno-exceptions",
                                   "-fno-rtti",
                                   "-fno-threadsafe-statics",
                                   "-fno-asynchronous-unwind-tables",
                                   "-pipe",
                                   "-o",
                                   out.c_str(),
                                   in.c_str(),
                                   nullptr};
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDERR_FILENO, messages.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t process = -1;
  if (posix_spawnp(&process, program.c_str(), &actions, nullptr, const_cast<char* const*>(arguments), environ) != 0)
    process = -1;
  posix_spawn_file_actions_destroy(&actions);
  return process;
}

struct Batch {
  Modules modules;
  fs::path base;
  pid_t process = -1;
};

void begin(Batch& batch) {
  std::string text = fmt::format("{}{}", host_prelude(), shared_prelude());
  for (const auto& module : batch.modules) {
    const std::string& source = module->source;
    text += source.substr(source.find('\n') + 1);  // without the include of the preludes
  }
  batch.base = folder() / fmt::format("{}.{}", hash_of(text), getpid());
  std::ofstream(batch.base.string() + ".cpp") << text;
  batch.process = start(batch.base.string() + ".cpp", batch.base.string() + ".new", batch.base.string() + ".txt");
  ++counts.runs;
}

bool finish(Batch& batch) {
  int status = 1;
  if (batch.process > 0)
    while (waitpid(batch.process, &status, 0) < 0 && errno == EINTR) {}
  std::error_code ignored;
  const std::string base = batch.base.string();
  bool good = batch.process > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
  const fs::path library = base + ".so";
  if (good) fs::rename(base + ".new", library, ignored);
  std::string why = fmt::format("the C++ compiler ({}) could not be started", compiler());
  if (batch.process > 0) {
    std::ifstream messages(base + ".txt");
    std::stringstream all;
    all << messages.rdbuf();
    why = all.str();
  }
  for (const auto& module : batch.modules) {
    if (!good) {
      module->failure_reason = why;
      continue;
    }
    if (!load(*module, library)) good = false;
    const fs::path link = library_of(*module);
    fs::create_symlink(library.filename(), link.string() + ".new", ignored);
    fs::rename(link.string() + ".new", link, ignored);
  }
  fs::remove(base + ".txt", ignored);
  if (good) fs::remove(base + ".cpp", ignored);
  counts.kernels += batch.modules.size();
  return good;
}

}  // namespace

std::shared_ptr<HostModule> add_host_module(std::string source) {
  auto module = std::make_shared<HostModule>();
  for (const char* const word : {"fm_barrier", "fm_shuffle", "fm_warp_barrier", "FM_SHARED"})
    module->has_turns = module->has_turns || source.find(word) != std::string::npos;
  module->source = std::move(source);
  waiting().push_back(module);
  return module;
}

bool compile_host_modules() {
  Modules fresh;
  for (const auto& module : std::exchange(waiting(), {})) {
    std::error_code ignored;
    const fs::path known = library_of(*module);
    if (fs::exists(known, ignored) && load(*module, known)) continue;
    const auto same = [&](const std::shared_ptr<HostModule>& other) { return other->source == module->source; };
    if (const auto twin = std::ranges::find_if(fresh, same); twin == fresh.end())
      fresh.push_back(module);
    else
      waiting().push_back(module);  // its twin's library is there next time
  }
  constexpr std::size_t kMost = 64;  // kernels in a file: longer ones take the compiler more memory than they save time
  constexpr std::size_t kFew = 4;
  const std::size_t processors = std::max(1u, std::thread::hardware_concurrency());
  const std::size_t size = std::clamp((fresh.size() + processors - 1) / processors, kFew, kMost);
  bool good = true;
  std::vector<Batch> batches;
  for (std::size_t at = 0; at < fresh.size(); at += size) {
    if (batches.size() >= processors) good = finish(batches.front()) && good, batches.erase(batches.begin());
    batches.push_back({{fresh.begin() + static_cast<std::ptrdiff_t>(at),
                        fresh.begin() + static_cast<std::ptrdiff_t>(std::min(at + size, fresh.size()))},
                       {},
                       -1});
    begin(batches.back());
  }
  for (Batch& batch : batches) good = finish(batch) && good;
  // One wrong kernel takes no other with it.
  for (const auto& module : fresh)
    if (module->library == nullptr && fresh.size() > 1) {
      Batch alone{{module}, {}, -1};
      module->failure_reason.clear();
      begin(alone), finish(alone);
    }
  if (!waiting().empty() && good) return compile_host_modules();
  return good;
}

std::size_t parameter_bytes(const HostFunction& function) {
  const std::string &source = function.module->source, head = "FM_KERNEL(" + function.name + ", ";
  const std::size_t at = source.find(head);
  return at == std::string::npos ? 0 : 8 * std::strtoull(source.c_str() + at + head.size(), nullptr, 10);
}

bool look_up(HostFunction& function) {
  if (function.entry != nullptr) return true;
  HostModule& module = *function.module;
  if (module.library == nullptr && module.failure_reason.empty()) compile_host_modules();
  if (module.library == nullptr) return false;
  function.entry = reinterpret_cast<void (*)(void**)>(dlsym(module.library, ("fm_entry_" + function.name).c_str()));
  function.context = static_cast<void**>(dlsym(module.library, "fm_host_context"));
  if (function.entry == nullptr) module.failure_reason = "no kernel " + function.name;
  return function.entry != nullptr && function.context != nullptr;
}

CompileCounts host_compile_counts() { return counts; }

}  // namespace fermata::gpu
