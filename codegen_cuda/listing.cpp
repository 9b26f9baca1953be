// See listing.h. Machine code is made readable by nvdisasm or cuobjdump, where the toolkit that has them is on the
// PATH.
#include "codegen_cuda/listing.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <fstream>

#include "codegen_cuda/api/libraries.h"
#include "codegen_cuda/runtime/device.h"
#include "dispatch/dump.h"

namespace fermata::gpu {
namespace {

std::string disassembled(const std::string& code) {
  const std::filesystem::path file =
      std::filesystem::temp_directory_path() / ("fermata." + std::to_string(getpid()) + ".cubin");
  std::ofstream(file, std::ios::binary) << code;
  std::string text;
  for (const char* const tool : {"nvdisasm", "cuobjdump -sass"}) {
    const std::string command = std::string(tool) + " '" + file.string() + "' 2> /dev/null";
    FILE* const pipe = popen(command.c_str(), "r");
    if (pipe == nullptr) continue;
    text.clear();
    char buffer[4096];
    for (std::size_t n = 0; (n = std::fread(buffer, 1, sizeof buffer, pipe)) > 0;) text.append(buffer, n);
    if (pclose(pipe) == 0) break;
    text = "neither nvdisasm nor cuobjdump is on the PATH\n";
  }
  std::error_code ignored;
  std::filesystem::remove(file, ignored);
  return text;
}

}  // namespace

KernelListing list_kernel(const Kernel& kernel, const CudaExecutable& executable) {
  KernelListing listing;
  listing.kernel = to_string(kernel);
  listing.source = executable.source(executable.usual_schedule(), false);
  if (!is_dump_enabled("ptx") && !is_dump_enabled("sass")) return listing;
  std::string failure_reason;
  const CompilerFunctions* const nvrtc = nvrtc_library(&failure_reason);
  if (nvrtc == nullptr) {
    listing.ptx = listing.sass = "NVRTC was not found: " + failure_reason + "\n";
    return listing;
  }
  const std::string code = compile_source(*nvrtc, listing.source, current_architecture(), &listing.ptx);
  if (is_dump_enabled("sass")) listing.sass = disassembled(code);
  return listing;
}

}  // namespace fermata::gpu
