// See kernels.h.
#include "codegen_cuda/runtime/kernels.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <unordered_map>

#include "codegen_cuda/api/libraries.h"
#include "codegen_cuda/emit/prelude.h"
#include "codegen_cuda/runtime/device.h"
#include "codegen_cuda/runtime/dry_run.h"
#include "ir/error.h"
#include "ir/keep_forever.h"
#include "runtime/device_run.h"
#include "runtime/disk_cache.h"

namespace fermata::gpu {
namespace {

constexpr std::size_t kMostKernels = 8192;
constexpr int kInvalidOption = 5;  // NVRTC_ERROR_INVALID_OPTION
constexpr const char* kHeader = "fermata_kernel.h";

struct Cache {
  std::mutex mutex;
  std::unordered_map<std::string, std::shared_ptr<const LoadedKernel>> kernels;  // by architecture and body
  bool keeps_sources = false;
  std::map<std::string, std::string> sources;  // by name
};
Cache& cache() {
  static auto* const c = new Cache;
  return *c;
}
constinit std::atomic<ImageSource> image_source{nullptr};

std::shared_ptr<const LoadedImage> image_of(ImageSource source, const std::string& function) {
  if (auto image = source(function)) return image;
  const std::string step(run_site != nullptr ? run_site->step : std::string_view("a kernel"));
  throw UnsupportedError(
      2205, format_error(2205, "UnsupportedError",
                         fmt::format("{}: the program has no CUDA kernel for these sizes ({})", step, function), {}, {},
                         "export it with an example of such sizes"));
}

std::string header() { return fmt::format("{}{}", device_prelude(), shared_prelude()); }
std::string source_of(const std::string& body) { return fmt::format("#include \"{}\"\n{}", kHeader, body); }

std::string compiler_version() {
  int major = 0, minor = 0;
  compiler_library()->version(&major, &minor);
  return fmt::format("{}.{}", major, minor);
}

constexpr const char* kSourceName = "fermata_kernel.cu";

/// The number of the file of the source among those that PTX names at its end; 0 if it is not there.
unsigned number_of_source(std::string_view ptx) {
  const std::size_t name = ptx.rfind(kSourceName), begin = ptx.rfind(".file", name);
  unsigned number = 0;
  if (name == ptx.npos || begin == ptx.npos) return 0;
  return std::sscanf(std::string(ptx.substr(begin, name - begin)).c_str(), ".file %u", &number) == 1 ? number : 0;
}

/// PTX with line information as text without it; instructions end in the line of the body, "// @7". What comes from a
/// function of the preludes has the line that calls it.
std::string marked_ptx(const std::string& ptx) {
  const unsigned source = number_of_source(ptx);
  std::string marked;
  unsigned now = 0;
  for (std::size_t at = 0; at < ptx.size();) {
    const std::size_t end = std::min(ptx.find('\n', at), ptx.size());
    const std::string line = ptx.substr(at, end - at);
    at = end + 1;
    const std::size_t begin = line.find_first_not_of(" \t");
    const std::string_view text = begin == line.npos ? std::string_view() : std::string_view(line).substr(begin);
    if (text.starts_with(".loc")) {
      unsigned file = 0, number = 0, outer_file = 0, outer = 0;
      std::sscanf(line.c_str() + begin, ".loc %u %u", &file, &number);
      if (const std::size_t call = line.find("inlined_at "); call != line.npos)
        std::sscanf(line.c_str() + call, "inlined_at %u %u", &outer_file, &outer);
      // The first line of the source includes the preludes.
      if (file == source)
        now = number - 1;
      else if (outer_file == source)
        now = outer - 1;
      continue;
    }
    if (text.starts_with(".file") || text.starts_with("$L__tmp") || text.starts_with("$L__func")) continue;
    if (text.starts_with(".section\t.debug_") || text.starts_with(".section .debug_")) break;
    marked += line;
    if (text.ends_with(';') && !text.starts_with('.') && now != 0) marked += fmt::format("  // @{}", now);
    marked += '\n';
  }
  return marked;
}

struct Program {
  const CompilerFunctions& compiler;
  Handle handle = nullptr;
  Program(const CompilerFunctions& c, const std::string& source, const std::string& included) : compiler(c) {
    const char *const text = included.c_str(), *const name = kHeader;
    if (compiler.create(&handle, source.c_str(), kSourceName, 1, &text, &name) != kSuccess) handle = nullptr;
  }
  ~Program() {
    if (handle != nullptr) compiler.destroy(&handle);
  }
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  Result compile(const std::string& architecture, std::initializer_list<const char*> more) const {
    const std::string target = "--gpu-architecture=" + architecture;
    // Rounding and contraction are those of the description, on every device.
    std::vector<const char*> options = {target.c_str(),
                                        "--std=c++17",
                                        "--fmad=false",
                                        "--prec-div=true",
                                        "--prec-sqrt=true",
                                        "--ftz=false",
                                        "--device-as-default-execution-space"};
    options.insert(options.end(), more);
    return compiler.compile(handle, static_cast<int>(options.size()), options.data());
  }
  /// --minimal leaves out what kernels do not use: 5 of 26 ms for a small one. Older compilers do not know such
  /// options.
  Result compile(const std::string& architecture, CompileEffort effort, bool with_lines) const {
    static constexpr const char* kFast[] = {"--Ofast-compile=0", "--Ofast-compile=min", "--Ofast-compile=max"};
    if (with_lines) return compile(architecture, {"--generate-line-info", kFast[static_cast<std::size_t>(effort)]});
    const Result r = compile(architecture, {"--minimal", kFast[static_cast<std::size_t>(effort)]});
    return r == kInvalidOption ? compile(architecture, {}) : r;
  }
  template <class Size, class Get> std::string text(Size size, Get get) const {
    std::size_t bytes = 0;
    if ((compiler.*size)(handle, &bytes) != kSuccess) return {};
    std::string result(bytes, '\0');
    (compiler.*get)(handle, result.data());
    return result;
  }
};

std::string disk_key(const std::string& architecture, const std::string& body) {
  static const auto& preludes = *new std::string(header());
  return fmt::format("fermata {} cuda {} nvrtc {} prelude {:016x}\n{}", FERMATA_VERSION, architecture,
                     compiler_version(), XXH3_64bits(preludes.data(), preludes.size()), body);
}

}  // namespace

Handle LoadedImage::function(const std::string& name) const {
  const auto at = static_cast<std::size_t>(current_device().number());
  const std::lock_guard lock(mutex_);
  Handle &module = modules_.at(at), function = nullptr;
  if (module == nullptr) {
    check(driver().module_load(&module, code_.c_str()), "cuModuleLoadData");
    keep_forever<Handle>(module);  // recordings may refer to it
  }
  check(driver().module_function(&function, module, name.c_str()), "cuModuleGetFunction");
  return function;
}

Handle LoadedKernel::function_on_current_device(unsigned shared_bytes) const {
  const Device& here = current_device();
  const auto at = static_cast<std::size_t>(here.number());
  const std::lock_guard lock(mutex_);
  Handle& function = functions_.at(at);
  if (function == nullptr) function = image_->function(name_);
  if (shared_bytes > static_cast<unsigned>(here.info().shared_bytes) && shared_bytes > shared_[at]) {
    check(driver().function_set_attribute(function, kFunctionMaxDynamicShared, static_cast<int>(shared_bytes)),
          "cuFuncSetAttribute");
    shared_[at] = shared_bytes;
  }
  return function;
}

void LoadedKernel::launch(const Grid& grid, const void* arguments) const {
  const Handle function = function_on_current_device(grid.shared_bytes);
  void* parameters[] = {const_cast<void*>(arguments)};
  const Result r = driver().launch(function, grid.blocks, 1, 1, grid.threads, 1, 1, grid.shared_bytes, launch_handle(),
                                   parameters, nullptr);
  if (r != kSuccess) check(r, "cuLaunchKernel");
  note_started(name_);
}

std::string code_of(const std::string& name, const std::string& body, const std::string& architecture,
                    CompileEffort effort) {
  DiskCache& disk = DiskCache::instance();
  // The host executor keeps compiled kernels itself.
  if (on_host_executor() || disk.directory().empty())
    return compile_source(*compiler_library(), body, architecture, nullptr, effort);
  const std::string key = disk_key(architecture, body);
  if (std::optional<std::string> known = disk.find(key)) return *std::move(known);
  std::string code = compile_source(*compiler_library(), body, architecture, nullptr, effort);
  disk.store(key, fmt::format("{} {}", architecture, name), code);
  return code;
}

std::shared_ptr<const LoadedKernel> kernel_of(const std::string& name, const std::string& body, CompileEffort effort) {
  if (DryRun* const dry = DryRun::current()) return dry->kernel(name, body, effort);
  const std::string architecture = current_architecture();
  std::string key = architecture + "\n" + body;
  Cache& c = cache();
  {
    const std::lock_guard lock(c.mutex);
    if (c.keeps_sources) c.sources.emplace(name, body);
    if (const auto known = c.kernels.find(key); known != c.kernels.end()) return known->second;
  }
  const ImageSource source = image_source.load(std::memory_order_relaxed);
  auto image = source != nullptr ? image_of(source, name)
                                 : std::make_shared<const LoadedImage>(code_of(name, body, architecture, effort));
  auto kernel = std::make_shared<const LoadedKernel>(name, std::move(image));
  const std::lock_guard lock(c.mutex);
  if (c.kernels.size() >= kMostKernels) c.kernels.clear();  // plans keep theirs
  return c.kernels.emplace(std::move(key), std::move(kernel)).first->second;
}

std::string compile_source(const CompilerFunctions& compiler, const std::string& body, const std::string& architecture,
                           std::string* ptx, CompileEffort effort) {
  static const auto& included = *new std::string(header());
  const Program program(compiler, source_of(body), included);
  if (program.handle == nullptr) throw_internal("nvrtcCreateProgram failed");
  const bool with_lines = ptx != nullptr;
  Result r = program.compile(architecture, effort, with_lines);
  bool is_ptx = false;
  // A device newer than the compiler: code for the newest that it knows, which the driver translates.
  if (r == kInvalidOption) r = program.compile("compute_90", effort, with_lines), is_ptx = true;
  if (r != kSuccess)
    throw UnsupportedError(
        2102, format_error(2102, "UnsupportedError",
                           fmt::format("NVRTC cannot compile a kernel for {}:\n{}", architecture,
                                       program.text(&CompilerFunctions::log_size, &CompilerFunctions::log)),
                           {}, {}));
  if (ptx != nullptr) *ptx = marked_ptx(program.text(&CompilerFunctions::ptx_size, &CompilerFunctions::ptx));
  return is_ptx ? program.text(&CompilerFunctions::ptx_size, &CompilerFunctions::ptx)
                : program.text(&CompilerFunctions::code_size, &CompilerFunctions::code);
}

std::string compile_together(const CompilerFunctions& compiler, const std::string& bodies,
                             const std::string& architecture, CompileEffort effort) {
  static const auto& included = *new std::string(header());
  const Program program(compiler, source_of(bodies), included);
  if (program.handle == nullptr) throw_internal("nvrtcCreateProgram failed");
  const Result r = program.compile(architecture, effort, false);
  if (r == kInvalidOption) return {};
  if (r != kSuccess)
    throw UnsupportedError(
        2102, format_error(2102, "UnsupportedError",
                           fmt::format("NVRTC cannot compile kernels for {}:\n{}", architecture,
                                       program.text(&CompilerFunctions::log_size, &CompilerFunctions::log)),
                           {}, {}));
  return architecture.starts_with("compute_") ? program.text(&CompilerFunctions::ptx_size, &CompilerFunctions::ptx)
                                              : program.text(&CompilerFunctions::code_size, &CompilerFunctions::code);
}

void set_image_source(ImageSource source) { image_source.store(source, std::memory_order_release); }
bool has_image_source() { return image_source.load(std::memory_order_acquire) != nullptr; }

std::string function_name(std::string_view prefix, std::string_view described) {
  const XXH128_hash_t hash = XXH3_128bits(described.data(), described.size());
  return fmt::format("fm_{}_{:016x}", prefix, hash.high64 ^ hash.low64);
}

std::string current_architecture() {
  const DeviceInfo& info = current_device().info();
  return fmt::format("sm_{}{}", info.major, info.minor);
}

void keep_sources(bool on) {
  const std::lock_guard lock(cache().mutex);
  cache().keeps_sources = on;
}

std::vector<KernelSource> kept_sources() {
  const std::lock_guard lock(cache().mutex);
  std::vector<KernelSource> sources;
  for (const auto& [name, body] : cache().sources) sources.push_back({name, body});
  return sources;
}

}  // namespace fermata::gpu
