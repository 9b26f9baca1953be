// See cpu_program.h. The CUDA part is a separate library, next to this one, which is loaded when a program
// is first to run there.
#include <dlfcn.h>
#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <utility>

#include "frontend/run/cpu_program.h"
#include "ir/error.h"

namespace fermata {
namespace {

/// fermata_run_cuda_load() (cuda/entry.cpp).
using LoadOnCuda = LoadedProgram* (*)(const char* path, int device);

[[noreturn]] void throw_no_part(const std::string& why) {
  throw UnsupportedError(2206, format_error(2206, "UnsupportedError", "libfermata_run_cuda cannot be loaded: " + why,
                                            {}, {}, "install libfermata_run_cuda.so next to libfermata_run.so"));
}

LoadOnCuda find_part() {
#ifdef FERMATA_RUN_CUDA_FILE
  Dl_info here;
  if (dladdr(reinterpret_cast<const void*>(&find_part), &here) == 0 || here.dli_fname == nullptr)
    throw_no_part("the folder of libfermata_run is unknown");
  std::string path = here.dli_fname;
  path.resize(path.rfind('/') + 1);
  void* const library = dlopen((path + FERMATA_RUN_CUDA_FILE).c_str(), RTLD_NOW | RTLD_LOCAL);
  void* const function = library == nullptr ? nullptr : dlsym(library, "fermata_run_cuda_load");
  if (function == nullptr) throw_no_part(dlerror());
  return reinterpret_cast<LoadOnCuda>(function);
#else
  throw_no_part("this build does not contain it");
#endif
}

std::unique_ptr<LoadedProgram> load_on_cuda(const std::string& path, int device) {
  static const LoadOnCuda load = find_part();
  return std::unique_ptr<LoadedProgram>(load(path.c_str(), device));
}

struct WantedDevice {
  std::optional<bool> is_cuda;
  int number = 0;
};
WantedDevice read_device(std::string_view text) {
  if (text.empty()) return {};
  if (text == "cpu") return {false};
  constexpr std::string_view kCuda = "cuda", kNumbered = "cuda:";
  if (text == kCuda) return {true};
  WantedDevice wanted{true};
  const char* const end = text.data() + text.size();
  if (text.starts_with(kNumbered)) {
    const auto [rest, error] = std::from_chars(text.data() + kNumbered.size(), end, wanted.number);
    if (error == std::errc() && rest == end && wanted.number >= 0) return wanted;
  }
  throw ValueError(2211, format_error(2211, "ValueError",
                                      fmt::format("unknown device '{}': expected cpu, cuda or cuda:N", text), {}, {}));
}

}  // namespace

std::unique_ptr<LoadedProgram> load_program(const std::string& path, std::string_view device) {
  const WantedDevice wanted = read_device(device);
  auto mapping = std::make_unique<MappedFile>(path);
  const std::string_view bytes = mapping->bytes();
  const ProgramHead head = decode_head(bytes, path);
  if (wanted.is_cuda.value_or(head.cpu.bytes == 0)) return load_on_cuda(path, wanted.number);
  if (head.cpu.bytes == 0)
    throw UnsupportedError(2203, format_error(2203, "UnsupportedError", path + " has code only for CUDA", {}, {},
                                              "export it with ExportOptions::targets, or load it for cuda"));
  return std::make_unique<CpuProgram>(ProgramBytes{bytes, path, std::move(mapping)}, head);
}

}  // namespace fermata
