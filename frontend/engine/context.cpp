// The one place that names everything: fills the kernel table when the library is loaded.
#include "codegen_cpu/register.h"
#include "codegen_cuda/cuda_backend.h"
#include "codegen_cuda/register.h"
#include "dispatch/call.h"
#include "dispatch/call_context.h"
#include "dispatch/meta.h"
#include "dispatch/table.h"
#include "fermata/backend.h"
#include "frontend/distributed/mesh_state.h"
#include "frontend/engine/alias.h"
#include "frontend/engine/capture.h"
#include "frontend/engine/control_step.h"
#include "frontend/engine/generator_scope.h"
#include "frontend/engine/startup.h"
#include "frontend/engine/sync.h"
#include "frontend/layouts/quantized_tensor.h"
#include "frontend/layouts/sparse_tensor.h"
#include "frontend/transforms/autocast/autocast.h"
#include "frontend/transforms/autograd/autograd.h"
#include "frontend/transforms/trace/tracer.h"
#include "frontend/transforms/vmap/batched.h"
#include "runtime/bound_plan.h"
#include "runtime/nvtx.h"

namespace fermata {
namespace {

struct Startup {
  Startup() {
    const RegistrationBatch batch;
    register_cpu_backend();
    register_call_kernels(BackendKey::cpu);
    register_meta_kernels();
    register_capture_kernels();
    register_control_kernels();
    register_composites();
    register_device_operators();
    register_next_after();
    register_special_functions();
    register_suppression();
    register_recurrences();
    register_general_factors();
    register_banded();
    register_ldl();
    register_quantized_kernels();
    register_sparse_kernels();
    register_autograd_kernels();
    register_inplace_kernels();
    register_autocast_kernels();
    register_batched_kernels();
    register_tracer_kernels();
#if FERMATA_WITH_CUDA
    register_cuda_kernels();
    register_device(BackendKey::cuda, make_cuda_backend(), {.missing_on_cpu = true});
#endif
    register_mesh_operators();
    install_distributed_calls();
    install_sync();
    install_draws();
    context_hooks.region = &autocast_region;
    context_hooks.enter_region = &enter_autocast_region;
    context_hooks.leave_region = &leave_autocast_region;
    tensor_hooks.view_value = &derive_view;
    select_call_step = &select_step;
    check_values_from_environment();
    warn_from_environment();
    show_callers_from_environment();
    show_ranges_to_tools();
    profile_process();
  }
} startup;

}  // namespace
}  // namespace fermata
