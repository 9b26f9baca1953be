// What the engine has and a program that is compiled never asks for: the formulas of ops, from which kernels are made,
// and products and transposes on processors that have no code for kernels. They take most of a megabyte. And what is
// not shipped: oneDNN, the measuring of products, and checks of bounds, which print kernels: export_program() compiles
// without them.
#include "codegen_cpu/irregular/added_rows.h"
#include "codegen_cpu/irregular/near_rows.h"
#include "codegen_cpu/irregular/repeat.h"
#include "codegen_cpu/irregular/scan_loops.h"
#include "codegen_cpu/irregular/transpose.h"
#include "codegen_cpu/launch_checker.h"
#include "codegen_cpu/library/calibrate.h"
#include "codegen_cpu/library/convolution_winograd_kernels.h"
#include "codegen_cpu/library/matmul.h"
#include "codegen_cpu/library/matmul_portable_kernels.h"
#include "codegen_cpu/library/packed_weights_kernels.h"
#include "ir/error.h"
#include "ir/op.h"

namespace fermata {

const Formula& pointwise_formula(Op, DType) { throw_internal("a program requires a formula"); }
const Formula& random_formula(Op, DType) { throw_internal("a program requires a formula"); }
const ReduceFormula& reduce_formula(Op, DType) { throw_internal("a program requires a formula"); }

constinit const PortableKernels kPortableBaseline{};
constinit const WeightsKernel kWeightsBaseline = nullptr;
constinit const TransposeKernels kTransposeBaseline{};
constinit const RepeatKernels kRepeatBaseline{};
constinit const NearRowsKernels kNearRowsBaseline{};
constinit const AddRowsTable kAddRowsBaseline{};
constinit const ScanLoopTable kScanLoopsBaseline{};
constinit const WinogradKernels kWinogradBaseline{};

bool has_onednn() { return false; }
void matmul_onednn(const CallArgs&) { throw_internal("a program requires oneDNN"); }
bool matmul_onednn_fits(const CallArgs&) { return false; }
double matmul_onednn_cost(const CallArgs&) { return 0; }

std::optional<ProductRates> calibrated_product_rates() { return {}; }

LaunchChecker::LaunchChecker(const Kernel& kernel, const jit::ObjectInfo&, const KernelLaunch& launch, void* scratch)
    : jit::BoundsChecker{}, kernel_(kernel), launch_(launch), scratch_(scratch) {
  static_cast<void>(kernel_), static_cast<void>(launch_), static_cast<void>(scratch_);
  throw_internal("a program has code that checks bounds");
}

}  // namespace fermata
