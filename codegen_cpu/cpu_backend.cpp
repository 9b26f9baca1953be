// See cpu_backend.h.
#include "codegen_cpu/cpu_backend.h"

#include <cstring>

#include "codegen_cpu/jit_compiler.h"
#include "codegen_cpu/library/matmul.h"

namespace fermata {

bool CpuBackend::can_compile(std::string* failure_reason) const {
  return JitCompiler::instance().available(failure_reason);
}
std::string_view CpuBackend::target() const { return JitCompiler::target(); }

std::shared_ptr<const Executable> CpuBackend::compile(const Kernel& kernel, KernelListing* listing) {
  if (listing == nullptr) return JitCompiler::instance().compile(kernel);
  JitDump dump;
  std::shared_ptr<const Executable> executable = JitCompiler::instance().compile(kernel, &dump);
  *listing = {to_string(kernel), std::move(dump.ir), std::move(dump.assembly)};
  return executable;
}

Storage* CpuBackend::allocate(std::size_t bytes) { return Storage::allocate(bytes); }

void CpuBackend::copy_to_host(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

void CpuBackend::copy_from_host(void* to, const void* from, std::size_t bytes) {
  if (bytes != 0) std::memcpy(to, from, bytes);
}

BackendCapabilities CpuBackend::capabilities() const {
  BackendCapabilities all = kCpuCapabilities;
  all.channels_last = has_onednn();  // our own convolutions bring images there and back
  return all;
}

}  // namespace fermata
