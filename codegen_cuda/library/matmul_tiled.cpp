// See matmul.h: the kernel of our own. 32 x 32 results by 256 threads, four each; both factors pass through shared
// memory.
#include <fmt/format.h>

#include "codegen_cuda/emit/primitives.h"
#include "codegen_cuda/library/matmul.h"
#include "codegen_cuda/library/matmul_problem.h"
#include "dispatch/kernel_files.h"
#include "ir/ops/products.h"
#include "runtime/call_attributes.h"

namespace fermata::gpu {
namespace {

constexpr int kTile = 32;

/// How factors are read, added up and written.
struct Types {
  std::string sum, product;  // product: wide enough that integers do not overflow
  std::string store;
};
Types types_of(DType out) {
  if (out == DType::f16) return {"f32", "f32", "fm_to_f16"};
  if (out == DType::bf16) return {"f32", "f32", "fm_to_bf16"};
  if (is_floating(out)) return {std::string(name(out)), std::string(name(out)), ""};
  const std::string sum = byte_size(out) == 8 ? "u64" : "u32";
  return {sum, sum, ""};
}

std::string read(DType dtype, const std::string& at) {
  if (dtype == DType::f16) return fmt::format("fm_from_f16(fm_load({}))", at);
  if (dtype == DType::bf16) return fmt::format("fm_from_bf16(fm_load({}))", at);
  return fmt::format("fm_load({})", at);
}

/// The offset of element (k, j) of the right side.
std::string right_offset(CallSource& s, const CallArgs& args, const MatmulProblem& p) {
  if (args.op != Op::matmul_packed)
    return fmt::format("right_batch + k * {} + j * {}", s.number(p.rhs.row_stride), s.number(p.rhs.column_stride));
  const TensorView& packed = args.inputs[1];  // [N/64, K/4, 64, 4], at any strides
  return fmt::format("j / 64 * {} + k / 4 * {} + j % 64 * {} + k % 4 * {}", s.number(packed.strides[0]),
                     s.number(packed.strides[1]), s.number(packed.strides[2]), s.number(packed.strides[3]));
}

MatmulProblem problem_of(const CallArgs& args) {
  if (args.op != Op::matmul_packed) return decode_matmul(args);
  // The left side as one matrix of rows; the right one is read block by block.
  const TensorView& x = args.inputs[0];
  static constexpr std::int64_t kNone[2] = {0, 0};
  const std::int64_t sizes[] = {x.sizes[x.rank - 1], attributes_of<ops::MatmulPacked>(args).columns.value};
  const TensorView inputs[] = {x, {args.inputs[1].data, args.inputs[1].dtype, 2, sizes, kNone}};
  CallArgs whole = args;
  whole.op = Op::matmul_i32, whole.inputs = inputs;
  return decode_matmul(whole);
}

}  // namespace

void matmul_tiled(const CallArgs& args) {
  use_operands(args);
  const MatmulProblem p = problem_of(args);
  const std::int64_t batches = p.batches(), high = (p.m + kTile - 1) / kTile, wide = (p.n + kTile - 1) / kTile;
  if (batches * p.m * p.n == 0) return;
  const Types t = types_of(p.out_dtype);
  CallSource s("matmul");
  s.line("FM_SHARED(shared);");
  s.line(fmt::format("{0}* const left = ({0}*)shared; {0}* const right = left + {1};", t.sum, kTile * (kTile + 1)));
  s.line(fmt::format("const int across = threadIdx.x % {0}, down = threadIdx.x / {0};", kTile));
  s.line(fmt::format("const i64 m = {}, n = {}, depth = {}, high = {}, wide = {}, tiles = {};", s.number(p.m),
                     s.number(p.n), s.number(p.k), s.number(high), s.number(wide), s.number(batches * high * wide)));
  s.line("for (i64 tile = blockIdx.x; tile < tiles; tile += gridDim.x) {");
  s.line(fmt::format("const i64 top = tile / wide % high * {0}, start = tile % wide * {0}, batch = tile / wide / high;",
                     kTile));
  const TensorView left_batches{nullptr, p.lhs.dtype, static_cast<std::uint8_t>(p.batch_sizes.rank()),
                                p.batch_sizes.data(), p.lhs.batch_strides.data()};
  TensorView right_batches = left_batches;
  right_batches.strides = p.rhs.batch_strides.data();
  s.offset("left_batch", "batch", left_batches, 0, left_batches.rank);
  s.offset("right_batch", "batch", right_batches, 0, right_batches.rank);
  s.line(fmt::format("{} sums[4] = {{0, 0, 0, 0}};", t.sum));
  s.line(fmt::format("for (i64 from = 0; from < depth; from += {}) {{", kTile));
  s.line(fmt::format("for (int q = 0; q < {0}; q += 8) {{", kTile));
  s.line("{ const i64 i = top + down + q, k = from + across;");
  s.line(fmt::format("fm_shared_store(left + (down + q) * {} + across, i < m && k < depth ? ({}){} : ({})0); }}",
                     kTile + 1, t.sum,
                     read(p.lhs.dtype, fmt::format("{} + left_batch + i * {} + k * {}",
                                                   s.pointer(memory_type(p.lhs.dtype), p.lhs.data),
                                                   s.number(p.lhs.row_stride), s.number(p.lhs.column_stride))),
                     t.sum));
  s.line("{ const i64 k = from + down + q, j = start + across;");
  s.line(fmt::format(
      "fm_shared_store(right + (down + q) * {} + across, k < depth && j < n ? ({}){} : ({})0); }}", kTile + 1, t.sum,
      read(p.rhs.dtype,
           fmt::format("{} + {}", s.pointer(memory_type(p.rhs.dtype), p.rhs.data), right_offset(s, args, p))),
      t.sum));
  s.line("}");
  s.line("fm_barrier();");
  s.line(fmt::format(
      "for (int k = 0; k < {0} && from + k < depth; ++k) {{ const {1} y = fm_shared_load(right + k * {2} + across);",
      kTile, t.sum, kTile + 1));
  s.line(fmt::format(
      "for (int q = 0; q < 4; ++q) sums[q] = sums[q] + fm_shared_load(left + (down + 8 * q) * {} + k) * y; }}",
      kTile + 1));
  s.line("fm_barrier();");
  s.line("}");
  s.line("for (int q = 0; q < 4; ++q) { const i64 i = top + down + 8 * q, j = start + across;");
  s.line(fmt::format("if (i < m && j < n) fm_store({} + (batch * m + i) * n + j, ({}){}(sums[q])); }}",
                     s.pointer(memory_type(p.out_dtype), p.out), memory_type(p.out_dtype), t.store));
  s.line("}");
  const unsigned bytes = t.sum == "u64" || t.sum == "f64" ? 8 : 4;
  s.launch_blocks(batches * high * wide, 256, 2 * kTile * (kTile + 1) * bytes);
}

double matmul_tiled_cost(const CallArgs& args) {
  const double points = static_cast<double>(args.outputs[0].element_count()),
               depth = static_cast<double>(args.inputs[0].sizes[args.inputs[0].rank - 1]);
  return 5000 + points * depth / 1000;  // about 1e12 multiply-adds a second
}

FERMATA_KERNELS(cuda) {
  const KernelVariant tiled{.name = "tiled",
                            .form = KernelForm::library,
                            .dtypes = kReal,
                            .call = &matmul_tiled,
                            .cost = &matmul_tiled_cost,
                            .by_rows = true};
  KernelVariant bytes = tiled;
  bytes.dtypes = DTypeSet(DType::i8) | DType::u8;
  add_variant(Op::matmul, BackendKey::cuda, tiled);
  add_variant(Op::matmul_i32, BackendKey::cuda, bytes);
  KernelVariant halves = tiled;
  halves.dtypes = DTypeSet(DType::f16) | DType::bf16;
  add_variant(Op::matmul_f32, BackendKey::cuda, halves);
  add_variant(Op::matmul_packed, BackendKey::cuda, bytes);
}

}  // namespace fermata::gpu
