// Drives the inner loops of pointwise ops over operands of any layout, half dtypes included, on several threads.
#include <algorithm>
#include <array>
#include <atomic>

#include "codegen_cpu/eager/drivers.h"
#include "codegen_cpu/eager/loop_nest.h"
#include "codegen_cpu/eager/stream_copy.h"
#include "codegen_cpu/irregular/operand_in_order.h"
#include "runtime/streaming.h"

namespace fermata::eager {
namespace {

/// Op by op a result is read by the very next call, so it has to be this much larger before it is not found in a cache:
/// softmax of 16 MiB takes 5.3 ms with plain stores, 8.6 with streamed ones.
constexpr std::int64_t kReadNext = 4;

/// Nanoseconds per element on one core, roughly: memory traffic plus the primitives of the formula.
double element_cost(Op op, DType compute, std::size_t bytes) {
  static std::array<std::array<std::atomic<float>, kDTypeCount>, kOpCount> costs{};
  auto& cost = costs[static_cast<std::size_t>(op)][static_cast<std::size_t>(compute)];
  float ns = cost.load(std::memory_order_relaxed);
  if (ns == 0) {
    const auto primitives = static_cast<float>(pointwise_formula(op, compute).program.size());
    ns = primitives * 0.003f * static_cast<float>(byte_size(compute));
    cost.store(ns, std::memory_order_relaxed);
  }
  return static_cast<double>(ns) + 0.04 * static_cast<double>(bytes);
}

class PointwiseCall {
 public:
  PointwiseCall(const CallArgs& args, InnerLoop loop, DType compute)
      : loop_(loop),
        compute_(compute),
        out_(args.outputs[0]),
        nest_({out_.sizes, out_.rank}, args.inputs, wanted(args, compute)) {
    narrow_ = compute != out_.dtype && compute_dtype(out_.dtype) == compute && out_.dtype != DType::boolean;
    std::size_t bytes = byte_size(out_.dtype);
    for (const TensorView& in : args.inputs) bytes += byte_size(in.dtype);
    cost_ = element_cost(args.op, compute, bytes);
    streams_ = !narrow_ && nest_.all_in_place() &&
               nest_.elements() * static_cast<std::int64_t>(byte_size(out_.dtype)) >= kReadNext * stream_threshold();
  }

  void run() {
    const bool long_pieces = nest_.all_in_place() && !narrow_ && !streams_;
    nest_.for_each_piece(cost_, long_pieces, [&](std::int64_t begin, std::int64_t count) { run_piece(begin, count); });
  }

 private:
  static std::array<DType, 3> wanted(const CallArgs& args, DType compute) {
    std::array<DType, 3> types{compute, compute, compute};
    if (family(args.op) == Family::ternary) types[0] = DType::boolean;
    return types;
  }

  void run_piece(std::int64_t begin, std::int64_t count) {
    struct {  // not touched unless needed
      std::array<LoopNest::Buffers, LoopNest::kMaxOperands> operands;
      alignas(64) std::array<char, kPiece * 8> result;
    } buffers;
    const void* in[LoopNest::kMaxOperands];
    bool splat[LoopNest::kMaxOperands];
    for (unsigned k = 0; k < nest_.operand_count(); ++k) {
      const LoopNest::Piece piece = nest_.piece(k, begin, count, buffers.operands[k]);
      in[k] = piece.data, splat[k] = piece.splat;
    }
    const auto bytes = static_cast<std::int64_t>(byte_size(out_.dtype));
    char* to = static_cast<char*>(out_.data) + begin * bytes;
    void* result = narrow_ || streams_ ? buffers.result.data() : to;
    loop_(result, in, splat, count);
    if (narrow_)
      loop_tables().cast[static_cast<std::size_t>(compute_)][static_cast<std::size_t>(out_.dtype)](to, result, count);
    if (streams_) stream_copy(to, result, static_cast<std::size_t>(count * bytes));
  }

  InnerLoop loop_;
  DType compute_;
  TensorView out_;
  LoopNest nest_;
  double cost_;
  bool narrow_, streams_;
};

}  // namespace

void run_pointwise(const CallArgs& args) {
  const DType operand = apply_rule(info(args.op).rule, args.inputs.back().dtype)->operand;
  const DType compute = compute_dtype(operand);
  const InnerLoop loop = loop_tables().pointwise[static_cast<std::size_t>(args.op)][static_cast<std::size_t>(compute)];
  if (args.outputs[0].element_count() == 0) return;
  with_operands_in_order(args, [&](const CallArgs& in_order) { PointwiseCall(in_order, loop, compute).run(); });
}

FERMATA_KERNELS(cpu) {
  for (const Family family : {Family::unary, Family::binary, Family::ternary})
    add_eager_kernels(family, &run_pointwise);
}

}  // namespace fermata::eager
