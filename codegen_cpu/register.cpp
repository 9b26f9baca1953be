// See register.h. Kernels register themselves beside their code (dispatch/kernel_files.h); what is left are the forms
// that all ops of the language of kernel descriptions share.
#include "codegen_cpu/register.h"

#include "codegen_cpu/cpu_backend.h"
#include "codegen_cpu/object_compiler.h"
#include "dispatch/emit.h"
#include "dispatch/kernel_files.h"
#include "runtime/backend_memory.h"

namespace fermata {

void register_cpu_backend() {
  register_backend(BackendKey::cpu, std::make_unique<CpuBackend>());
  // Straight to the caching allocator: every run asks for memory.
  set_allocator(BackendKey::cpu, [](BackendKey, std::size_t bytes) { return Storage::allocate(bytes); });
  set_object_compiler(BackendKey::cpu, &cpu_object_compiler());
  add_kernel_files(BackendKey::cpu);
  add_emit_variants(BackendKey::cpu, "jit", /*complex_parts=*/true, /*picks=*/true);
}

}  // namespace fermata
