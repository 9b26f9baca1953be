// See matmul_end.h.
#include "codegen_cuda/library/matmul_end.h"

#include <array>
#include <utility>
#include <vector>

#include "codegen_cuda/executable.h"
#include "codegen_cuda/library/matmul_problem.h"
#include "ir/op.h"
#include "runtime/device_run.h"

namespace fermata::gpu {
namespace {

/// Half floats compute in f32, and are rounded after each op.
ValueId widened(ScalarProgram& p, ValueId x, DType dtype) {
  return dtype == DType::f32 ? x : p.add({.prim = Prim::convert, .type = DType::f32, .a = x});
}
ValueId rounded(ScalarProgram& p, ValueId x, DType dtype) {
  return dtype == DType::f32 ? x : p.add({.prim = Prim::convert, .type = dtype, .a = x});
}
ValueId applied(ScalarProgram& p, Op op, const std::vector<ValueId>& operands, DType dtype) {
  std::vector<ValueId> wide;
  for (const ValueId x : operands) wide.push_back(widened(p, x, dtype));
  const Formula& f = pointwise_formula(op, DType::f32);
  return rounded(p, p.inline_program(f.program, wide, f.results)[0], dtype);
}

/// What the library can end with, as a formula of the product and the bias. Sums are of either order, as the program has them.
struct EndProgram {
  MatmulEnd end;
  ScalarProgram program;
  ValueId result;
};

std::vector<EndProgram> make_ends(DType dtype) {
  static constexpr std::array<std::pair<MatmulEnd, std::optional<Op>>, 3> kWithBias{
      {{MatmulEnd::bias, {}}, {MatmulEnd::bias_relu, Op::relu}, {MatmulEnd::bias_gelu, Op::gelu_tanh}}};
  static constexpr std::array<std::pair<MatmulEnd, Op>, 2> kWithout{{{MatmulEnd::relu, Op::relu}, {MatmulEnd::gelu, Op::gelu_tanh}}};
  std::vector<EndProgram> all;
  const auto parameter = [&](EndProgram& e, std::uint16_t k) {
    return e.program.add({.prim = Prim::parameter, .type = dtype, .index = k});
  };
  for (const bool bias_first : {false, true})
    for (const auto& [end, op] : kWithBias) {
      EndProgram& e = all.emplace_back(EndProgram{end, {}, 0});
      const ValueId product = parameter(e, 0), bias = parameter(e, 1);
      e.result = applied(e.program, Op::add, bias_first ? std::vector{bias, product} : std::vector{product, bias}, dtype);
      if (op) e.result = applied(e.program, *op, {e.result}, dtype);
    }
  for (const auto& [end, op] : kWithout) {
    EndProgram& e = all.emplace_back(EndProgram{end, {}, 0});
    e.result = applied(e.program, op, {parameter(e, 0)}, dtype);
  }
  // Between ops values are kept wide, and a store narrows what it is given.
  for (EndProgram& e : all) e.result = rounded(e.program, widened(e.program, e.result, dtype), dtype);
  return all;
}

const std::vector<EndProgram>& ends(DType dtype) {
  static const std::vector<EndProgram> f32 = make_ends(DType::f32), f16 = make_ends(DType::f16), bf16 = make_ends(DType::bf16);
  return dtype == DType::f32 ? f32 : dtype == DType::f16 ? f16 : bf16;
}

/// Whether a value of a kernel is what an end computes; finds which accesses stand for its parameters. Operands
/// precede their uses and equal instructions are shared, so one pass over the end settles every pair.
class Comparison {
 public:
  Comparison(const ScalarProgram& kernel, const EndProgram& end) : kernel_(kernel), end_(end) {}

  bool matches(ValueId result) {
    std::vector<std::pair<ValueId, ValueId>> open{{result, end_.result}};
    std::vector<ValueId> settled(end_.program.size(), kNoValue);
    while (!open.empty()) {
      const auto [k, e] = open.back();
      open.pop_back();
      if (settled[e] == k) continue;
      if (settled[e] != kNoValue) return false;
      settled[e] = k;
      const Instr &given = kernel_[k], &wanted = end_.program[e];
      if (wanted.prim == Prim::parameter) {
        if (given.prim != Prim::input || given.type != wanted.type) return false;
        accesses[wanted.index] = given.index;
        continue;
      }
      if (given.prim != wanted.prim || given.type != wanted.type || given.index != wanted.index || given.bits != wanted.bits) return false;
      const std::array operands{std::pair{given.a, wanted.a}, std::pair{given.b, wanted.b}, std::pair{given.c, wanted.c}};
      for (const auto& [x, y] : operands) {
        if ((x == kNoValue) != (y == kNoValue)) return false;
        if (x != kNoValue) open.emplace_back(x, y);
      }
    }
    return true;
  }

  std::array<std::optional<std::uint16_t>, 2> accesses;

 private:
  const ScalarProgram& kernel_;
  const EndProgram& end_;
};

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

std::optional<KernelEnd> end_of(const Kernel& kernel) {
  if (kernel.reduced != 0 || kernel.stores.size() != 1 || !kernel.scalars.empty()) return {};
  const Store& store = kernel.stores[0];
  const DType dtype = kernel.accesses[store.access].dtype;
  if (dtype != DType::f32 && dtype != DType::f16 && dtype != DType::bf16) return {};
  for (const EndProgram& e : ends(dtype)) {
    Comparison c(kernel.program, e);
    if (!c.matches(store.value) || !c.accesses[0] || c.accesses[0] == c.accesses[1]) continue;
    return KernelEnd{e.end, *c.accesses[0], c.accesses[1], store.access};
  }
  return {};
}

bool matmul_with_following(const CallArgs& args) {
  FollowingKernel* const next = following_kernel;
  const auto* const kernel = next == nullptr ? nullptr : dynamic_cast<const CudaExecutable*>(&next->executable);
  if (kernel == nullptr || !kernel->end() || args.op != Op::matmul) return false;
  KernelEnd end = *kernel->end();
  const KernelLaunch& launch = next->launch;
  const unsigned rank = kernel->rank();
  const TensorView& out = args.outputs[0];
  // A sum has no order that says which is the product.
  if (end.bias && launch.pointers[*end.bias] == out.data) std::swap(end.product, *end.bias);
  if (launch.pointers[end.product] != out.data || !lies_densely(launch, end.product, rank) || !lies_densely(launch, end.result, rank)) return false;
  if (end.bias && !is_by_column(launch, *end.bias, rank, out.sizes[out.rank - 1])) return false;
  TensorView result = out;
  result.data = launch.pointers[end.result];
  CallArgs together = args;
  together.outputs = {&result, 1};
  next->done = matmul_with_end(together, end.end, end.bias ? launch.pointers[*end.bias] : nullptr);
  return next->done;
}

}  // namespace fermata::gpu
