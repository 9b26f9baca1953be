// See matmul_epilogue.h.
#include "codegen_cuda/library/matmul_epilogue.h"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "codegen_cuda/emit/program_match.h"
#include "codegen_cuda/executable.h"
#include "codegen_cuda/library/matmul_problem.h"
#include "ir/op.h"

namespace fermata::gpu {
namespace {

/// Half floats compute in f32, and are rounded after each op, but once for a sum and its relu.
ValueId widened(ScalarProgram& p, ValueId x, DType dtype) {
  return dtype == DType::f32 ? x : p.add({.prim = Prim::convert, .type = DType::f32, .a = x});
}
ValueId rounded(ScalarProgram& p, ValueId x, DType dtype) {
  return dtype == DType::f32 ? x : p.add({.prim = Prim::convert, .type = dtype, .a = x});
}
ValueId applied(ScalarProgram& p, Op op, const std::vector<ValueId>& wide) {
  const Formula& f = pointwise_formula(op, DType::f32);
  return p.inline_program(f.program, wide, f.results)[0];
}

/// An epilogue of the library as a formula of the product and the bias. Sums are of either order, as the program
/// has them.
struct EpilogueProgram {
  MatmulEpilogue epilogue;
  Formula formula;
};

std::vector<EpilogueProgram> make_epilogues(DType dtype) {
  static constexpr std::array<std::pair<MatmulEpilogue, std::optional<Op>>, 3> kWithBias{
      {{MatmulEpilogue::bias, {}}, {MatmulEpilogue::bias_relu, Op::relu}, {MatmulEpilogue::bias_gelu, Op::gelu_tanh}}};
  static constexpr std::array<std::pair<MatmulEpilogue, Op>, 2> kWithout{
      {{MatmulEpilogue::relu, Op::relu}, {MatmulEpilogue::gelu, Op::gelu_tanh}}};
  std::vector<EpilogueProgram> all;
  const auto parameter = [&](ScalarProgram& p, std::uint16_t k) {
    return p.add({.prim = Prim::parameter, .type = dtype, .index = k});
  };
  const auto finish = [&](MatmulEpilogue epilogue, ScalarProgram p, ValueId wide, std::size_t parameters) {
    const ValueId result = rounded(p, wide, dtype);
    all.push_back({epilogue, {std::move(p), std::vector<DType>(parameters, dtype), {result}}});
  };
  for (const bool bias_first : {false, true})
    for (const auto& [epilogue, op] : kWithBias) {
      ScalarProgram p;
      const ValueId product = parameter(p, 0), bias = parameter(p, 1);
      const ValueId first = widened(p, bias_first ? bias : product, dtype);
      const ValueId second = widened(p, bias_first ? product : bias, dtype);
      ValueId result = applied(p, Op::add, {first, second});
      if (op && *op != Op::relu) result = widened(p, rounded(p, result, dtype), dtype);
      if (op) result = applied(p, *op, {result});
      finish(epilogue, std::move(p), result, 2);
    }
  for (const auto& [epilogue, op] : kWithout) {
    ScalarProgram p;
    const ValueId result = applied(p, op, {widened(p, parameter(p, 0), dtype)});
    finish(epilogue, std::move(p), result, 1);
  }
  return all;
}

const std::vector<EpilogueProgram>& epilogues(DType dtype) {
  using All = std::vector<EpilogueProgram>;
  static const All *const f32 = new All(make_epilogues(DType::f32)), *const f16 = new All(make_epilogues(DType::f16)),
                          *const bf16 = new All(make_epilogues(DType::bf16));
  return dtype == DType::f32 ? *f32 : dtype == DType::f16 ? *f16 : *bf16;
}

/// A vector of one element for each column of the result.
bool is_by_column(const KernelLaunch& launch, std::size_t access, unsigned rank, std::int64_t columns) {
  const std::int64_t* const strides = launch.strides + access * rank;
  for (unsigned axis = 0; axis + 1 < rank; ++axis)
    if (strides[axis] != 0 && launch.sizes[axis] != 1) return false;
  return launch.sizes[rank - 1] == columns && (columns == 1 || strides[rank - 1] == 1);
}

bool lies_densely(const KernelLaunch& launch, std::size_t access, unsigned rank) {
  std::int64_t dense = 1;
  for (unsigned axis = rank; axis-- > 0; dense *= launch.sizes[axis])
    if (launch.sizes[axis] != 1 && launch.strides[access * rank + axis] != dense) return false;
  return true;
}

}  // namespace

std::optional<KernelEpilogue> epilogue_of(const Kernel& kernel) {
  if (kernel.reduced != 0 || kernel.stores.size() != 1 || !kernel.scalars.empty()) return {};
  const Store& store = kernel.stores[0];
  const DType dtype = kernel.accesses[store.access].dtype;
  if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) return {};
  for (const EpilogueProgram& e : epilogues(dtype)) {
    const std::optional<std::vector<ValueId>> operands = match(kernel.program, store.value, e.formula);
    if (!operands) continue;
    const auto is_input = [&](ValueId v) { return kernel.program[v].prim == Prim::input; };
    if (!std::ranges::all_of(*operands, is_input)) continue;
    std::optional<std::uint16_t> bias;
    if (operands->size() == 2) bias = kernel.program[operands->at(1)].index;
    const std::uint16_t product = kernel.program[operands->at(0)].index;
    if (bias != product) return KernelEpilogue{e.epilogue, product, bias, store.access};
  }
  return {};
}

bool matmul_with_epilogue(const CallArgs& args) {
  if (args.epilogue == nullptr || args.op != Op::matmul) return false;
  const auto* const kernel = dynamic_cast<const CudaExecutable*>(args.epilogue->kernel);
  if (kernel == nullptr || !kernel->epilogue()) return false;
  KernelEpilogue found = *kernel->epilogue();
  const KernelLaunch& launch = *args.epilogue->launch;
  const unsigned rank = kernel->rank();
  const TensorView& out = args.outputs[0];
  // A sum has no order that says which is the product.
  if (found.bias && launch.pointers[*found.bias] == out.data) std::swap(found.product, *found.bias);
  if (launch.pointers[found.product] != out.data || !lies_densely(launch, found.product, rank) ||
      !lies_densely(launch, found.result, rank))
    return false;
  if (found.bias && !is_by_column(launch, *found.bias, rank, out.sizes[out.rank - 1])) return false;
  TensorView result = out;
  result.data = launch.pointers[found.result];
  CallArgs together = args;
  together.outputs = {&result, 1};
  args.epilogue->is_done = matmul_with(together, found.epilogue, found.bias ? launch.pointers[*found.bias] : nullptr);
  return args.epilogue->is_done;
}

}  // namespace fermata::gpu
